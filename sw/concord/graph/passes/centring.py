"""Take the mean off what is summed up for normalisations alone, so that they need not subtract it.

A layer normalisation gives the same for ``x`` and for ``x`` less its mean. Where all that reads a sum is such
normalisations, the rows of weights, biases, constants and tables of which the sum consists are made less their mean
once and for all. What is left to compute is a root-mean-square normalisation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.base import Shape
from concord.graph.ops.elementwise import BinaryAttributes, NormaliseAttributes
from concord.graph.ops.host import LookupAttributes
from concord.graph.ops.linear import ConvAttributes, is_fixed
from concord.graph.ops.moving import ConcatAttributes, PadAttributes, SliceAttributes, TransposeAttributes
from concord.utils.arrays import FloatArray

#: Tensors that must be centred, too, with their axes, and what takes the place of a node.
_Step = tuple[list[tuple[str, int]], Node]
_MOVING = ("Reshape", "Transpose", "Concat", "Slice", "Pad")


def run(graph: Graph) -> None:
    """Make normalisations over one axis uncentred, and what is summed up for them centred."""
    for name in [node.name for node in graph.nodes]:
        node = next(node for node in graph.nodes if node.name == name)  # the one before may have changed it
        if node.op != "Normalise" or not node.attributes(NormaliseAttributes).centred:
            continue
        axes = node.attributes(NormaliseAttributes).axes
        if len(axes) == 1 and (changed := _Sums(graph).centred(node.inputs[0], axes[0])) is not None:
            graph.nodes = [changed.get(node.name, node) for node in graph.nodes]


@dataclass
class _Sums:
    """Tensors whose mean along an axis no reader sees.

    Parameters
    ----------
    graph : Graph
        Where they are.
    axes : dict
        The axis of every one of them, by name.
    """

    graph: Graph
    axes: dict[str, int] = field(default_factory=dict)

    def centred(self, tensor: str, axis: int) -> dict[str, Node] | None:
        """Nodes that replace others, by name; ``None`` if a reader would see another result, or a mean stays."""
        readers = self.graph.readers()
        changed: dict[str, Node] = {}
        waiting = [(tensor, axis)]
        while waiting:
            tensor, axis = waiting.pop()
            if tensor in self.axes:
                if self.axes[tensor] != axis:
                    return None
                continue
            producer = self.graph.producer(tensor)
            if producer is None or not self.graph.is_between(tensor):
                return None
            self.axes[tensor] = axis
            for node in [producer, *readers.get(tensor, [])]:
                if (step := self._step(node, tensor, axis)) is None:
                    return None
                others, made = step
                waiting += others
                if made is not node:
                    changed[node.name] = made
        return changed

    def _step(self, node: Node, tensor: str, axis: int) -> _Step | None:
        """Tensors that must be centred with a node that reads or computes one, and the node that replaces it."""
        reads, shape = tensor in node.inputs, self.graph.shapes[tensor]
        if node.op in ("Add", "Sub", "Mul"):
            return self._summed(node, shape, axis)
        if node.op in _MOVING:
            return self._moved(node, tensor, axis)
        if not reads:
            made = self._source(node, shape, axis)
            return None if made is None else ([], made)
        if node.op == "Normalise":
            attributes = node.attributes(NormaliseAttributes)
            return ([], node.with_attrs(centred=False)) if attributes.axes == (axis,) and attributes.centred else None
        return None

    def _summed(self, node: Node, shape: Shape, axis: int) -> _Step | None:
        """All operands and the result of a sum; a factor must be the same along the axis."""
        last = axis - len(shape)
        names = [*node.inputs, *node.outputs]
        shapes = [self.graph.shapes[name] for name in names]
        if any(len(each) < -last or each[last] != shape[axis] for each in shapes):
            return None
        others = [(name, len(each) + last) for name, each in zip(names, shapes, strict=True)]
        constant = node.attributes(BinaryAttributes).constant
        along = constant is not None and constant.ndim >= -last and constant.shape[last] > 1
        if node.op == "Mul":
            return None if constant is None or along else (others, node)
        if constant is None:
            return others, node
        return others, node.with_attrs(constant=_less_mean(constant, last) if along else np.zeros_like(constant))

    def _moved(self, node: Node, tensor: str, axis: int) -> _Step | None:
        """Input and result of a node that moves elements, as long as the axis stays whole."""
        (result,) = node.outputs
        source, made = self.graph.shapes[node.inputs[0]], self.graph.shapes[result]
        for before in range(len(source)):
            after = _axis_behind(node, source, made, before)
            if after is not None and axis == (before if tensor in node.inputs else after):
                return [*((name, before) for name in node.inputs), (result, after)], node
        return None

    def _source(self, node: Node, shape: Shape, axis: int) -> Node | None:
        """A product or a table with results less their mean; ``None`` for all that has no constants to change."""
        if node.op == "Lookup":
            attributes = node.attributes(LookupAttributes)
            rank = len(shape) - attributes.table.ndim + 1  # of the indices, which are where one axis of the table was
            if attributes.axis <= axis < attributes.axis + rank:
                return None
            of_table = axis if axis < attributes.axis else axis - rank + 1
            return node.with_attrs(table=_less_mean(attributes.table, of_table))
        weights = operator_of(node).affine
        if weights is None or is_fixed(node) or node.name in self.graph.weight_quantization:
            return None
        if weights.channel(len(shape)) != axis or (node.op == "Conv" and node.attributes(ConvAttributes).group > 1):
            return None
        (key,) = weights.names
        changed = {key: _less_mean(weights.weight_of(node), 0), weights.bias: _less_mean(weights.bias_of(node), 0)}
        return node.with_attrs(**changed)


def _less_mean(values: FloatArray, axis: int) -> FloatArray:
    return np.asarray(values - values.mean(axis=axis, keepdims=True))


def _axis_behind(node: Node, before: Shape, after: Shape, axis: int) -> int | None:
    """Place of an axis after a node that moves elements; ``None`` if it is not kept whole, or zeros are not kept."""
    if node.op == "Transpose":
        return node.attributes(TransposeAttributes).perm.index(axis)
    if node.op == "Reshape":
        outer, size = math.prod(before[:axis]), before[axis]
        return next((k for k, each in enumerate(after) if each == size > 1 and math.prod(after[:k]) == outer), None)
    if node.op == "Pad":
        attributes, rank = node.attributes(PadAttributes), len(before)
        zeros = attributes.mode != "constant" or attributes.value == 0
        return axis if zeros and not attributes.pads[axis] and not attributes.pads[rank + axis] else None
    if node.op == "Slice":
        return None if axis in node.attributes(SliceAttributes).axes else axis
    return None if axis == node.attributes(ConcatAttributes).axis else axis
