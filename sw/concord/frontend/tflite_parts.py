"""Parts of tensors in TensorFlow Lite, taken and put together by one operator each; elements that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from concord.frontend.tflite_constants import slice_ranges
from concord.frontend.tflite_file import FlatOperator, FlatOptions
from concord.frontend.tflite_rewriting import FlatRewriting
from concord.frontend.tflite_sequences import pack_axis, unpack


def with_upsampling(graph: FlatRewriting) -> None:
    """EXPAND_DIMS, TILE and RESHAPE that repeat the elements of an axis are an image with the nearest elements."""
    for operator in graph.source.operators:
        repeated = _repeated(graph, operator)
        if repeated is None:
            graph.operators.append(operator)
            continue
        source, axis = repeated
        output = operator.outputs[0]
        shape, made = graph.tensors[source].shape, graph.tensors[output].shape
        image = (shape[0], 1, prod(shape[1:axis]) * shape[axis], prod(shape[axis + 1 :]))
        if len(shape) == 4 and axis in (1, 2):
            image, sizes, wide = shape, made[1:3], output
        else:
            if prod(shape[1:axis]) != 1:
                image = (shape[0], prod(shape[1:axis]), shape[axis], prod(shape[axis + 1 :]))
            sizes = (image[1], image[2] * (made[axis] // shape[axis]))
            wide = graph.like(output, (image[0], *sizes, image[3]), "wide")
        if image != shape:
            source = graph.reshape(source, graph.like(output, image, "image"))
        options = FlatOptions(AlignCorners=False, HalfPixelCenters=False)
        graph.add(
            "RESIZE_NEAREST_NEIGHBOR",
            (source, graph.constant(sizes, f"{graph.tensors[output].name}/sizes")), wide, options,
        )  # fmt: skip
        if wide != output:
            graph.reshape(wide, output)


def _repeated(graph: FlatRewriting, operator: FlatOperator) -> tuple[int, int] | None:
    """The tensor and the axis whose elements RESHAPE, TILE and EXPAND_DIMS repeat."""
    if operator.name != "RESHAPE":
        return None
    tile = graph.makers.get(operator.inputs[0])
    expand = graph.makers.get(tile.inputs[0]) if tile is not None and tile.name == "TILE" else None
    if tile is None or expand is None or expand.name not in ("EXPAND_DIMS", "RESHAPE"):
        return None
    counts = graph.integers(tile.inputs[1])
    source = expand.inputs[0]
    shape, wide, made = (graph.tensors[k].shape for k in (source, expand.outputs[0], operator.outputs[0]))
    if counts is None or len(wide) != len(shape) + 1 or np.count_nonzero(counts.ravel() != 1) != 1:
        return None
    axis = int(np.flatnonzero(counts.ravel() != 1)[0]) - 1
    wanted = (*shape[:axis], shape[axis] * int(counts.ravel()[axis + 1]), *shape[axis + 1 :])
    if axis < 1 or wide != (*shape[: axis + 1], 1, *shape[axis + 1 :]) or made != wanted:
        return None
    return source, axis


def with_parts(graph: FlatRewriting) -> None:
    """Parts of a tensor are taken by STRIDED_SLICE without masks, and put together by CONCATENATION."""
    for operator in graph.source.operators:
        write = _PARTS.get(operator.name)
        if write is None or not write(graph, operator):
            graph.operators.append(operator)


def _unpacked(graph: FlatRewriting, operator: FlatOperator) -> bool:
    axis = pack_axis(graph, operator)
    rank = len(graph.tensors[operator.inputs[0]].shape)
    rest = [k for k in range(rank) if k != axis]
    unpack(graph, operator.outputs, range(len(operator.outputs)), operator.inputs[0], axis, rest)
    return True


def _packed(graph: FlatRewriting, operator: FlatOperator) -> bool:
    """Parts with an axis of one element, one after the other."""
    (output,) = operator.outputs
    shape, axis = graph.tensors[output].shape, pack_axis(graph, operator)
    parts = []
    for index in operator.inputs:
        part = graph.like(index, (*shape[:axis], 1, *shape[axis + 1 :]), "part")
        if (data := graph.integers(index)) is not None:
            graph.tensors[part] = replace(graph.tensors[part], data=data.reshape(graph.tensors[part].shape))
        else:
            graph.reshape(index, part)
        parts.append(part)
    graph.add("CONCATENATION", parts, output, FlatOptions(Axis=axis, FusedActivationFunction=0))
    return True


def _split(graph: FlatRewriting, operator: FlatOperator) -> bool:
    """SPLIT and SPLIT_V, whose axis is an operand."""
    x, place = operator.inputs[0], operator.inputs[-1]
    if operator.name == "SPLIT":
        place, x = operator.inputs[:2]
    axes = graph.integers(place)
    if axes is None:
        return False
    shape = graph.tensors[x].shape
    axis, start = int(axes.ravel()[0]) % len(shape), 0
    for output in operator.outputs:
        ranges = [range(size) for size in shape]
        size = graph.tensors[output].shape[axis]
        ranges[axis] = range(start, start + size)
        start += size
        graph.take(x, ranges, output)
    return True


def _sliced(graph: FlatRewriting, operator: FlatOperator) -> bool:
    begin, size = (graph.integers(index) for index in operator.inputs[1:3])
    if begin is None or size is None:
        return False
    shape = graph.tensors[operator.inputs[0]].shape
    ranges = [range(int(b), whole if n < 0 else int(b) + int(n))
              for b, n, whole in zip(begin.ravel(), size.ravel(), shape, strict=True)]  # fmt: skip
    graph.take(operator.inputs[0], ranges, operator.outputs[0])
    return True


def _strided(graph: FlatRewriting, operator: FlatOperator) -> bool:
    begin, end, steps = (graph.integers(index) for index in operator.inputs[1:4])
    if begin is None or end is None or steps is None:
        return False
    ranges = slice_ranges(operator.options, graph.tensors[operator.inputs[0]].shape, begin, end, steps)
    graph.take(operator.inputs[0], ranges, operator.outputs[0])
    return True


def _reversed(graph: FlatRewriting, operator: FlatOperator) -> bool:
    axes = graph.integers(operator.inputs[1])
    if axes is None:
        return False
    shape = graph.tensors[operator.inputs[0]].shape
    turned = {int(axis) % len(shape) for axis in axes.ravel()}
    ranges = [range(size)[::-1] if axis in turned else range(size) for axis, size in enumerate(shape)]
    graph.take(operator.inputs[0], ranges, operator.outputs[0])
    return True


def _tiled(graph: FlatRewriting, operator: FlatOperator) -> bool:
    """TILE and BROADCAST_TO along axes: a tensor several times, one after the other."""
    source, (output,) = operator.inputs[0], operator.outputs
    shape, made = graph.tensors[source].shape, graph.tensors[output].shape
    if len(shape) < len(made):
        wide = graph.like(output, (*[1] * (len(made) - len(shape)), *shape), "wide")
        source, shape = graph.reshape(source, wide), graph.tensors[wide].shape
    repeated = [(axis, size // shape[axis]) for axis, size in enumerate(made) if size != shape[axis]]
    for k, (axis, count) in enumerate(repeated):
        shape = (*shape[:axis], made[axis], *shape[axis + 1 :])
        target = output if k == len(repeated) - 1 else graph.like(output, shape, f"tiled {axis}")
        source = graph.add("CONCATENATION", [source] * count, target, FlatOptions(Axis=axis, FusedActivationFunction=0))
    if not repeated:
        graph.reshape(source, output)
    return True


def _gathered(graph: FlatRewriting, operator: FlatOperator) -> bool:
    """GATHER of elements at places that follow each other, or at computed ones, which may be negative."""
    places = graph.integers(operator.inputs[1])
    if (signed := _signed_places(graph, operator)) is not None:
        graph.operators.append(replace(operator, inputs=(operator.inputs[0], signed)))
        return True
    shape = graph.tensors[operator.inputs[0]].shape
    if places is None or not shape or operator.options.BatchDims() or graph.integers(operator.inputs[0]) is not None:
        return False
    axis, wanted = int(operator.options.Axis()) % len(shape), [int(place) for place in places.ravel()]
    step = wanted[1] - wanted[0] if len(wanted) > 1 else 1
    row = range(wanted[0], wanted[-1] + (1 if step > 0 else -1), step) if step and wanted else range(0)
    if list(row) != wanted or min(wanted) < 0 or max(wanted) >= shape[axis]:
        return False
    ranges = [range(size) for size in shape]
    ranges[axis] = row
    graph.take(operator.inputs[0], ranges, operator.outputs[0])
    return True


def _signed_places(graph: FlatRewriting, operator: FlatOperator) -> int | None:
    """The places ``x`` where GATHER reads ``x < 0 ? x + size : x``, which GATHER of ONNX does by itself."""
    select = graph.makers.get(operator.inputs[1])
    if select is None or select.name != "SELECT_V2":
        return None
    condition, moved, signed = select.inputs
    less, sums = graph.makers.get(condition), graph.makers.get(moved)
    size = graph.tensors[operator.inputs[0]].shape[operator.options.Axis()]
    if less is None or sums is None or less.name != "LESS" or sums.name != "ADD":
        return None
    limits = graph.integers(less.inputs[1]), graph.integers(sums.inputs[1])
    wanted = less.inputs[0] == sums.inputs[0] == signed and all(limit is not None for limit in limits)
    if not wanted or [np.unique(limit).tolist() for limit in limits if limit is not None] != [[0], [size]]:
        return None
    return signed


_PARTS: dict[str, Callable[[FlatRewriting, FlatOperator], bool]] = {
    "UNPACK": _unpacked, "PACK": _packed, "SPLIT": _split, "SPLIT_V": _split, "SLICE": _sliced,
    "STRIDED_SLICE": _strided, "REVERSE_V2": _reversed, "TILE": _tiled, "BROADCAST_TO": _tiled, "GATHER": _gathered,
}  # fmt: skip
