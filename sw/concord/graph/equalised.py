"""Equalisation of channels: powers of two that products and inputs take over from each other, results unchanged.

Elements of a block share an exponent, so a channel of small numbers beside one of large numbers loses its bits. The
product that computes a channel divides it by a power of two, and those that read it multiply it back: Nagel et al.,
"Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, restricted to powers of two. What
the host does to an input before it is rounded is the same, and may take a number off every element, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from concord.graph.channels import ZERO, Channels, channels
from concord.graph.ir import Graph, Node, Shape, fresh
from concord.graph.ops import OperatorWeights, operator_of
from concord.graph.ops.attributes import NoAttributes
from concord.graph.ops.elementwise import BinaryAttributes, ClipAttributes, constant_of
from concord.graph.ops.linear import AffineAttributes, ConvAttributes, is_fixed
from concord.graph.ops.windows import WindowAttributes
from concord.graph.passes import scales as scales_pass
from concord.utils.arrays import FloatArray, Ids


@dataclass(frozen=True)
class ChannelScale:
    """Powers of two that divide the elements of a tensor, and numbers that are taken off an input before.

    Parameters
    ----------
    shape : tuple of int
        Of both arrays, which are broadcast to the tensor.
    exponents : tuple of int
        Elements are divided by two to the power of these.
    offsets : tuple of float
        Numbers that the host subtracts from an input before that. The first products make up for them, and take over
        what the network itself adds and multiplies in front of them. Empty if nothing is subtracted.
    """

    shape: Shape
    exponents: tuple[int, ...]
    offsets: tuple[float, ...] = ()

    @classmethod
    def of(cls, exponents: Ids, offsets: FloatArray | None = None) -> ChannelScale:
        """Scales from arrays in the shape of the tensor; axes along which nothing changes get the length 1."""
        both = [np.asarray(exponents)] + ([] if offsets is None else [np.asarray(offsets, dtype=np.float64)])
        for axis in range(both[0].ndim):
            firsts = [array.take([0], axis=axis) for array in both]
            if all((array == first).all() for array, first in zip(both, firsts, strict=True)):
                both = firsts
        numbers = () if offsets is None else tuple(both[1].reshape(-1).tolist())
        return cls(both[0].shape, tuple(both[0].reshape(-1).tolist()), numbers)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ChannelScale:
        """Scales from the values of :func:`dataclasses.asdict` as JSON has them."""
        return cls(tuple(values["shape"]), tuple(values["exponents"]), tuple(values["offsets"]))

    def powers(self) -> Ids:
        """The exponents as an array."""
        return np.array(self.exponents, dtype=np.int64).reshape(self.shape)

    def prepare(self, values: FloatArray) -> FloatArray:
        """Shift and scale an input ``[samples, ...]``, as the host does."""
        if self.offsets:
            values = values - np.array(self.offsets).reshape(self.shape)
        return np.asarray(np.ldexp(values, -self.powers()))

    def restore(self, values: FloatArray) -> FloatArray:
        """Inverse of :meth:`prepare`, but for rounding."""
        values = np.asarray(np.ldexp(values, self.powers()))
        return values + np.array(self.offsets).reshape(self.shape) if self.offsets else values

    @property
    def text(self) -> str:
        """Offsets and powers of two in words, for a message."""
        low, high = min(self.exponents), max(self.exponents)
        spread = f"2**{low}" if low == high else f"2**{low} to 2**{high}"
        scaled = f"divided by {spread}" if (low, high) != (0, 0) else ""
        if not any(self.offsets):
            return scaled or "taken as they are"
        off = f"less {min(self.offsets):g} to {max(self.offsets):g}"
        return f"{off}, {scaled}" if scaled else off


Scales = Mapping[str, ChannelScale]
Number = TypeVar("Number", np.int64, np.float64)


def equalised(graph: Graph, scales: Scales) -> Graph:
    """A network whose channels are divided by powers of two, for inputs that are prepared.

    Parameters
    ----------
    graph : Graph
        The network.
    scales : mapping of str to ChannelScale
        By input or tensor that a product computes.

    Raises
    ------
    ValueError
        If a scale is of another tensor, or does not fit those around it.
    """
    if not scales:
        return graph
    made = _without_fronts(graph, scales)
    channel_map = channels(made)
    powers = _powers(channel_map, scales)
    nodes: list[Node] = []
    for node in made.nodes:
        nodes += _scaled(made, channel_map, powers, node)
    made.nodes = nodes
    scales_pass.run(made)
    return made


def with_preparation(graph: Graph, scales: Scales) -> Graph:
    """A network for prepared inputs with nodes in front that prepare them."""
    made = graph.copy()
    front: list[Node] = []
    for name in graph.inputs:
        if name not in scales:
            continue
        scale, current = scales[name], name
        constants = {"Sub": scale.offsets if any(scale.offsets) else (), "Mul": np.ldexp(1.0, -scale.powers())}
        for op, constant in constants.items():
            array = np.asarray(constant, dtype=np.float64)
            if array.size and not (op == "Mul" and (array == 1).all()):
                tensor = fresh(made, f"{name}/prepared")
                front.append(Node(op, tensor, (current,), (tensor,), {"constant": array.reshape(scale.shape)}))
                made.shapes[tensor] = graph.shapes[name]
                current = tensor
        made.nodes = [n.replace(inputs=tuple(current if x == name else x for x in n.inputs)) for n in made.nodes]
    made.nodes = front + made.nodes
    return made


# Constants in front of the first products --------------------------------------------------------


@dataclass(frozen=True)
class Front:
    """First product that reads an input: ``factor * (x - middle)``.

    Parameters
    ----------
    reader : Node
        A convolution or product.
    between : tuple of str
        Nodes that add and multiply.
    middle, factor : array
        For every index of the axis that the reader sums up along.
    elements : array of int
        In the shape of what the reader reads, the element of the input.
    """

    reader: Node
    between: tuple[str, ...]
    middle: FloatArray
    factor: FloatArray
    elements: Ids

    @property
    def weights(self) -> OperatorWeights:
        """Attributes of the reader that are its weights, and the axes along which they count."""
        weights = operator_of(self.reader).affine
        assert weights is not None
        return weights

    def spread(self, values: FloatArray) -> FloatArray:
        """Numbers by index of the axis that the reader sums up along, by element of what it reads."""
        axis, rank = self.weights.inputs % self.elements.ndim, self.elements.ndim
        return np.broadcast_to(values.reshape([-1 if k == axis else 1 for k in range(rank)]), self.elements.shape)

    @property
    def padded(self) -> bool:
        """True if the reader adds elements that are zero after the constants."""
        attributes = self.reader.attributes(NoAttributes)
        return isinstance(attributes, WindowAttributes) and any(attributes.pads)


def fronts(graph: Graph, name: str) -> list[Front] | None:
    """First products of an input; ``None`` if another operator reads it, or one whose constants cannot change."""
    shape = graph.shapes[name]
    if name in graph.quantization:
        return None
    elements = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    return _readers(graph, name, elements, np.zeros(shape), np.ones(shape), ())


def _readers(
    graph: Graph, name: str, elements: Ids, middle: FloatArray, factor: FloatArray, between: tuple[str, ...]
) -> list[Front] | None:
    readers = graph.consumers(name)
    if not readers or name in graph.outputs:
        return None
    input_fronts: list[Front] = []
    for node in readers:
        record, result, more = operator_of(node), node.outputs[0], between
        arrays: tuple[Ids, FloatArray, FloatArray]
        if record.affine is not None:
            front = _front(graph, node, record.affine.inputs, elements, middle, factor, between)
            if front is None:
                return None
            input_fronts.append(front)
            continue
        constant = constant_of(node, "Add", "Sub", "Mul")
        if constant is not None and graph.shapes[result] == elements.shape:
            affine = _affine(node, constant, middle, factor)
            if affine is None or result in graph.quantization:
                return None
            arrays, more = (elements, *affine), (*between, node.name)
        elif record.view and node.op in ("Reshape", "Transpose", "Slice"):
            moved = [record.evaluate(node, [array[None].astype(float)])[0][0] for array in (elements, middle, factor)]
            arrays = (moved[0].astype(np.int64), moved[1], moved[2])
        else:
            return None
        further = _readers(graph, result, arrays[0], arrays[1], arrays[2], more)
        if further is None:
            return None
        input_fronts += further
    return input_fronts


def _affine(
    node: Node, constant: FloatArray, middle: FloatArray, factor: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Middle and factor after a constant; ``None`` if it makes everything the same."""
    constant = np.broadcast_to(constant, middle.shape)
    if node.op == "Mul":
        return (middle, factor * constant) if constant.all() else None
    sign = 1.0 if node.op == "Sub" else -1.0
    return middle + sign * constant / factor, -factor if node.attributes(BinaryAttributes).constant_first else factor


def _front(
    graph: Graph,
    node: Node,
    inputs: int,
    elements: Ids,
    middle: FloatArray,
    factor: FloatArray,
    between: tuple[str, ...],
) -> Front | None:
    """First product of an input; ``None`` if factor or middle differ along other axes than the one that it sums up."""
    if node.name in graph.weight_quantization or is_fixed(node) or node.inputs.count(node.inputs[0]) > 1:
        return None
    rows = [np.moveaxis(array, inputs, -1).reshape(-1, array.shape[inputs]) for array in (middle, factor)]
    if any((array != array[0]).any() for array in rows):
        return None
    return Front(node, between, rows[0][0], rows[1][0], elements)


def _without_fronts(graph: Graph, scales: Scales) -> Graph:
    """A copy in which first products do what is added and multiplied in front, and add what the host subtracts."""
    made = graph.copy()
    for name in graph.inputs:
        if name not in scales or not scales[name].offsets:
            continue
        input_fronts = fronts(made, name)
        if input_fronts is None:
            raise ValueError(f"offsets must be of an input that products read, not of {name!r}")
        taken = np.broadcast_to(np.array(scales[name].offsets).reshape(scales[name].shape), graph.shapes[name])
        for front in input_fronts:
            made.nodes = [_merged(n, front, taken) if n.name == front.reader.name else n for n in made.nodes]
        gone = {node for front in input_fronts for node in front.between}
        names: dict[str, str] = {}
        for node in made.nodes:
            if node.name in gone:
                names[node.outputs[0]] = names.get(node.inputs[0], node.inputs[0])
                del made.shapes[node.outputs[0]]
        made.nodes = [node for node in made.nodes if node.name not in gone]
        made.rename(names)
    return made


def _merged(node: Node, front: Front, taken: FloatArray) -> Node:
    """A product for an input that is less by what is taken, without the constants in front of it."""
    weights = front.weights
    read = taken.reshape(-1)[front.elements]
    rows = np.moveaxis(read, weights.inputs, -1).reshape(-1, read.shape[weights.inputs])
    rest = rows[0] - front.middle
    if (rows != rows[0]).any() or (front.padded and rest.any()):
        raise ValueError(f"offsets must be ones that {node.name} makes up for, and are not")
    attributes = node.attributes(AffineAttributes)
    weight = attributes.weight * by_column(node, front.factor)
    by_row = (weight * by_column(node, rest)).reshape(len(weight), -1).sum(axis=1)
    return node.with_attrs(weight=weight, bias=attributes.bias + by_row)


def by_column(node: Node, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Numbers by index of the axis that a node sums up along, to be broadcast to its weights for its first input."""
    if node.op != "Conv":
        weights = operator_of(node).weights
        assert weights is not None
        return values.reshape([1] * (weights.weight_of(node).ndim - 1) + [-1])
    attributes = node.attributes(ConvAttributes)
    weight, group = attributes.weight, attributes.group
    by_group = np.repeat(values.reshape(group, 1, -1), len(weight) // group, axis=1)
    return by_group.reshape(len(weight), -1, *[1] * (weight.ndim - 2))


# Powers of two -----------------------------------------------------------------------------------


def _powers(channel_map: Channels, scales: Scales) -> Ids:
    """The exponent of every channel."""
    powers = np.zeros(channel_map.count, dtype=np.int64)
    wanted = {}
    for name, scale in scales.items():
        if name not in channel_map.sources:
            raise ValueError(f"scales must be of inputs and of tensors that products compute, not of {name!r}")
        ids = channel_map.sources[name]
        wanted[name] = np.broadcast_to(scale.powers(), ids.shape)
        powers[ids] = wanted[name]
    if powers[0] or any((powers[channel_map.sources[name]] != values).any() for name, values in wanted.items()):
        raise ValueError(f"scales of {', '.join(scales)} must be the same where elements meet, and are not")
    return powers


def _scaled(graph: Graph, channel_map: Channels, powers: Ids, node: Node) -> list[Node]:
    """A node for channels that are divided by powers of two."""

    def of(ids: Ids) -> Ids:
        return np.where(ids == ZERO, 0, powers[ids])

    record = operator_of(node)
    if record.weights is not None and node.name in channel_map.columns:
        name = record.weights.names[0]
        weight = np.ldexp(record.weights.weight_of(node), by_column(node, of(channel_map.columns[node.name])))
        if record.affine is None:
            return [node.with_attrs(**{name: weight})]
        result = of(channel_map.of[node.outputs[0]])
        channel = record.affine.channel(result.ndim)
        rows = np.moveaxis(result, channel, 0).reshape(len(weight), -1)[:, 0]
        weight = np.ldexp(weight, -rows.reshape(-1, *[1] * (weight.ndim - 1)))
        bias = np.ldexp(record.affine.bias_of(node), -rows)
        return [node.with_attrs(**{name: weight, record.affine.bias: bias})]
    result = of(channel_map.of[node.outputs[0]]) if node.outputs[0] else np.zeros((), np.int64)
    if not result.any():
        return [node]
    if (constant := constant_of(node, "Add", "Sub", "Max", "Min")) is not None:
        values = _short(np.ldexp(*np.broadcast_arrays(constant, -result)), graph.shapes[node.inputs[0]])
        return [node.with_attrs(constant=values)]
    if node.op == "Clip":
        return _clip(graph, node, result)
    return [node]


def _clip(graph: Graph, node: Node, result: Ids) -> list[Node]:
    """Limits for every channel."""
    limits = node.attributes(ClipAttributes)
    low, high = (np.ldexp(float(end), -result) for end in (limits.min, limits.max))
    if (result == result.flat[0]).all() or not (np.isfinite(low).all() or np.isfinite(high).all()):
        return [node.with_attrs(min=float(low.flat[0]), max=float(high.flat[0]))]
    steps: list[tuple[str, dict[str, Any]]] = []
    if np.isfinite(low).all():
        steps.append(("Max", {"constant": _short(low, low.shape)}) if low.any() else ("Relu", {}))
    if np.isfinite(high).all():
        steps.append(("Min", {"constant": _short(high, high.shape)}))
    made, (current,) = [], node.inputs
    for index, (op, attrs) in enumerate(steps):
        last = index == len(steps) - 1
        name = node.name if last else fresh(graph, f"{node.name}/{op.lower()}")
        output = node.outputs[0] if last else name
        graph.shapes[output] = graph.shapes[node.outputs[0]]
        made.append(Node(op, name, (current,), (output,), attrs))
        current = output
    return made


def _short(values: FloatArray, shape: Shape) -> FloatArray:
    """Numbers without what is the same along whole axes, for a tensor whose shape has those axes."""
    for axis in range(values.ndim - len(shape), values.ndim):
        first = values.take([0], axis=axis)
        if values.shape[axis] == shape[axis - values.ndim] and (values == first).all():
            values = first
    return values
