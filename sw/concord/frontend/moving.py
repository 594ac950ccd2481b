"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.frontend.context import Context, Handler, NodeReader, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.limits import LARGEST_TENSOR
from concord.graph.ir import Shape
from concord.graph.ops.base import broadcast
from concord.utils.arrays import FloatArray

#: Slices that take the place of a product along an axis: one is an instruction or more.
_MOST_RUNS = 256


def _to_shape(ctx: Context, node: OnnxNode, x: str, shape: tuple[int, ...]) -> str:
    return ctx.emit(node, "Reshape", [x], shape=shape)


def reshape(ctx: Context, node: OnnxNode) -> str:
    """Zeros copy a size (unless ``allowzero``), and one size may be -1."""
    x, wanted = ctx.tensor(node.input(0)), ctx.integers(node, 1, "shape") or []
    old = ctx.shape(x)
    if not node.attrs.get("allowzero", 0):
        wanted = [old[k] if size == 0 and k < len(old) else size for k, size in enumerate(wanted)]
    if -1 in wanted:
        rest = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = math.prod(old) // max(rest, 1)
    return _to_shape(ctx, node, x, tuple(wanted))


def flatten(ctx: Context, node: OnnxNode) -> str:
    """Two axes: those before ``axis`` and those from there on."""
    x, axis = ctx.tensor(node.input(0)), int(node.attrs.get("axis", 1))
    shape = ctx.shape(x)
    axis += len(shape) if axis < 0 else 0
    return _to_shape(ctx, node, x, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def squeeze(ctx: Context, node: OnnxNode) -> str:
    """Without some axes of length 1, or all of them."""
    x, axes = ctx.tensor(node.input(0)), ctx.integers(node, 1, "axes")
    shape = ctx.shape(x)
    gone = ctx.axes([k for k, size in enumerate(shape) if size == 1] if axes is None else axes, len(shape))
    return _to_shape(ctx, node, x, tuple(size for k, size in enumerate(shape) if k not in gone))


def unsqueeze(ctx: Context, node: OnnxNode) -> str:
    """Tensor with more axes of length 1."""
    x, axes = ctx.tensor(node.input(0)), ctx.integers(node, 1, "axes") or []
    shape = list(ctx.shape(x))
    for axis in sorted(ctx.axes(axes, len(shape) + len(axes))):
        shape.insert(axis, 1)
    return _to_shape(ctx, node, x, tuple(shape))


def transpose(ctx: Context, node: OnnxNode) -> str:
    """Axes in another order."""
    x = ctx.tensor(node.input(0))
    rank = len(ctx.shape(x))
    return ctx.emit(node, "Transpose", [x], perm=tuple(node.attrs.get("perm", reversed(range(rank)))))


def concat(ctx: Context, node: OnnxNode) -> str:
    """Concatenation of tensors; constants are added where the others have been padded with zeros."""
    names = node.inputs
    computed = [k for k, name in enumerate(names) if not ctx.is_constant(name)]
    shapes = [ctx.operand_shape(name) for name in names]
    rank = len(shapes[0])
    (axis,) = ctx.axes([node.attrs["axis"]], rank)
    if any(len(shape) != rank for shape in shapes):
        raise Refusal(f"operands must have {rank} axes as the first one has")
    ends = [*accumulate(shape[axis] for shape in shapes)]
    parts, begin = [], 0
    for k in computed:
        stop = ends[-1] if k == computed[-1] else ends[k]
        front, back = ends[k] - shapes[k][axis] - begin, stop - ends[k]
        parts.append(_padded(ctx, node, ctx.tensor(names[k]), axis, front, back))
        begin = stop
    y = ctx.joined(node, parts, axis)
    if len(computed) == len(names):
        return y
    rest = [ctx.floats(n, "operand") if ctx.is_constant(n) else np.zeros(s) for n, s in zip(names, shapes, strict=True)]
    return ctx.emit(node, "Add", [y], constant=np.concatenate(rest, axis))


def _padded(ctx: Context, node: OnnxNode, x: str, axis: int, front: int, back: int) -> str:
    """Tensor with zeros before and after its elements along an axis."""
    if not front and not back:
        return x
    rank = len(ctx.shape(x))
    pads = [0] * 2 * rank
    pads[axis], pads[rank + axis] = front, back
    return ctx.emit(node, "Pad", [x], pads=tuple(pads), mode="constant", value=0.0)


def check_repeated(shape: Sequence[int], counts: Sequence[int]) -> None:
    """``Refusal`` if a tensor that is repeated so many times along each axis is large."""
    size = math.prod(shape) * math.prod(counts)
    if size > LARGEST_TENSOR:
        raise Refusal(f"result must have at most {LARGEST_TENSOR} elements, not {size}", "make it smaller")


def _repeated(ctx: Context, node: OnnxNode, x: str, counts: list[int]) -> str:
    """The tensor so many times along each axis."""
    check_repeated(ctx.shape(x), counts)
    for axis, count in enumerate(counts):
        if count > 1:
            x = ctx.emit(node, "Concat", [x] * count, axis=axis)
    return x


def tile(ctx: Context, node: OnnxNode) -> str:
    """The whole tensor several times along some axes."""
    x = ctx.tensor(node.input(0))
    return _repeated(ctx, node, x, repeats_of(ctx, node, len(ctx.shape(x))))


def repeats_of(ctx: NodeReader, node: OnnxNode, rank: int) -> list[int]:
    """Repeats of a tensor by Tile, one for each of so many axes."""
    counts = ctx.integers(node, 1, "repeats") or []
    if len(counts) != rank or min(counts, default=1) < 1:
        raise Refusal(f"repeats must be at least 1 for each of {rank} axes, not {counts}")
    return counts


def broadcast_to(ctx: Context, node: OnnxNode, x: str, wanted: tuple[int, ...]) -> str:
    """The tensor in the shape to which its own and ``wanted`` are broadcast: axes of length 1 are repeated."""
    shape, counts = broadcast_counts(ctx.shape(x), wanted)
    if len(shape) > len(ctx.shape(x)):
        x = _to_shape(ctx, node, x, shape)
    return _repeated(ctx, node, x, counts)


def broadcast_counts(shape: Shape, wanted: Shape) -> tuple[Shape, list[int]]:
    """A shape with the axes that ``wanted`` has in front, and how many times each is repeated to be broadcast to it."""
    try:
        full = broadcast(shape, wanted)
    except ValueError as error:
        raise Refusal(str(error)) from error
    shape = (1,) * (len(full) - len(shape)) + shape
    return shape, [new // old for new, old in zip(full, shape, strict=True)]


def expand(ctx: Context, node: OnnxNode) -> str:
    """Axes of length 1 are repeated, as broadcasting with a shape makes them."""
    return broadcast_to(ctx, node, ctx.tensor(node.input(0)), tuple(ctx.integers(node, 1, "shape") or []))


def blocks_of(node: OnnxNode, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """DepthToSpace and SpaceToDepth: channels that become neighbouring positions, or these that become channels.

    Returns
    -------
    tuple
        Shape in parts, order of the axes of these, and shape of the result.
    """
    size, (batch, channels, height, width) = int(node.attrs["blocksize"]), shape
    left, first = channels // size**2, node.attrs.get("mode", "DCR") == "DCR"
    if node.op == "SpaceToDepth":
        if height % size or width % size:
            reason = f"height and width must be multiples of {size}, not {height} and {width}"
            raise Refusal(reason, "pad or cut the image")
        height, width = height // size, width // size
        parts, order = (batch, channels, height, size, width, size), (0, 3, 5, 1, 2, 4) if first else (0, 1, 3, 5, 2, 4)
        return parts, order, (batch, channels * size**2, height, width)
    if left * size**2 != channels:
        raise Refusal(f"channels must be a multiple of {size**2}, not {channels}")
    made = batch, left, height * size, width * size
    if first:
        return (batch, size, size, left, height, width), (0, 3, 4, 1, 5, 2), made
    return (batch, left, size, size, height, width), (0, 1, 4, 2, 5, 3), made


def _blocks(ctx: Context, node: OnnxNode) -> str:
    x = ctx.tensor(node.input(0))
    parts, order, made = blocks_of(node, ctx.shape(x))
    return _to_shape(ctx, node, ctx.emit(node, "Transpose", [_to_shape(ctx, node, x, parts)], perm=order), made)


def _take(ctx: Context, node: OnnxNode, x: str, taken: dict[int, range]) -> str:
    """The elements with some indices along some axes."""
    if not all(taken.values()):
        raise Refusal("takes no elements", "remove it")
    columns: dict[str, Any] = {"axes": tuple(taken)}
    for key in ("start", "stop", "step"):
        columns[f"{key}s"] = tuple(getattr(indices, key) for indices in taken.values())
    return ctx.emit(node, "Slice", [x], **columns)


def slice_(ctx: Context, node: OnnxNode) -> str:
    """Slices as those of Python."""
    x = ctx.tensor(node.input(0))
    return _take(ctx, node, x, places_of_slice(ctx, node, ctx.shape(x)))


def places_of_slice(ctx: NodeReader, node: OnnxNode, shape: Sequence[int]) -> dict[int, range]:
    """Places that Slice takes of a tensor, by axis."""
    starts, stops = ctx.integers(node, 1, "starts") or [], ctx.integers(node, 2, "ends") or []
    axes = ctx.integers(node, 3, "axes")
    axes = list(ctx.axes(range(len(starts)) if axes is None else axes, len(shape)))
    steps = ctx.integers(node, 4, "steps") or [1] * len(axes)
    if 0 in steps or not len(axes) == len(starts) == len(stops) == len(steps):
        raise Refusal("starts, ends, axes and steps must go together")
    rows = zip(axes, starts, stops, steps, strict=True)
    return {axis: range(*slice(a, b, c).indices(shape[axis])) for axis, a, b, c in rows}


def split(ctx: Context, node: OnnxNode) -> list[str]:
    """A Slice for every output that is read."""
    x = ctx.tensor(node.input(0))
    axis, parts = places_of_split(ctx, node, ctx.shape(x))
    used = [(name in ctx.used, taken) for name, taken in zip(node.outputs, parts, strict=False)]
    return [_take(ctx, node, x, {axis: taken}) if read else "" for read, taken in used]


def places_of_split(ctx: NodeReader, node: OnnxNode, shape: Sequence[int]) -> tuple[int, list[range]]:
    """Axis of Split, and the places that each output takes there."""
    count = len(node.outputs)
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(shape))
    sizes = ctx.integers(node, 1, "split")
    if sizes is None:
        part = -(-shape[axis] // count)
        sizes = [part] * (count - 1) + [shape[axis] - part * (count - 1)]
    if len(sizes) != count or sum(sizes) != shape[axis]:
        raise Refusal(f"parts of {sizes} must be {count} and fill the {shape[axis]} of axis {axis}")
    starts = accumulate(sizes, initial=0)
    return axis, [range(start, start + size) for start, size in zip(starts, sizes, strict=False)]


def gather(ctx: Context, node: OnnxNode) -> str:
    """Constant indices: a Slice for those at equal distances, side by side."""
    x = ctx.tensor(node.input(0))
    axis, indices, made = places_of_gather(ctx, node, ctx.shape(x))
    part = picked(ctx, node, x, axis, indices)
    return part if len(made) == len(ctx.shape(x)) else _to_shape(ctx, node, part, made)


def places_of_gather(ctx: NodeReader, node: OnnxNode, shape: Sequence[int]) -> tuple[int, list[int], tuple[int, ...]]:
    """Axis of Gather, the places that it takes there, and the shape of the result."""
    indices = ctx.constant(node.input(1), "indices").astype(int)
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(shape))
    if indices.size and not -shape[axis] <= indices.min() <= indices.max() < shape[axis]:
        raise Refusal(f"indices must be inside the {shape[axis]} of axis {axis}")
    made = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    return axis, (indices.reshape(-1) % shape[axis]).tolist(), made


def picked(ctx: Context, node: OnnxNode, x: str, axis: int, indices: list[int], most_runs: int = _MOST_RUNS) -> str:
    """The elements with these indices along an axis: a Slice for those at equal distances, side by side, or a Pick."""
    if len(taken := runs(indices)) > most_runs:
        return ctx.emit(node, "Pick", [x], axis=axis, indices=tuple(indices))
    parts = [_take(ctx, node, x, {axis: run}) for run in taken or [range(0)]]
    return ctx.joined(node, parts, axis)


def along(ctx: Context, node: OnnxNode, x: str, axis: int, matrix: FloatArray) -> str:
    """A product with a matrix ``[results, elements]`` along an axis."""
    rank = len(ctx.shape(x))
    order = (*(k for k in range(rank) if k != axis), axis)
    last = x if axis == rank - 1 else ctx.emit(node, "Transpose", [x], perm=order)
    y = ctx.emit(node, "Dense", [last], weight=matrix, bias=np.zeros(len(matrix)), fixed=True)
    return y if axis == rank - 1 else ctx.emit(node, "Transpose", [y], perm=tuple(np.argsort(order).tolist()))


def runs(indices: list[int]) -> list[range]:
    """Indices as ranges, the first as long as possible, then the next."""
    runs, start = [], 0
    while start < len(indices):
        step = (indices[start + 1] - indices[start] if start + 1 < len(indices) else 0) or 1
        end = start + 1
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        runs.append(range(indices[start], max(indices[start] + step * (end - start), -1), step))
        start = end
    return runs


def pad(ctx: Context, node: OnnxNode) -> str:
    """Tensor with more elements at the ends, or fewer, which is a Slice."""
    x, mode = ctx.tensor(node.input(0)), node.attrs.get("mode", "constant")
    shape = ctx.shape(x)
    rank, pads = len(shape), pads_of(ctx, node, len(shape))
    if pads.min() < 0:
        cut = np.minimum(pads, 0)
        x = _take(ctx, node, x, {k: range(-int(cut[k]), n + int(cut[rank + k])) for k, n in enumerate(shape)})
    value = node.attrs.get("value", 0.0)
    if node.input(2):
        value = ctx.floats(node.input(2), "value").reshape(-1)[0]
    sizes = tuple(int(size) for size in np.maximum(pads, 0))
    return ctx.emit(node, "Pad", [x], pads=sizes, mode=mode, value=float(value))


def pads_of(ctx: NodeReader, node: OnnxNode, rank: int) -> NDArray[np.int64]:
    """Elements that Pad adds in front along each axis, then those at the end; negative ones are left out."""
    mode, amounts = node.attrs.get("mode", "constant"), ctx.integers(node, 1, "pads") or []
    axes = ctx.axes(ctx.integers(node, 3, "axes") or range(rank), rank)
    if mode not in ("constant", "reflect", "edge", "wrap") or len(amounts) != 2 * len(axes):
        raise Refusal(f"mode must be constant, reflect, edge or wrap with two pads per axis, not {mode}", "use Concat")
    pads = np.zeros(2 * rank, dtype=np.int64)
    for k, axis in enumerate(axes):
        pads[[axis, rank + axis]] = amounts[k], amounts[len(axes) + k]
    return pads


HANDLERS: dict[str, Handler] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Tile": tile,
    "Expand": expand,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
    "Slice": slice_,
    "Split": split,
    "Gather": gather,
    "Pad": pad,
}
