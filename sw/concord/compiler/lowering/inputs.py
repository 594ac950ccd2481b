"""Layouts of inputs by the host: in the order that their readers want."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from concord.compiler.ir.layout import PAD, LayoutError, even
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.moving import PadAttributes, PickAttributes, SliceAttributes
from concord.utils.arrays import Ids


class Unfold(Enum):
    """Axes of a first convolution's window that the host writes out side by side, as channels of a position."""

    NONE = 0
    HORIZONTAL = 1
    BOTH = 2


def moved(node: Node, views: Sequence[Ids]) -> Ids:
    """The view of what a node makes by moving the elements of its inputs.

    Raises
    ------
    LayoutError
        If it pads with anything but zeros, or with elements of the tensor.
    """
    if node.op == "Pad" and (attributes := node.attributes(PadAttributes)).mode == "constant":
        if attributes.value != 0 and any(attributes.pads):
            raise LayoutError(f"padding of {node.name} must be with zeros, not with {attributes.value!r}")
        node = node.with_attrs(value=PAD)
    (result,) = operator_of(node).evaluate(node, [view[None].astype(np.float64) for view in views])
    return np.asarray(result[0]).astype(np.int64)


#: Elements that may be a position each, so that a padding moves them whole and rounds none; more take too much memory.
_MOST_POSITIONS = 4096


def preferred_order(graph: Graph, tensor: str) -> Ids:
    """Elements of a sample as ``[height, width, channel]``, as the nodes that read it want them.

    Nodes that move elements or work on every one of them are looked through. All readers have a say: what slides
    windows must have its channels in lanes, and comes first; then what becomes an image, then a padding. Others take
    any layout, and the first of them in the order of the graph decides. Elements that nothing reads are left out where
    they take positions of their own, or where all that is read is read at once.
    """
    shape = graph.shapes[tensor]
    whole: Ids = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    wishes: list[tuple[_Wish, Ids]] = []
    known, waiting, readers_of = {tensor}, [(tensor, whole)], graph.readers()
    while waiting:
        name, ids = waiting.pop()
        results: list[tuple[str, Ids]] = []
        readers = readers_of.get(name, [])
        for node in readers:
            output, record = node.outputs[0], operator_of(node)
            if record.layout_sensitive or not output or np.prod(graph.shapes[output]) != ids.size:
                wishes.append(_wish(graph, node, ids))
            elif output not in known:
                known.add(output)
                same = ids.reshape(graph.shapes[output])  # broadcasting may put axes of length 1 in front
                results.append((output, moved(node, [ids]) if record.view else same))
        waiting += reversed(results)
        if not readers:
            wishes.append((_Wish.NONE, _plain(ids)))
    order = min(wishes, key=lambda wish: wish[0].value)[1]
    return order if tensor in graph.states else _of_read(order, _reads(graph, tensor))


def _reads(graph: Graph, tensor: str) -> list[tuple[Ids, bool]]:
    """Elements that each operator reads of a tensor, looking through those that move them; false for an output."""
    shape = graph.shapes[tensor]
    views: dict[str, Ids] = {tensor: np.arange(int(np.prod(shape, dtype=int))).reshape(shape)}
    reads: list[tuple[Ids, bool]] = []
    for node in graph.nodes:
        if views.keys().isdisjoint(node.inputs):
            continue
        if operator_of(node).view and node.op != "Pad":  # which may become a copy of all that it pads
            operands = [views[x] if x in views else np.full(graph.shapes[x], PAD) for x in node.inputs]
            views[node.outputs[0]] = moved(node, operands)
            continue
        reads += [(views[name], True) for name in node.inputs if name in views]
    return reads + [(views[name], False) for name in graph.outputs if name in views]


def _of_read(order: Ids, reads: Sequence[tuple[Ids, bool]]) -> Ids:
    """A layout ``[height, width, channel]`` without elements that nothing reads; positions stay at equal distances."""
    there = order != PAD
    size = int(order.max()) + 1
    read = np.zeros(size, np.bool_)
    for ids, _ in reads:
        read[ids[ids != PAD]] = True
    if read[order[there]].all() or not read.any():
        return order
    if not any(computes for _, computes in reads):
        return np.flatnonzero(read).reshape(1, 1, -1)
    kept: list[Ids] = []
    for axis in range(3):
        along = np.zeros(size, np.int64)
        along[order[there]] = np.broadcast_to(
            np.arange(order.shape[axis]).reshape([-1 if k == axis else 1 for k in range(3)]), order.shape
        )[there]
        places = [np.unique(along[ids[ids != PAD]]) for ids, _ in reads]
        used = np.unique(np.concatenate(places))
        now = [np.searchsorted(used, part) for part in places]
        if axis < 2:
            worse = any(even(part) is not None and even(new) is None for part, new in zip(places, now, strict=True))
        else:  # what lies beside others may not begin in the middle of a vector
            worse = any(len(part) < len(used) for part in places)
        kept.append(np.arange(order.shape[axis]) if worse else used)
    return order[np.ix_(*kept)]


class _Wish(Enum):
    """Layout that a reader wants of an input; the least value comes first."""

    WINDOWS = 0
    MAP = 1
    PADDING = 2
    ROWS = 3
    NONE = 4


def _wish(graph: Graph, node: Node, ids: Ids) -> tuple[_Wish, Ids]:
    """Wish of a node with a say for the layout of the elements ``ids`` that it reads."""
    if operator_of(node).windowed:
        return _Wish.WINDOWS, as_map(ids)
    if node.op == "Concat" and _becomes_map(graph, node.outputs[0]):
        return _Wish.MAP, as_map(ids.reshape(1, -1, *ids.shape[2:]))
    taken = operator_of(node).record in (PickAttributes, SliceAttributes) and ids.ndim in (3, 4) and ids.shape[0] == 1
    if taken and _becomes_map(graph, node.outputs[0]):
        return _Wish.MAP, as_map(ids)
    if node.op == "Pad" and not any(_weighs_last_axis(reader) for reader in graph.consumers(node.outputs[0])):
        order = _unpadded_last(node, ids)
        exact = (
            ids.size <= _MOST_POSITIONS
            or node.inputs[0] in graph.element_types
            or node.outputs[0] in graph.element_types
        )
        if order.shape[-1] > 1 or exact or _becomes_map(graph, node.outputs[0]):
            return _Wish.PADDING, order
    return _Wish.ROWS, _plain(ids)


def _plain(ids: Ids) -> Ids:
    """The last axis as lanes."""
    return ids.reshape(1, -1, ids.shape[-1] if ids.ndim else 1)


def _weighs_last_axis(node: Node) -> bool:
    weights = operator_of(node).weights
    return weights is not None and weights.inputs == -1


def _becomes_map(graph: Graph, tensor: str) -> bool:
    """True if a convolution or pooling reads a tensor, alone or after others, as an image or several of them."""
    known, waiting = {tensor}, [tensor]
    while waiting:
        name = waiting.pop()
        images, *rest = graph.shapes[name]
        for node in graph.consumers(name):
            if operator_of(node).windowed:
                return True
            output = node.outputs[0]
            merged = rest and graph.shapes[output] == (1, images * rest[0], *rest[1:])
            if output not in known and (node.op == "Concat" or (node.op == "Reshape" and merged)):
                known.add(output)
                waiting.append(output)
    return False


def _unpadded_last(node: Node, ids: Ids) -> Ids:
    """The longest axis that is not padded as lanes."""
    pads = node.attributes(PadAttributes).pads
    free = [axis for axis in range(ids.ndim) if not (pads[axis] or pads[ids.ndim + axis])]
    if not free:
        return ids.reshape(1, -1, 1)
    lanes = max(free, key=lambda axis: ids.shape[axis])
    return np.asarray(np.moveaxis(ids, lanes, -1).reshape(1, -1, ids.shape[lanes]))


def as_map(ids: Ids) -> Ids:
    """``[1, C, *spatial]`` as ``[height, width, channels]``; one spatial axis is the width."""
    if ids.shape[0] != 1 or ids.ndim not in (3, 4):
        raise LayoutError(f"must be [1, channels, (height,) width], not {list(ids.shape)}")
    return np.asarray(ids[0].transpose(1, 2, 0) if ids.ndim == 4 else ids[0].T[None])
