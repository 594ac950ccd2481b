"""Operators of ONNX that only move codes: one row of moves for each output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from concord.frontend.codes.reading import PAIR, Reading
from concord.frontend.codes.shape_values import SAMPLES
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.moving import (
    blocks_of,
    broadcast_counts,
    check_repeated,
    pads_of,
    places_of_gather,
    places_of_slice,
    places_of_split,
    repeats_of,
)
from concord.frontend.pointwise import check_inference
from concord.frontend.reductions import reduced_axes
from concord.frontend.resizing import CROP, resized_axes
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

Moves = tuple[Move, ...]


def movement(ctx: Reading, node: OnnxNode) -> None:
    """Read a node that gives codes another shape or order, or takes some of them."""
    for output, moves in zip(node.outputs, _MOVES[node.op](ctx, node), strict=False):
        if output:
            ctx.moved(node, moves or (NoMove(),), output)


def node_axes(ctx: Reading, node: OnnxNode) -> tuple[int, ...] | None:
    """Axes of a node, which are its second operand or an attribute."""
    axes = ctx.integers(node, 1, "axes")
    return None if axes is None else tuple(axes)


def reduction(ctx: Reading, node: OnnxNode, codes: str) -> tuple[list[int], list[int], ReshapeMove]:
    """Axes of codes that are kept and those that are reduced, and the shape of the result.

    Raises
    ------
    Refusal
        If the axis of the samples is reduced.
    """
    shape = ctx.sizes(codes)
    rank = len(shape)
    axes, keeps = reduced_axes(ctx, node, rank)
    reduced, rest = sorted(set(axes)), range(1, rank)
    if 0 in reduced or not reduced:
        reason = f"axes must be some of {rank}, without that of the samples, not {axes}"
        raise Refusal(reason, "compute it outside")
    sizes = (1 if axis in reduced else shape[axis] for axis in rest if keeps or axis not in reduced)
    return [axis for axis in range(rank) if axis not in reduced], reduced, ReshapeMove((0, *sizes))


def _reshape(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, kept = tuple(ctx.integers(node, 1, "shape") or ()), not node.attrs.get("allowzero", 0)
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


def _dropout(ctx: Reading, node: OnnxNode) -> list[Moves]:
    check_inference(ctx, node)
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
    first, *rest = ctx.sizes_of(node.input(0))
    sizes = max(first, 2), *rest  # of the samples one is looked at here
    taken = places_of_slice(ctx, node, sizes)
    return [tuple(move for axis, places in taken.items() for move in _taken(axis, sizes[axis], places))]


def _split(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes = ctx.sizes_of(node.input(0))
    axis, parts = places_of_split(ctx, node, sizes)
    return [_taken(axis, sizes[axis], places) for places in parts]


def _gather(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes = ctx.sizes_of(node.input(0))
    axis, places, made = places_of_gather(ctx, node, sizes)
    moves = _taken(axis, sizes[axis] if axis else 0, places)  # all samples cannot be known
    return [moves if len(made) == len(sizes) else (*moves, ReshapeMove((0, *made[1:])))]


def _repeated(sizes: Sequence[int], counts: Sequence[int]) -> Moves:
    """All elements so many times along each axis."""
    check_repeated(sizes, counts)
    moves: Moves = ()
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        moves += _taken(axis, size, [*range(size)] * count)
    return moves


def _tile(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes = ctx.sizes_of(node.input(0))
    return [_repeated(sizes, repeats_of(ctx, node, len(sizes)))]


def _expand(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, shape = ctx.sizes_of(node.input(0)), tuple(ctx.integers(node, 1, "shape") or ())
    if len(shape) > len(sizes):
        raise Refusal(
            f"shape must have at most {len(sizes)} axes, not be {list(shape)}", "put Unsqueeze in front of it"
        )
    if len(shape) == len(sizes) and shape[0] == SAMPLES:
        shape = (sizes[0], *shape[1:])
    return [_repeated(*broadcast_counts(sizes, shape))]


def _blocks(ctx: Reading, node: OnnxNode) -> list[Moves]:
    parts, order, made = blocks_of(node, (0, *ctx.sizes_of(node.input(0))[1:]))
    return [(ReshapeMove(parts), TransposeMove(order), ReshapeMove(made))]


def _pad(ctx: Reading, node: OnnxNode) -> list[Moves]:
    sizes, mode = ctx.sizes_of(node.input(0)), node.attrs.get("mode", "constant")
    pads = pads_of(ctx, node, len(sizes)).reshape(2, -1).T.tolist()
    widths = [(max(front, 0), max(back, 0)) for front, back in pads]
    moves: Moves = ()
    for axis, (front, back) in enumerate(pads):
        kept = range(sizes[axis])[max(-front, 0) : sizes[axis] + min(back, 0)]
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
    code = int(scheme.codes_of(value).item())
    if np.float32(code - scheme.zero) * np.float32(scheme.scale) != value:
        raise Refusal(f"value must be a number that a code stands for, such as 0, not {value:g}", "pad with 0")
    return code


def _resize(ctx: Reading, node: OnnxNode) -> list[Moves]:
    """The nearest element, with coordinates in binary32 as in ONNX Runtime."""
    mode, where = node.attrs.get("mode", "nearest"), node.attrs.get("coordinate_transformation_mode", "")
    if mode != "nearest" or where == CROP or node.attrs.get("exclude_outside", 0):
        raise Refusal(f"mode must be nearest, of the whole tensor, not {mode!r} with {where or 'half_pixel'}")
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refusal("keep_aspect_ratio_policy must be stretch", "give it the sizes")
    moves: Moves = ()
    for k, axis in enumerate(resized_axes(ctx, node, ctx.sizes_of(node.input(0)), np.float32)):
        moves += _taken(k, axis.size, [place for row in axis.rows for place in row])
    return [moves]


_MOVES: dict[str, Callable[[Reading, OnnxNode], list[Moves]]] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Identity": _identity,
    "Dropout": _dropout,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Tile": _tile,
    "Expand": _expand,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
}
#: By the name of the operator in ONNX.
MOVEMENTS = dict.fromkeys(_MOVES, movement)
