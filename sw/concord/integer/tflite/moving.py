"""Operators of TensorFlow Lite that only move codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import FlatOperator
from concord.integer.moves import Move, ReshapeMove, TakeMove, TransposeMove
from concord.integer.tflite.operators import Operator
from concord.integer.tflite.reading import FlatReading


def _taken(ctx: FlatReading, operator: FlatOperator, places: Sequence[Sequence[int]]) -> None:
    """The elements at some places along each axis."""
    shape = ctx.tensor(operator.inputs[0]).shape
    moves: list[Move] = []
    for axis, (size, wanted) in enumerate(zip(shape, places, strict=True)):
        if list(wanted) == list(range(size)):
            continue
        if axis == 0:
            raise Refusal("must leave axis 0 as it is, which is that of the samples", "compute it outside")
        if not wanted or min(wanted) < 0 or max(wanted) >= size:
            raise Refusal(f"must take some of the {size} elements of axis {axis}, not {list(wanted)}")
        moves.append(TakeMove(axis, tuple(map(int, wanted))))
    ctx.moves(operator, moves or [ReshapeMove((0, *shape[1:]))], ctx.read(operator.inputs[0]))


def _strided_slice(ctx: FlatReading, operator: FlatOperator) -> None:
    """STRIDED_SLICE without masks."""
    bounds = [ctx.constant(index, "bounds").ravel().tolist() for index in operator.inputs[1:4]]
    shape = ctx.tensor(operator.inputs[0]).shape
    _taken(ctx, operator, [range(size)[slice(*ends)] for size, *ends in zip(shape, *bounds, strict=True)])


def _gather(ctx: FlatReading, operator: FlatOperator) -> None:
    """GATHER at constant places."""
    x, shape = operator.inputs[0], ctx.tensor(operator.inputs[0]).shape
    indices = ctx.constant(operator.inputs[1], "indices")
    axis = int(operator.options.Axis()) % max(len(shape), 1)
    if operator.options.BatchDims() or indices.ndim > 1 or ctx.tensor(x).data is not None:
        raise Refusal("it must take elements of a tensor that is computed, at places in one row", "compute it outside")
    places: list[Sequence[int]] = [range(size) for size in shape]
    places[axis] = indices.ravel().tolist()
    if indices.ndim == 1:
        _taken(ctx, operator, places)
        return
    name, made = ctx.names[operator.outputs[0]], ctx.tensor(operator.outputs[0]).shape
    if axis == 0:
        raise Refusal("must leave axis 0 as it is, which is that of the samples", "compute it outside")
    part = ctx.move_between(f"{name}/element", TakeMove(axis, (int(indices.item()),)), ctx.read(x))
    ctx.move(operator, ReshapeMove((0, *made[1:])), part)


def _mirrored(ctx: FlatReading, operator: FlatOperator) -> None:
    """MIRROR_PAD, with or without the elements at the ends."""
    shape, widths = ctx.tensor(operator.inputs[0]).shape, ctx.constant(operator.inputs[1], "paddings")
    mode = "symmetric" if operator.options.Mode() else "reflect"
    _taken(ctx, operator, [np.pad(range(size), pair, mode=mode).tolist()  # type: ignore[call-overload]
                           for size, pair in zip(shape, widths.tolist(), strict=True)])  # fmt: skip


def nearest_places(size: int, made: int, aligned: bool, centred: bool) -> list[int]:
    """Places of the nearest elements along an axis of ``size`` elements, of which ``made`` become."""
    corner = aligned and made > 1
    scale = np.float32(size - 1) / np.float32(made - 1) if corner else np.float32(size) / np.float32(made)
    numbers = (np.arange(made, dtype=np.float32) + np.float32(0.5 if centred else 0)) * scale
    rounded = np.floor(numbers + np.float32(0.5)) if aligned else np.floor(numbers)
    return [min(max(int(place), 0), size - 1) for place in rounded]


def _nearest(ctx: FlatReading, operator: FlatOperator) -> None:
    """RESIZE_NEAREST_NEIGHBOR."""
    shape, made = ctx.tensor(operator.inputs[0]).shape, ctx.tensor(operator.outputs[0]).shape
    options = operator.options
    axes = (nearest_places(shape[axis], made[axis], bool(options.AlignCorners()), bool(options.HalfPixelCenters()))
            for axis in (1, 2))  # fmt: skip
    _taken(ctx, operator, [range(shape[0]), *axes, range(shape[3])])


def _depth_to_space(ctx: FlatReading, operator: FlatOperator) -> None:
    """DEPTH_TO_SPACE and SPACE_TO_DEPTH: an axis of blocks goes from the channels to an axis of the image, or back."""
    block = int(operator.options.BlockSize())
    _, height, width, channels = ctx.tensor(operator.inputs[0]).shape
    if operator.name == "DEPTH_TO_SPACE":
        parts = (0, height, width, block, block, channels // block**2)
        made = (0, height * block, width * block, channels // block**2)
    else:
        parts = (0, height // block, block, width // block, block, channels)
        made = (0, height // block, width // block, channels * block**2)
    moves = [ReshapeMove(parts), TransposeMove((0, 1, 3, 2, 4, 5)), ReshapeMove(made)]
    ctx.moves(operator, moves, ctx.read(operator.inputs[0]))


#: By the name of the operator in the schema.
MOVEMENTS: dict[str, Operator] = {
    "STRIDED_SLICE": _strided_slice,
    "GATHER": _gather,
    "MIRROR_PAD": _mirrored,
    "RESIZE_NEAREST_NEIGHBOR": _nearest,
    "DEPTH_TO_SPACE": _depth_to_space,
    "SPACE_TO_DEPTH": _depth_to_space,
}
