"""Operators that move elements."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal


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
    """With more axes of length 1."""
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
    """One tensor behind the other."""
    if constants := [name for name in node.inputs if ctx.is_constant(name)]:
        raise Refusal(
            f"operand '{constants[0]}' must be computed by the model, not constant",
            "pad the others with zeros in its place (Pad), and add a constant that holds it there (Add)",
        )
    inputs = [ctx.tensor(name) for name in node.inputs]
    (axis,) = ctx.axes([node.attrs["axis"]], len(ctx.shape(inputs[0])))
    return ctx.emit(node, "Concat", inputs, axis=axis)


def _take(ctx: Context, node: OnnxNode, x: str, taken: dict[int, range]) -> str:
    """The elements with some indices along some axes."""
    if not all(taken.values()):
        raise Refusal("takes no elements", "remove it")
    columns: dict[str, Any] = {"axes": tuple(taken)}
    for key in ("start", "stop", "step"):
        columns[f"{key}s"] = tuple(getattr(indices, key) for indices in taken.values())
    return ctx.emit(node, "Slice", [x], **columns)


def slice_(ctx: Context, node: OnnxNode) -> str:
    """As slices of Python."""
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    starts, stops = ctx.integers(node, 1, "starts") or [], ctx.integers(node, 2, "ends") or []
    axes = ctx.integers(node, 3, "axes")
    axes = list(ctx.axes(range(len(starts)) if axes is None else axes, len(shape)))
    steps = ctx.integers(node, 4, "steps") or [1] * len(axes)
    if 0 in steps or not len(axes) == len(starts) == len(stops) == len(steps):
        raise Refusal("starts, ends, axes and steps must go together", "correct the model")
    rows = zip(axes, starts, stops, steps, strict=True)
    return _take(ctx, node, x, {axis: range(*slice(a, b, c).indices(shape[axis])) for axis, a, b, c in rows})


def split(ctx: Context, node: OnnxNode) -> list[str]:
    """A Slice for every output that is read."""
    x = ctx.tensor(node.input(0))
    shape, count = ctx.shape(x), len(node.outputs)
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(shape))
    sizes = ctx.integers(node, 1, "split")
    if sizes is None:
        part = -(-shape[axis] // count)
        sizes = [part] * (count - 1) + [shape[axis] - part * (count - 1)]
    if len(sizes) != count or sum(sizes) != shape[axis]:
        raise Refusal(
            f"parts of {sizes} must be {count} and fill the {shape[axis]} of axis {axis}", "correct the model"
        )
    parts = zip(node.outputs, accumulate(sizes, initial=0), sizes, strict=False)
    used = [(name in ctx.used, range(start, start + size)) for name, start, size in parts]
    return [_take(ctx, node, x, {axis: taken}) if read else "" for read, taken in used]


def gather(ctx: Context, node: OnnxNode) -> str:
    """Constant indices: a Slice for those at equal distances, side by side."""
    x, indices = ctx.tensor(node.input(0)), ctx.constant(node.input(1), "indices").astype(int)
    shape = ctx.shape(x)
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(shape))
    if indices.size and not -shape[axis] <= indices.min() <= indices.max() < shape[axis]:
        raise Refusal(f"indices must be inside the {shape[axis]} of axis {axis}", "correct the model")
    runs = _runs((indices.reshape(-1) % shape[axis]).tolist())
    parts = [_take(ctx, node, x, {axis: run}) for run in runs or [range(0)]]
    part = parts[0] if len(parts) == 1 else ctx.emit(node, "Concat", parts, axis=axis)
    return (
        part if indices.ndim == 1 else _to_shape(ctx, node, part, (*shape[:axis], *indices.shape, *shape[axis + 1 :]))
    )


def _runs(indices: list[int]) -> list[range]:
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
    """More elements at the ends, or fewer, which is a Slice."""
    x, mode = ctx.tensor(node.input(0)), node.attrs.get("mode", "constant")
    shape = ctx.shape(x)
    rank, amounts = len(shape), ctx.integers(node, 1, "pads") or []
    axes = ctx.axes(ctx.integers(node, 3, "axes") or range(rank), rank)
    if mode not in ("constant", "reflect", "edge", "wrap") or len(amounts) != 2 * len(axes):
        raise Refusal(f"mode must be constant, reflect, edge or wrap with two pads per axis, not {mode}", "use Concat")
    pads = np.zeros(2 * rank, dtype=int)
    for k, axis in enumerate(axes):
        pads[[axis, rank + axis]] = amounts[k], amounts[len(axes) + k]
    if pads.min() < 0:
        cut = np.minimum(pads, 0)
        x = _take(ctx, node, x, {k: range(-int(cut[k]), n + int(cut[rank + k])) for k, n in enumerate(shape)})
    value = node.attrs.get("value", 0.0)
    if node.input(2):
        value = ctx.floats(node.input(2), "value").reshape(-1)[0]
    sizes = tuple(int(size) for size in np.maximum(pads, 0))
    return ctx.emit(node, "Pad", [x], pads=sizes, mode=mode, value=float(value))


HANDLERS: dict[str, Handler] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Slice": slice_,
    "Split": split,
    "Gather": gather,
    "Pad": pad,
}
