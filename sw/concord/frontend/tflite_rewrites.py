"""Networks of TensorFlow Lite in the operators that both readers know: one for codes, one for floats.

A converter writes one layer as several operators: a dilated convolution as one between SPACE_TO_BATCH_ND and
BATCH_TO_SPACE_ND, steps of a recurrent layer as the parts of a transposed sequence, rows of a dense layer as samples.
Each rule here makes one of these forms again what it stands for. Elements and codes stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from concord.frontend.tflite_constants import folded, slice_ranges
from concord.frontend.tflite_file import (
    DAMAGED,
    FlatModel,
    FlatOperator,
    FlatOptions,
    FlatTensor,
    Values,
    read_flat,
    window_pads,
)
from concord.frontend.tflite_loops import unrolled

#: The number of VALID in the schema.
_VALID = 1
#: Operators of which every element of the result is one of an element, or of those at its place and a constant.
_POINT_WISE = frozenset(
    "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU PRELU ELU GELU HARD_SWISH LOGISTIC TANH EXP LOG SQRT RSQRT SQUARE "
    "ABS NEG SIN COS QUANTIZE DEQUANTIZE ADD SUB MUL DIV MAXIMUM MINIMUM SQUARED_DIFFERENCE".split()
)
#: Operators that work along the last axis, whatever is in front of it.
_OF_ROWS = frozenset({"FULLY_CONNECTED", "SOFTMAX", "LOG_SOFTMAX"})


def read_network(data: bytes) -> FlatModel:
    """The network in the contents of a TensorFlow Lite file, in the operators that its readers know.

    Raises
    ------
    ValueError
        As of :func:`~concord.frontend.tflite_file.read_flat`, if an operator does not fit its constants, or if a loop
        cannot be written out.
    """
    return rewritten(folded(unrolled(read_flat(data))))


def rewritten(model: FlatModel) -> FlatModel:
    """The network after all rules."""
    for rule in (_with_dilations, _with_pads, _with_lists, _with_steps, _with_upsampling, _with_parts, _with_samples):
        graph = FlatRewriting(model)
        try:
            rule(graph)
        except DAMAGED as error:
            raise ValueError(
                "the model must be whole: an operator does not fit its tensors; export it again"
            ) from error
        model = graph.model()
    return model


def live_operators(model: FlatModel, ends: Iterable[int]) -> list[FlatOperator]:
    """The operators that some tensors need, in their order."""
    needed, live = set(ends), []
    for operator in reversed(model.operators):
        if needed.intersection(operator.outputs):
            needed.update(operator.inputs)
            live.append(operator)
    return live[::-1]


class FlatRewriting:
    """A network that operators and tensors are added to.

    Parameters
    ----------
    model : FlatModel
        Whose operators are read; those of the result are in ``operators``.
    """

    def __init__(self, model: FlatModel) -> None:
        self.source = model
        self.tensors = list(model.tensors)
        self.operators: list[FlatOperator] = []
        self.readers: dict[int, list[FlatOperator]] = {}
        self.makers: dict[int, FlatOperator] = {}
        for operator in model.operators:
            for index in dict.fromkeys(operator.inputs):
                self.readers.setdefault(index, []).append(operator)
            self.makers.update(dict.fromkeys(operator.outputs, operator))

    def like(self, index: int, shape: Sequence[int], what: str) -> int:
        """A new tensor with the codes of another one."""
        tensor = self.tensors[index]
        self.tensors.append(replace(tensor, shape=tuple(shape), name=f"{tensor.name}/{what}", data=None))
        return len(self.tensors) - 1

    def constant(self, values: Any, name: str) -> int:
        """A new constant of integers."""
        data = np.asarray(values, np.int32)
        nothing = np.zeros(0, np.float32), np.zeros(0, np.int64)
        self.tensors.append(FlatTensor(name, data.shape, "INT32", *nothing, 0, data))
        return len(self.tensors) - 1

    def add(self, name: str, inputs: Sequence[int], output: int, options: Any = None) -> int:
        """A new operator; its result."""
        self.operators.append(FlatOperator(name, tuple(inputs), (output,), options))
        return output

    def reshape(self, source: int, output: int) -> int:
        """The elements of a tensor in the shape of another one."""
        shape = self.constant(self.tensors[output].shape, f"{self.tensors[output].name}/shape")
        return self.add("RESHAPE", (source, shape), output)

    def take(self, source: int, ranges: Sequence[range], output: int) -> int:
        """Elements of a tensor along each axis; the shape of the result may lack axes of one element, or have more."""
        shape, sizes = self.tensors[source].shape, tuple(len(places) for places in ranges)
        target = self.tensors[output].shape
        if all(places == range(size) for places, size in zip(ranges, shape, strict=True)):
            return self.reshape(source, output)
        made = output if sizes == target else self.like(output, sizes, "part")
        bounds = (
            [places.start for places in ranges],
            [places.stop if places.stop >= 0 else -size - 1 for places, size in zip(ranges, shape, strict=True)],
            [places.step for places in ranges],
        )
        constants = [self.constant(values, f"{self.tensors[output].name}/bounds") for values in bounds]
        masks = dict.fromkeys(("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"), 0)
        self.add("STRIDED_SLICE", (source, *constants), made, FlatOptions(**masks))
        return made if made == output else self.reshape(made, output)

    def codes(self, index: int) -> tuple[Any, ...]:
        """What the codes of a tensor mean."""
        tensor = self.tensors[index]
        return tensor.kind, tensor.scales.tolist(), tensor.zeros.tolist()

    def integers(self, index: int) -> Values | None:
        """The elements of a constant; ``None`` if it is none."""
        return self.tensors[index].data if index >= 0 else None

    def model(self) -> FlatModel:
        """The network as it is now, without operators that nothing reads any more."""
        unread = (
            index for operator in self.source.operators for index in operator.outputs if index not in self.readers
        )
        made = FlatModel(tuple(self.tensors), tuple(self.operators), self.source.inputs, self.source.outputs)
        return replace(made, operators=tuple(live_operators(made, [*self.source.outputs, *unread])))


# ---- Dilated convolutions.


def _with_dilations(graph: FlatRewriting) -> None:
    """A convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND is a dilated one."""
    for operator in graph.source.operators:
        chain = _chain(graph, operator) if operator.name == "BATCH_TO_SPACE_ND" else None
        if chain is None:
            graph.operators.append(operator)
        else:
            _write_dilated(graph, chain)


def _chain(graph: FlatRewriting, end: FlatOperator) -> list[FlatOperator] | None:
    """From SPACE_TO_BATCH_ND to BATCH_TO_SPACE_ND: a convolution, changes of the shape, and what is point-wise."""
    chain, convolutions = [end], 0
    index = end.inputs[0]
    while True:
        operator = graph.makers.get(index)
        if operator is None:
            return None
        if operator.name == "SPACE_TO_BATCH_ND":
            chain.insert(0, operator)
            return chain if convolutions == 1 and _fitting(graph, chain) else None
        if operator.name in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            convolutions += 1
        elif operator.name not in ("EXPAND_DIMS", "RESHAPE", "SQUEEZE", *_POINT_WISE):
            return None
        computed = [k for k in operator.inputs if k >= 0 and graph.tensors[k].data is None]
        if len(computed) != 1:
            return None
        chain.insert(0, operator)
        index = computed[0]


def _convolution_of(chain: Sequence[FlatOperator]) -> FlatOperator:
    return next(operator for operator in chain if operator.name.endswith("CONV_2D"))


def _fitting(graph: FlatRewriting, chain: Sequence[FlatOperator]) -> bool:
    """True if blocks are the same at both ends, and the convolution has neither strides nor padding of its own."""
    ends = chain[0], chain[-1]
    blocks, sizes = ([graph.integers(end.inputs[k]) for end in ends] for k in (1, 2))
    first, last = blocks
    if first is None or last is None or any(values is None for values in sizes) or first.tolist() != last.tolist():
        return False
    convolution, rank = _convolution_of(chain), len(graph.tensors[chain[0].inputs[0]].shape)
    kernel, image = (graph.tensors[convolution.inputs[k]].shape[1:3] for k in (1, 0))
    options, count = convolution.options, first.size
    plain = options.StrideH() == options.StrideW() == 1 and (options.Padding() == _VALID or max(kernel) == 1)
    flat = count == 1 and len(image) == 2 and image[1 - _along(kernel)] == 1
    return plain and rank == count + 2 and (flat or count == 2)


def _along(kernel: Sequence[int]) -> int:
    """The axis of a sequence among the two of an image."""
    return int(kernel[0] == 1)


def _write_dilated(graph: FlatRewriting, chain: Sequence[FlatOperator]) -> None:
    """The chain with a dilated convolution, after PAD where its padding is not that of SAME."""
    first, last, convolution = chain[0], chain[-1], _convolution_of(chain)
    block, pads, crops = (np.asarray(graph.integers(k)).astype(int) for k in (*first.inputs[1:3], last.inputs[2]))
    source, target = first.inputs[0], last.outputs[0]
    batch, *sizes, _ = graph.tensors[source].shape
    kernel = graph.tensors[convolution.inputs[1]].shape[1:3]

    def image(numbers: Sequence[int]) -> tuple[int, ...]:
        """Numbers of both axes of an image; those of a sequence have a 1 beside them."""
        return tuple(numbers) if len(numbers) == 2 else ((1, numbers[0]) if _along(kernel) else (numbers[0], 1))

    around = pads - crops  # elements in front of the source and after it that the convolution reads
    dilations = (convolution.options.DilationHFactor(), convolution.options.DilationWFactor())
    dilations = dilations[0] * image(block.tolist())[0], dilations[1] * image(block.tolist())[1]
    same = np.reshape(window_pads(0, image(sizes), kernel, (1, 1), dilations), (2, 2)).T
    padding = _VALID
    if around.any() and np.array_equal(around, same if len(block) == 2 else same[[_along(kernel)]]):
        padding = 0
    elif around.any():
        source = _framed(graph, source, around)
        sizes = list(graph.tensors[source].shape[1:-1])
    state = source
    for operator in chain[1:-1]:
        tensor = graph.tensors[operator.outputs[0]]
        if operator is convolution:
            sizes = list(graph.tensors[target].shape[1:-1])
        shape = (batch, *(image(sizes) if len(tensor.shape) == 4 else sizes), tensor.shape[-1])
        output = target if operator is chain[-2] else graph.like(operator.outputs[0], shape, "dilated")
        if operator.name in ("EXPAND_DIMS", "RESHAPE", "SQUEEZE"):
            state = graph.reshape(state, output)
            continue
        options = operator.options
        if operator is convolution:
            options = FlatOptions(options, Padding=padding, DilationHFactor=dilations[0], DilationWFactor=dilations[1])
        inputs = [state if k >= 0 and graph.tensors[k].data is None else k for k in operator.inputs]
        state = graph.add(operator.name, inputs, output, options)


def _framed(graph: FlatRewriting, source: int, around: Values) -> int:
    """A tensor with elements of 0 around it; where their number is negative, it is cut."""
    batch, *sizes, channels = graph.tensors[source].shape
    cut = [range(max(-a, 0), size + min(b, 0)) for size, (a, b) in zip(sizes, around, strict=True)]
    if any(places != range(size) for places, size in zip(cut, sizes, strict=True)):
        sizes = [len(places) for places in cut]
        output = graph.like(source, (batch, *sizes, channels), "cut")
        source = graph.take(source, [range(batch), *cut, range(channels)], output)
    widths = np.array([(0, 0), *np.maximum(around, 0), (0, 0)])
    if not widths.any():
        return source
    shape = tuple(int(size + sum(pair)) for size, pair in zip((batch, *sizes, channels), widths, strict=True))
    output = graph.like(source, shape, "padded")
    return graph.add("PAD", (source, graph.constant(widths, f"{graph.tensors[output].name}/widths")), output)


# ---- Padding.


def _with_pads(graph: FlatRewriting) -> None:
    """PAD in front of a convolution without padding is padding of the convolution."""
    for operator in graph.source.operators:
        padded = _padded(graph, operator) if operator.name in ("CONV_2D", "DEPTHWISE_CONV_2D") else None
        if padded is None:
            graph.operators.append(operator)
            continue
        source, widths = padded
        x, *others = operator.inputs
        sizes = [int(size - sum(pair)) for size, pair in zip(graph.tensors[x].shape, widths, strict=True)]
        if tuple(sizes) != graph.tensors[source].shape:
            source = graph.reshape(source, graph.like(x, sizes, "image"))
        options = FlatOptions(operator.options, Pads=widths[1:3].T.ravel().tolist())
        graph.operators.append(replace(operator, inputs=(source, *others), options=options))


def _padded(graph: FlatRewriting, operator: FlatOperator) -> tuple[int, Values] | None:
    """What PAD reads in front of a convolution, and its widths by axis of the image."""
    if operator.options.Padding() != _VALID:
        return None
    pad = graph.makers.get(operator.inputs[0])
    unit = 0
    if pad is not None and pad.name in ("EXPAND_DIMS", "RESHAPE"):
        shape, image = (graph.tensors[k].shape for k in (pad.inputs[0], operator.inputs[0]))
        unit = next((axis for axis in (1, 2) if image == (*shape[:axis], 1, *shape[axis:])), 0)
        pad = graph.makers.get(pad.inputs[0]) if unit else None
    widths = graph.integers(pad.inputs[1]) if pad is not None and pad.name == "PAD" else None
    if pad is None or widths is None or graph.codes(pad.inputs[0]) != graph.codes(pad.outputs[0]):
        return None
    if unit:
        widths = np.insert(widths, unit, 0, axis=0)
    if len(widths) != 4 or widths[0].any() or widths[3].any() or (widths < 0).any():
        return None
    return pad.inputs[0], widths


# ---- Lists of tensors.


def _with_lists(graph: FlatRewriting) -> None:
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


# ---- Steps of a sequence.


def _with_steps(graph: FlatRewriting) -> None:
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
        axis = axes.pop(_axis(graph, operator))
        _unpack(graph, operator.outputs, range(len(operator.outputs)), maker.inputs[0], axis, axes)
        return True
    if maker.name != "PACK" or _axis(graph, operator) != _axis(graph, maker):
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
        _unpack(graph, operator.outputs, first, maker.inputs[0], axis, rest)
        return True
    if maker.name != "PACK" or _axis(graph, maker) != 0:
        return False
    graph.reshape(maker.inputs[first[0]], operator.outputs[0])
    return True


def _axis(graph: FlatRewriting, operator: FlatOperator) -> int:
    """Axis of PACK or UNPACK."""
    rank = len(graph.tensors[(operator.outputs if operator.name == "PACK" else operator.inputs)[0]].shape)
    return int(operator.options.Axis()) % rank


def _unpack(
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
    packed = _axis(graph, maker)
    place = axes.index(packed)
    if axes[:place] + axes[place + 1 :] != [axis for axis in range(len(axes)) if axis != packed]:
        return False
    graph.add("PACK", maker.inputs, operator.outputs[0], FlatOptions(Axis=place, ValuesCount=len(maker.inputs)))
    return True


_STEPS: dict[str, Callable[[FlatRewriting, FlatOperator, FlatOperator], bool]] = {
    "UNPACK": _steps, "STRIDED_SLICE": _step, "GATHER": _step, "TRANSPOSE": _packed_otherwise,
    "RESHAPE": _packed_otherwise,
}  # fmt: skip


# ---- Elements that are repeated.


def _with_upsampling(graph: FlatRewriting) -> None:
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


# ---- Parts of a tensor.


def _with_parts(graph: FlatRewriting) -> None:
    """Parts of a tensor are taken by STRIDED_SLICE without masks, and put together by CONCATENATION."""
    for operator in graph.source.operators:
        write = _PARTS.get(operator.name)
        if write is None or not write(graph, operator):
            graph.operators.append(operator)


def _unpacked(graph: FlatRewriting, operator: FlatOperator) -> bool:
    axis = _axis(graph, operator)
    rank = len(graph.tensors[operator.inputs[0]].shape)
    rest = [k for k in range(rank) if k != axis]
    _unpack(graph, operator.outputs, range(len(operator.outputs)), operator.inputs[0], axis, rest)
    return True


def _packed(graph: FlatRewriting, operator: FlatOperator) -> bool:
    """Parts with an axis of one element, one after the other."""
    (output,) = operator.outputs
    shape, axis = graph.tensors[output].shape, _axis(graph, operator)
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
    todo = [(axis, size // shape[axis]) for axis, size in enumerate(made) if size != shape[axis]]
    for k, (axis, count) in enumerate(todo):
        shape = (*shape[:axis], made[axis], *shape[axis + 1 :])
        target = output if k == len(todo) - 1 else graph.like(output, shape, f"tiled {axis}")
        source = graph.add("CONCATENATION", [source] * count, target, FlatOptions(Axis=axis, FusedActivationFunction=0))
    if not todo:
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


# ---- Samples.


def _with_samples(graph: FlatRewriting) -> None:
    """Rows of one sample are no samples: RESHAPE to ``[rows, features]`` leaves an axis of one sample in front.

    This holds for what is computed of such rows, too, up to a RESHAPE back.
    """
    ranks = [len(graph.tensors[index].shape) for index in graph.source.inputs]
    single = ranks and all(graph.tensors[index].shape[:1] == (1,) for index in graph.source.inputs)
    rows = _rows(graph) if single else set()
    for index in rows:
        tensor = graph.tensors[index]
        graph.tensors[index] = replace(tensor, shape=(1, *tensor.shape))
    for operator in graph.source.operators:
        if operator.name == "FULLY_CONNECTED" and rows.issuperset(operator.outputs):
            operator = replace(operator, options=FlatOptions(operator.options, KeepNumDims=True))
        graph.operators.append(operator)


def _rows(graph: FlatRewriting) -> set[int]:
    """Tensors of rows of one sample, each of which has ``[rows, features]``."""
    rows: set[int] = set()
    for operator in graph.source.operators:
        shapes = [graph.tensors[index].shape for index in operator.outputs]
        if len(shapes) != 1 or not shapes[0] or shapes[0][0] == 1:
            continue
        computed = [k for k in operator.inputs if k >= 0 and graph.tensors[k].data is None]
        if operator.name == "RESHAPE" and graph.tensors[operator.inputs[0]].shape[:1] == (1,):
            rows.update(operator.outputs)
        elif operator.name in (*_POINT_WISE, *_OF_ROWS) and computed and rows.issuperset(computed):
            rows.update(operator.outputs)
    while wrong := {index for index in rows if not _inside(graph, index, rows)}:
        rows -= wrong
    return rows


def _inside(graph: FlatRewriting, index: int, rows: set[int]) -> bool:
    """True if a tensor of rows is computed of such tensors alone, or is the shape of another one; and is read so."""
    maker, readers = graph.makers[index], graph.readers.get(index, ())
    computed = [k for k in maker.inputs if k >= 0 and graph.tensors[k].data is None]
    made = maker.name == "RESHAPE" or rows.issuperset(computed)
    read = all(
        reader.name == "RESHAPE" or rows.issuperset(reader.outputs) or _broadcasts(graph, reader, index)
        for reader in readers
    )
    return made and read and index not in graph.source.outputs


def _broadcasts(graph: FlatRewriting, operator: FlatOperator, index: int) -> bool:
    """True if an operator combines a tensor with one that has an axis of one sample in front."""
    shape = graph.tensors[operator.outputs[0]].shape
    rank = len(graph.tensors[index].shape)
    return operator.name in _POINT_WISE and len(shape) == rank + 1 and shape[0] == 1
