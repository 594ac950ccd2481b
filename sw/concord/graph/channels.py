"""Channels of a network that may have a power of two of their own, without changing any result.

A product with constants takes a factor per row into its weights and bias, and undoes a factor per column. Between two
products the factor passes whatever is homogeneous: views, Relu, maxima, means, sums of tensors. Sums, maxima and minima
of elements need the same factor for both. All else, a table or an output of the network, needs the factor 1.

Factors are powers of two, so they change neither a bit of weights with an exponent per row nor of results that are
binary16, but which numbers of a block share an exponent does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import ReductionAttributes
from concord.graph.ops.linear import is_fixed
from concord.graph.ops.moving import PadAttributes
from concord.graph.ops.windows import PoolAttributes
from concord.utils.arrays import Ids

#: The channel of elements whose factor is 1, and of elements that are zero whatever their factor is.
FIXED, ZERO = 0, -1


@dataclass
class Channels:
    """Channels to which the elements of every tensor belong.

    Parameters
    ----------
    of : dict
        By tensor, the number of the channel of every element, or :data:`FIXED` or :data:`ZERO`; in its shape.
    columns : dict
        By node with weights that are constant: channel of every index of the axis that its products are summed along.
    sources : dict
        By tensor that a product computes or that is an input, where a factor may be chosen: its channels.
    count : int
        Number of channels, the fixed one among them.
    """

    of: dict[str, Ids] = field(default_factory=dict)
    columns: dict[str, Ids] = field(default_factory=dict)
    sources: dict[str, Ids] = field(default_factory=dict)
    count: int = 1


def channels(graph: Graph) -> Channels:
    """The channels of a network; elements that need the same factor have the same one."""
    walk = _Walk(graph)
    for name in graph.inputs:
        walk.channels.of[name] = walk.new(graph.shapes[name])
        walk.channels.sources[name] = walk.channels.of[name]
    for name in set(graph.inputs) & set(graph.quantization):
        walk.fix(walk.channels.of[name])
    for node in graph.nodes:
        inputs = [walk.channels.of[name] for name in node.inputs if name]
        made = _RULES.get(node.op, _rule_of(node))(walk, node, inputs)
        for name, ids in zip(node.outputs, made, strict=True):
            if name:
                walk.channels.of[name] = np.asarray(ids)
                if name in graph.quantization:
                    walk.fix(walk.channels.of[name])
    for name in (*graph.outputs, *graph.states):  # which are outputs of the run before, as they are
        walk.fix(walk.channels.of[name])
    return walk.done()


class _Walk:
    """Channels as they are found, those that must be one as pairs."""

    def __init__(self, graph: Graph):
        self.graph, self.channels = graph, Channels()
        self._pairs: list[Ids] = []

    def new(self, shape: Sequence[int]) -> Ids:
        """A channel for every element."""
        count = int(np.prod(shape, dtype=int))
        start = self.channels.count
        self.channels.count += count
        return np.arange(start, start + count).reshape(tuple(shape))

    def same(self, a: Ids, b: Ids) -> Ids:
        """Elements at the same place need the same factor; the channels of both together."""
        a, b = np.broadcast_arrays(a, b)
        both = (a != b) & (a != ZERO) & (b != ZERO)
        if both.any():
            self._pairs.append(np.unique(np.stack([a[both], b[both]], axis=1), axis=0))
        return np.where(a == ZERO, b, a)

    def fix(self, *tensors: Ids) -> None:
        """Elements that need the factor 1."""
        for ids in tensors:
            self.same(ids, np.full(ids.shape, FIXED))

    def along(self, ids: Ids, axes: Sequence[int]) -> Ids:
        """One channel for all elements along axes, which have the length 1 then."""
        axes = tuple(axis % ids.ndim for axis in axes)
        first = ids.max(axis=axes, keepdims=True) if axes else ids
        self.same(ids, np.broadcast_to(first, ids.shape))
        return np.asarray(first)

    def done(self) -> Channels:
        """The channels, with one number each."""
        root = np.arange(self.channels.count)
        pairs = np.concatenate(self._pairs) if self._pairs else np.zeros((0, 2), np.int64)
        while len(pairs):
            pairs = np.unique(np.sort(root[pairs], axis=1), axis=0)
            pairs = pairs[pairs[:, 0] != pairs[:, 1]]
            np.minimum.at(root, pairs[:, 1], pairs[:, 0])
            while not np.array_equal(root, root[root]):
                root = root[root]
        number = np.unique(root, return_inverse=True)[1].reshape(-1)  # FIXED is the least, and stays 0

        def renumbered(ids: Ids) -> Ids:
            return np.where(ids == ZERO, ZERO, number[ids])

        of, columns, sources = (
            {name: renumbered(ids) for name, ids in part.items()}
            for part in (self.channels.of, self.channels.columns, self.channels.sources)
        )
        return Channels(of, columns, sources, int(number.max()) + 1)


#: Channels of the results of a node, from those of its inputs that are not left out.
_Rule = Callable[[_Walk, Node, list[Ids]], list[Ids]]


def _rule_of(node: Node) -> _Rule:
    """The rule of an operator without one of its own: of views they are what moves, all others need the factor 1."""
    return _moved if operator_of(node).view or node.op == "PadCopy" else _others


def _others(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    walk.fix(*inputs)
    return [np.full(walk.graph.shapes[name] if name else (), FIXED) for name in node.outputs]


def _moved(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    """Padding with zeros has any factor, with other numbers none."""
    if operator_of(node).record is PadAttributes:
        node = node.with_attrs(value=FIXED if node.attributes(PadAttributes).value else ZERO)
    (made,) = operator_of(node).evaluate(node, [ids[None].astype(np.float64) for ids in inputs])
    return [np.asarray(made[0]).astype(np.int64)]


def _product(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    """A channel per row of the weights, one per index of the axis that is summed along; others of its inputs fixed."""
    weights, (x, *more) = operator_of(node).weights, inputs
    assert weights is not None
    if is_fixed(node):  # a matrix such as an adjacency stays what it is, and mixes what has one factor
        return [np.broadcast_to(walk.along(x, [weights.inputs]), walk.graph.shapes[node.outputs[0]])]
    axis = weights.inputs % x.ndim
    columns = walk.along(x, [k for k in range(x.ndim) if k != axis]).reshape(-1)
    walk.channels.columns[node.name] = columns
    walk.fix(*more)
    quantised = node.name in walk.graph.weight_quantization
    if quantised:
        walk.fix(columns)
    if weights.outputs is None or quantised:
        return [np.full(walk.graph.shapes[name] if name else (), FIXED) for name in node.outputs]
    shape = walk.graph.shapes[node.outputs[0]]
    channel = weights.channel(len(shape))
    rows = walk.new([shape[channel]]).reshape([-1 if k == channel else 1 for k in range(len(shape))])
    made = np.broadcast_to(rows, shape)
    walk.channels.sources[node.outputs[0]] = made
    return [made]


def _each(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    """Functions of every element that are homogeneous."""
    return inputs


def _sum(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    """Sums, maxima and minima; a constant is no longer zero where the other operand is."""
    first, *more = inputs
    if more:
        return [walk.same(*_aligned(first, more[0]))]
    shape = walk.graph.shapes[node.outputs[0]]
    return [np.broadcast_to(np.where(first == ZERO, FIXED, first), shape)]


def _times(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    """A product with a constant, or with what has the factor 1, such as a gate; of two others both have it."""
    first, *more = inputs
    shape = walk.graph.shapes[node.outputs[0]]
    if not more:
        return [np.broadcast_to(first, shape)]
    for x, gate in ((first, more[0]), (more[0], first)):
        if (gate == FIXED).all():
            return [np.broadcast_to(_aligned(x, gate)[0], shape)]
    walk.fix(first, more[0])
    return [np.full(shape, FIXED)]


def _aligned(a: Ids, b: Ids) -> tuple[Ids, Ids]:
    rank = max(a.ndim, b.ndim)
    return a.reshape([1] * (rank - a.ndim) + list(a.shape)), b.reshape([1] * (rank - b.ndim) + list(b.shape))


def _pool(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    """One channel for all positions."""
    (x,) = inputs
    rank = len(node.attributes(PoolAttributes).kernel)
    return [np.broadcast_to(walk.along(x, range(x.ndim - rank, x.ndim)), walk.graph.shapes[node.outputs[0]])]


def _reduced(walk: _Walk, node: Node, inputs: list[Ids]) -> list[Ids]:
    (x,) = inputs
    return [walk.along(x, node.attributes(ReductionAttributes).axes).reshape(walk.graph.shapes[node.outputs[0]])]


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("Conv", "Dense", "LSTM", "GRU", "RNN"), _product),
    **dict.fromkeys(("Relu", "Clip"), _each),
    **dict.fromkeys(("Add", "Sub", "Max", "Min"), _sum),
    "Mul": _times,
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _reduced),
}
