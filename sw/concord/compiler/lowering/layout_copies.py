"""Copies of tensors whose elements do not lie where a layer needs them.

The copy lies position by position, with an axis of the tensor in the lanes. Its positions are divided into boxes, each
of which two loops walk in the tensor and in the copy: a chain writes every box. Where the elements of a position lie
in the lanes that the copy wants, the chain moves whole vectors, and the copy is exact. Otherwise it is a product with
zeros and ones: the tensor is read narrow, and rounded to blocks as in front of any product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from concord.compiler.ir.layers import Layer, LayerWindow, Reduction
from concord.compiler.ir.layout import PAD, LayoutError, Storage, Walk
from concord.compiler.lowering import legality
from concord.compiler.lowering.lower import Lowering
from concord.graph.ir import Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import CopyAttributes
from concord.spec.isa import VECTOR_ADDR_BITS
from concord.utils.arrays import Ids

#: Chains that a copy may take.
MOST_CHAINS = 256
#: Steps along rows and columns between positions that one chain copies, those that take few chains first.
_STEPS = sorted(product(range(1, 9), repeat=2), key=prod)


def with_copies(lowering: Lowering, node: Node) -> list[Node] | None:
    """Copies of the operands of a node, and the node that reads them; ``None`` if they would be of no use."""
    graph = lowering.graph
    operands = [name for name in node.inputs if name and not _is_copy(lowering, name)]
    if not operands or node.op == "Copy" or operator_of(node).recurrence:
        return None
    together = len(operands) > 1 and operator_of(node).weights is None
    largest = max(prod(graph.shapes[name]) for name in (*operands, node.outputs[0]))
    if largest > lowering.config.native << VECTOR_ADDR_BITS:
        return None
    copies: dict[str, Node] = {}
    try:
        for name in operands:
            shape = graph.shapes[node.outputs[0]] if together else graph.shapes[name]
            axis = 1 if operator_of(node).windowed else lanes_of(lowering, max(operands, key=_size(lowering)), shape)
            copies[name] = lowering.new_node(node, "Copy", f"copy of {name}", (name,), shape=shape, lanes=axis)
    except ValueError:
        return None
    inputs = tuple(copies[name].outputs[0] if name in copies else name for name in node.inputs)
    return [*copies.values(), node.replace(inputs=inputs)]


def _is_copy(lowering: Lowering, name: str) -> bool:
    producer = lowering.graph.producer(name)
    return producer is not None and producer.op == "Copy"


def _size(lowering: Lowering) -> Callable[[str], int]:
    return lambda name: prod(lowering.graph.shapes[name])


def lanes_of(lowering: Lowering, name: str, shape: tuple[int, ...]) -> int:
    """The axis of ``shape`` along which a tensor that is broadcast to it lies side by side, else the last one."""
    ids = lowering.view(name)
    missing = len(shape) - ids.ndim
    for axis in reversed(range(ids.ndim)):
        first = np.moveaxis(ids, axis, -1).reshape(-1, ids.shape[axis])[0]
        if len(first) > 1 and (np.diff(first) == 1).all():
            return axis + missing
    return max(len(shape) - 1, 0)


@dataclass(frozen=True)
class _Box:
    """Positions ``rows`` x ``columns`` of the copy, the walk of their elements, and whether lanes stay."""

    rows: range
    columns: range
    walk: Walk
    stays: bool


def copy(lowering: Lowering, node: Node) -> None:
    """A storage for the copy, filled box by box."""
    attributes = node.attributes(CopyAttributes)
    storages = lowering.done.storages
    if (size := prod(attributes.shape)) > (limit := lowering.config.native << VECTOR_ADDR_BITS):
        raise LayoutError(f"elements that are copied must be at most {limit}, not {size}")
    ids = lowering.view(node.inputs[0])
    ids = np.broadcast_to(ids.reshape((1,) * (len(attributes.shape) - ids.ndim) + ids.shape), attributes.shape)
    moved = np.moveaxis(ids, attributes.lanes, -1) if ids.ndim else ids.reshape(1)
    view = moved.reshape(-1, moved.shape[-2] if moved.ndim > 1 else 1, moved.shape[-1])
    if (view < PAD).any():
        raise LayoutError("elements must all be computed, none be the border of an input")
    boxes = list(_boxes(lowering, view))
    height, width, channels = view.shape
    parent = storages.new(node.outputs[0], height, width, channels)
    legality.check_storage(parent)
    layers = [_layer(lowering, node, parent, channels, box) for box in boxes]
    for layer in layers:
        legality.check(layer, lowering.config)
    lowering.done.layers += layers
    result = parent.view(channels).reshape(moved.shape)
    lowering.done.views[node.outputs[0]] = np.moveaxis(result, -1, attributes.lanes).reshape(attributes.shape)


def _layer(lowering: Lowering, node: Node, parent: Storage, channels: int, box: _Box) -> Layer:
    """The chain that writes a box."""
    storages, native = lowering.done.storages, lowering.config.native
    attributes = node.attributes(CopyAttributes)
    height, width = len(box.rows), len(box.columns)
    name = f"{node.name}.{box.rows.start}.{box.columns.start}"
    target = storages.new(name, height, width, channels)
    line = parent.width * parent.tiles
    offset = box.rows.start * line + box.columns.start * parent.tiles
    target.place(parent, offset, box.rows.step * line, box.columns.step * parent.tiles)
    ids = np.full((parent.height, parent.width, channels), PAD)
    ids[box.rows.start : box.rows.stop : box.rows.step, box.columns.start : box.columns.stop : box.columns.step] = (
        target.view(channels)
    )
    moved = np.moveaxis(np.empty(attributes.shape, np.bool_), attributes.lanes, -1).shape if attributes.shape else (1,)
    weight = None
    if not box.stays:
        weight = np.zeros((channels, 1, 1, box.walk.tiles * native))
        used = np.flatnonzero(box.walk.lanes != PAD)
        weight[used, 0, 0, box.walk.lanes[used]] = 1.0
    return Layer(
        name, box.walk, Reduction.NONE if box.stays else Reduction.DENSE, weight, LayerWindow(),
        (height, width, target.tiles), node.outputs[0], target,
        np.moveaxis(ids.reshape(moved), -1, attributes.lanes).reshape(attributes.shape),
        node.inputs[0], [], [node.name],
    )  # fmt: skip


def _boxes(lowering: Lowering, view: Ids) -> Iterator[_Box]:
    """The positions of ``view[height, width, channel]`` in boxes.

    Raises
    ------
    LayoutError
        If the elements of a position lie in several storages, or it takes too many chains.
    """
    storages, native = lowering.done.storages, lowering.config.native
    height, width, channels = view.shape
    there = view != PAD
    parts = storages.of(view)
    if not parts:
        raise LayoutError("elements must not all be padding")
    number = np.full(view.shape, -1)
    local = np.full(view.shape, PAD)
    for k, part in enumerate(parts):
        inside = there & storages.within(view, part)
        number[inside], local[inside] = k, view[inside] - part.base
    owner = number.max(axis=2)
    if ((number != owner[..., None]) & there).any():
        raise LayoutError("elements of a position must be computed by one layer")
    vector = np.where(there, local // native, np.iinfo(np.int64).max).min(axis=2)
    lanes = np.where(there, local - vector[..., None] * native, PAD)
    keys = np.concatenate([owner[..., None], lanes], axis=2).reshape(-1, channels + 1)
    _, kinds = np.unique(keys, axis=0, return_inverse=True)
    count = 0
    for rows, columns in _grids(kinds.reshape(height, width), vector):
        count += 1
        if count > MOST_CHAINS:
            raise LayoutError(f"elements must be such that at most {MOST_CHAINS} chains copy them")
        y, x = rows.start, columns.start
        pattern, storage = lanes[y, x], parts[int(owner[y, x])]
        if (pattern == PAD).all():
            raise LayoutError("positions must not be all padding")
        down = int(vector[y + rows.step, x] - vector[y, x]) if len(rows) > 1 else 0
        along = int(vector[y, x + columns.step] - vector[y, x]) if len(columns) > 1 else 0
        tiles = int(pattern.max()) // native + 1
        walk = Walk(storage, int(vector[y, x]), len(rows), len(columns), tiles, down, along, pattern)
        stays = np.array_equal(pattern, np.arange(channels)) and _alone(lowering, storage, walk, channels)
        yield _Box(rows, columns, walk, stays)


def _alone(lowering: Lowering, storage: Storage, walk: Walk, channels: int) -> bool:
    """Whether the vectors of a walk hold nothing beside its channels, so that they can be copied whole."""
    native = storage.native
    if channels % native == 0:
        return True
    ids = next((layer.ids for layer in lowering.done.layers if layer.target is storage), None)
    if ids is None:
        ids = next(storage.view(order.shape[2])[order != PAD] for held, order in lowering.done.inputs.values()
                   if held is storage)  # fmt: skip
    lane = (ids[ids != PAD] - storage.base) % (storage.tiles * native)
    first = walk.start % storage.tiles * native
    return not ((lane >= first + channels) & (lane < first + walk.tiles * native)).any()


def _grids(kinds: Ids, vector: Ids) -> Iterator[tuple[range, range]]:
    """Rows and columns of boxes of one kind in which vectors are at equal distances, as few as few steps give."""
    for kind in np.unique(kinds):
        rows, columns = np.nonzero(kinds == kind)
        ys, xs = _even(np.unique(rows)), _even(np.unique(columns))
        if ys is not None and xs is not None and len(ys) * len(xs) == len(rows):
            grids = next((boxes for steps in _STEPS if (boxes := _stepped(vector, ys, xs, *steps)) is not None), None)
            if grids is not None:
                yield from grids
                continue
        for y in np.unique(rows):
            line = range(int(y), int(y) + 1)
            yield from ((line, run) for run in _runs(columns[rows == y], vector[y]))


def _stepped(vector: Ids, ys: range, xs: range, down: int, along: int) -> list[tuple[range, range]] | None:
    """A grid in ``down`` times ``along`` coarser ones; ``None`` if vectors of one are not at equal distances."""
    if down > len(ys) or along > len(xs):
        return None
    grids = [(ys[y::down], xs[x::along]) for y in range(down) for x in range(along)]
    return grids if all(_regular(vector, *grid) for grid in grids) else None


def _even(numbers: Ids) -> range | None:
    """Sorted numbers as a range; ``None`` if they are not at equal distances."""
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    run = range(int(numbers[0]), int(numbers[-1]) + 1, step)
    return run if len(run) == len(numbers) and (np.array(run) == numbers).all() else None


def _regular(vector: Ids, rows: range, columns: range) -> bool:
    """Whether vectors of a box are at equal distances along rows and along columns."""
    box = vector[rows.start : rows.stop : rows.step, columns.start : columns.stop : columns.step]
    down = box[1, 0] - box[0, 0] if len(rows) > 1 else 0
    along = box[0, 1] - box[0, 0] if len(columns) > 1 else 0
    y, x = np.ogrid[: len(rows), : len(columns)]
    return bool((box == box[0, 0] + y * down + x * along).all())


def _runs(columns: Ids, vector: Ids) -> Iterator[range]:
    """Columns of a row in runs, as long as they and their vectors are at equal distances."""
    start = 0
    while start < len(columns):
        end = start + 1
        if end < len(columns):
            step, jump = columns[end] - columns[start], vector[columns[end]] - vector[columns[start]]
            while (
                end < len(columns)
                and columns[end] - columns[end - 1] == step
                and vector[columns[end]] - vector[columns[end - 1]] == jump
            ):
                end += 1
        last = int(columns[end - 1])
        yield range(int(columns[start]), last + 1, int(columns[start + 1] - columns[start]) if end - start > 1 else 1)
        start = end
