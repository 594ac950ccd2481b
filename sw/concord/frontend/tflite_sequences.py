"""Steps of sequences in TensorFlow Lite: recurrent layers take them apart and put them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from concord.frontend.tflite_constants import slice_ranges
from concord.frontend.tflite_file import FlatOperator, FlatOptions
from concord.frontend.tflite_rewriting import FlatRewriting


def with_lists(graph: FlatRewriting) -> None:
    """CONCATENATION of parts of others along the first axis is PACK of the elements, however often they were moved."""
    lists: dict[int, list[int]] = {}
    for operator in graph.source.operators:
        if operator.name == "SLICE":
            _note_slice(graph, operator, lists)
        if operator.name != "CONCATENATION" or operator.options.Axis() != 0 or not _joined(graph, operator, lists):
            graph.operators.append(operator)


def _elements(graph: FlatRewriting, index: int, lists: dict[int, list[int]]) -> list[int] | None:
    """Tensors with one element along the first axis, of which a tensor consists; ``None`` if they are not known."""
    tensor = graph.tensors[index]
    if index not in lists and tensor.data is not None and tensor.scales.size < 2:
        rows = [graph.like(index, (1, *tensor.shape[1:]), f"{k}") for k in range(tensor.shape[0])]
        for k, row in enumerate(rows):
            graph.tensors[row] = replace(graph.tensors[row], data=tensor.data[k : k + 1])
        lists[index] = rows
    return lists.get(index, [index] if tensor.shape[:1] == (1,) else None)


def _note_slice(graph: FlatRewriting, operator: FlatOperator, lists: dict[int, list[int]]) -> None:
    """Remember the elements that SLICE takes along the first axis."""
    begin, size = (graph.integers(index) for index in operator.inputs[1:3])
    if begin is None or size is None or not begin.size:
        return
    shape, made = (graph.tensors[index].shape for index in (operator.inputs[0], operator.outputs[0]))
    rows = _elements(graph, operator.inputs[0], lists)
    if rows is not None and shape[1:] == made[1:]:
        first = int(begin.ravel()[0])
        lists[operator.outputs[0]] = rows[first : first + made[0]]


def _joined(graph: FlatRewriting, operator: FlatOperator, lists: dict[int, list[int]]) -> bool:
    """Write PACK of the elements, if all are known."""
    if not any(index in lists or graph.integers(index) is not None for index in operator.inputs):
        return False
    parts = [_elements(graph, index, lists) for index in operator.inputs]
    if any(part is None for part in parts) or operator.options.FusedActivationFunction():
        return False
    rows = [row for part in parts for row in part or ()]
    lists[operator.outputs[0]] = rows
    items = []
    for row in rows:
        item = graph.like(row, graph.tensors[row].shape[1:], "element")
        if (data := graph.integers(row)) is not None:
            graph.tensors[item] = replace(graph.tensors[item], data=data[0])
        else:
            graph.reshape(row, item)
        items.append(item)
    graph.add("PACK", items, operator.outputs[0], FlatOptions(Axis=0, ValuesCount=len(items)))
    return True


def with_steps(graph: FlatRewriting) -> None:
    """Steps are taken from the sequence itself, and put together to one, where TRANSPOSE moves the axis of samples."""
    for operator in graph.source.operators:
        write = _STEPS.get(operator.name)
        maker = graph.makers.get(operator.inputs[0]) if write else None
        if write is None or maker is None or not write(graph, operator, maker):
            graph.operators.append(operator)


def _order(graph: FlatRewriting, operator: FlatOperator) -> list[int]:
    """The order of axes that an operator makes, which puts another one first; empty for every other operator."""
    if operator.name == "TRANSPOSE" and (order := graph.integers(operator.inputs[1])) is not None:
        axes = [int(axis) for axis in order.ravel()]
        return axes if axes[:1] != [0] else []
    if operator.name == "RESHAPE":  # of one sample, which TRANSPOSE would make the same of
        shape, made = (graph.tensors[k].shape for k in (operator.inputs[0], operator.outputs[0]))
        turned = len(shape) > 2 and made == (shape[1], shape[0], *shape[2:])
        if turned and shape[0] != shape[1] and 1 in shape[:2]:
            return [1, 0, *range(2, len(shape))]
    return []


def _steps(graph: FlatRewriting, operator: FlatOperator, maker: FlatOperator) -> bool:
    """UNPACK of a transposed sequence, or of PACK."""
    if axes := _order(graph, maker):
        axis = axes.pop(pack_axis(graph, operator))
        unpack(graph, operator.outputs, range(len(operator.outputs)), maker.inputs[0], axis, axes)
        return True
    if maker.name != "PACK" or pack_axis(graph, operator) != pack_axis(graph, maker):
        return False
    for part, output in zip(maker.inputs, operator.outputs, strict=True):
        graph.reshape(part, output)
    return True


def _step(graph: FlatRewriting, operator: FlatOperator, maker: FlatOperator) -> bool:
    """STRIDED_SLICE or GATHER of one element of the first axis of a transposed sequence, or of PACK."""
    shape = graph.tensors[operator.inputs[0]].shape
    if operator.name == "GATHER":
        place = graph.integers(operator.inputs[1])
        first, others = range(0), []
        if place is not None and place.size == 1 and int(operator.options.Axis()) == 0:
            first = range(int(place.item()), int(place.item()) + 1)
            others = [range(size) for size in shape[1:]]
    else:
        begin, end, steps = (graph.integers(index) for index in operator.inputs[1:4])
        if begin is None or end is None or steps is None:
            return False
        first, *others = slice_ranges(operator.options, shape, begin, end, steps)
    whole = [range(size) for size in shape[1:]]
    if len(first) != 1 or others != whole or graph.tensors[operator.outputs[0]].shape != shape[1:]:
        return False
    if axes := _order(graph, maker):
        axis, *rest = axes
        unpack(graph, operator.outputs, first, maker.inputs[0], axis, rest)
        return True
    if maker.name != "PACK" or pack_axis(graph, maker) != 0:
        return False
    graph.reshape(maker.inputs[first[0]], operator.outputs[0])
    return True


def pack_axis(graph: FlatRewriting, operator: FlatOperator) -> int:
    """Axis of PACK or UNPACK."""
    rank = len(graph.tensors[(operator.outputs if operator.name == "PACK" else operator.inputs)[0]].shape)
    return int(operator.options.Axis()) % rank


def unpack(
    graph: FlatRewriting, outputs: Sequence[int], places: Sequence[int], source: int, axis: int, rest: Sequence[int]
) -> None:
    """Elements along an axis of a tensor, with the other axes in an order."""
    shape = graph.tensors[source].shape
    order = np.argsort(np.argsort(rest))
    for k, output in zip(places, outputs, strict=True):
        ranges = [range(size) for size in shape]
        ranges[axis] = range(k, k + 1)
        if list(order) == sorted(order):
            graph.take(source, ranges, output)
            continue
        part = graph.like(output, [size for place, size in enumerate(shape) if place != axis], "part")
        graph.take(source, ranges, part)
        graph.add("TRANSPOSE", (part, graph.constant(order, f"{graph.tensors[output].name}/order")), output)


def _packed_otherwise(graph: FlatRewriting, operator: FlatOperator, maker: FlatOperator) -> bool:
    """TRANSPOSE that only moves the axis of PACK, or RESHAPE that moves it beside an axis of one sample."""
    axes = _order(graph, operator)
    if maker.name != "PACK" or not axes:
        return False
    packed = pack_axis(graph, maker)
    place = axes.index(packed)
    if axes[:place] + axes[place + 1 :] != [axis for axis in range(len(axes)) if axis != packed]:
        return False
    graph.add("PACK", maker.inputs, operator.outputs[0], FlatOptions(Axis=place, ValuesCount=len(maker.inputs)))
    return True


_STEPS: dict[str, Callable[[FlatRewriting, FlatOperator, FlatOperator], bool]] = {
    "UNPACK": _steps, "STRIDED_SLICE": _step, "GATHER": _step, "TRANSPOSE": _packed_otherwise,
    "RESHAPE": _packed_otherwise,
}  # fmt: skip
