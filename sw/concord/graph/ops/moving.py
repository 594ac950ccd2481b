"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import numpy as np

from concord.graph.ops.attributes import AXES, AXIS, INTEGERS, NUMBER, SIZES, Attribute, NoAttributes, choice
from concord.graph.ops.base import Arrays, Operation, Operator, OperatorKind, Shape, Shapes, keeps_sign, present
from concord.utils.arrays import FloatArray


def _reshape_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, new = present(inputs[0]), node.attributes(ReshapeAttributes).shape
    if np.prod(shape, dtype=int) != np.prod(new, dtype=int):
        raise ValueError(f"shape {list(shape)} must have as many elements as {list(new)}")
    return [new]


def _reshape(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x = present(inputs[0])
    return [x.reshape(len(x), *node.attributes(ReshapeAttributes).shape)]


def _reshape_identity(node: Operation, x: Shape | None, y: Shape) -> bool:
    return node.attributes(ReshapeAttributes).shape == x


def _transpose_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, perm = present(inputs[0]), node.attributes(TransposeAttributes).perm
    if sorted(perm) != list(range(len(shape))):
        raise ValueError(f"perm must be a permutation of the axes of {list(shape)}, not {list(perm)}")
    return [tuple(shape[axis] for axis in perm)]


def _transpose(node: Operation, inputs: Arrays) -> list[FloatArray]:
    order = (0, *(axis + 1 for axis in node.attributes(TransposeAttributes).perm))
    return [np.ascontiguousarray(present(inputs[0]).transpose(order))]


def _transpose_identity(node: Operation, x: Shape | None, y: Shape) -> bool:
    perm = node.attributes(TransposeAttributes).perm
    return list(perm) == sorted(perm)


def _concat_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shapes, axis = [present(shape) for shape in inputs], node.attributes(ConcatAttributes).axis
    if any(axis >= len(shape) for shape in shapes):
        raise ValueError(f"axis must be one that {[list(shape) for shape in shapes]} have, not {axis}")
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) != 1 or len({len(s) for s in shapes}) != 1:
        raise ValueError(f"shapes {[list(shape) for shape in shapes]} must be equal but for axis {axis}")
    first = shapes[0]
    return [(*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])]


def _concat(node: Operation, inputs: Arrays) -> list[FloatArray]:
    return [np.concatenate([present(x) for x in inputs], axis=node.attributes(ConcatAttributes).axis + 1)]


def _concat_identity(node: Operation, x: Shape | None, y: Shape) -> bool:
    return len(node.inputs) == 1


def _ranges(node: Operation) -> dict[int, range]:
    """Indices that are taken along every axis that is not taken whole."""
    slices = node.attributes(SliceAttributes)
    rows = zip(slices.axes, slices.starts, slices.stops, slices.steps, strict=True)
    return {axis: range(start, stop, step) for axis, start, stop, step in rows}


def _slice_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, taken = list(present(inputs[0])), _ranges(node)
    for axis, indices in taken.items():
        if not indices or not all(0 <= index < shape[axis] for index in (indices[0], indices[-1])):
            raise ValueError(f"indices {indices} must be there and inside axis {axis} of {shape}")
        shape[axis] = len(indices)
    return [tuple(shape)]


def _slice(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x = present(inputs[0])
    index = [slice(None)] * x.ndim
    for axis, taken in _ranges(node).items():
        index[axis + 1] = slice(taken.start, taken.stop if taken.stop >= 0 else None, taken.step)
    return [x[tuple(index)].copy()]


def _slice_identity(node: Operation, x: Shape | None, y: Shape) -> bool:
    return y == x and all((indices.start, indices.step) == (0, 1) for indices in _ranges(node).values())


def _pick_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(PickAttributes)
    axis, indices = attributes.axis, attributes.indices
    if axis >= len(shape) or not indices or max(indices) >= shape[axis]:
        raise ValueError(f"indices of axis {axis} must be there and inside {list(shape)}")
    return [(*shape[:axis], len(indices), *shape[axis + 1 :])]


def _pick(node: Operation, inputs: Arrays) -> list[FloatArray]:
    attributes = node.attributes(PickAttributes)
    return [present(inputs[0]).take(attributes.indices, axis=attributes.axis + 1)]


def _pick_identity(node: Operation, x: Shape | None, y: Shape) -> bool:
    return x == y and all(k == index for k, index in enumerate(node.attributes(PickAttributes).indices))


def _pad_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(PadAttributes)
    pads = attributes.pads
    rank = len(shape)
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise ValueError(f"pads must be {2 * rank} numbers, none negative, not {list(pads)}")
    if attributes.mode == "reflect" and any(max(pads[k], pads[rank + k]) >= size for k, size in enumerate(shape)):
        raise ValueError(f"pads {list(pads)} must be smaller than {list(shape)} where they reflect")
    return [tuple(pads[axis] + size + pads[rank + axis] for axis, size in enumerate(shape))]


def _pad(node: Operation, inputs: Arrays) -> list[FloatArray]:
    attributes = node.attributes(PadAttributes)
    pads, rank = attributes.pads, len(attributes.pads) // 2
    widths = [(0, 0), *((pads[axis], pads[rank + axis]) for axis in range(rank))]
    if attributes.mode == "constant":
        return [np.pad(present(inputs[0]), widths, constant_values=attributes.value)]
    return [np.pad(present(inputs[0]), widths, mode=attributes.mode)]


def _pad_identity(node: Operation, x: Shape | None, y: Shape) -> bool:
    return not any(node.attributes(PadAttributes).pads)


def _pad_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    attributes = node.attributes(PadAttributes)
    return all(inputs) and (attributes.mode != "constant" or attributes.value >= 0)


class PadAttributes(NoAttributes):
    """Attributes of a Pad."""

    pads: Annotated[tuple[int, ...], Attribute("at the begin of every axis, then at the end of every one", SIZES)]
    mode: Annotated[
        Literal["constant", "reflect", "edge", "wrap"],
        Attribute(
            "reflect is without the edge, wrap from the other end", choice("constant", "reflect", "edge", "wrap")
        ),
    ]
    value: Annotated[float, Attribute("of the padding where it is constant", NUMBER)]


class SliceAttributes(NoAttributes):
    """Attributes of a Slice."""

    axes: Annotated[tuple[int, ...], Attribute("those that are not taken whole", AXES)]
    starts: Annotated[tuple[int, ...], Attribute("one per axis: the indices range(start, stop, step)", SIZES)]
    stops: Annotated[tuple[int, ...], Attribute("one per axis; -1 is before the first index", INTEGERS)]
    steps: Annotated[tuple[int, ...], Attribute("one per axis, not 0", INTEGERS)]


class PickAttributes(NoAttributes):
    """Attributes of a Pick, which takes elements in any order, as often as it says."""

    axis: Annotated[int, Attribute("along which elements are taken", AXIS)]
    indices: Annotated[tuple[int, ...], Attribute("of the elements, along the axis", SIZES)]


class ReshapeAttributes(NoAttributes):
    """Attributes of a Reshape."""

    shape: Annotated[tuple[int, ...], Attribute("of the output", SIZES)]


class TransposeAttributes(NoAttributes):
    """Attributes of a Transpose."""

    perm: Annotated[tuple[int, ...], Attribute("axis of the input for every axis", AXES)]


class ConcatAttributes(NoAttributes):
    """Attributes of a Concat."""

    axis: Annotated[int, Attribute("along which the inputs follow each other", AXIS)]


_view = partial(Operator, OperatorKind.MOVING, view=True, rises=True)

MOVING_OPS = {
    "Reshape": _view(
        ReshapeAttributes,
        _reshape_shape,
        _reshape,
        layout_sensitive=False,
        identity=_reshape_identity,
        never_negative=keeps_sign,
    ),
    "Transpose": _view(
        TransposeAttributes,
        _transpose_shape,
        _transpose,
        layout_sensitive=False,
        identity=_transpose_identity,
        never_negative=keeps_sign,
    ),
    "Concat": _view(ConcatAttributes, _concat_shape, _concat, identity=_concat_identity, never_negative=keeps_sign),
    "Slice": _view(
        SliceAttributes,
        _slice_shape,
        _slice,
        layout_sensitive=False,
        identity=_slice_identity,
        never_negative=keeps_sign,
    ),
    "Pick": _view(PickAttributes, _pick_shape, _pick, identity=_pick_identity, never_negative=keeps_sign),
    "Pad": _view(PadAttributes, _pad_shape, _pad, identity=_pad_identity, never_negative=_pad_sign),
    # What a Pad becomes where no view of its input will do: its elements are copied.
    "PadCopy": Operator(OperatorKind.MOVING, PadAttributes, _pad_shape, _pad, rises=True, never_negative=_pad_sign),
}
