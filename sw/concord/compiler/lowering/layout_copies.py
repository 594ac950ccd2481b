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
from math import gcd, prod

import numpy as np

from concord.compiler.ir.layers import Layer, LayerWindow, Reduction
from concord.compiler.ir.layout import PAD, LayoutError, Storage, Storages, Walk, even
from concord.compiler.lowering import legality
from concord.compiler.lowering.lower import Lowering, NodeBuilder
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.lowering.padding import MOST_CHAINS, padded_axes
from concord.graph.ir import Node, fresh
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import BinaryAttributes, CopyAttributes, ReduceMaxAttributes
from concord.graph.ops.linear import WeightedSumAttributes
from concord.graph.ops.moving import PickAttributes
from concord.program.allocator import CapacityError
from concord.spec.isa import VECTOR_ADDR_BITS
from concord.utils.arrays import FloatArray, Ids
from concord.utils.matrices import MatrixTooLarge, zeros

#: Words of copies, in terms of those that the matrix memory has, that are refused before they are made.
_FAR_TOO_MANY = 16
#: Words of a matrix that a chain more is worth.
_CHAIN_WORDS = 8
_NO_WEIGHT: FloatArray = np.empty(0)
#: Steps along rows and columns between positions that one chain copies, those that take few chains first.
_STEPS = sorted(product(range(1, 9), repeat=2), key=prod)


def with_copies(lowering: Lowering, node: Node) -> list[Node] | None:
    """Copies of the operands of a node, and the node that reads them; ``None`` if they would be of no use.

    What has been picked in any order is picked by a product, if its matrix may be that large.
    """
    graph = lowering.graph
    for name in node.inputs if node.op != "Copy" else ():
        if name and (products := _picked_by_a_product(lowering, node, name)) is not None:
            return products
    operands = [name for name in node.inputs if name and not _is_copy(lowering, name)]
    if not operands or node.op == "Copy" or operator_of(node).recurrence or _is_masked(node):
        return None
    together = len(operands) > 1 and issubclass(operator_of(node).record, BinaryAttributes)  # those are broadcast
    largest = max(prod(graph.shapes[name]) for name in (*operands, node.outputs[0]))
    if largest > lowering.config.native << VECTOR_ADDR_BITS:
        return None
    copies: dict[str, Node] = {}
    try:
        for name in operands:
            shape = graph.shapes[node.outputs[0]] if together else graph.shapes[name]
            like = max(operands, key=_size(lowering)) if together else name
            axis = 1 if operator_of(node).windowed else lanes_of(lowering, like, shape)
            if issubclass(operator_of(node).record, WeightedSumAttributes):
                axis = node.attributes(WeightedSumAttributes).axis
            if node.op == "PadCopy" and axis in (padded := padded_axes(node)):
                axis = max((k for k in range(len(shape)) if k not in padded), key=shape.__getitem__)
            copies[name] = lowering.new_node(node, "Copy", f"copy of {name}", (name,), shape=shape, lanes=axis)
    except ValueError:
        return None
    inputs = tuple(copies[name].outputs[0] if name in copies else name for name in node.inputs)
    return [*copies.values(), node.replace(inputs=inputs)]


def _picked_by_a_product(lowering: Lowering, node: Node, name: str) -> list[Node] | None:
    """A node, with a product with zeros and ones in the place of the last Pick that an operand comes from."""
    graph, later = lowering.graph, list[Node]()
    while (producer := graph.producer(name)) is not None and producer.op != "Pick":
        if not operator_of(producer).view or len(producer.inputs) != 1:
            return None
        later.append(producer)
        name = producer.inputs[0]
    if producer is None:
        return None
    attributes, shape = producer.attributes(PickAttributes), graph.shapes[producer.inputs[0]]
    axis, last = attributes.axis, len(shape) - 1
    try:
        matrix = zeros("elements that are picked", len(attributes.indices), shape[axis])
    except MatrixTooLarge:
        return None
    matrix[np.arange(len(matrix)), attributes.indices] = 1.0
    build = NodeBuilder(lowering, node)
    order = (*(k for k in range(last + 1) if k != axis), axis)
    x = producer.inputs[0] if axis == last else build.add("Transpose", "picked from", producer.inputs[0], perm=order)
    y = build.add("Dense", "picked", x, weight=matrix, bias=np.zeros(len(matrix)), fixed=True)
    if axis != last:
        y = build.add("Transpose", "picked back", y, perm=tuple(np.argsort(order).tolist()))
    for view in reversed(later):
        y = build.add(view.op, "of picked", y, **view.attrs)
    whole = node.inputs[node.inputs.index(later[0].outputs[0] if later else producer.outputs[0])]
    return [*build.nodes, node.replace(inputs=tuple(y if x == whole else x for x in node.inputs))]


def output_copy(lowering: Lowering, tensor: str, output: str) -> Node:
    """The node that copies a tensor to an output of the network."""
    shape = lowering.graph.shapes[tensor]
    attrs = {"shape": shape, "lanes": lanes_of(lowering, tensor, shape)}
    return Node("Copy", fresh(lowering.graph, f"copy of {tensor}"), (tensor,), (output,), attrs)


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
    """Box that one chain copies: some native vectors of positions ``rows`` x ``columns`` of the copy.

    Parameters
    ----------
    rows, columns : range
        The positions.
    walk : Walk
        The vectors that are read.
    stays : bool
        Whether lanes stay.
    window : LayerWindow
        Those that make up a position.
    tile, count : int
        Number of the first native vector of a position that is written, and number of elements from there on.
    places : array
        ``[count]``: element of the ``taps * walk.tiles`` vectors of a window, ``PAD`` for zeros.
    """

    rows: range
    columns: range
    walk: Walk
    stays: bool
    window: LayerWindow
    tile: int
    count: int
    places: Ids

    @property
    def words(self) -> int:
        """Native tiles of the matrix; a chain that moves whole vectors has none."""
        return 0 if self.stays else -(-self.count // self.walk.storage.native) * self.window.taps * self.walk.tiles


def copy(lowering: Lowering, node: Node) -> None:
    """A storage for the copy, filled box by box.

    Channels that several layers compute are brought together in front of that: for nothing where that can be, else
    each by a copy of its own. A reader that takes channels from any lane takes these as they are.
    """
    attributes = node.attributes(CopyAttributes)
    if (size := prod(attributes.shape)) > (limit := lowering.config.native << VECTOR_ADDR_BITS):
        raise LayoutError(f"elements that are copied must be at most {limit}, not {size}")
    view = _positions(lowering.view(node.inputs[0]), attributes)
    if (view < PAD).any():
        raise LayoutError("elements must all be computed, none be the border of an input")
    groups = _groups(lowering.done.storages, view)
    if len(groups) > 1:
        readers = [operator_of(reader) for reader in lowering.graph.consumers(node.outputs[0])]
        anywhere = bool(readers) and all(reader.windowed or reader.weights is not None for reader in readers)
        if anywhere and (beside := _beside(lowering, node, view, groups)) is not None:
            lowering.done.views[node.outputs[0]] = _in_shape(beside, attributes)
            return
        try:
            view = _positions(lowering.whole(node.inputs[0]), attributes)
        except LayoutError:
            view = _plain(lowering, node, view, groups)
            if anywhere:
                lowering.done.views[node.outputs[0]] = _in_shape(view, attributes)
                return
            view = lowering.done.storages.gather(view, "elements")
    view = _plain(lowering, node, view, [np.arange(view.shape[2])])
    lowering.done.views[node.outputs[0]] = _in_shape(view, attributes)


def _beside(lowering: Lowering, node: Node, view: Ids, groups: list[Ids]) -> Ids | None:
    """The view with those groups of channels copied that are no storage of their own.

    ``None`` if there are none, or if one of them takes a product: then all channels are brought together first.
    """
    moved = [channels for channels in groups if not _is_storage(lowering.done.storages, view[..., channels])]
    try:
        boxes = [box for channels in moved for box in _boxes(lowering, view[..., channels])]
    except LayoutError:
        return None
    if not boxes or not all(box.stays for box in boxes):
        return None
    copied = _plain(lowering, node, view, moved)
    return np.where(copied == PAD, view, copied)


def _is_storage(storages: Storages, view: Ids) -> bool:
    """True if a view is all positions of a storage that can be placed beside others."""
    parts = storages.of(view)
    if len(parts) != 1 or parts[0].parent is not None or parts[0].fixed or parts[0].uniform:
        return False
    return np.array_equal(view, parts[0].view(parts[0].tiles * parts[0].native)[..., : view.shape[2]])


def _groups(storages: Storages, view: Ids) -> list[Ids]:
    """Channels that lie in equal storages at every position."""
    owner = np.full(view.shape, PAD)
    for k, part in enumerate(storages.of(view)):
        owner[(view != PAD) & storages.within(view, part)] = k
    _, kinds = np.unique(owner.reshape(-1, view.shape[2]), axis=1, return_inverse=True)
    return [np.flatnonzero(kinds == kind) for kind in range(kinds.max() + 1)]


def _plain(lowering: Lowering, node: Node, view: Ids, groups: list[Ids]) -> Ids:
    """Copy every group of channels into a storage of its own, and return where all of them lie."""
    height, width, _ = view.shape
    result = np.full(view.shape, PAD)
    layers: list[Layer] = []
    for channels in groups:
        boxes = list(_boxes(lowering, view[..., channels]))
        _check_room(lowering, node, boxes)
        parent = lowering.done.storages.new(node.outputs[0], height, width, len(channels))
        legality.check_storage(parent)
        first = len(lowering.done.layers) + len(layers)
        layers += [
            _layer(lowering, node, parent, channels, view.shape[2], box, k) for k, box in enumerate(boxes, first)
        ]
        result[..., channels] = parent.view(len(channels))
    for layer in layers:
        legality.check(layer, lowering.config)
    lowering.done.layers += layers
    return result


def is_together(storages: Storages, view: Ids) -> bool:
    """True if the channels ``[height, width, channel]`` of every position lie in one storage."""
    return len(_groups(storages, view)) == 1


def chains_into(lowering: Lowering, node: Node, view: Ids, parent: Storage) -> list[Layer]:
    """Chains that write a view ``[height, width, channel]`` into a storage of this size; the caller appends them.

    Raises
    ------
    LayoutError
        As for :func:`copy`.
    """
    channels = np.arange(view.shape[2])
    layers = [
        _layer(lowering, node, parent, channels, len(channels), box, k)
        for k, box in enumerate(_boxes(lowering, view), len(lowering.done.layers))
    ]
    for layer in layers:
        legality.check(layer, lowering.config)
    return layers


def _check_room(lowering: Lowering, node: Node, boxes: list[_Box]) -> None:
    """Tell before matrices are made that they are far too large.

    Raises
    ------
    CapacityError
        With the words that they need.
    """
    config = lowering.config
    different = {(box.window.kernel, box.count, box.places.tobytes()): box.words for box in boxes if not box.stays}
    need, have = sum(different.values()) * config.native // (config.engines * config.lanes), config.matrix_depth
    if need > _FAR_TOO_MANY * have:
        copies = f"copies of {node.inputs[0]} need {need}"
        raise CapacityError(f"does not fit into {config.name}: matrix memory has {have} words, but {copies}")


def _positions(ids: Ids, attributes: CopyAttributes) -> Ids:
    """A view, broadcast, as ``[height, width, channel]`` of the copy."""
    rank = max(len(attributes.shape), 1)
    full = np.broadcast_to(ids, attributes.shape).reshape(attributes.shape or (1,))
    moved = np.moveaxis(full, attributes.lanes, -1)
    return moved.reshape(-1, moved.shape[-2] if rank > 1 else 1, moved.shape[-1])


def _in_shape(view: Ids, attributes: CopyAttributes) -> Ids:
    """A view ``[height, width, channel]`` in the shape of the tensor."""
    shape = list(attributes.shape or (1,))
    channels = shape.pop(attributes.lanes)
    return np.moveaxis(view.reshape(*shape, channels), -1, attributes.lanes).reshape(attributes.shape)


def _is_masked(node: Node) -> bool:
    return node.op == "ReduceMax" and node.attributes(ReduceMaxAttributes).masked


def _layer(lowering: Lowering, node: Node, parent: Storage, channels: Ids, of: int, box: _Box, number: int) -> Layer:
    """The chain that writes a box of some channels, of so many that the copy has."""
    storages, native = lowering.done.storages, lowering.config.native
    height, width, count = len(box.rows), len(box.columns), box.count
    target = storages.new(lowering.fresh(f"{node.name}.{number}"), height, width, count)
    line = parent.width * parent.tiles
    offset = box.rows.start * line + box.columns.start * parent.tiles + box.tile
    channels = channels[box.tile * native :][:count]
    target.place(parent, offset, box.rows.step * line, box.columns.step * parent.tiles)
    ids = np.full((parent.height, parent.width, of), PAD)
    ids[np.ix_(np.array(box.rows), np.array(box.columns), channels)] = target.view(count)
    weight = None
    if not box.stays:
        full = zeros("a copy", count, box.window.taps * box.walk.tiles * native)
        used = np.flatnonzero(box.places != PAD)
        full[used, box.places[used]] = 1.0
        weight = full.reshape(count, *box.window.kernel, -1)
    reduction, size = Reduction.NONE if box.stays else Reduction.DENSE, (height, width, target.tiles)
    where = (node.outputs[0], target, _in_shape(ids, node.attributes(CopyAttributes)), node.inputs[0])
    return Layer(target.name, box.walk, reduction, weight, box.window, size, *where, nodes=[node.name])


def _boxes(lowering: Lowering, view: Ids) -> Iterator[_Box]:
    """The positions of ``view[height, width, channel]`` in boxes.

    Raises
    ------
    LayoutError
        If a position has no elements at all, or it takes too many chains.
    """
    storages, native = lowering.done.storages, lowering.config.native
    height, width, channels = view.shape
    there = view != PAD
    if not there.any(axis=2).all():
        raise LayoutError("positions must not be all padding")
    parts = storages.of(view)
    owner, local = np.zeros((height, width), np.int64), np.full(view.shape, PAD)
    for k, part in enumerate(parts):
        inside = there & storages.within(view, part)
        owner[inside.any(axis=2)] = k
        local[inside] = part.in_span(view[inside]) + part.span.start * native
    vector = np.where(there, local // native, np.iinfo(np.int64).max).min(axis=2)
    lanes = np.where(there, local - vector[..., None] * native, PAD)
    keys = np.concatenate([owner[..., None], lanes], axis=2).reshape(-1, channels + 1)
    _, kinds = np.unique(keys, axis=0, return_inverse=True)
    chains = 0
    for rows, columns in _grids(kinds.reshape(height, width), vector):
        y, x = rows.start, columns.start
        pattern, storage = lanes[y, x], parts[int(owner[y, x])].root
        down = int(vector[y + rows.step, x] - vector[y, x]) if len(rows) > 1 else 0
        along = int(vector[y, x + columns.step] - vector[y, x]) if len(columns) > 1 else 0
        tiles = int(pattern.max()) // native + 1
        walk = Walk(storage, int(vector[y, x]), len(rows), len(columns), tiles, down, along, pattern)
        stays = np.array_equal(pattern, np.arange(channels)) and _alone(lowering, storage, walk, channels)
        whole = _Box(rows, columns, walk, stays, LayerWindow(), 0, channels, pattern)
        boxes = [whole] if stays else _with_windows(lowering, whole)
        chains += len(boxes)
        if chains > MOST_CHAINS:
            raise LayoutError(f"elements must be such that at most {MOST_CHAINS} chains copy them")
        yield from boxes


def _with_windows(lowering: Lowering, whole: _Box) -> list[_Box]:
    """A box that takes a product, as chains with small matrices if that saves more than they cost.

    Vectors at equal distances are a window, so that those in between take no place in a matrix. Every native vector of
    a position that is written may have a window of its own.
    """
    native = lowering.config.native
    parts = [range(k, min(k + native, whole.count)) for k in range(0, whole.count, native)]
    ways = [[whole]]
    for ranges in ([range(whole.count)], parts)[: len(parts)]:
        boxes = [_windowed(whole, part.start // native, whole.places[part.start : part.stop]) for part in ranges]
        if all(box is not None and _possible(lowering, box) for box in boxes):
            ways.append([box for box in boxes if box is not None])
    return min(ways, key=lambda boxes: sum(box.words + _CHAIN_WORDS for box in boxes))


def _windowed(whole: _Box, tile: int, places: Ids) -> _Box | None:
    """The box that writes elements ``places`` from vector ``tile`` on; ``None`` if what it reads is no window."""
    walk, native = whole.walk, whole.walk.storage.native
    vectors = np.unique(places[places != PAD] // native)
    if not len(vectors):
        return None
    step = int(vectors[1] - vectors[0]) if len(vectors) > 1 else 1
    columns = next((k for k in range(1, len(vectors)) if vectors[k] - vectors[k - 1] != step), len(vectors))
    rows = len(vectors) // columns
    line = int(vectors[columns] - vectors[0]) if rows > 1 else 1
    grid = (vectors[0] + np.arange(rows)[:, None] * line + np.arange(columns) * step).reshape(-1)
    if not np.array_equal(grid, vectors):
        return None
    taps = [(rows, line), (columns, step)]
    if rows == 1 and walk.height == 1:
        taps.reverse()  # where no positions follow each other
    axes = [
        _axis(count, stride, *tap)
        for count, stride, tap in zip((walk.height, walk.width), (walk.row_stride, walk.stride), taps, strict=True)
    ]
    if any(axis is None for axis in axes):
        return None
    (height, row_stride, sy, dy), (width, stride, sx, dx) = (axis for axis in axes if axis is not None)
    window = LayerWindow((taps[0][0], taps[1][0]), (sy, sx), (dy, dx))
    start = walk.start + int(vectors[0])
    read = Walk(walk.storage, start, height, width, 1, row_stride, stride, np.arange(native))
    order = np.searchsorted(vectors, places // native) * native + places % native
    return _Box(whole.rows, whole.columns, read, False, window, tile, len(places), np.where(places == PAD, PAD, order))


def _axis(count: int, step: int, taps: int, distance: int) -> tuple[int, int, int, int] | None:
    """Trips and stride of ``count`` windows ``step`` vectors apart with taps at a ``distance``, and both in strides."""
    if taps == 1:
        return count, step, 1, 1
    if count == 1:
        return taps, distance, 1, 1
    if step <= 0:
        return None
    stride = gcd(step, distance)
    moved, dilated = step // stride, distance // stride
    return (count - 1) * moved + (taps - 1) * dilated + 1, stride, moved, dilated


def _possible(lowering: Lowering, box: _Box) -> bool:
    """True if a chain can copy a box."""
    out = (len(box.rows), len(box.columns), -(-box.count // lowering.config.native))
    layer = Layer(
        "", box.walk, Reduction.DENSE, _NO_WEIGHT, box.window, out, "", box.walk.storage, np.empty(0, np.int64), ""
    )
    try:
        legality.check(layer, lowering.config)
    except LayoutError:
        return False
    first, loops = box.walk.start, box.walk.loops
    ends = [(trips - 1) * step for trips, step in loops]
    low, high = (first + sum(f(end, 0) for end in ends) for f in (min, max))
    return 0 <= low and high < box.walk.storage.vectors


def _alone(lowering: Lowering, storage: Storage, walk: Walk, channels: int) -> bool:
    """True if the vectors of a walk hold nothing beside its channels, so that they can be copied whole."""
    left = channels - (walk.tiles - 1) * storage.native
    y, x = np.ogrid[: walk.height, : walk.width]
    last = storage.vector(walk.start + y * walk.row_stride + x * walk.stride + walk.tiles - 1)
    for ids in lowering.done.views.values() if left < storage.native else ():
        for part in lowering.done.storages.of(ids):
            if part.root is storage.root:
                vector, lane = np.divmod(ids[lowering.done.storages.within(ids, part)] - part.base, part.native)
                if np.isin(part.vector(vector[lane >= left]), last).any():
                    return False
    return True


def _grids(kinds: Ids, vector: Ids) -> Iterator[tuple[range, range]]:
    """Rows and columns of boxes of one kind in which vectors are at equal distances, as few as few steps give."""
    for kind in np.unique(kinds):
        rows, columns = np.nonzero(kinds == kind)
        ys, xs = even(np.unique(rows)), even(np.unique(columns))
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


def _regular(vector: Ids, rows: range, columns: range) -> bool:
    """True if vectors of a box are at equal distances along rows and along columns."""
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


def copies_text(lowered: Lowered) -> str:
    """Copies that were made, and their cost; empty if there are none."""
    names = {node.name for node in lowered.graph.nodes if node.op == "Copy"}
    chains = [layer for layer in lowered.layers if isinstance(layer, Layer) and names.intersection(layer.nodes)]
    if not chains:
        return ""
    rounded = len({layer.tensor for layer in chains if layer.weight is not None})
    exact = f"{rounded} of them rounded as in front of a product" if rounded else "exactly"
    return f"{len(names)} operands copied to where a layer needs them, by {len(chains)} chains, {exact}"
