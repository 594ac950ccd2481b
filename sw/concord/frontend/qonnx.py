"""Operators of QONNX in the standard form: QuantizeLinear, Clip, DequantizeLinear [qonnx].

QONNX keeps quantised tensors as floats: ``Quant`` divides by a scale, adds a zero point, limits, rounds, and goes back.
Constants become integers after which there is DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.frontend.context import OnnxNode, unused_name
from concord.frontend.errors import Refusal, UnsupportedModel
from concord.utils.arrays import FloatArray

#: Domains in which the operators have been.
DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
#: Most bits of codes that are computed; constants may have 32.
_MOST_BITS, _CONSTANT_BITS = 16, 32
_ROUNDINGS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}


class _Unknown(Refusal):
    """Reason for which a node has no standard form."""

    def __init__(self, reason: str):
        super().__init__(reason, "export it in the QDQ form")


@dataclass(frozen=True)
class _Codes:
    """Codes that a node makes: ``scale * (clamp(round(x / scale + zero), low, high) - zero)``."""

    scale: NDArray[np.float32]
    zero: int
    low: int
    high: int
    rounding: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The narrowest type that has the codes."""
        names = ("uint8", "int8", "uint16", "int16", "int32")
        kinds = (np.iinfo(name) for name in names)
        return np.dtype(next(kind.dtype for kind in kinds if kind.min <= self.low and self.high <= kind.max))

    def of(self, x: NDArray[Any]) -> NDArray[Any]:
        """Codes of constants; the quotient is one of binary32, as elsewhere."""
        quotients = np.asarray(x, np.float32) / self.scale + np.float32(self.zero)
        limited = np.clip(quotients.astype(np.float64), self.low, self.high)
        return _ROUNDINGS[self.rounding](limited).astype(self.dtype)


def import_domains(proto: Any) -> None:
    """Add the versions of the domains of QONNX that a model uses and does not name, which no standard asks of it."""
    from onnx import helper

    known = {item.domain for item in proto.opset_import}
    used = {node.domain for node in proto.graph.node if node.domain in DOMAINS}
    proto.opset_import.extend(helper.make_opsetid(domain, 1) for domain in sorted(used - known))


def in_standard_form(proto: Any) -> None:
    """Put standard operators in the place of Quant, IntQuant and BipolarQuant of a model.

    Raises
    ------
    UnsupportedModel
        If one has no standard form: each with what is in the way.
    """
    from onnx import numpy_helper

    if not any(node.domain in DOMAINS for node in proto.graph.node):
        return
    constants = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    taken = {*constants, *(value.name for value in proto.graph.input)}
    taken.update(name for node in proto.graph.node for name in node.output)
    nodes, reasons = [], []
    for node in proto.graph.node:
        known = OnnxNode(node)
        if node.domain not in DOMAINS or known.op not in _FORMS:
            nodes.append(node)
            continue
        try:
            nodes += _Rewriter(proto.graph, constants, taken).nodes(known)
        except _Unknown as reason:
            reasons.append(f"{known.op} {known.name!r}: {reason}")
    if reasons:
        raise UnsupportedModel(proto.graph.name or "model", reasons)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


class _Rewriter:
    """Makes the nodes of one operator, and adds their constants to a graph."""

    def __init__(self, graph: Any, constants: Mapping[str, NDArray[Any]], taken: set[str]):
        self.graph, self.constants, self.taken = graph, constants, taken

    def nodes(self, node: OnnxNode) -> list[Any]:
        from onnx import helper

        x, output = node.input(0), node.outputs[0]
        codes = _FORMS[node.op](self, node)
        if x in self.constants and not _broadcasts(codes.scale, self.constants[x]):
            shapes = f"{list(codes.scale.shape)} and {list(self.constants[x].shape)}"
            raise _Unknown(f"scale must go with what it divides, not be of shape {shapes}")
        attrs = self._axis(codes.scale, self.constants[x].ndim if x in self.constants else 0)
        scale = codes.scale.reshape(-1) if codes.scale.size > 1 else codes.scale.reshape(())
        zero = np.full(scale.shape, codes.zero, codes.dtype)
        operands = [self._constant(f"{output}/scale", scale), self._constant(f"{output}/zero point", zero)]
        if x in self.constants:
            made = self._constant(f"{output}/codes", codes.of(self._of(node, 0, "first operand")))
            return [helper.make_node("DequantizeLinear", [made, *operands], [output], node.name, **attrs)]
        if codes.rounding not in ("ROUND", "HALF_EVEN"):
            raise _Unknown(f"rounding_mode must be ROUND, not {codes.rounding}, of what is computed")
        if codes.zero % 2:
            raise _Unknown(f"zero point must be even, not {codes.zero}: halves are rounded to even codes behind it")
        made, limits = self._name(f"{output}/codes"), np.iinfo(codes.dtype)
        nodes = [helper.make_node("QuantizeLinear", [x, *operands], [made], f"{node.name}/codes", **attrs)]
        if (codes.low, codes.high) != (limits.min, limits.max):
            ends = [self._constant(f"{output}/{end}", np.array(end, codes.dtype)) for end in (codes.low, codes.high)]
            limited = self._name(f"{output}/limited")
            nodes.append(helper.make_node("Clip", [made, *ends], [limited], f"{node.name}/limited"))
            made = limited
        return [*nodes, helper.make_node("DequantizeLinear", [made, *operands], [output], node.name, **attrs)]

    def _name(self, stem: str) -> str:
        name = unused_name(stem, self.taken)
        self.taken.add(name)
        return name

    def _constant(self, stem: str, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = self._name(stem)
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    @staticmethod
    def _axis(scale: NDArray[Any], rank: int) -> dict[str, Any]:
        """The axis along which there are several scales, from the end if the rank is not known."""
        several = [k - scale.ndim for k, size in enumerate(scale.shape) if size > 1]
        if len(several) > 1:
            raise _Unknown(f"scale must vary along one axis at most, not of shape {list(scale.shape)}")
        return {"axis": several[0] + rank if rank else several[0]} if several else {}

    def _of(self, node: OnnxNode, place: int, what: str) -> NDArray[Any]:
        if node.input(place) not in self.constants:
            raise _Unknown(f"{what} must be a constant, not {node.input(place)!r}")
        numbers = self.constants[node.input(place)]
        if numbers.dtype.kind not in "fiu":
            raise _Unknown(f"{what} must be of numbers, not of {numbers.dtype}")
        return numbers

    def _whole(self, node: OnnxNode, place: int, what: str) -> int:
        """An operand that is one whole number."""
        numbers = np.unique(self._of(node, place, what))
        if numbers.size != 1 or not float(numbers[0]).is_integer():
            raise _Unknown(f"{what} must be one whole number, not {numbers.tolist()}")
        return int(numbers[0])

    def _scale(self, node: OnnxNode) -> NDArray[np.float32]:
        scale = self._of(node, 1, "scale").astype(np.float32)
        if not (scale.size and np.isfinite(scale).all() and (scale > 0).all()):
            raise _Unknown("scale must be positive and finite")
        return scale

    def quant(self, node: OnnxNode) -> _Codes:
        """Quant and IntQuant."""
        bits, zero = self._whole(node, 3, "bitwidth"), self._whole(node, 2, "zero point")
        signed, narrow = bool(node.attrs.get("signed", 1)), bool(node.attrs.get("narrow", 0))
        most = _CONSTANT_BITS - (not signed) if node.input(0) in self.constants else _MOST_BITS
        if not 1 <= bits <= most:
            raise _Unknown(f"bitwidth must be in 1..{most}, not {bits}")
        if bits == 1 and signed:
            return self.bipolar(node)
        low = (narrow - (1 << (bits - 1))) if signed else 0
        high = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1 - narrow
        if not low <= zero <= high:
            raise _Unknown(f"zero point must be one of the codes {low} to {high}, not {zero}")
        rounding = str(node.attrs.get("rounding_mode", "ROUND")).upper()
        if rounding not in _ROUNDINGS:
            raise _Unknown(f"rounding_mode must be one of {', '.join(_ROUNDINGS)}, not {rounding}")
        return _Codes(self._scale(node), zero, low, high, rounding)

    def bipolar(self, node: OnnxNode) -> _Codes:
        """Codes -1 and 1: BipolarQuant of constants, and Quant of one bit with a sign."""
        if node.input(0) not in self.constants:
            raise _Unknown("codes -1 and 1 must be of constants, as no code stands for 0; take 2 bits, narrow")
        return _Signs(self._scale(node), 0, -1, 1, "ROUND")


def _broadcasts(scale: NDArray[Any], x: NDArray[Any]) -> bool:
    """True if the quotient of an array by a scale has the shape of the array."""
    try:
        return np.broadcast_shapes(scale.shape, x.shape) == x.shape
    except ValueError:
        return False


class _Signs(_Codes):
    """-1 below zero, 1 from there on."""

    def of(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.where(np.asarray(x) >= 0, 1, -1).astype(self.dtype)


_FORMS: dict[str, Callable[[_Rewriter, OnnxNode], _Codes]] = {
    "Quant": _Rewriter.quant,
    "IntQuant": _Rewriter.quant,
    "BipolarQuant": _Rewriter.bipolar,
}
