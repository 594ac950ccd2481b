"""Operators that pick or place elements by constant indices, and linear ones that have a constant matrix.

The reference of ONNX computes them on numbers of elements, or on unit vectors: so what comes from where, and how often,
is exactly what ONNX says. Elements are moved along one axis if that suffices, else as one row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from math import prod

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.folding import reference_results
from concord.frontend.moving import picked
from concord.golden.rounding import nearest_integers
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import Array, FloatArray, Ids
from concord.utils.matrices import LARGEST, check_size, eye

#: Slices that take the place of a product: one is an instruction or more.
_MOST_RUNS = 64
#: First version of ScatterElements.
_FIRST_SCATTER = 11
#: Parts of regions, each of which is a slice and its maximum.
_MOST_PARTS = 256
#: Updates of one place that are compared or multiplied one after the other.
_MOST_ROUNDS = 16
#: Operators of reductions of updates, and the number that changes nothing.
_REDUCTIONS = {"max": ("Max", -BINARY16_MAX), "min": ("Min", BINARY16_MAX), "mul": ("Mul", 1.0)}


def _evaluated(ctx: Context, node: OnnxNode, operands: Mapping[int, Array], reduction: str | None = None) -> Array:
    """Result of the reference for a node, some of whose operands are replaced, or with another reduction."""
    from onnx import helper

    values = {
        f"operand {k}": operands[k] if k in operands else ctx.constants[name]
        for k, name in enumerate(node.inputs)
        if name
    }
    names = [f"operand {k}" if name else "" for k, name in enumerate(node.inputs)]
    op = "ScatterElements" if node.op == "Scatter" else node.op  # what it was called at first
    proto = helper.make_node(op, names, ["y"])
    proto.attribute.extend(item for item in node.proto.attribute if item.name != "reduction" or reduction is None)
    if reduction is not None:
        proto.attribute.append(helper.make_attribute("reduction", reduction))
    unfit = Refusal("indices must fit the operand")
    return reference_results(proto, values, max(ctx.opset, _FIRST_SCATTER), unfit)[0]


def _check_constant(ctx: Context, node: OnnxNode, computed: tuple[int, ...]) -> None:
    for k, name in enumerate(node.inputs):
        if name and k not in computed:
            ctx.constant(name, f"operand {k}")


def gathered(ctx: Context, node: OnnxNode) -> str:
    """Elements of the first operand."""
    x = ctx.tensor(node.input(0))
    _check_constant(ctx, node, (0,))
    shape = ctx.shape(x)
    ids = _evaluated(ctx, node, {0: np.arange(prod(shape), dtype=np.float64).reshape(shape)})
    return moved(ctx, node, x, ids.astype(np.int64))


def gathered_elements(ctx: Context, node: OnnxNode) -> str:
    """Elements each of which has its own index along an axis; all other indices are those of its place."""
    x, indices = ctx.tensor(node.input(0)), ctx.constant(node.input(1), "operand 1").astype(np.int64)
    shape = ctx.shape(x)
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(shape))
    part = tuple(slice(None if k == axis else size) for k, size in enumerate(indices.shape))
    try:
        ids = np.take_along_axis(np.arange(prod(shape)).reshape(shape)[part], indices, axis)
    except (IndexError, ValueError) as error:
        raise Refusal("indices must fit the operand") from error
    whole = all(a == b for k, (a, b) in enumerate(zip(shape, indices.shape, strict=True)) if k != axis)
    if whole and prod(shape) * ids.size > LARGEST and shape[axis] <= _MOST_RUNS:
        return _chosen(ctx, node, x, axis, indices % shape[axis])
    return moved(ctx, node, x, ids)


def _chosen(ctx: Context, node: OnnxNode, x: str, axis: int, indices: Ids) -> str:
    """Elements by their index along an axis: each of its slices times whether it is meant, added up."""
    total = ""
    for k in np.unique(indices).tolist():
        part = ctx.emit(node, "Slice", [x], axes=(axis,), starts=(k,), stops=(k + 1,), steps=(1,))
        part = ctx.emit(node, "Mul", [part], constant=(indices == k).astype(np.float64))
        total = ctx.emit(node, "Add", [total, part]) if total else part
    return total


def moved(ctx: Context, node: OnnxNode, x: str, ids: Ids) -> str:
    """A tensor of the elements with these numbers: along one axis if possible, else of all elements in a row."""
    if not ids.size:
        raise Refusal("takes no elements", "remove it")
    shape = ctx.shape(x)
    numbers = np.arange(prod(shape)).reshape(shape)
    for axis, size in enumerate(shape if ids.ndim == len(shape) else ()):
        indices = np.moveaxis(ids, axis, 0).reshape(ids.shape[axis], -1)[:, 0] // prod(shape[axis + 1 :]) % size
        if np.array_equal(numbers.take(indices, axis), ids):
            return picked(ctx, node, x, axis, indices.tolist())
    flat = ctx.emit(node, "Reshape", [x], shape=(1, prod(shape)))
    y = picked(ctx, node, flat, 1, ids.reshape(-1).tolist(), _MOST_RUNS)
    return ctx.emit(node, "Reshape", [y], shape=ids.shape)


def _product(ctx: Context, node: OnnxNode, x: str, matrix: FloatArray, bias: FloatArray | None = None) -> str:
    """A product with a constant along the last axis."""
    bias = np.zeros(len(matrix)) if bias is None else bias
    return ctx.emit(node, "Dense", [x], weight=matrix, bias=bias, fixed=True)


def linear(channels: bool, ctx: Context, node: OnnxNode) -> str:
    """A linear function of the first operand: a product with its matrix, whose columns are results of unit vectors.

    What it has for zeros is added.

    With ``channels`` the first two axes of the operand are those of images which all have the same matrix.
    """
    x = ctx.tensor(node.input(0))
    _check_constant(ctx, node, (0,))
    shape = ctx.shape(x)
    kept = shape[:2] if channels else ()
    inner = (1, 1, *shape[2:]) if channels else shape
    if channels and shape[0] != 1:
        raise Refusal(f"must have a batch of 1, not {shape[0]}", "export with a batch of 1")
    count = prod(inner)
    nothing = _evaluated(ctx, node, {0: np.zeros(inner, np.float32)}).astype(np.float64)
    check_size("a linear function", nothing.size, count)
    units = (np.eye(1, count, k, dtype=np.float32).reshape(inner) for k in range(count))
    columns = [(_evaluated(ctx, node, {0: unit}) - nothing).reshape(-1) for unit in units]
    flat = ctx.emit(node, "Reshape", [x], shape=(*kept, count) if channels else (1, count))
    y = _product(ctx, node, flat, np.stack(columns, 1), nothing.reshape(-1))
    final = (*kept, *nothing.shape[2:]) if channels else nothing.shape
    return ctx.emit(node, "Reshape", [y], shape=final)


def regions(ctx: Context, node: OnnxNode) -> str:
    """Means of constant regions are linear."""
    if node.attrs.get("mode", "avg") != "avg":
        raise Refusal("mode must be avg", "use means, or compute it outside the model")
    return linear(False, ctx, node)


def largest_in_regions(ctx: Context, node: OnnxNode) -> str:
    """The maximum of every part of constant regions of images; an empty part has zero."""
    x, regions = ctx.tensor(node.input(0)), ctx.floats(node.input(1), "rois").reshape(-1, 5)
    _, channels, height, width = ctx.shape(x)
    parts, scale = [int(n) for n in node.attrs["pooled_shape"]], float(node.attrs.get("spatial_scale", 1.0))
    if len(regions) * prod(parts) > _MOST_PARTS:
        raise Refusal(f"must have at most {_MOST_PARTS} parts of regions, not {len(regions) * prod(parts)}")
    results = []
    for image, *corners in regions.tolist():
        left, top, right, bottom = nearest_integers([corner * scale for corner in corners]).tolist()
        lines = []
        for rows in _even_parts(top, bottom, parts[0], height):
            pieces = []
            for columns in _even_parts(left, right, parts[1], width):
                if not rows or not columns:
                    zero = np.zeros((1, channels, 1, 1))
                    first = ctx.emit(
                        node, "Slice", [x], axes=(0, 2, 3), starts=(0, 0, 0), stops=(1, 1, 1), steps=(1,) * 3
                    )
                    pieces.append(ctx.emit(node, "Mul", [first], constant=zero))
                    continue
                starts, stops = (int(image), rows.start, columns.start), (int(image) + 1, rows.stop, columns.stop)
                part = ctx.emit(node, "Slice", [x], axes=(0, 2, 3), starts=starts, stops=stops, steps=(1,) * 3)
                pieces.append(ctx.emit(node, "ReduceMax", [part], axes=(2, 3), keepdims=True))
            lines.append(ctx.joined(node, pieces, 3))
        results.append(ctx.joined(node, lines, 2))
    return ctx.joined(node, results, 0)


def _even_parts(first: int, last: int, count: int, size: int) -> list[range]:
    """Parts of a region, those of its indices that there are; neighbours may share an index.

    Ends are rounded in single precision, as onnxruntime does.
    """
    each = np.float32(max(last - first + 1, 1)) / np.float32(count)
    ends = [
        (math.floor(np.float32(k) * each) + first, math.ceil(np.float32(k + 1) * each) + first) for k in range(count)
    ]
    return [range(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]


def unpooled(ctx: Context, node: OnnxNode) -> str:
    """Elements at constant places of a larger tensor of zeros."""
    x = ctx.tensor(node.input(0))
    _check_constant(ctx, node, (0,))
    shape = ctx.shape(x)
    ids = _evaluated(ctx, node, {0: 1 + np.arange(prod(shape), dtype=np.float64).reshape(shape)}).astype(np.int64)
    own = np.arange(ids.size).reshape(ids.shape) % prod(shape)
    y = moved(ctx, node, x, np.where(ids > 0, ids - 1, own))
    return ctx.emit(node, "Mul", [y], constant=(ids > 0).astype(np.float64))


def scattered(updates: int, ctx: Context, node: OnnxNode) -> str:
    """The first operand with elements of another one at some places."""
    operands = (0, updates)
    computed = tuple(k for k in operands if not ctx.is_constant(node.input(k)))
    _check_constant(ctx, node, computed)
    if node.attrs.get("reduction", "none") == "add":
        return _added(ctx, node, computed)
    if node.attrs.get("reduction", "none") != "none":
        return _combined(ctx, node, computed)
    shapes = [ctx.operand_shape(name) for name in node.inputs]
    sizes = {k: prod(shapes[k]) for k in operands}
    starts = {0: 0, updates: sizes[0]}
    numbers = {k: starts[k] + np.arange(sizes[k], dtype=np.float64).reshape(shapes[k]) for k in operands}
    ids = _evaluated(ctx, node, numbers).astype(np.int64)
    known = np.zeros(sizes[0] + sizes[updates])
    for k in {*operands} - set(computed):
        known[starts[k] : starts[k] + sizes[k]] = ctx.floats(node.input(k), "operand").reshape(-1)
    parts, masks = [], []
    for k in computed:
        inside = (ids >= starts[k]) & (ids < starts[k] + sizes[k])
        if not inside.any():
            continue
        # What is elsewhere may be any element: it is multiplied by zero. Its own place leaves runs long.
        own = np.arange(ids.size).reshape(ids.shape) % sizes[k]
        part = moved(ctx, node, ctx.tensor(node.input(k)), np.where(inside, ids - starts[k], own))
        parts.append(part if inside.all() else ctx.emit(node, "Mul", [part], constant=inside.astype(np.float64)))
        masks.append(inside)
    if not parts:
        raise Refusal("takes no element of a computed tensor", "use the constant")
    y = parts[0] if len(parts) == 1 else ctx.emit(node, "Add", parts)
    rest = np.where(np.any(masks, axis=0), 0.0, known[ids])
    return ctx.emit(node, "Add", [y], constant=rest) if rest.any() else y


def _added(ctx: Context, node: OnnxNode, computed: tuple[int, ...]) -> str:
    """Sums at places: a matrix of zeros and ones times the last operand, and the first one."""
    shape = ctx.operand_shape(node.input(0))
    if 2 not in computed:
        zeros = {0: np.zeros(shape), 2: ctx.floats(node.input(2), "updates")}
        return ctx.emit(node, "Add", [ctx.tensor(node.input(0))], constant=_evaluated(ctx, node, zeros))
    matrix = _hits(ctx, node).T
    flat = ctx.emit(node, "Reshape", [ctx.tensor(node.input(2))], shape=(1, matrix.shape[1]))
    y = _product(ctx, node, flat, matrix)
    y = ctx.emit(node, "Reshape", [y], shape=shape)
    if 0 in computed:
        return ctx.emit(node, "Add", [y, ctx.tensor(node.input(0))])
    return ctx.emit(node, "Add", [y], constant=ctx.floats(node.input(0), "data"))


def _hits(ctx: Context, node: OnnxNode) -> FloatArray:
    """``[updates, elements]``: how often an update comes to an element."""
    shape, updates = (ctx.operand_shape(node.input(k)) for k in (0, 2))
    check_size("sums at places", prod(updates), prod(shape))
    units = eye("sums at places", prod(updates)).reshape(-1, *updates)
    rows = [_evaluated(ctx, node, {0: np.zeros(shape), 2: unit}, reduction="add") for unit in units]
    return np.stack(rows).reshape(len(units), -1)


def _combined(ctx: Context, node: OnnxNode, computed: tuple[int, ...]) -> str:
    """Maxima, minima or products at places: of the first update of each place, then of the second, and so on.

    A place without a further update gets what changes nothing.
    """
    kind = node.attrs["reduction"]
    if kind not in _REDUCTIONS:
        raise Refusal(f"reduction must be one of none, add, {', '.join(_REDUCTIONS)}, not {kind}")
    op, neutral = _REDUCTIONS[kind]
    shape, hits = ctx.operand_shape(node.input(0)), _hits(ctx, node)
    places = [np.flatnonzero(column) for column in hits.T]
    rounds = max(map(len, places))
    if rounds > _MOST_ROUNDS:
        raise Refusal(f"must have at most {_MOST_ROUNDS} updates at a place, not {rounds}")
    y = "" if 0 not in computed else ctx.tensor(node.input(0))
    known = None if y else ctx.floats(node.input(0), "data")
    for k in range(rounds):
        ids = np.array([ids[k] if k < len(ids) else -1 for ids in places]).reshape(shape)
        if 2 not in computed:
            values = ctx.floats(node.input(2), "updates").reshape(-1)[ids]
            y = ctx.emit(node, op, [y], constant=np.where(ids < 0, neutral, values))
            continue
        own = np.arange(ids.size).reshape(shape) % len(hits)
        part = moved(ctx, node, ctx.tensor(node.input(2)), np.where(ids < 0, own, ids))
        if (ids < 0).any():
            part = ctx.emit(node, "Mul", [part], constant=(ids >= 0).astype(np.float64))
            part = ctx.emit(node, "Add", [part], constant=np.where(ids < 0, neutral, 0.0))
        y = ctx.emit(node, op, [y, part]) if y else ctx.emit(node, op, [part], constant=known)
    return y


HANDLERS: dict[str, Handler] = {
    "GatherElements": gathered_elements,
    **dict.fromkeys(("GatherND", "Compress", "ReverseSequence"), gathered),
    **dict.fromkeys(("Col2Im", "DFT", "STFT"), partial(linear, False)),
    "RoiAlign": regions,
    "GridSample": partial(linear, True),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), partial(scattered, 2)),
    "TensorScatter": partial(scattered, 1),
    "MaxUnpool": unpooled,
    "MaxRoiPool": largest_in_regions,
    "DeformConv": partial(linear, False),
}
