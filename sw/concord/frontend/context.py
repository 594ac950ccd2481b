"""State of the importer while it walks through a model, with the functions that handlers of operators build with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from concord.frontend.errors import Refusal
from concord.frontend.limits import LARGEST_TENSOR
from concord.golden.codes import Codes
from concord.graph.ir import Graph, Node, Shape
from concord.graph.ops import operator_of
from concord.utils.arrays import Array, FloatArray

#: Advice where integers are computed with.
_PAIRS = "put DequantizeLinear in front of it, and QuantizeLinear behind it, in front of the next DequantizeLinear"

_PRODUCTS = "let MatMulInteger, ConvInteger or DequantizeLinear read them"


class OnnxNode:
    """A node of the file: its operator, name, inputs, outputs and attributes as Python values.

    Members
    -------
    kernel : str
        Operator of TensorFlow Lite for which the node stands, whose kernel computes it; empty for a node of ONNX.
    options
        Of that operator.
    """

    kernel: str = ""
    options: Any = None

    def __init__(self, proto: Any):
        from onnx import helper

        self.proto = proto
        self.op = str(proto.op_type)
        self.standard = proto.domain in ("", "ai.onnx")
        self.label = self.op if self.standard else f"{proto.domain}.{self.op}"
        self.outputs = list(proto.output)
        self.inputs = list(proto.input)
        self.name = str(proto.name) or next((name for name in self.outputs if name), self.op)
        values = {item.name: helper.get_attribute_value(item) for item in proto.attribute}
        self.attrs = {name: _text(value) for name, value in values.items()}

    def input(self, index: int) -> str:
        """Name of an input; empty if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


def unused_name(stem: str, taken: Collection[str]) -> str:
    """The stem, with a number after it if it is taken."""
    names = (stem if k == 0 else f"{stem}.{k}" for k in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_text(item) for item in value] if isinstance(value, list) else value


class NodeReader:
    """Names and constants of a model that is read, and operands of its nodes that are numbers.

    Members
    -------
    opset : int
        Version of the standard operators.
    constants : dict of arrays
        By name.
    taken : set of str
        Names that are in use.
    """

    opset: int
    constants: dict[str, Array]
    taken: set[str]

    def unique(self, stem: str) -> str:
        """A name that is not in use; in use from now on."""
        name = unused_name(stem, self.taken)
        self.taken.add(name)
        return name

    @abstractmethod
    def constant(self, name: str, what: str) -> Array:
        """A constant; ``Refusal`` if it is none."""

    def finite_numbers(self, name: str, what: str, lowest: bool = False) -> FloatArray:
        """A constant operand as finite doubles; with ``lowest`` -infinity is the least number of float32."""
        constant = self.constant(name, what)
        if np.iscomplexobj(constant):
            raise Refusal(f"{what} '{name}' must be real, not {constant.dtype}")
        with np.errstate(invalid="ignore"):
            values = constant.astype(np.float64)
        if lowest:
            values = np.where(values == -np.inf, float(np.finfo(np.float32).min), values)
        if not np.isfinite(values).all():
            raise Refusal(f"{what} '{name}' must be finite, it has NaN or infinities")
        return values

    def integers(self, node: OnnxNode, index: int, attribute: str) -> list[int] | None:
        """Numbers that are an attribute in older opsets and an input in newer ones; ``None`` if left out."""
        if attribute in node.attrs:
            value = node.attrs[attribute]
        elif node.input(index):
            value = self.constant(node.input(index), attribute)
        else:
            return None
        return [int(number) for number in np.asarray(value).reshape(-1)]

    def axes(self, axes: Iterable[int], rank: int) -> tuple[int, ...]:
        """Axes, counted from the begin."""
        axes = list(axes)
        if any(not -rank <= axis < rank for axis in axes):
            raise Refusal(f"axes must be inside a tensor of {rank} axes, not {axes}")
        return tuple(axis % rank for axis in axes)


@dataclass
class Context(NodeReader):
    """The graph under construction.

    Parameters
    ----------
    graph : Graph
        As far as it is.
    opset : int
        Version of the standard operators.
    taken : set of str
        Names that are in use in the file or in the graph.
    used : set of str
        Tensors of the file that something reads.
    constants : dict
        Constant tensors of the file, as they are there.
    codes : dict
        Outputs of QuantizeLinear: the tensor behind, and how its codes are made.
    dynamic : dict
        Outputs of DynamicQuantizeLinear, scale and zero point among them: the tensor behind.
    decoded : dict
        Constants that DequantizeLinear made, and how.
    refused : set of str
        Constants that are a reason by themselves.
    batchnorm : bool
        Whether BatchNormalization stays a node, to be trained.
    volumes : bool
        Whether windows over three spatial axes stay a node, to be trained.
    names : set of str
        Names of nodes that are in the graph.
    stay : frozenset of str
        Names of every FakeQuantize that stays.
    sequences : dict
        Sequences of the file: names of their tensors.
    truths : set of str
        Tensors of the file that are truth values: 0 or 1 in the graph.
    empty : set of str
        Optionals of the file without an element.
    element_types : dict
        Types of those tensors of the graph that are no floats, such as ``"int64"``.
    texts : dict
        Tensors of the file that are texts: those whose places the tensor of the graph has.
    whole : set of str
        Tensors of whole numbers that are for the host, as ``Graph.whole``.
    """

    graph: Graph
    opset: int
    taken: set[str]
    used: set[str]
    constants: dict[str, Array] = field(default_factory=dict)
    codes: dict[str, tuple[str, Codes]] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    decoded: dict[str, Codes] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    batchnorm: bool = False
    volumes: bool = False
    names: set[str] = field(default_factory=set)
    stay: frozenset[str] = frozenset()
    sequences: dict[str, list[str]] = field(default_factory=dict)
    truths: set[str] = field(default_factory=set)
    empty: set[str] = field(default_factory=set)
    element_types: dict[str, str] = field(default_factory=dict)
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    def new_constant(self, node: OnnxNode, value: Array | np.generic) -> str:
        """The name of a new constant, which a node needs."""
        name = self.unique(f"{node.name}/constant")
        self.constants[name] = np.asarray(value)
        return name

    def new_node(
        self, node: OnnxNode, op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any
    ) -> OnnxNode:
        """A node as in a file, which another one stands for."""
        from onnx import helper

        return OnnxNode(helper.make_node(op, inputs, outputs, self.unique(f"{node.name}/{op}"), **attrs))

    def emit(self, node: OnnxNode, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """Append a node with one output, and return that."""
        return self.emit_all(node, op, inputs, 1, **attrs)[0]

    def joined(self, node: OnnxNode, parts: Sequence[str], axis: int) -> str:
        """Tensors one after the other along an axis; a single one as it is."""
        return parts[0] if len(parts) == 1 else self.emit(node, "Concat", parts, axis=axis)

    def emit_all(self, node: OnnxNode, op: str, inputs: Sequence[str], count: int, **attrs: Any) -> list[str]:
        """Append a node with some outputs, and return them."""
        name = self.unique(node.name) if node.name in self.names else node.name
        outputs = [self.unique(f"{node.name}/{op}") for _ in range(count)]
        if op == "FakeQuantize" and name in self.stay:
            attrs["stays"] = True
        made = Node(op, name, tuple(inputs), tuple(outputs), attrs)
        try:
            shapes = operator_of(made).shape(made, [self.graph.shapes[name] if name else None for name in inputs])
        except ValueError as error:
            raise Refusal(str(error)) from error
        if (largest := max(map(prod, shapes))) > LARGEST_TENSOR:
            raise Refusal(f"result must have at most {LARGEST_TENSOR} elements, not {largest}", "make it smaller")
        self.names.add(name)
        self.graph.nodes.append(made)
        self.graph.shapes.update(zip(outputs, shapes, strict=True))
        return outputs

    def tensor(self, name: str) -> str:
        """The tensor of the graph behind a name in the file."""
        if name in self.codes:
            raise Refusal("reads the integers of QuantizeLinear", _PAIRS)
        if name in self.dynamic:
            raise Refusal("reads the integers of DynamicQuantizeLinear", _PRODUCTS)
        if name not in self.graph.shapes:
            raise Refusal(f"operand '{name}' must be computed by the model, not constant", "make it an input")
        return name

    def shape(self, name: str) -> Shape:
        """Shape of a tensor."""
        return self.graph.shapes[self.tensor(name)]

    def operand_shape(self, name: str) -> Shape:
        """Shape of an operand, a tensor or a constant."""
        return self.constants[name].shape if self.is_constant(name) else self.shape(name)

    def is_constant(self, name: str) -> bool:
        """True if an operand is known."""
        return name in self.constants

    def constant(self, name: str, what: str) -> Array:
        """A constant operand, as it is in the file."""
        if name not in self.constants:
            raise Refusal(f"{what} must be constant, not computed ('{name}')", "export with constants folded")
        return self.constants[name]

    def floats(self, name: str, what: str, lowest: bool = False) -> FloatArray:
        """Numbers of :meth:`finite_numbers`, but for a constant that is a reason already."""
        if name not in self.refused:
            return self.finite_numbers(name, what, lowest)
        with np.errstate(invalid="ignore"):
            values = self.constant(name, what).astype(np.float64)
        return np.where(np.isfinite(values), values, 0.0)  # only to find every other reason

    def bind(self, start: int, results: Sequence[str], outputs: Sequence[str]) -> None:
        """Give the results of the nodes from ``start`` on the names they have in the file.

        A result that was there before gets a Reshape that changes nothing; a pass removes it.
        """
        new = {name for node in self.graph.nodes[start:] for name in node.outputs}
        names: dict[str, str] = {}
        for result, output in zip(results, outputs, strict=False):
            if output and (result not in new or result in names):
                shape = self.graph.shapes[result]
                self.graph.nodes.append(Node("Reshape", self.unique(output), (result,), (output,), {"shape": shape}))
                self.graph.shapes[output] = shape
            elif result in new:
                names[result] = output
        self._rename(start, names)

    def _rename(self, start: int, names: dict[str, str]) -> None:
        def new(group: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names.get(name, name) for name in group)

        nodes = self.graph.nodes
        nodes[start:] = [node.replace(inputs=new(node.inputs), outputs=new(node.outputs)) for node in nodes[start:]]
        for old, name in names.items():
            shape = self.graph.shapes.pop(old)
            if name:
                self.graph.shapes[name] = shape

    def remember_weight(self, constant: str, axis: int | None, factor: float = 1.0, repeats: int = 1) -> None:
        """Keep how the weight of the last node was quantised.

        ``axis`` is that of its outputs in the constant, which is there ``repeats`` times.
        """
        quantization = self.decoded.get(constant)
        if quantization is not None and quantization.axis in (None, axis):
            weight = self.graph.nodes[-1].name
            along, times = (None, 1) if quantization.axis is None else (0, repeats)
            scales = np.ravel(quantization.steps * factor).tolist() * times
            self.graph.weight_quantization[weight] = replace(
                quantization, axis=along, scales=tuple(map(Fraction, scales)), zeros=quantization.zeros * times
            )


#: Appends nodes for one of the file, and returns the tensors that are its outputs (or the only one).
Handler = Callable[[Context, OnnxNode], str | list[str]]
