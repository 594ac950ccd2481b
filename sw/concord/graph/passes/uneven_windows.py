"""Means of windows of unequal sizes, which exporters write as sums of picked elements, become average pooling by axis.

An adaptive average pooling whose sizes do not divide has windows from ``floor(i * size / count)`` to
``ceil((i + 1) * size / count)``. PyTorch writes it as one tensor of all windows, in which what is too much is
multiplied by zero, a sum of its slices, and a product with the reciprocals of the counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from concord.graph.ir import Graph, Node, Shape
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import ReductionAttributes, constant_of
from concord.graph.ops.moving import ConcatAttributes, PickAttributes
from concord.graph.passes import dead
from concord.graph.rewriting import Emit, rewrite
from concord.utils.arrays import FloatArray, Ids
from concord.utils.matrices import LARGEST

#: Relative error of weights, which exporters round to float32.
_TOLERANCE = 1e-5
#: Batch and channels, in front of the spatial axes, of which a pooling has one or two.
_LEADING, _RANKS = 2, (3, 4)

#: Parts of a tensor that are pooled along all axes at once; where there are more, one axis is pooled after the other.
_MOST_PIECES = 16
#: First element of windows of one size at equal distances, their distance, size and number.
_Run = tuple[int, int, int, int]
#: First element and number of elements of every window of an axis.
_Windows = list[tuple[int, int]]


@dataclass(frozen=True)
class _Lookup:
    """A graph, with the node that computes each tensor, and those that read it.

    Parameters
    ----------
    graph : Graph
        The graph.
    producers, readers : dict
        By tensor.
    """

    graph: Graph
    producers: dict[str, Node]
    readers: dict[str, list[Node]]

    @classmethod
    def of(cls, graph: Graph) -> _Lookup:
        """Lookup for a graph as it is."""
        return cls(graph, {name: node for node in graph.nodes for name in node.outputs}, graph.readers())


def run(graph: Graph) -> None:
    """Put average pooling in the place of means of windows; what nothing reads any more goes."""
    lookup = _Lookup.of(graph)
    for node in list(graph.nodes):
        there = node.outputs[0] in graph.shapes  # and not one that nothing reads any more
        if there and (means := _means(lookup, node)) is not None:
            _put(graph, node, *means)
            dead.run(graph)
            lookup = _Lookup.of(graph)


def _put(graph: Graph, node: Node, source: str, windows: list[_Windows]) -> None:
    shapes, shape = graph.shapes, graph.shapes[node.outputs[0]]
    rank = len(windows)
    runs = [list(_runs(part)) for part in windows]
    whole = [(0, 1, 1, size) for size in shapes[source][_LEADING:]]

    def rule(emit: Emit) -> None:
        y = source
        if math.prod(map(len, runs)) <= _MOST_PIECES:
            y = _pooled(emit, y, shapes[y], runs)
        else:
            shrinks = [len(part) / size for part, size in zip(windows, shapes[source][_LEADING:], strict=True)]
            for axis in np.argsort(shrinks, kind="stable").tolist():
                alone = [runs[k] if k == axis else [(0, 1, 1, shapes[y][_LEADING + k])] for k in range(rank)]
                y = y if runs[axis] == [whole[axis]] else _pooled(emit, y, shapes[y], alone)
        if shapes[y] != shape:
            emit("Reshape", y, shape=shape)

    rewrite(graph, node, rule)


def _pooled(emit: Emit, x: str, shape: Shape, runs: list[list[_Run]]) -> str:
    """Means of windows: average pooling of a part of the tensor for each run of all axes."""
    rank = len(runs)
    axes, none = tuple(range(_LEADING, _LEADING + rank)), (0,) * 2 * rank

    def joined(chosen: list[_Run]) -> str:
        if len(chosen) < rank:
            parts = [joined([*chosen, run]) for run in runs[len(chosen)]]
            return parts[0] if len(parts) == 1 else emit("Concat", *parts, axis=_LEADING + len(chosen))
        starts, steps, sizes, _ = zip(*chosen, strict=True)
        stops = tuple(a + (n - 1) * d + k for a, d, k, n in chosen)
        whole = (*starts, *stops) == (*(0,) * rank, *shape[_LEADING:])
        part = x if whole else emit("Slice", x, axes=axes, starts=starts, stops=stops, steps=(1,) * rank)
        return emit("AveragePool", part, kernel=sizes, strides=steps, pads=none, dilations=(1,) * rank, counted=none)

    return joined([])


def _runs(windows: _Windows) -> Iterator[_Run]:
    """First element, distance, size and number of windows of one size at equal distances that follow each other."""
    at = 0
    while at < len(windows):
        start, size = windows[at]
        step = windows[at + 1][0] - start if at + 1 < len(windows) else 1
        count = 1
        while at + count < len(windows) and windows[at + count] == (start + count * step, size) and step > 0:
            count += 1
        yield start, step if count > 1 else 1, size, count
        at += count


def _means(lookup: _Lookup, node: Node) -> tuple[str, list[_Windows]] | None:
    """The tensor of which a node computes means of windows, and these by spatial axis."""
    graph, constant, (output, *_) = lookup.graph, constant_of(node, "Mul"), node.outputs
    if (constant is None and node.op != "ReduceMean") or output in graph.quantization:
        return None
    shape, leaves = graph.shapes[output], [node.inputs[0]]
    if constant is not None:
        leaves = list(_summands(lookup, node.inputs[0]))
    roots = {_root(lookup, name) for name in leaves}
    if len(roots) != 1 or not (len(leaves) > 1 if constant is not None else _picked(lookup, leaves[0])):
        return None
    (root,) = roots
    source = graph.shapes[root]
    counts = _counts(source, shape)
    if counts is None or math.prod(counts) * math.prod(source[_LEADING:]) > LARGEST:
        return None
    known: dict[str, tuple[Ids, FloatArray]] = {}
    terms = [_terms(lookup, name, root, known) for name in leaves]
    if constant is not None:
        factor = np.broadcast_to(constant, shape)
    else:
        axes = node.attributes(ReductionAttributes).axes
        ((ids, weights),) = terms
        factor, order = np.full(shape, math.prod(shape) / ids.size), range(len(axes))
        many = np.moveaxis(ids, axes, order).reshape(-1, *shape), np.moveaxis(weights, axes, order).reshape(-1, *shape)
        terms = list(zip(*many, strict=True))
    matrix = _weights(terms, shape, math.prod(source[_LEADING:]))
    if matrix is None or (factor[0] != factor[0, :1]).any():
        return None
    matrix *= factor[0, 0].reshape(-1, 1)
    windows = _windows(matrix.reshape(*counts, *source[_LEADING:]), len(counts))
    moved = windows is not None and all(size == 1 for part in windows for _, size in part)
    return None if windows is None or moved else (root, windows)


def _summands(lookup: _Lookup, name: str) -> Iterator[str]:
    """Operands of a sum of several, which nothing else reads in parts."""
    waiting = [name]
    while waiting:
        name = waiting.pop()
        producer, inside = lookup.producers.get(name), lookup.graph.is_between(name)
        if (
            producer is None
            or producer.op != "Add"
            or len(producer.inputs) == 1
            or len(lookup.readers[name]) > 1
            or not inside
        ):
            yield name
        else:
            waiting += reversed(producer.inputs)


def _root(lookup: _Lookup, name: str) -> str:
    """The tensor whose elements, moved and multiplied by constants, a tensor has."""
    producer = lookup.producers.get(name)
    if producer is None or name in lookup.graph.quantization:
        return name
    if constant_of(producer, "Mul") is not None:
        return _root(lookup, producer.inputs[0])
    if not operator_of(producer).view or producer.op == "Pad":
        return name
    roots = {_root(lookup, operand) for operand in producer.inputs}
    return roots.pop() if len(roots) == 1 else name


def _picked(lookup: _Lookup, name: str) -> bool:
    """True if a tensor has been put together of elements in another order, or several times."""
    while (producer := lookup.producers.get(name)) is not None and (record := operator_of(producer)).view:
        if record.record in (PickAttributes, ConcatAttributes):
            return True
        name = producer.inputs[0]
    return False


def _counts(source: Shape, shape: Shape) -> Shape | None:
    """Windows along the spatial axes of ``source``; ``None`` if a result of this shape is no pooling of it."""
    if len(source) not in _RANKS or shape[:_LEADING] != source[:_LEADING] or shape[0] != 1:
        return None
    if len(source) == len(shape):
        return shape[_LEADING:]
    long = [count for count in shape[_LEADING:] if count > 1]
    counts = tuple(long.pop(0) if size > 1 and long else 1 for size in source[_LEADING:])
    return None if long else counts


def _weights(terms: Sequence[tuple[Ids, FloatArray]], shape: Shape, size: int) -> FloatArray | None:
    """``[results, elements]`` of a channel of ``size`` elements, if all channels have the same."""
    matrix = np.zeros((math.prod(shape[_LEADING:]), size))
    for ids, weights in ((ids.reshape(shape[1], -1), weights.reshape(shape[1], -1)) for ids, weights in terms):
        channel, place = np.divmod(ids, size)
        there = weights[:1] != 0
        if (weights != weights[:1]).any() or ((channel != np.arange(shape[1])[:, None]) & there).any():
            return None
        if ((place != place[:1]) & there).any():
            return None
        np.add.at(matrix, (np.arange(len(matrix)), place[0]), weights[0])
    return matrix


def _terms(lookup: _Lookup, name: str, root: str, known: dict[str, tuple[Ids, FloatArray]]) -> tuple[Ids, FloatArray]:
    """Numbers of the elements of ``root`` that a tensor has, and their factors."""
    if name not in known:
        producer, shape = lookup.producers.get(name), lookup.graph.shapes[name]
        if name == root or producer is None:
            known[name] = np.arange(int(np.prod(shape))).reshape(shape), np.ones(shape)
        else:
            parts = [_terms(lookup, operand, root, known) for operand in producer.inputs]
            if (constant := constant_of(producer, "Mul")) is not None:
                ids, weights = parts[0]
                known[name] = np.broadcast_to(ids, shape), weights * constant
            else:
                evaluate = operator_of(producer).evaluate
                ids, weights = (
                    evaluate(producer, [part[k][None].astype(float) for part in parts])[0][0] for k in (0, 1)
                )
                known[name] = ids.astype(np.int64), weights
    return known[name]


def _windows(weights: FloatArray, rank: int) -> list[_Windows] | None:
    """The windows of every axis of which ``weights[*results, *elements]`` are means; ``None`` if they are no means."""
    axes, product = list[_Windows](), np.ones(())
    for axis in range(rank):
        first = tuple(slice(None) if k == axis else 0 for k in range(rank))
        rows = weights[first].sum(axis=tuple(1 + k for k in range(rank) if k != axis))
        windows = _of_rows(rows)
        if windows is None:
            return None
        axes.append(windows)
        means = np.zeros_like(rows)
        for row, (start, size) in zip(means, windows, strict=True):
            row[start : start + size] = 1 / size
        product = np.multiply.outer(product, means)
    order = (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    return axes if np.allclose(weights, product.transpose(order), rtol=_TOLERANCE, atol=0) else None


def _of_rows(rows: FloatArray) -> _Windows | None:
    windows: _Windows = []
    for row in rows:
        places = np.flatnonzero(row)
        if not len(places) or places[-1] - places[0] >= len(places):
            return None
        windows.append((int(places[0]), len(places)))
    return windows
