"""Operators of ONNX that only move codes: one row of moves for each output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.resizing import COORDINATES, NEAREST
from concord.integer.moves import (
    ExpandMove,
    FlattenMove,
    Move,
    NoMove,
    PadMove,
    ReshapeMove,
    SqueezeMove,
    TakeMove,
    TransposeMove,
)
from concord.integer.reading import PAIR, Reading
from concord.integer.requantise import codes_of_floats
from concord.integer.shape_values import SAMPLES

Moves = tuple[Move, ...]

#: Modes of Pad that repeat elements, called as in NumPy.
_REPEATING = ("reflect", "edge", "wrap", "symmetric")
#: Coordinates that ONNX Runtime rounds to binary32 in the end only.
_IN_BINARY64 = "half_pixel_symmetric"


def movement(ctx: Reading, node: OnnxNode) -> None:
    """Read a node that gives codes another shape or order, or takes some of them."""
    for output, moves in zip(node.outputs, _MOVES[node.op](ctx, node), strict=False):
        if output:
            ctx.moved(node, moves or (NoMove(),), output)


def node_axes(ctx: Reading, node: OnnxNode) -> tuple[int, ...] | None:
    """Axes of a node, which are its second operand or an attribute."""
    return _integers(ctx, node, 1, "axes")


def reduction(ctx: Reading, node: OnnxNode, codes: str) -> tuple[list[int], list[int], ReshapeMove]:
    """Axes of codes that are kept and those that are reduced, and the shape of the result.

    Raises
    ------
    Refusal
        If the axis of the samples is reduced.
    """
    axes, shape = node_axes(ctx, node), ctx.sizes(codes)
    rank = len(shape)
    reduced = sorted({axis % rank for axis in axes}) if axes else [*range(rank)]
    if 0 in reduced:
        raise Refusal(f"axes must be some of {rank}, without that of the samples, not {axes}", "compute it outside")
    keeps, rest = node.attrs.get("keepdims", 1), range(1, rank)
    sizes = (1 if axis in reduced else shape[axis] for axis in rest if keeps or axis not in reduced)
    return [axis for axis in range(rank) if axis not in reduced], reduced, ReshapeMove((0, *sizes))


def _integers(ctx: Reading, node: OnnxNode, place: int, name: str) -> tuple[int, ...] | None:
    """Integers at an operand of a node, or in an attribute as in the first versions."""
    if node.input(place):
        return tuple(int(number) for number in ctx.constant(node.input(place), name).reshape(-1))
    return tuple(node.attrs[name]) if name in node.attrs else None


def _reshape(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, kept = _integers(ctx, node, 1, "shape") or (), not node.attrs.get("allowzero", 0)
    if any(size >= SAMPLES for size in sizes):
        return [(_reshape_of_samples(sizes),)]
    if sizes[:1] not in ((0,), (-1,), ()) and _has_one_sample(ctx):  # any number of samples has that shape, too
        if -1 not in sizes:
            sizes = (-1, *sizes[1:])
        elif sizes[0] == 1 and kept and ctx.sizes_of(node.input(0))[:1] == (1,):
            sizes = (0, *sizes[1:])
    return [(ReshapeMove(sizes, kept=kept),)]


def _reshape_of_samples(sizes: tuple[int, ...]) -> Move:
    """Change of the shape by sizes that the number of samples is in."""
    first, *rest = sizes
    if first % SAMPLES or any(size >= SAMPLES for size in rest):
        raise Refusal("shape must have the samples in its first axis alone", "export it with a fixed number of samples")
    if first == SAMPLES:
        return ReshapeMove((0, *rest))
    if -1 in rest:
        raise Refusal("shape must have known sizes behind the samples", "export it with a fixed number of samples")
    return ReshapeMove((-1, *rest))


def _flatten(ctx: Reading, node: OnnxNode) -> list[Moves]:
    axis = int(node.attrs.get("axis", 1))
    if axis <= 0 and _has_one_sample(ctx):
        sizes = ctx.sizes_of(node.input(0))
        if sizes[:1] == (1,) and axis % len(sizes) == 0:
            return [(ReshapeMove((0, -1)),)]
    return [(FlattenMove(axis),)]


def _has_one_sample(ctx: Reading) -> bool:
    """True if all inputs of the model have one sample, and sizes that are fixed."""
    return all(shape[:1] == (1,) and None not in shape for shape in ctx.graph.shapes.values())


def _transpose(ctx: Reading, node: OnnxNode) -> list[Moves]:
    return [(TransposeMove(tuple(node.attrs["perm"]) if "perm" in node.attrs else None),)]


def _squeeze(ctx: Reading, node: OnnxNode) -> list[Moves]:
    return [(SqueezeMove(node_axes(ctx, node)),)]


def _unsqueeze(ctx: Reading, node: OnnxNode) -> list[Moves]:
    return [(ExpandMove(node_axes(ctx, node) or ()),)]


def _identity(ctx: Reading, node: OnnxNode) -> list[Moves]:
    return [()]


def _taken(axis: int, size: int, indices: Sequence[int]) -> Moves:
    """Some elements along an axis; nothing to do for all of them."""
    if tuple(indices) == tuple(range(size)):
        return ()
    if not indices:
        raise Refusal("must take elements, not none", "remove it")
    if axis == 0:
        raise Refusal("must leave axis 0 as it is, which is that of the samples", "move another axis")
    return (TakeMove(axis, tuple(indices)),)


def _slice(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes = ctx.sizes_of(node.input(0))
    starts, stops = _integers(ctx, node, 1, "starts") or (), _integers(ctx, node, 2, "ends") or ()
    axes = _integers(ctx, node, 3, "axes") or tuple(range(len(starts)))
    steps = _integers(ctx, node, 4, "steps") or (1,) * len(axes)
    moves: Moves = ()
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        place, size = axis % len(sizes), sizes[axis]
        if place == 0:  # of which one sample is looked at here
            size = max(size, 2)
        moves += _taken(place, size, range(size)[slice(start, stop, step)])
    return [moves]


def _split(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, axis = ctx.sizes_of(node.input(0)), int(node.attrs.get("axis", 0))
    count, size = len(node.outputs), sizes[axis]
    part = -(-size // count)
    parts = _integers(ctx, node, 1, "split") or (*[part] * (count - 1), size - part * (count - 1))
    if len(parts) != count or sum(parts) != size or min(parts) < 1:
        raise Refusal(f"parts must be {count} that fill the {size} of axis {axis}, not {list(parts)}")
    starts = accumulate(parts, initial=0)
    return [
        _taken(axis % len(sizes), size, range(start, start + part)) for start, part in zip(starts, parts, strict=False)
    ]


def _gather(ctx: Reading, node: OnnxNode) -> list[Moves]:
    indices, sizes = ctx.constant(node.input(1), "indices"), ctx.sizes_of(node.input(0))
    axis = int(node.attrs.get("axis", 0)) % len(sizes)
    size = sizes[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise Refusal(f"indices must be inside the {size} of axis {axis}")
    if axis == 0:
        size = 0  # whose elements cannot all be known
    moves = _taken(axis, size, [int(index) % sizes[axis] for index in indices.reshape(-1)])
    if indices.ndim == 1:
        return [moves]
    return [(*moves, ReshapeMove((0, *sizes[1:axis], *indices.shape, *sizes[axis + 1 :])))]


def _tile(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, repeats = ctx.sizes_of(node.input(0)), _integers(ctx, node, 1, "repeats") or ()
    if len(repeats) != len(sizes):
        raise Refusal(f"repeats must be one for each of {len(sizes)} axes, not {list(repeats)}")
    moves: Moves = ()
    for axis, (size, count) in enumerate(zip(sizes, repeats, strict=True)):
        moves += _taken(axis, size, [*range(size)] * count)
    return [moves]


def _expand(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, shape = ctx.sizes_of(node.input(0)), _integers(ctx, node, 1, "shape") or ()
    if len(shape) > len(sizes):
        raise Refusal(
            f"shape must have at most {len(sizes)} axes, not be {list(shape)}", "put Unsqueeze in front of it"
        )
    moves: Moves = ()
    for axis, count in enumerate(shape, len(sizes) - len(shape)):
        if count not in (1, sizes[axis]) and (axis or count != SAMPLES):
            if sizes[axis] != 1:
                raise Refusal(f"shape must go with {list(sizes)}, not be {list(shape)}")
            moves += _taken(axis, sizes[axis], [0] * count)
    return [moves]


def _depth_to_space(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, block = ctx.sizes_of(node.input(0)), int(node.attrs["blocksize"])
    left = _divided(sizes[1], block**2, "channels")
    if node.attrs.get("mode", "DCR") == "DCR":
        parts, order = (0, block, block, left, *sizes[2:]), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (0, left, block, block, *sizes[2:]), (0, 1, 4, 2, 5, 3)
    return [(ReshapeMove(parts), TransposeMove(order), ReshapeMove((0, left, *(size * block for size in sizes[2:]))))]


def _space_to_depth(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, block = ctx.sizes_of(node.input(0)), int(node.attrs["blocksize"])
    height, width = (_divided(size, block, "height and width") for size in sizes[2:])
    parts = ReshapeMove((0, sizes[1], height, block, width, block))
    return [(parts, TransposeMove((0, 3, 5, 1, 2, 4)), ReshapeMove((0, sizes[1] * block**2, height, width)))]


def _divided(size: int, by: int, what: str) -> int:
    if size % by:
        raise Refusal(f"{what} must be multiples of {by}, not {size}")
    return size // by


def _pad(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, mode = ctx.sizes_of(node.input(0)), node.attrs.get("mode", "constant")
    rank, amounts = len(sizes), _integers(ctx, node, 1, "pads") or ()
    axes = [axis % rank for axis in _integers(ctx, node, 3, "axes") or range(rank)]
    if mode not in ("constant", *_REPEATING) or len(amounts) != 2 * len(axes):
        raise Refusal(f"mode must be constant, reflect, edge or wrap, with two pads for each axis, not {mode!r}")
    widths = [(0, 0)] * rank
    moves: Moves = ()
    for axis, front, back in zip(axes, amounts, amounts[len(axes) :], strict=False):
        kept = range(sizes[axis])[max(-front, 0) : sizes[axis] + min(back, 0)]
        widths[axis] = max(front, 0), max(back, 0)
        if mode != "constant":
            kept = np.pad(kept, widths[axis], mode=mode).tolist()
        moves += _taken(axis, sizes[axis], kept)
    if mode != "constant" or not any(map(any, widths)):
        return [moves]
    if any(widths[0]):
        raise Refusal("must leave axis 0 as it is, which is that of the samples", "move another axis")
    return [(*moves, PadMove(tuple(widths), _code_of_padding(ctx, node)))]


def _code_of_padding(ctx: Reading, node: OnnxNode) -> int:
    """The code of the number that Pad adds, which must stand for it exactly."""
    operand = node.input(2)
    if operand in ctx.weights:
        value = np.float32((ctx.weights[operand].offsets * ctx.weights[operand].scale).item())
    else:
        value = ctx.constant(operand, "value").reshape(-1)[0] if operand else np.float32(node.attrs.get("value", 0.0))
    if node.input(0) in ctx.floats or node.input(0) in ctx.constants:
        raise Refusal(f"must read codes, not the floats {node.input(0)!r}", PAIR)
    scheme = ctx.scheme_of(ctx.codes(node.input(0)))
    if value.dtype.kind in "iu":  # the code itself
        return int(value)
    code = int(codes_of_floats(value, scheme).item())
    if np.float32(code - scheme.zero) * np.float32(scheme.scale) != value:
        raise Refusal(f"value must be a number that a code stands for, such as 0, not {value:g}", "pad with 0")
    return code


def _resize(ctx: Reading, node: OnnxNode) -> list[Moves]:
    """The nearest element, with coordinates in binary32 as in ONNX Runtime."""
    attrs, sizes, place = node.attrs, ctx.sizes_of(node.input(0)), 2
    if node.op == "Upsample" or ctx.opset < 11:
        attrs, place = {"mode": "nearest"} | attrs, 1
        attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    where = attrs.get("coordinate_transformation_mode", "half_pixel")
    if attrs.get("mode", "nearest") != "nearest" or where not in COORDINATES:
        raise Refusal(f"mode must be nearest, of the whole tensor, not {attrs.get('mode')!r} with {where}")
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refusal("keep_aspect_ratio_policy must be stretch", "give it the sizes")
    axes = [axis % len(sizes) for axis in attrs.get("axes", range(len(sizes)))]
    scales = ctx.constant(node.input(place), "scales") if node.input(place) else np.asarray(attrs.get("scales", ()))
    counts = _integers(ctx, node, 3, "sizes") if not scales.size else None
    if len(counts or scales) != len(axes):
        raise Refusal(f"must have a scale or a size for each of {len(axes)} axes")
    position: Any = COORDINATES[where]
    nearest = NEAREST[attrs.get("nearest_mode", "round_prefer_floor")]
    moves: Moves = ()
    for k, axis in enumerate(axes):
        size = np.float32(sizes[axis])
        scale = np.float32(counts[k]) / size if counts else np.float32(scales.reshape(-1)[k])
        count = counts[k] if counts else math.floor(size * scale)
        numbers = np.arange(count, dtype=np.float64 if where == _IN_BINARY64 else np.float32)
        places = [nearest(np.float32(position(i, size, np.float32(count), scale))) for i in numbers]
        moves += _taken(axis, sizes[axis], [min(max(index, 0), sizes[axis] - 1) for index in places])
    return [moves]


_MOVES: dict[str, Callable[[Reading, OnnxNode], list[Moves]]] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Identity": _identity,
    "Dropout": _identity,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Tile": _tile,
    "Expand": _expand,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
}
#: By the name of the operator in ONNX.
MOVEMENTS = dict.fromkeys(_MOVES, movement)
