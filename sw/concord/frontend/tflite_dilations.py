"""Dilated and padded convolutions of TensorFlow Lite, which its converter writes as several operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from concord.frontend.tflite_file import FlatOperator, FlatOptions, Values, window_pads
from concord.frontend.tflite_rewriting import POINT_WISE, FlatRewriting

#: The number of VALID in the schema.
_VALID = 1


def with_dilations(graph: FlatRewriting) -> None:
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
        elif operator.name not in ("EXPAND_DIMS", "RESHAPE", "SQUEEZE", *POINT_WISE):
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


def with_pads(graph: FlatRewriting) -> None:
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
    """Source and widths, by axis of the image, of PAD in front of a convolution; ``None`` without it."""
    if operator.options.Padding() != _VALID:
        return None
    pad = graph.makers.get(operator.inputs[0])
    unit = 0
    if pad is not None and pad.name in ("EXPAND_DIMS", "RESHAPE"):
        shape, image = (graph.tensors[k].shape for k in (pad.inputs[0], operator.inputs[0]))
        unit = next((axis for axis in (1, 2) if image == (*shape[:axis], 1, *shape[axis:])), 0)
        pad = graph.makers.get(pad.inputs[0]) if unit else None
    widths = graph.integers(pad.inputs[1]) if pad is not None and pad.name == "PAD" else None
    if pad is None or widths is None or graph.tensors[pad.inputs[0]].scheme != graph.tensors[pad.outputs[0]].scheme:
        return None
    if unit:
        widths = np.insert(widths, unit, 0, axis=0)
    if len(widths) != 4 or widths[0].any() or widths[3].any() or (widths < 0).any():
        return None
    return pad.inputs[0], widths
