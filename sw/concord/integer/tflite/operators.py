"""Operators of TensorFlow Lite on codes, as its reference kernels compute them [tflite-kernels]."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, isclose, prod
from typing import Any

import numpy as np

from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import FlatOperator, operator_pads, window_pads
from concord.integer.float32 import Integers
from concord.integer.moves import ConcatMove, PadMove, ReshapeMove, TransposeMove
from concord.integer.operations import CodeMaximum, CodeTable, IntegerAverage
from concord.integer.requantise import Requantisation, Requantiser
from concord.integer.tflite import point_wise
from concord.integer.tflite.fixed_point import EXP_FRACTION_BITS, FixedPointMultiplier, exponentials
from concord.integer.tflite.number_functions import NUMBER_FUNCTIONS, WITH_TABLES, number_function
from concord.integer.tflite.operations import (
    LEAST_POWER,
    FixedPointMean,
    FixedPointProduct,
    FixedPointSoftmax,
    FixedPointSum,
    InterpolatedSoftmax,
)
from concord.integer.tflite.reading import FlatReading, limited, multiplier_of, offsets_of
from concord.integer.tflite.requantise import Binary64Requantisation
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul
from concord.transfer import Codes

Operator = Callable[[FlatReading, FlatOperator], None]

#: The largest shift of a multiplier of sums of 48 bits.
WIDE_SHIFT = 7
#: The number of INT32 in the schema.
_INT32 = 2


def bias_of(ctx: FlatReading, operator: FlatOperator, channels: int, wide: bool) -> Integers:
    """One integer for each channel, 0 without a bias."""
    if len(operator.inputs) < 3 or operator.inputs[2] < 0:
        return np.zeros(channels, dtype=np.int64)
    values, kind = ctx.constant(operator.inputs[2], "bias"), "INT64" if wide else "INT32"
    if ctx.tensor(operator.inputs[2]).kind != kind or values.size != channels:
        what = f"{ctx.tensor(operator.inputs[2]).kind} of shape {list(values.shape)}"
        raise Refusal(f"bias must be {channels} elements of {kind}, not {what}", "quantise the network again")
    return values.astype(np.int64).reshape(channels)


def weight_codes(ctx: FlatReading, operator: FlatOperator, axis: int) -> tuple[Integers, np.ndarray[Any, Any]]:
    """Constant codes less their zero points, and their scales: one, or those of the elements of an axis."""
    index = operator.inputs[1]
    tensor, data = ctx.tensor(index), ctx.constant(index, "weight")
    source = ctx.tensor(operator.inputs[0]).kind
    kind = "UINT8" if source == "UINT8" else "INT8"
    if not np.isfinite(tensor.scales).all():
        reason = f"scales of the weight must be finite, not {tensor.scales.max():g}, as for inputs that are always 0"
        raise Refusal(reason, "convert the network to int8")
    if tensor.kind != kind or not tensor.scales.size or not (tensor.scales > 0).all():
        raise Refusal(f"weight must be codes of {kind} with positive scales, not {tensor.kind}", "quantise it to int8")
    if tensor.scales.size > 1 and (tensor.axis != axis or kind == "UINT8"):
        raise Refusal(f"weight must have its scales along axis {axis}, not {tensor.axis}, and be INT8")
    zero = int(tensor.zeros[0])
    if tensor.zeros.any() and (tensor.scales.size > 1 or operator.name != "FULLY_CONNECTED") and kind == "INT8":
        raise Refusal("weight must have zero points of 0", "quantise it symmetrically")
    if not np.iinfo(data.dtype).min <= zero <= np.iinfo(data.dtype).max:
        raise Refusal(f"zero point of the weight must be one of its codes, not {zero}")
    return offsets_of(data, zero), tensor.scales.astype(np.float64)


def has_wide_sums(ctx: FlatReading, operator: FlatOperator) -> bool:
    """True if accumulators have 64 bits: those of codes of 16 bits, unless the file says that the bias has 32."""
    if ctx.tensor(operator.inputs[0]).kind != "INT16":
        return False
    return operator.name == "DEPTHWISE_CONV_2D" or operator.options.QuantizedBiasType() != _INT32


def product_multiplier(
    ctx: FlatReading, operator: FlatOperator, x: int, scales: np.ndarray[Any, Any], wide: bool
) -> FixedPointMultiplier:
    """The multiplier of sums of products of the codes of a tensor with weights of some scales."""
    source, target = ctx.scheme(x), ctx.scheme(operator.outputs[0])
    products = float(source.scale) * scales
    if source.low == 0:  # the kernel for codes of uint8 has a product of binary32
        products = products.astype(np.float32).astype(np.float64)
    scale = multiplier_of(products / float(target.scale))
    if wide and scale.shift.max() > WIDE_SHIFT:
        reason = f"multipliers of sums of 48 bits must be below {1 << WIDE_SHIFT}"
        raise Refusal(f"{reason}, not {(products / float(target.scale)).max():.9g}", "quantise the network again")
    return scale


def check_kinds(ctx: FlatReading, operator: FlatOperator, *indices: int) -> None:
    """``Refusal`` unless some tensors and the result have elements of one type."""
    kinds = [ctx.tensor(index).kind for index in (*indices, operator.outputs[0])]
    if len(set(kinds)) > 1:
        raise Refusal(f"what it reads and makes must have one type, not {', '.join(kinds)}", "quantise it to int8")


def same_scheme(ctx: FlatReading, operator: FlatOperator, *indices: int) -> None:
    """``Refusal`` unless some tensors and the result have one scale and zero point."""
    if len({ctx.scheme(index) for index in (*indices, operator.outputs[0])}) > 1:
        raise Refusal("what it reads and makes must have one scale and zero point", "put QUANTIZE behind it")


def axes_behind_samples(ctx: FlatReading, operator: FlatOperator) -> tuple[int, ...]:
    """Constant axes of the second operand in their order; ``Refusal`` for that of the samples, or without one."""
    rank = len(ctx.tensor(operator.inputs[0]).shape)
    axes = tuple(sorted({int(axis) % rank for axis in ctx.constant(operator.inputs[1], "axes").ravel()}))
    if 0 in axes or not axes:
        raise Refusal(f"axes must be some behind that of the samples, not {list(axes)}", "compute it outside")
    return axes


def emit_product(
    ctx: FlatReading, operator: FlatOperator, codes: str, weight: Integers, how: Requantiser, **windows: Any
) -> None:
    """Add the product of the first operand with a weight; with ``windows`` it is a convolution.

    Parameters
    ----------
    codes : str
        The first operand as it is read.
    weight : array of int64
        As the operation has it.
    how : Requantiser
        From sums to codes.
    """
    source, channels = ctx.scheme(operator.inputs[0]), weight.shape[0 if windows else 1]
    settings = {"last": True, **windows} if windows else {}
    ctx.emit(
        operator, IntegerConvolution if windows else IntegerMatMul, codes, weight=weight,
        bias=bias_of(ctx, operator, channels, has_wide_sums(ctx, operator)), zero_point=source.zero,
        reach=source.reach(), requantisation=how, **settings,
    )  # fmt: skip


def _rounded_once(ctx: FlatReading, operator: FlatOperator, codes: str, how: Requantiser) -> Requantiser:
    """Requantisation by a product of binary32 in the place of one of the reference kernels, where that is wanted."""
    x, w, y = (ctx.tensor(index) for index in (*operator.inputs[:2], *operator.outputs))
    if not ctx.single or x.kind == "INT16" or codes in ctx.constants:
        return how
    return Requantisation(x.scales * w.scales / y.scales, ctx.scheme(operator.outputs[0]).zero, *ctx.limits(operator))


def _convolution(ctx: FlatReading, operator: FlatOperator) -> None:
    """CONV_2D and DEPTHWISE_CONV_2D."""
    depthwise = operator.name == "DEPTHWISE_CONV_2D"
    x, axis, wide = operator.inputs[0], 3 if depthwise else 0, has_wide_sums(ctx, operator)
    codes = ctx.read(x)
    check_kinds(ctx, operator, x)
    weight, scales = weight_codes(ctx, operator, axis)
    options, image, kernel = operator.options, ctx.tensor(x).shape, ctx.tensor(operator.inputs[1]).shape
    strides = strides_of(operator)
    dilations = (options.DilationHFactor(), options.DilationWFactor())
    if min(dilations) < 1 or len(image) != 4 or len(kernel) != 4:
        raise Refusal(f"it must have images of 4 axes, and dilations of at least 1, not {list(dilations)}")
    groups = image[3] if depthwise else image[3] // max(kernel[3], 1)
    inputs = 1 if depthwise else kernel[3]
    if groups * inputs != image[3] or not groups or kernel[axis] % groups or (depthwise and kernel[0] != 1):
        raise Refusal(f"weight of shape {list(kernel)} must fit an image of shape {list(image)}")
    how = ctx.to_codes(operator, product_multiplier(ctx, operator, x, scales, wide), wide)
    pads = tuple(operator_pads(options, image[1:3], kernel[1:3], strides, dilations))
    emit_product(
        ctx, operator, codes, np.transpose(weight, (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)),
        _rounded_once(ctx, operator, codes, how), strides=strides, dilations=dilations, groups=groups, pads=pads,
    )  # fmt: skip


def strides_of(operator: FlatOperator) -> tuple[int, int]:
    """Strides of a window along both axes of an image; ``Refusal`` if one is below 1."""
    strides = operator.options.StrideH(), operator.options.StrideW()
    if min(strides) < 1:
        raise Refusal(f"its strides must be at least 1, not {list(strides)}")
    return strides


def _fully_connected(ctx: FlatReading, operator: FlatOperator) -> None:
    x, (y,) = operator.inputs[0], operator.outputs
    codes, source, target = ctx.read(x), ctx.scheme(x), ctx.scheme(y)
    check_kinds(ctx, operator, x)
    weight, scales = weight_codes(ctx, operator, 0)
    ctx.check_samples(y)
    rows = (*ctx.tensor(y).shape[1:-1], weight.shape[-1])
    if weight.ndim != 2 or prod(rows) != prod(ctx.tensor(x).shape[1:]):
        raise Refusal(f"weight must fit rows of {list(ctx.tensor(x).shape)}, not be of shape {list(weight.shape)}")
    if rows != ctx.tensor(x).shape[1:]:
        codes = ctx.move_between(f"{ctx.names[y]}/rows", ReshapeMove((0, *rows)), codes)
    ratio = float(source.scale) * scales / float(target.scale)
    how = Binary64Requantisation.of(ratio, target.zero, *ctx.limits(operator), wide=has_wide_sums(ctx, operator))
    emit_product(ctx, operator, codes, weight.T, _rounded_once(ctx, operator, codes, how))


def _pool(ctx: FlatReading, operator: FlatOperator) -> None:
    """AVERAGE_POOL_2D and MAX_POOL_2D of codes whose scheme stays."""
    x, options = operator.inputs[0], operator.options
    codes, image = ctx.read(x), ctx.tensor(x).shape
    check_kinds(ctx, operator, x)
    kernel, strides = (options.FilterHeight(), options.FilterWidth()), strides_of(operator)
    same_scheme(ctx, operator, x)
    if min(kernel) < 1 or len(image) != 4:
        raise Refusal(f"it must have images of 4 axes, and windows of at least 1, not {list(kernel)}")
    pads = tuple(window_pads(options.Padding(), image[1:3], kernel, strides, (1, 1)))
    kind = IntegerAverage if operator.name == "AVERAGE_POOL_2D" else CodeMaximum
    low, high = ctx.limits(operator)
    windows = {"kernel": kernel, "strides": strides, "dilations": (1, 1), "pads": pads}
    ctx.emit(operator, kind, codes, last=True, low=low, high=high, **windows)


def operands_of(ctx: FlatReading, operator: FlatOperator) -> tuple[list[str], list[Codes]]:
    """Names and schemes of two operands, one of which may be constant."""
    rank = len(ctx.tensor(operator.outputs[0]).shape)
    check_kinds(ctx, operator, *operator.inputs)
    names = [ctx.operand(index, rank) for index in operator.inputs]
    return names, [ctx.scheme(index) for index in (*operator.inputs, operator.outputs[0])]


def _sum(ctx: FlatReading, operator: FlatOperator) -> None:
    """ADD and SUB."""
    names, (first, second, target) = operands_of(ctx, operator)
    a_scale, b_scale, y_scale = (float(scheme.scale) for scheme in (first, second, target))
    up = 15 if target.bits == 16 else 20
    if up == 15 and operator.options.PotScaleInt16() and all(frexp(s)[0] == 0.5 for s in (a_scale, b_scale, y_scale)):
        raise Refusal("scales of int16 must not all be powers of two", "leave pot_scale_int16 out")
    twice = 2 * max(a_scale, b_scale)
    made = twice / ((1 << up) * y_scale)
    if made >= 1:
        raise Refusal(f"scale of the result must be more than {twice / (1 << up):.9g}, not {y_scale:.9g}")
    ctx.emit(
        operator, FixedPointSum, *names, zeros=(first.zero, second.zero), up=up,
        scales=(multiplier_of(a_scale / twice), multiplier_of(b_scale / twice)),
        difference=operator.name == "SUB", requantisation=ctx.to_codes(operator, made),
    )  # fmt: skip


def _product(ctx: FlatReading, operator: FlatOperator) -> None:
    names, schemes = operands_of(ctx, operator)
    first, second, result = point_wise.scales_of(*schemes)
    how, zeros = ctx.to_codes(operator, first * second / result), (schemes[0].zero, schemes[1].zero)
    ctx.emit(operator, FixedPointProduct, *names, zeros=zeros, requantisation=how)


def _mean(ctx: FlatReading, operator: FlatOperator) -> None:
    """MEAN along constant axes."""
    x, shape = operator.inputs[0], ctx.tensor(operator.inputs[0]).shape
    codes, source, target = ctx.read(x), ctx.scheme(x), ctx.scheme(operator.outputs[0])
    check_kinds(ctx, operator, x)
    axes = axes_behind_samples(ctx, operator)
    scale = _over(multiplier_of(float(source.scale) / float(target.scale)), prod(shape[axis] for axis in axes))
    ctx.emit(
        operator, FixedPointMean, codes, axes=axes, kept=bool(operator.options.KeepDims()), zero_point=source.zero,
        requantisation=ctx.to_codes(operator, scale),
    )  # fmt: skip


def _over(scale: FixedPointMultiplier, count: int) -> FixedPointMultiplier:
    """A multiplier over a number of elements, rounded down, with as many bits as there is room for."""
    up = min(count.bit_length() - 1, 32, 31 + int(scale.shift))
    return FixedPointMultiplier(np.asarray((int(scale.multiplier) << up) // count), np.asarray(scale.shift - up))


def _softmax(ctx: FlatReading, operator: FlatOperator) -> None:
    (x,), (y,) = operator.inputs, operator.outputs
    codes, source, target = ctx.read(x), ctx.scheme(x), ctx.scheme(y)
    if source.bits == 16:
        _softmax_16(ctx, operator, codes, source, target)
        return
    if target.zero != target.low or not isclose(target.scale, 2.0**-target.bits, rel_tol=1e-3):
        wanted = f"1/{1 << target.bits} and {target.low}"
        raise Refusal(
            f"scale and zero point of the result must be {wanted}, not {float(target.scale):.9g} and {target.zero}"
        )
    scale = float(operator.options.Beta()) * float(source.scale) * (1 << EXP_FRACTION_BITS)
    if scale <= 1:
        raise Refusal(f"scale must be more than 2**-{EXP_FRACTION_BITS}, not {float(source.scale):.9g}")
    multiplier = multiplier_of(scale)
    least = -((31 << EXP_FRACTION_BITS) >> int(multiplier.shift))
    differences = np.arange(-255, 1)
    known = np.maximum(differences, least)
    powers = np.where(differences < least, 0, exponentials(multiplier.times(known)))
    ctx.emit(operator, FixedPointSoftmax, codes, powers=powers, bits=target.bits, low=target.low, high=target.high)


def _softmax_16(ctx: FlatReading, operator: FlatOperator, codes: str, source: Codes, target: Codes) -> None:
    """SOFTMAX of codes of 16 bits."""
    if target.bits != 16 or target.zero or not isclose(target.scale, 2.0**-15, rel_tol=1e-3):
        what = f"{target.bits} bits, {float(target.scale):.9g} and {target.zero}"
        raise Refusal(f"the result must have 16 bits, the scale 1/32768 and the zero point 0, not {what}")
    unit = -LEAST_POWER / 65535
    scale = float(np.float32(source.scale)) * float(operator.options.Beta()) / unit
    if scale >= 1 << 15:
        raise Refusal(f"scale must be less than {unit * 2**15:.9g}, not {float(source.scale):.9g}", "quantise it again")
    ctx.emit(operator, InterpolatedSoftmax, codes, scale=multiplier_of(scale))


def _or_of_numbers(read: Operator) -> Operator:
    """An operator of codes that may be one of what DEQUANTIZE made of codes, too."""

    def chosen(ctx: FlatReading, operator: FlatOperator) -> None:
        (_number_function if ctx.tensor(operator.inputs[0]).kind == "FLOAT32" else read)(ctx, operator)

    return chosen


def _magnitude(source: Codes, target: Codes, operator: FlatOperator) -> point_wise.CodeFunction:
    """ABS of codes."""
    scale = multiplier_of(float(source.scale) / float(target.scale))
    return lambda codes: scale.times(np.abs(codes - source.zero)) + target.zero


def _inverse_root(source: Codes, target: Codes, operator: FlatOperator) -> point_wise.CodeFunction:
    """RSQRT of codes; those of negative numbers are taken for that of 0."""
    if source.bits != 8:
        raise Refusal("has a kernel for codes of int8 alone", "quantise it to int8")
    root = np.float32(1.0 / (np.sqrt(np.float32(source.scale)) * np.float32(target.scale)))
    return point_wise.inverse_root(source, target, multiplier_of(float(root)))


def _function(make: Callable[[Codes, Codes, FlatOperator], point_wise.CodeFunction]) -> Operator:
    """An operator that is a table."""

    def read(ctx: FlatReading, operator: FlatOperator) -> None:
        ctx.read(operator.inputs[0])
        try:
            function = make(ctx.scheme(operator.inputs[0]), ctx.scheme(operator.outputs[0]), operator)
        except ValueError as error:
            raise Refusal(str(error), "quantise the network again") from error
        ctx.emit_table(operator, function)

    return read


def _limit(least: float, most: float | None) -> Operator:
    """RELU and the like as operators of their own: rescaled, and clamped."""

    def make(source: Codes, target: Codes, operator: FlatOperator) -> point_wise.CodeFunction:
        x, y = point_wise.scales_of(source, target)
        function, ends = point_wise.rescaled(source, target, float(x / y)), limited(target, least, most)
        return lambda codes: np.asarray(np.clip(function(codes), *ends))

    return _function(make)


def _of_numbers(name: str) -> Operator:
    """LOGISTIC and TANH."""

    def make(source: Codes, target: Codes, operator: FlatOperator) -> point_wise.CodeFunction:
        if source.bits != target.bits:
            raise Refusal(f"must make codes of {source.bits} bits, not {target.bits}", "put QUANTIZE behind it")
        if source.bits == 16:
            return (point_wise.logistic_16 if name == "LOGISTIC" else point_wise.tanh_16)(source, target)
        if name == "LOGISTIC" and target.scale != 1 / 256:
            raise Refusal(f"scale of the result must be 1/256, not {float(target.scale):.9g}")
        function = point_wise.logistic if name == "LOGISTIC" else point_wise.tanh
        return point_wise.of_numbers(source, target, function)

    return _function(make)


def _quantize(ctx: FlatReading, operator: FlatOperator) -> None:
    """QUANTIZE of an input, of what DEQUANTIZE makes, or of codes."""
    (x, *_), (y,) = operator.inputs, operator.outputs
    target = ctx.scheme(y)
    if x in ctx.floats:
        codes = ctx.graph.inputs.setdefault(ctx.floats[x], ctx.names[y])
        if ctx.graph.schemes.setdefault(codes, target) != target:
            raise Refusal(f"input {ctx.floats[x]!r} must be quantised in one way", "quantise it once")
        ctx.codes[y] = codes
        if codes != ctx.names[y]:
            ctx.graph.aliases[ctx.names[y]] = codes
        return
    if ctx.tensor(x).kind == "FLOAT32" and x in ctx.codes:
        source = ctx.graph.scheme(ctx.codes[x])
        functions = [ctx.functions[x]] if x in ctx.functions else []
        again = point_wise.quantised_again(source, target, *functions)
        table = point_wise.function_table("DEQUANTIZE, QUANTIZE", source, again, target)
        ctx.emit(operator, CodeTable, ctx.codes[x], table=table)
        return
    ctx.read(x)
    scale = float(ctx.scheme(x).scale) / float(target.scale)
    ctx.emit_table(operator, point_wise.rescaled(ctx.scheme(x), target, scale))


def _number_function(ctx: FlatReading, operator: FlatOperator) -> None:
    """A function of codes, or of the numbers that DEQUANTIZE made of codes, up to QUANTIZE."""
    (x,), (y,) = operator.inputs, operator.outputs
    function = number_function(operator)
    if ctx.tensor(x).kind == "FLOAT32" and x in ctx.codes:
        before = ctx.functions.get(x)
        ctx.codes[y] = ctx.codes[x]
        ctx.functions[y] = function if before is None else lambda numbers: function(before(numbers))
        return
    ctx.read(x)
    source, target = ctx.scheme(x), ctx.scheme(y)
    if operator.name not in WITH_TABLES or source.bits != 8:
        raise Refusal("is not an operator on codes", "end the network in front of it, with outputs=[...]")
    ctx.emit_table(operator, point_wise.of_numbers(source, target, function))


def _dequantize(ctx: FlatReading, operator: FlatOperator) -> None:
    """Let the result stand for the codes that are dequantised."""
    ctx.codes[operator.outputs[0]] = ctx.read(operator.inputs[0])
    ctx.graph.aliases[ctx.names[operator.outputs[0]]] = ctx.read(operator.inputs[0])


def _reshape(ctx: FlatReading, operator: FlatOperator) -> None:
    """RESHAPE, SQUEEZE and EXPAND_DIMS, to the shape that the file has for the result."""
    x, (y,) = operator.inputs[0], operator.outputs
    codes, shape = ctx.read(x), ctx.tensor(y).shape
    if prod(shape) != prod(ctx.tensor(x).shape):
        raise Refusal(f"shape must be known, not {list(shape)}", "convert the network with fixed shapes")
    ctx.move(operator, ReshapeMove((0, *shape[1:])), codes)


def _transpose(ctx: FlatReading, operator: FlatOperator) -> None:
    rank = len(ctx.tensor(operator.inputs[0]).shape)
    order = tuple(int(axis) % rank for axis in ctx.constant(operator.inputs[1], "order").ravel())
    if sorted(order) != list(range(rank)) or order[:1] != (0,):
        raise Refusal(f"order must leave the axis of the samples first, not be {list(order)}", "compute it outside")
    ctx.move(operator, TransposeMove(order), ctx.read(operator.inputs[0]))


def _pad(ctx: FlatReading, operator: FlatOperator) -> None:
    """PAD with the code of 0, and PADV2 with a constant code."""
    widths = ctx.constant(operator.inputs[1], "paddings").astype(np.int64)
    codes, value = ctx.read(operator.inputs[0]), ctx.scheme(operator.outputs[0]).zero
    if widths.shape != (len(ctx.tensor(operator.inputs[0]).shape), 2) or widths[0].any() or (widths < 0).any():
        raise Refusal(f"paddings must be of all axes, and none of the samples, not {widths.tolist()}")
    if operator.name == "PADV2":
        check_kinds(ctx, operator, operator.inputs[2])
        value = int(ctx.constant(operator.inputs[2], "value").ravel()[0])
    ctx.move(operator, PadMove(tuple((int(a), int(b)) for a, b in widths), value), codes)


def _concatenation(ctx: FlatReading, operator: FlatOperator) -> None:
    """CONCATENATION; only codes of uint8 may have several scales, and are rescaled first."""
    (y,) = operator.outputs
    target, axis = ctx.scheme(y), operator.options.Axis() % max(len(ctx.tensor(y).shape), 1)
    check_kinds(ctx, operator, *operator.inputs)
    if axis == 0:
        raise Refusal("axis must not be that of the samples", "compute it outside")
    if operator.options.FusedActivationFunction():
        raise Refusal("it must have no activation", "make it an operator of its own")
    parts = []
    for k, index in enumerate(operator.inputs):
        name, source = ctx.read(index), ctx.scheme(index)
        if source != target and target.low < 0 and target.bits == 8:
            wanted = f"{ctx.names[index]!r} must have the scale and the zero point of the result"
            raise Refusal(wanted, "put QUANTIZE behind it")
        if source != target and target.bits == 8:
            label = f"{operator.name} {k}"
            table = point_wise.function_table(label, source, point_wise.concatenated(source, target), target)
            name = ctx.table_between(f"{ctx.names[y]}/{k}", table, name)
        parts.append(name)
    if len({name in ctx.constants for name in parts}) > 1:
        raise Refusal("it must put together what is computed alone, or constants alone", "compute it outside")
    ctx.move(operator, ConcatMove(axis), *parts)


#: By the name of the operator in the schema.
KERNELS: dict[str, Operator] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "FULLY_CONNECTED": _fully_connected,
    "AVERAGE_POOL_2D": _pool,
    "MAX_POOL_2D": _pool,
    "MEAN": _mean,
    "ADD": _sum,
    "SUB": _sum,
    "MUL": _product,
    "SOFTMAX": _softmax,
    "RELU": _limit(0, None),
    "RELU6": _limit(0, 6),
    "RELU_N1_TO_1": _limit(-1, 1),
    "RELU_0_TO_1": _limit(0, 1),
    "LEAKY_RELU": _function(lambda x, y, operator: point_wise.leaky_relu(x, y, operator.options.Alpha())),
    "HARD_SWISH": _function(lambda x, y, operator: point_wise.hard_swish(x, y)),
    "LOGISTIC": _of_numbers("LOGISTIC"),
    "TANH": _of_numbers("TANH"),
    "ABS": _or_of_numbers(_function(_magnitude)),
    "RSQRT": _or_of_numbers(_function(_inverse_root)),
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
    "RESHAPE": _reshape,
    "SQUEEZE": _reshape,
    "EXPAND_DIMS": _reshape,
    "TRANSPOSE": _transpose,
    "PAD": _pad,
    "PADV2": _pad,
    "CONCATENATION": _concatenation,
    **dict.fromkeys(NUMBER_FUNCTIONS, _number_function),
}
