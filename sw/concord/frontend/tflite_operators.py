"""Operators of TensorFlow Lite in ONNX, each as a function that writes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import FlatOperator, Values, operator_pads, window_pads
from concord.frontend.tflite_writer import CHANNELS_AXIS, TO_CHANNELS, LayoutWriter

Write = Callable[[LayoutWriter, FlatOperator], None]
#: The number of TANH among activations in the schema.
_TANH = 4
#: Numbers to which activations limit, by their number in the schema.
_LIMITS = {0: (-math.inf, math.inf), 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
#: Advice for options that are not supported.
_EXPORT = "export the model with it"


def _activated(writer: LayoutWriter, name: str, operator: FlatOperator) -> str:
    """Result of an operator after its activation, if it has one; of codes the kernel limits them."""
    if writer.of_codes:
        return name
    least, most = limits_of_activation(operator.options)
    if not math.isinf(most):
        return _clipped(writer, name, least, most)
    return name if math.isinf(least) else writer.node("Relu", [name])


def limits_of_activation(options: Any) -> tuple[float, float]:
    """Numbers to which the activation in the options of an operator limits its result."""
    kind = getattr(options, "FusedActivationFunction", int)()
    if kind not in _LIMITS:
        reason = "its activation must be RELU, RELU_N1_TO_1 or RELU6, or an operator of its own"
        raise Refusal(reason, _EXPORT)
    return _LIMITS[kind]


def _clipped(writer: LayoutWriter, name: str, least: float, most: float) -> str:
    ends = [writer.constant(np.float32(end), "bound") for end in (least, most)]
    return writer.node("Clip", [name, *ends])


def _constant(writer: LayoutWriter, index: int, what: str) -> Values:
    values = writer.tensors[index].real
    if values is None:
        raise Refusal(f"its {what} must be constant, not computed", _EXPORT)
    return values


def _axes(writer: LayoutWriter, index: int, rank: int) -> list[int]:
    return [int(axis) % rank for axis in np.ravel(_constant(writer, index, "axes"))]


def _strides(options: Any) -> list[int]:
    strides = [options.StrideH(), options.StrideW()]
    if min(strides) < 1:
        raise Refusal(f"its strides must be at least 1, not {strides}", _EXPORT)
    return strides


def _bias(writer: LayoutWriter, operator: FlatOperator, position: int) -> list[str]:
    """The bias, if there is one."""
    if len(operator.inputs) <= position or operator.inputs[position] < 0:
        return []
    tensor = writer.tensors[operator.inputs[position]]
    if writer.of_codes and tensor.data is not None:  # integers in the scale of the sums
        return [writer.constant(tensor.data, tensor.name)]
    return [writer.rows(operator.inputs[position])]


def _convolution(writer: LayoutWriter, operator: FlatOperator) -> None:
    x, w = operator.inputs[:2]
    options, depthwise = operator.options, operator.name == "DEPTHWISE_CONV_2D"
    image, kernel = writer.tensors[x].shape, writer.tensors[w].shape
    dilations, strides = [options.DilationHFactor(), options.DilationWFactor()], _strides(options)
    if min(dilations) < 1 or len(image) != 4 or len(kernel) != 4:
        raise Refusal(f"it must have images of 4 axes, and dilations of at least 1, not {dilations}")
    order = (3, 0, 1, 2) if depthwise else TO_CHANNELS
    group, inputs = (image[3], 1) if depthwise else (image[3] // max(kernel[3], 1), kernel[3])
    if group * inputs != image[3] or not group or kernel[order[0]] % group or (depthwise and kernel[0] != 1):
        raise Refusal(f"weight of shape {list(kernel)} must fit an image of shape {list(image)}")
    result = writer.node(
        "Conv", [writer.channels(x), writer.weights(w, order), *_bias(writer, operator, 2)],
        kernel_shape=kernel[1:3], strides=strides, dilations=dilations, group=group,
        pads=operator_pads(options, image[1:3], kernel[1:3], strides, dilations),
    )  # fmt: skip
    writer.put(operator.outputs[0], _activated(writer, result, operator), channels=True)


def _transposed_convolution(writer: LayoutWriter, operator: FlatOperator) -> None:
    _, w, x = operator.inputs[:3]
    image, kernel = writer.tensors[x].shape, writer.tensors[w].shape
    strides, out = _strides(operator.options), writer.tensors[operator.outputs[0]].shape
    if len(image) != 4 or len(kernel) != 4 or (kernel[3], kernel[0]) != (image[3], out[3]):
        raise Refusal(f"weight of shape {list(kernel)} must fit images {list(image)} and {list(out)}")
    over = [(image[k + 1] - 1) * strides[k] + kernel[k + 1] - out[k + 1] for k in (0, 1)]
    result = writer.node(
        "ConvTranspose",
        [writer.channels(x), writer.weights(w, (3, 0, 1, 2)), *_bias(writer, operator, 3)],
        kernel_shape=kernel[1:3], strides=strides,
        pads=[*(max(size, 0) // 2 for size in over), *(max(size, 0) - max(size, 0) // 2 for size in over)],
        output_padding=[max(-size, 0) for size in over],
    )  # fmt: skip
    writer.put(operator.outputs[0], _activated(writer, result, operator), channels=True)


def _fully_connected(writer: LayoutWriter, operator: FlatOperator) -> None:
    x, w = operator.inputs[:2]
    shape, out = writer.tensors[x].shape, writer.tensors[operator.outputs[0]].shape
    rows, kernel = writer.rows(x), writer.tensors[w].shape
    wanted = (*out[:-1], kernel[-1]) if writer.of_codes else (-1, kernel[-1])
    if len(kernel) != 2 or math.prod(shape) != math.prod(out[:-1]) * kernel[1]:
        raise Refusal(f"weight must fit rows of {list(shape)}, not be of shape {list(kernel)}")
    if shape[1:] != wanted[1:]:
        rows = writer.reshaped(rows, wanted)
    result = writer.node("Gemm", [rows, writer.weights(w, (0, 1)), *_bias(writer, operator, 2)], transB=1)
    if len(out) != 2 and not writer.of_codes:
        result = writer.reshaped(result, out)
    writer.put(operator.outputs[0], _activated(writer, result, operator))


def _pool(writer: LayoutWriter, operator: FlatOperator) -> None:
    (x,), options = operator.inputs, operator.options
    kernel, strides = [options.FilterHeight(), options.FilterWidth()], _strides(options)
    if min(kernel) < 1 or len(writer.tensors[x].shape) != 4:
        raise Refusal(f"it must have images of 4 axes, and windows of at least 1, not {kernel}")
    pads = window_pads(options.Padding(), writer.tensors[x].shape[1:3], kernel, strides, (1, 1))
    average = operator.name == "AVERAGE_POOL_2D"
    result = writer.node(
        "AveragePool" if average else "MaxPool", [writer.channels(x)], kernel_shape=kernel, strides=strides, pads=pads
    )
    result = _activated(writer, result, operator)
    if average:
        writer.put(operator.outputs[0], result, channels=True)
    else:
        _moved(writer, operator, result, channels=True)


def _moved(writer: LayoutWriter, operator: FlatOperator, name: str, channels: bool = False) -> None:
    """A result that has the codes of the first operand, if it has the same scale: they are not rounded again."""
    source, result = writer.tensors[operator.inputs[0]], writer.tensors[operator.outputs[0]]
    (writer.same if source.scheme == result.scheme else writer.put)(operator.outputs[0], name, channels)


def _elementwise(writer: LayoutWriter, operator: FlatOperator, *ops: Callable[[LayoutWriter, list[str]], str]) -> None:
    """Operand of several, all in the layout that one of them has."""
    shapes = [writer.tensors[k].shape for k in operator.inputs]
    channels = (
        any(writer.in_channels(k) for k in operator.inputs)
        and len(writer.tensors[operator.outputs[0]].shape) == 4
        and all(len(s) == 4 or writer.tensors[k].data is not None for k, s in zip(operator.inputs, shapes, strict=True))
    )
    if channels:
        names = [_in_channels(writer, k) for k in operator.inputs]
    else:
        names = [writer.rows(k) for k in operator.inputs]
    for op in ops:
        names = [op(writer, names)]
    writer.put(operator.outputs[0], _activated(writer, names[0], operator) if _fused(operator) else names[0], channels)


def _fused(operator: FlatOperator) -> bool:
    return hasattr(operator.options, "FusedActivationFunction")


def _in_channels(writer: LayoutWriter, index: int) -> str:
    """An operand with the channels in front; a constant of fewer axes has ones in front of them."""
    tensor = writer.tensors[index]
    if len(tensor.shape) == 4:
        return writer.channels(index)
    values = np.asarray(tensor.real).reshape([1] * (4 - len(tensor.shape)) + list(tensor.shape))
    return writer.constant(np.transpose(values, TO_CHANNELS), tensor.name)


def _op(op: str, **attributes: Any) -> Callable[[LayoutWriter, list[str]], str]:
    return lambda writer, names: writer.node(op, names, **attributes)


def _of(*ops: Callable[[LayoutWriter, list[str]], str]) -> Write:
    return lambda writer, operator: _elementwise(writer, operator, *ops)


def _twice(writer: LayoutWriter, names: list[str]) -> str:
    return writer.node("Mul", [*names, *names])


def _clip(least: float, most: float) -> Write:
    return _of(lambda writer, names: _clipped(writer, names[0], least, most))


def _leaky(writer: LayoutWriter, operator: FlatOperator) -> None:
    _elementwise(writer, operator, _op("LeakyRelu", alpha=operator.options.Alpha()))


def _gelu(writer: LayoutWriter, operator: FlatOperator) -> None:
    _elementwise(writer, operator, _op("Gelu", approximate="tanh" if operator.options.Approximate() else "none"))


def _lstm(writer: LayoutWriter, operator: FlatOperator) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM from a state of zeros; weights are what their codes mean."""
    x, (y,), options = operator.inputs[0], operator.outputs, operator.options
    # Gates of the file are input, forget, cell and output; those of ONNX are input, output, forget and cell.
    gates = [[operator.inputs[first + k] for k in (0, 3, 1, 2)] for first in (1, 5, 12)]
    beside = [*operator.inputs[9:12], *operator.inputs[16:18], *operator.inputs[20:]]
    if max(beside, default=-1) >= 0 or min(map(min, gates)) < 0 or options.FusedActivationFunction() != _TANH:
        raise Refusal(
            "it must have four gates with biases and TANH, without peepholes, projection or normalisation", _EXPORT
        )
    steps = writer.rows(x) if options.TimeMajor() else writer.node("Transpose", [writer.rows(x)], perm=[1, 0, 2])
    inner, outer, bias = (np.concatenate([np.asarray(_constant(writer, k, "weights")) for k in part]) for part in gates)
    constants = [inner[None], outer[None], np.concatenate([bias, np.zeros_like(bias)])[None]]
    names = [writer.constant(values.astype(np.float32), "weights") for values in constants]
    units, shape = outer.shape[1], writer.tensors[y].shape
    turned = shape if options.TimeMajor() else (shape[1], shape[0], shape[2])
    made = writer.reshaped(writer.node("LSTM", [steps, *names], hidden_size=units), turned)
    writer.put(y, made if options.TimeMajor() else writer.node("Transpose", [made], perm=[1, 0, 2]))


def _prelu(writer: LayoutWriter, operator: FlatOperator) -> None:
    if writer.tensors[operator.inputs[1]].data is None:
        raise Refusal("its slopes must be constant, not computed", _EXPORT)
    _elementwise(writer, operator, _op("PRelu"))


def _selected(writer: LayoutWriter, operator: FlatOperator) -> None:
    """SELECT_V2, which moves no codes: both branches may have other scales than the result."""
    _elementwise(writer, operator, _op("Where"))


def _compared(op: str) -> Write:
    """A comparison, whose result has no codes."""

    def write(writer: LayoutWriter, operator: FlatOperator) -> None:
        writer.same(operator.outputs[0], writer.node(op, [writer.rows(k) for k in operator.inputs]))

    return write


def _gather(writer: LayoutWriter, operator: FlatOperator) -> None:
    """GATHER at constant places of a tensor, or at computed ones of a constant, as an embedding does it."""
    if operator.options.BatchDims():
        raise Refusal("it must have no batch dimensions", _EXPORT)
    x, places = operator.inputs
    if writer.tensors[places].data is None and writer.tensors[x].data is None:
        raise Refusal("its indices or its table must be constant, not computed", _EXPORT)
    if (values := writer.tensors[places].data) is None:
        indices = writer.rows(places)
    else:
        indices = writer.constant(values.astype(np.int64), "indices")
    axis = operator.options.Axis() % len(writer.tensors[x].shape)
    _moved(writer, operator, writer.node("Gather", [writer.rows(x), indices], axis=axis))


def _mirrored(writer: LayoutWriter, operator: FlatOperator) -> None:
    x, widths = operator.inputs[0], _constant(writer, operator.inputs[1], "paddings")
    if writer.of_codes:
        mode: Any = "symmetric" if operator.options.Mode() else "reflect"
        shape = writer.tensors[x].shape
        _picked(
            writer, operator, {axis: np.pad(range(shape[axis]), widths[axis], mode=mode) for axis in range(len(shape))}
        )
        return
    if operator.options.Mode():
        raise Refusal("its mode must be REFLECT, not SYMMETRIC", _EXPORT)
    if channels := writer.in_channels(x):
        widths = widths[list(TO_CHANNELS)]
    pads = writer.constant(widths.T.ravel().astype(np.int64), "pads")
    result = writer.node("Pad", [writer.channels(x) if channels else writer.rows(x), pads], mode="reflect")
    _moved(writer, operator, result, channels)


def _picked(writer: LayoutWriter, operator: FlatOperator, places: Mapping[int, Values]) -> None:
    """Write the elements at some places along each axis, but for axes that stay as they are."""
    name, shape = writer.rows(operator.inputs[0]), writer.tensors[operator.inputs[0]].shape
    changed = {axis: row for axis, row in places.items() if row.tolist() != [*range(shape[axis])]}
    for axis, row in changed.items():
        name = writer.node("Gather", [name, writer.constant(row.astype(np.int64), "places")], axis=axis)
    writer.same(operator.outputs[0], name if changed else writer.node("Identity", [name]))


def _blocks(writer: LayoutWriter, operator: FlatOperator) -> None:
    """DEPTH_TO_SPACE and SPACE_TO_DEPTH."""
    x, block, deep = operator.inputs[0], operator.options.BlockSize(), operator.name == "DEPTH_TO_SPACE"
    if writer.of_codes:
        batch, height, width, channels = writer.tensors[x].shape
        parts = (height, width, block, block) if deep else (height // block, block, width // block, block)
        rows = writer.reshaped(writer.rows(x), (batch, *parts, channels // block**2 if deep else channels))
        rows = writer.node("Transpose", [rows], perm=(0, 1, 3, 2, 4, 5))
        result = writer.reshaped(rows, writer.tensors[operator.outputs[0]].shape)
    else:
        result = writer.node("DepthToSpace" if deep else "SpaceToDepth", [writer.channels(x)], blocksize=block)
    _moved(writer, operator, result, channels=True)


def _softmax(writer: LayoutWriter, operator: FlatOperator) -> None:
    name, beta = writer.rows(operator.inputs[0]), 1.0
    if operator.name == "SOFTMAX":
        beta = operator.options.Beta()
    if beta != 1:
        name = writer.node("Mul", [name, writer.constant(np.float32(beta))])
    writer.put(
        operator.outputs[0], writer.node("Softmax" if operator.name == "SOFTMAX" else "LogSoftmax", [name], axis=-1)
    )


def _reduction(op: str) -> Write:
    def write(writer: LayoutWriter, operator: FlatOperator) -> None:
        x = operator.inputs[0]
        axes, keep = _axes(writer, operator.inputs[1], len(writer.tensors[x].shape)), int(operator.options.KeepDims())
        channels = writer.in_channels(x) and (keep or set(axes) == {1, 2})
        name = writer.channels(x) if channels else writer.rows(x)
        if channels:
            axes = [CHANNELS_AXIS[axis] for axis in axes]
        result = writer.node(op, [name, writer.constant(np.array(axes, np.int64), "axes")], keepdims=keep)
        writer.put(operator.outputs[0], result, bool(channels and keep))

    return write


def _reshape(writer: LayoutWriter, operator: FlatOperator) -> None:
    x, shape = operator.inputs[0], writer.tensors[operator.outputs[0]].shape
    if np.prod(shape) != np.prod(writer.tensors[x].shape):
        raise Refusal(f"shape must be known, not {list(shape)}", "convert the network with fixed shapes")
    _moved(writer, operator, writer.reshaped(writer.rows(x), shape))


def _transpose(writer: LayoutWriter, operator: FlatOperator) -> None:
    order = _axes(writer, operator.inputs[1], len(writer.tensors[operator.inputs[0]].shape))
    if writer.of_codes and (sorted(order) != list(range(len(order))) or order[:1] != [0]):
        raise Refusal(f"order must leave the axis of the samples first, not be {order}", "compute it outside")
    _moved(writer, operator, writer.node("Transpose", [writer.rows(operator.inputs[0])], perm=order))


def _concatenation(writer: LayoutWriter, operator: FlatOperator) -> None:
    axis = operator.options.Axis() % len(writer.tensors[operator.outputs[0]].shape)
    channels = any(writer.in_channels(k) for k in operator.inputs)
    names = [(writer.channels if channels else writer.rows)(k) for k in operator.inputs]
    result = writer.node("Concat", names, axis=CHANNELS_AXIS[axis] if channels else axis)
    codes = {writer.tensors[k].scheme for k in (*operator.inputs, operator.outputs[0])}
    result = _activated(writer, result, operator)
    (writer.same if len(codes) == 1 else writer.put)(operator.outputs[0], result, channels)


def _filling(writer: LayoutWriter, operator: FlatOperator) -> Any:
    """The number that PAD and PADV2 add; of codes the code."""
    zeros = writer.tensors[operator.outputs[0]].zeros
    if operator.name == "PAD":
        return zeros[0] if writer.of_codes and zeros.size else np.float32(0)
    numbers, codes = _constant(writer, operator.inputs[2], "value"), writer.tensors[operator.inputs[2]].data
    return codes.ravel()[0] if writer.of_codes and codes is not None else np.float32(numbers.ravel()[0])


def _pad(writer: LayoutWriter, operator: FlatOperator) -> None:
    x = operator.inputs[0]
    widths, channels = _constant(writer, operator.inputs[1], "paddings"), writer.in_channels(x)
    if channels:
        widths = widths[list(TO_CHANNELS)]
    pads = writer.constant(widths.T.ravel().astype(np.int64), "pads")
    value = writer.constant(_filling(writer, operator), "value")
    result = writer.node("Pad", [writer.channels(x) if channels else writer.rows(x), pads, value])
    _moved(writer, operator, result, channels)


def _strided_slice(writer: LayoutWriter, operator: FlatOperator) -> None:
    """STRIDED_SLICE without masks, which is what rules make of the others and of SLICE."""
    x, shape = operator.inputs[0], np.array(writer.tensors[operator.inputs[0]].shape)
    begin, end, steps = (_constant(writer, k, "bounds").ravel().astype(np.int64) for k in operator.inputs[1:4])
    whole = writer.of_codes & (begin == 0) & (end >= shape) & (steps == 1)  # of samples there may be more
    bounds = [writer.constant(values[~whole], "bounds") for values in (begin, end, np.arange(len(begin)), steps)]
    _moved(writer, operator, writer.node("Slice", [writer.rows(x), *bounds]))


def _nearest_places(size: int, made: int, aligned: bool, centred: bool) -> Values:
    """Places of the nearest elements along an axis of ``size`` elements, of which ``made`` become."""
    corner = aligned and made > 1
    scale = np.float32(size - 1) / np.float32(made - 1) if corner else np.float32(size) / np.float32(made)
    numbers = (np.arange(made, dtype=np.float32) + np.float32(0.5 if centred else 0)) * scale
    rounded = np.floor(numbers + np.float32(0.5)) if aligned else np.floor(numbers)
    return np.asarray(rounded.clip(0, size - 1), dtype=np.int64)


def _nearest(writer: LayoutWriter, operator: FlatOperator) -> None:
    """RESIZE_NEAREST_NEIGHBOR of codes."""
    shapes = zip(writer.tensors[operator.inputs[0]].shape, writer.tensors[operator.outputs[0]].shape, strict=True)
    corners = operator.options.AlignCorners(), operator.options.HalfPixelCenters()
    places = [_nearest_places(size, made, *corners) for size, made in shapes]
    _picked(writer, operator, {1: places[1], 2: places[2]})


def _resize(writer: LayoutWriter, operator: FlatOperator) -> None:
    options, out = operator.options, writer.tensors[operator.outputs[0]].shape
    where = "align_corners" if options.AlignCorners() else "half_pixel" if options.HalfPixelCenters() else "asymmetric"
    attributes: dict[str, Any] = {"coordinate_transformation_mode": where, "mode": "linear"}
    if operator.name == "RESIZE_NEAREST_NEIGHBOR":
        attributes |= {"mode": "nearest", "nearest_mode": "floor" if where == "asymmetric" else "round_prefer_ceil"}
    sizes = writer.constant(np.array([out[axis] for axis in TO_CHANNELS], np.int64), "sizes")
    result = writer.node("Resize", [writer.channels(operator.inputs[0]), "", "", sizes], **attributes)
    writer.put(operator.outputs[0], result, channels=True)


def _product(writer: LayoutWriter, operator: FlatOperator) -> None:
    names = []
    for index, turned in zip(operator.inputs, (operator.options.AdjX(), operator.options.AdjY()), strict=False):
        name, rank = writer.rows(index), len(writer.tensors[index].shape)
        names.append(writer.node("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2]) if turned else name)
    writer.put(operator.outputs[0], writer.node("MatMul", names))


def _converted(writer: LayoutWriter, operator: FlatOperator) -> None:
    """QUANTIZE and DEQUANTIZE: the same numbers with other codes, or without."""
    x, y = operator.inputs[0], operator.outputs[0]
    if (values := writer.tensors[x].real) is not None and operator.name == "DEQUANTIZE":
        writer.tensors[y] = writer.tensors[y].with_real(values)
    else:
        channels = writer.in_channels(x)
        writer.put(y, writer.channels(x) if channels else writer.rows(x), channels)


#: Operators that are nodes of ONNX on codes, too: what moves elements, products and pools.
WRITTEN: dict[str, Write] = {
    "RESHAPE": _reshape, "SQUEEZE": _reshape, "EXPAND_DIMS": _reshape, "TRANSPOSE": _transpose,
    "PAD": _pad, "PADV2": _pad, "MIRROR_PAD": _mirrored, "STRIDED_SLICE": _strided_slice, "GATHER": _gather,
    "DEPTH_TO_SPACE": _blocks, "SPACE_TO_DEPTH": _blocks, "RESIZE_NEAREST_NEIGHBOR": _nearest,
    "CONV_2D": _convolution, "DEPTHWISE_CONV_2D": _convolution, "TRANSPOSE_CONV": _transposed_convolution,
    "FULLY_CONNECTED": _fully_connected, "BATCH_MATMUL": _product,
    "AVERAGE_POOL_2D": _pool, "MAX_POOL_2D": _pool,
    "MEAN": _reduction("ReduceMean"), "REDUCE_MAX": _reduction("ReduceMax"), "REDUCE_MIN": _reduction("ReduceMin"),
    "MAXIMUM": _of(_op("Max")), "MINIMUM": _of(_op("Min")),
}  # fmt: skip
OPERATORS: dict[str, Write] = {
    **WRITTEN,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "ADD": _of(_op("Add")), "SUB": _of(_op("Sub")), "MUL": _of(_op("Mul")), "DIV": _of(_op("Div")),
    "SQUARED_DIFFERENCE": _of(_op("Sub"), _twice),
    "RELU": _of(_op("Relu")), "RELU6": _clip(0, 6), "RELU_N1_TO_1": _clip(-1, 1), "RELU_0_TO_1": _clip(0, 1),
    "LEAKY_RELU": _leaky, "GELU": _gelu, "HARD_SWISH": _of(_op("HardSwish")), "ELU": _of(_op("Elu")),
    "LOGISTIC": _of(_op("Sigmoid")), "TANH": _of(_op("Tanh")), "EXP": _of(_op("Exp")), "LOG": _of(_op("Log")),
    "SQRT": _of(_op("Sqrt")), "RSQRT": _of(_op("Sqrt"), _op("Reciprocal")), "SQUARE": _of(_twice),
    "ABS": _of(_op("Abs")), "NEG": _of(_op("Neg")), "SIN": _of(_op("Sin")), "COS": _of(_op("Cos")),
    "SOFTMAX": _softmax, "LOG_SOFTMAX": _softmax,
    "SUM": _reduction("ReduceSum"),
    "CONCATENATION": _concatenation, "SLICE": _strided_slice,
    "RESIZE_BILINEAR": _resize, "RESIZE_NEAREST_NEIGHBOR": _resize,
    "PRELU": _prelu, "SELECT_V2": _selected, "GREATER": _compared("Greater"), "LESS": _compared("Less"),
    "GREATER_EQUAL": _compared("GreaterOrEqual"), "LESS_EQUAL": _compared("LessOrEqual"),
    "QUANTIZE": _converted, "DEQUANTIZE": _converted,
}  # fmt: skip
