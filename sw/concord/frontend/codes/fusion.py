"""Operators of the QDQ form in the place of which ONNX Runtime has an integer kernel, and the codes that it reads.

Without its optimisations ONNX Runtime computes an operator in binary32 between DequantizeLinear and QuantizeLinear, as
ONNX defines it. With them it fuses the three where codes have 8 bits and all of them one type. On x86 it makes codes of
int8 uint8 first, 128 more, where one QuantizeLinear and one reader stand at the ends of a tensor; a tensor that is read
twice, or that is an output, stays int8, and an operator between both types is not fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.frontend.codes.uses import Uses
from concord.frontend.context import OnnxNode

#: Operators for which there are such kernels, and of which the place of a rounding is another one with them.
FUSED = ("Add", "Mul", "AveragePool", "GlobalAveragePool", "Softmax")
#: What makes codes of int8 codes of uint8.
SHIFT = 128


@dataclass(frozen=True)
class Kernel:
    """An integer kernel.

    Parameters
    ----------
    shifts : tuple of int
        What is added to the codes of each operand, and last to those of the result, before the kernel reads them and
        until it has made them.
    """

    shifts: tuple[int, ...]


class Fusion:
    """Choice of a kernel for each operator.

    Parameters
    ----------
    nodes : sequence of OnnxNode
        Of the model, without constants.
    uses : Uses
        Readers of its tensors.
    constants : mapping of str to array
        Its constants.
    types : mapping of str to str
        Types of those of its inputs that are integers.
    optimised : bool
        Whether operators are fused, as ONNX Runtime does it; else they are computed as ``onnx.reference`` does it.
    """

    def __init__(
        self,
        nodes: Sequence[OnnxNode],
        uses: Uses,
        constants: Mapping[str, NDArray[Any]],
        types: Mapping[str, str],
        optimised: bool,
    ):
        self._uses, self._constants, self._types, self.optimised = uses, constants, types, optimised
        self._makers = {name: node for node in nodes for name in node.outputs}

    def order(self, node: OnnxNode, last: bool) -> str:
        """Order in which a mean is added up, of :class:`concord.integer.operations.CodeMean`.

        Parameters
        ----------
        node : OnnxNode
            AveragePool, GlobalAveragePool or ReduceMean.
        last : bool
            Whether elements of a mean lie side by side, without padding.
        """
        if self.kernel(node) is not None:
            return ""
        if not last:
            return "one by one"
        if not self.optimised:
            return "pairs"
        return {"GlobalAveragePool": "four lanes", "ReduceMean": "two packets"}.get(node.op, "one by one")

    def kernel(self, node: OnnxNode) -> Kernel | None:
        """The kernel of an operator; ``None`` if it is computed in binary32."""
        result = node.outputs[0]
        if self._makers.get(result) is not node:  # an operator on codes, which is a kernel itself
            return Kernel((0,) * (len(node.inputs) + 1))
        quantiser = self._quantiser(result)
        if not self.optimised or node.op not in FUSED or quantiser is None:
            return None
        codes = [*map(self._codes, node.inputs), quantiser.outputs[0]]
        kinds = [self._type(name) for name in codes]
        if {kind for kind, _ in kinds} not in ({"uint8"}, {"int8"}):
            return None
        return Kernel(tuple(shift for _, shift in kinds))

    def _codes(self, name: str) -> str:
        """The codes that DequantizeLinear makes a tensor of; empty if something else makes it."""
        maker = self._makers.get(name)
        return maker.input(0) if maker is not None and maker.op == "DequantizeLinear" else ""

    def _quantiser(self, name: str) -> OnnxNode | None:
        """The QuantizeLinear that alone reads a tensor, be it after a limit that its codes have anyway."""
        readers = self._uses.readers(name)
        if self._uses.is_output(name) or len(readers) != 1:
            return None
        (reader,) = readers
        if reader.op not in ("Relu", "Clip"):
            return reader if reader.op == "QuantizeLinear" else None
        quantiser = self._quantiser(reader.outputs[0])
        return quantiser if quantiser is not None and self._limits_nothing(reader, quantiser) else None

    def _limits_nothing(self, limit: OnnxNode, quantiser: OnnxNode) -> bool:
        """True if all codes stand for numbers within the ends of a Relu or a Clip."""
        zero, scale = self._zero_point(quantiser), self._constants.get(quantiser.input(1))
        if zero is None or zero.size != 1 or zero.dtype.kind not in "iu" or scale is None or scale.size != 1:
            return False
        ends = np.iinfo(zero.dtype)
        least, most = ((end - int(zero.item())) * float(scale.item()) for end in (ends.min, ends.max))
        low, high = (0.0, np.inf) if limit.op == "Relu" else (self._end(limit, 1, "min"), self._end(limit, 2, "max"))
        return low <= least and most <= high

    def _end(self, limit: OnnxNode, place: int, name: str) -> float:
        """An end of a Clip, infinite if there is none; one that is computed limits something."""
        far = -np.inf if name == "min" else np.inf
        if not limit.input(place):
            return float(limit.attrs.get(name, far))
        value = self._constants.get(limit.input(place))
        return -far if value is None else float(value.reshape(-1)[0])

    def _type(self, codes: str) -> tuple[str, int]:
        """The type of codes as a kernel reads them, empty if it is not known, and what is added to them."""
        if codes in self._constants:
            return self._constants[codes].dtype.name, 0
        maker = self._makers.get(codes)
        if maker is not None and maker.op == "Clip":  # codes of fewer bits, which stay those of int8
            return self._type(maker.input(0))[0], 0
        if maker is None or maker.op != "QuantizeLinear":
            return "" if maker is not None else self._types.get(codes, ""), 0
        zero = self._zero_point(maker)
        kind = "" if zero is None else zero.dtype.name
        read = [self._uses.numbers_read(node.outputs[0]) for node in self._uses.like(maker)]
        once = None not in read and sum(filter(None, read)) == 1
        return ("uint8", SHIFT) if kind == "int8" and once else (kind, 0)

    def _zero_point(self, quantiser: OnnxNode) -> NDArray[Any] | None:
        """The zero point of a QuantizeLinear; ``None`` if it is computed."""
        name = quantiser.input(2)
        return self._constants.get(name) if name else np.zeros((), np.uint8)
