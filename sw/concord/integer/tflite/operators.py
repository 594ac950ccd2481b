"""Operators of TensorFlow Lite on codes, as its reference kernels compute them [tflite-kernels]."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, isclose, prod
from typing import Any

import numpy as np

from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import operator_pads, window_pads
from concord.frontend.tflite_operators import MOVED
from concord.frontend.tflite_writer import CodeNode
from concord.integer.exact_sums import reach_of
from concord.integer.float32 import Integers
from concord.integer.importer import quantize_as
from concord.integer.moves import ConcatMove, ReshapeMove
from concord.integer.moving import MOVEMENTS
from concord.integer.operations import CodeMaximum, CodeMovement, IntegerAverage
from concord.integer.point_wise import leave_function
from concord.integer.requantise import Requantisation, Requantiser
from concord.integer.shape_values import is_folded
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
from concord.integer.tflite.reading import KernelReading, limited, multiplier_of
from concord.integer.tflite.requantise import Binary64Requantisation
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul
from concord.transfer import UniformAffine

Kernel = Callable[[KernelReading, CodeNode], None]

#: The largest shift of a multiplier of sums of 48 bits.
WIDE_SHIFT = 7
#: The number of INT32 in the schema.
_INT32 = 2


def bias_of(ctx: KernelReading, node: CodeNode, channels: int, wide: bool) -> Integers:
    """One integer for each channel, 0 without a bias."""
    if not node.input(2):
        return np.zeros(channels, dtype=np.int64)
    values, kind = ctx.constant(node.inputs[2], "bias"), "INT64" if wide else "INT32"
    if ctx.tensors[node.inputs[2]].kind != kind or values.size != channels:
        what = f"{ctx.tensors[node.inputs[2]].kind} of shape {list(values.shape)}"
        raise Refusal(f"bias must be {channels} elements of {kind}, not {what}", "quantise the network again")
    return values.astype(np.int64).reshape(channels)


def weight_codes(ctx: KernelReading, node: CodeNode, axis: int) -> tuple[Integers, np.ndarray[Any, Any]]:
    """Constant codes less their zero points, and their scales: one, or those of the elements of an axis."""
    name = node.inputs[1]
    tensor, data = ctx.tensors[name], ctx.constant(name, "weight")
    source = ctx.tensors[node.inputs[0]].kind
    kind = "UINT8" if source == "UINT8" else "INT8"
    if not np.isfinite(tensor.scales).all():
        reason = f"scales of the weight must be finite, not {tensor.scales.max():g}, as for inputs that are always 0"
        raise Refusal(reason, "convert the network to int8")
    if tensor.kind != kind or not tensor.scales.size or not (tensor.scales > 0).all():
        raise Refusal(f"weight must be codes of {kind} with positive scales, not {tensor.kind}", "quantise it to int8")
    if tensor.scales.size > 1 and (tensor.axis != axis or kind == "UINT8"):
        raise Refusal(f"weight must have its scales along axis {axis}, not {tensor.axis}, and be INT8")
    zero = int(tensor.zeros[0])
    if tensor.zeros.any() and (tensor.scales.size > 1 or node.op != "FULLY_CONNECTED") and kind == "INT8":
        raise Refusal("weight must have zero points of 0", "quantise it symmetrically")
    if not np.iinfo(data.dtype).min <= zero <= np.iinfo(data.dtype).max:
        raise Refusal(f"zero point of the weight must be one of its codes, not {zero}")
    return data.astype(np.int64) - zero, tensor.scales.astype(np.float64)


def has_wide_sums(ctx: KernelReading, node: CodeNode) -> bool:
    """True if accumulators have 64 bits: those of codes of 16 bits, unless the file says that the bias has 32."""
    if ctx.tensors[node.inputs[0]].kind != "INT16":
        return False
    return node.op == "DEPTHWISE_CONV_2D" or node.options.QuantizedBiasType() != _INT32


def product_multiplier(
    ctx: KernelReading, node: CodeNode, x: int, scales: np.ndarray[Any, Any], wide: bool
) -> FixedPointMultiplier:
    """The multiplier of sums of products of the codes of a tensor with weights of some scales."""
    source, target = ctx.scheme_of(x), ctx.scheme_of(node.outputs[0])
    products = float(source.scale) * scales
    if source.low == 0:  # the kernel for codes of uint8 has a product of binary32
        products = products.astype(np.float32).astype(np.float64)
    scale = multiplier_of(products / float(target.scale))
    if wide and scale.shift.max() > WIDE_SHIFT:
        reason = f"multipliers of sums of 48 bits must be below {1 << WIDE_SHIFT}"
        raise Refusal(f"{reason}, not {(products / float(target.scale)).max():.9g}", "quantise the network again")
    return scale


def check_kinds(ctx: KernelReading, node: CodeNode, *names: str) -> None:
    """``Refusal`` unless some tensors and the result have elements of one type."""
    kinds = [ctx.tensors[name].kind for name in (*names, node.outputs[0])]
    if len(set(kinds)) > 1:
        raise Refusal(f"what it reads and makes must have one type, not {', '.join(kinds)}", "quantise it to int8")


def same_scheme(ctx: KernelReading, node: CodeNode, *names: str) -> None:
    """``Refusal`` unless some tensors and the result have one scale and zero point."""
    if len({ctx.scheme_of(name) for name in (*names, node.outputs[0])}) > 1:
        raise Refusal("what it reads and makes must have one scale and zero point", "put QUANTIZE behind it")


def axes_behind_samples(ctx: KernelReading, node: CodeNode) -> tuple[int, ...]:
    """Constant axes of the second operand in their order; ``Refusal`` for that of the samples, or without one."""
    rank = len(ctx.tensors[node.inputs[0]].shape)
    axes = tuple(sorted({int(axis) % rank for axis in ctx.constant(node.inputs[1], "axes").ravel()}))
    if 0 in axes or not axes:
        raise Refusal(f"axes must be some behind that of the samples, not {list(axes)}", "compute it outside")
    return axes


def emit_product(
    ctx: KernelReading, node: CodeNode, codes: str, weight: Integers, how: Requantiser, **windows: Any
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
    source, channels = ctx.scheme_of(node.inputs[0]), weight.shape[0 if windows else 1]
    settings = {"last": True, **windows} if windows else {}
    ctx.result(
        node, IntegerConvolution if windows else IntegerMatMul, codes, weight=weight,
        bias=bias_of(ctx, node, channels, has_wide_sums(ctx, node)), zero_point=source.zero,
        reach=reach_of(source, source.zero), requantisation=how, **settings,
    )  # fmt: skip


def _rounded_once(ctx: KernelReading, node: CodeNode, codes: str, how: Requantiser) -> Requantiser:
    """Requantisation by a product of binary32 in the place of one of the reference kernels, where that is wanted."""
    x, w, y = (ctx.tensors[name] for name in (*node.inputs[:2], *node.outputs))
    if not ctx.single or x.kind == "INT16" or codes in ctx.constants:
        return how
    return Requantisation(x.scales * w.scales / y.scales, ctx.scheme_of(node.outputs[0]).zero, *ctx.limits(node))


def _convolution(ctx: KernelReading, node: CodeNode) -> None:
    """CONV_2D and DEPTHWISE_CONV_2D."""
    depthwise = node.op == "DEPTHWISE_CONV_2D"
    x, axis, wide = node.inputs[0], 3 if depthwise else 0, has_wide_sums(ctx, node)
    codes = ctx.codes(x)
    check_kinds(ctx, node, x)
    weight, scales = weight_codes(ctx, node, axis)
    options, image, kernel = node.options, ctx.tensors[x].shape, ctx.tensors[node.inputs[1]].shape
    strides = strides_of(node)
    dilations = (options.DilationHFactor(), options.DilationWFactor())
    if min(dilations) < 1 or len(image) != 4 or len(kernel) != 4:
        raise Refusal(f"it must have images of 4 axes, and dilations of at least 1, not {list(dilations)}")
    groups = image[3] if depthwise else image[3] // max(kernel[3], 1)
    inputs = 1 if depthwise else kernel[3]
    if groups * inputs != image[3] or not groups or kernel[axis] % groups or (depthwise and kernel[0] != 1):
        raise Refusal(f"weight of shape {list(kernel)} must fit an image of shape {list(image)}")
    how = ctx.to_codes(node, product_multiplier(ctx, node, x, scales, wide), wide)
    pads = tuple(operator_pads(options, image[1:3], kernel[1:3], strides, dilations))
    emit_product(
        ctx, node, codes, np.transpose(weight, (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)),
        _rounded_once(ctx, node, codes, how), strides=strides, dilations=dilations, groups=groups, pads=pads,
    )  # fmt: skip


def strides_of(node: CodeNode) -> tuple[int, int]:
    """Strides of a window along both axes of an image; ``Refusal`` if one is below 1."""
    strides = node.options.StrideH(), node.options.StrideW()
    if min(strides) < 1:
        raise Refusal(f"its strides must be at least 1, not {list(strides)}")
    return strides


def _fully_connected(ctx: KernelReading, node: CodeNode) -> None:
    x, (y,) = node.inputs[0], node.outputs
    codes, source, target = ctx.codes(x), ctx.scheme_of(x), ctx.scheme_of(y)
    check_kinds(ctx, node, x)
    weight, scales = weight_codes(ctx, node, 0)
    ctx.check_samples(y)
    rows = (*ctx.tensors[y].shape[1:-1], weight.shape[-1])
    if weight.ndim != 2 or prod(rows) != prod(ctx.tensors[x].shape[1:]):
        raise Refusal(f"weight must fit rows of {list(ctx.tensors[x].shape)}, not be of shape {list(weight.shape)}")
    if rows != ctx.tensors[x].shape[1:]:
        codes = ctx.moved_codes(f"{y}/rows", [ReshapeMove((0, *rows))], codes)
    ratio = float(source.scale) * scales / float(target.scale)
    how = Binary64Requantisation.of(ratio, target.zero, *ctx.limits(node), wide=has_wide_sums(ctx, node))
    emit_product(ctx, node, codes, weight.T, _rounded_once(ctx, node, codes, how))


def _pool(ctx: KernelReading, node: CodeNode) -> None:
    """AVERAGE_POOL_2D and MAX_POOL_2D of codes whose scheme stays."""
    x, options = node.inputs[0], node.options
    codes, image = ctx.codes(x), ctx.tensors[x].shape
    check_kinds(ctx, node, x)
    kernel, strides = (options.FilterHeight(), options.FilterWidth()), strides_of(node)
    same_scheme(ctx, node, x)
    if min(kernel) < 1 or len(image) != 4:
        raise Refusal(f"it must have images of 4 axes, and windows of at least 1, not {list(kernel)}")
    pads = tuple(window_pads(options.Padding(), image[1:3], kernel, strides, (1, 1)))
    kind = IntegerAverage if node.op == "AVERAGE_POOL_2D" else CodeMaximum
    low, high = ctx.limits(node)
    windows = {"kernel": kernel, "strides": strides, "dilations": (1, 1), "pads": pads}
    ctx.result(node, kind, codes, last=True, low=low, high=high, **windows)


def operands_of(ctx: KernelReading, node: CodeNode) -> tuple[list[str], list[UniformAffine]]:
    """Names and schemes of two operands, one of which may be constant."""
    rank = len(ctx.tensors[node.outputs[0]].shape)
    check_kinds(ctx, node, *node.inputs)
    names = [ctx.operand(name, rank) for name in node.inputs]
    return names, [ctx.scheme_of(name) for name in (*node.inputs, node.outputs[0])]


def _sum(ctx: KernelReading, node: CodeNode) -> None:
    """ADD and SUB."""
    names, (first, second, target) = operands_of(ctx, node)
    a_scale, b_scale, y_scale = (float(scheme.scale) for scheme in (first, second, target))
    up = 15 if target.bits == 16 else 20
    if up == 15 and node.options.PotScaleInt16() and all(frexp(s)[0] == 0.5 for s in (a_scale, b_scale, y_scale)):
        raise Refusal("scales of int16 must not all be powers of two", "leave pot_scale_int16 out")
    twice = 2 * max(a_scale, b_scale)
    made = twice / ((1 << up) * y_scale)
    if made >= 1:
        raise Refusal(f"scale of the result must be more than {twice / (1 << up):.9g}, not {y_scale:.9g}")
    ctx.result(
        node, FixedPointSum, *names, zeros=(first.zero, second.zero), up=up,
        scales=(multiplier_of(a_scale / twice), multiplier_of(b_scale / twice)),
        difference=node.op == "SUB", requantisation=ctx.to_codes(node, made),
    )  # fmt: skip


def _product(ctx: KernelReading, node: CodeNode) -> None:
    names, schemes = operands_of(ctx, node)
    first, second, result = point_wise.scales_of(*schemes)
    how, zeros = ctx.to_codes(node, first * second / result), (schemes[0].zero, schemes[1].zero)
    ctx.result(node, FixedPointProduct, *names, zeros=zeros, requantisation=how)


def _mean(ctx: KernelReading, node: CodeNode) -> None:
    """MEAN along constant axes."""
    x, shape = node.inputs[0], ctx.tensors[node.inputs[0]].shape
    codes, source, target = ctx.codes(x), ctx.scheme_of(x), ctx.scheme_of(node.outputs[0])
    check_kinds(ctx, node, x)
    axes = axes_behind_samples(ctx, node)
    scale = _over(multiplier_of(float(source.scale) / float(target.scale)), prod(shape[axis] for axis in axes))
    ctx.result(
        node, FixedPointMean, codes, axes=axes, kept=bool(node.options.KeepDims()), zero_point=source.zero,
        requantisation=ctx.to_codes(node, scale),
    )  # fmt: skip


def _over(scale: FixedPointMultiplier, count: int) -> FixedPointMultiplier:
    """A multiplier over a number of elements, rounded down, with as many bits as there is room for."""
    up = min(count.bit_length() - 1, 32, 31 + int(scale.shift))
    return FixedPointMultiplier(np.asarray((int(scale.multiplier) << up) // count), np.asarray(scale.shift - up))


def _softmax(ctx: KernelReading, node: CodeNode) -> None:
    (x,), (y,) = node.inputs, node.outputs
    codes, source, target = ctx.codes(x), ctx.scheme_of(x), ctx.scheme_of(y)
    if source.bits == 16:
        _softmax_16(ctx, node, codes, source, target)
        return
    if target.zero != target.low or not isclose(target.scale, 2.0**-target.bits, rel_tol=1e-3):
        wanted = f"1/{1 << target.bits} and {target.low}"
        raise Refusal(f"scale and zero point of the result must be {wanted}, not {target.scale:.9g} and {target.zero}")
    scale = float(node.options.Beta()) * float(source.scale) * (1 << EXP_FRACTION_BITS)
    if scale <= 1:
        raise Refusal(f"scale must be more than 2**-{EXP_FRACTION_BITS}, not {source.scale:.9g}")
    multiplier = multiplier_of(scale)
    least = -((31 << EXP_FRACTION_BITS) >> int(multiplier.shift))
    differences = np.arange(-255, 1)
    known = np.maximum(differences, least)
    powers = np.where(differences < least, 0, exponentials(multiplier.times(known)))
    ctx.result(node, FixedPointSoftmax, codes, powers=powers, bits=target.bits, low=target.low, high=target.high)


def _softmax_16(ctx: KernelReading, node: CodeNode, codes: str, source: UniformAffine, target: UniformAffine) -> None:
    """SOFTMAX of codes of 16 bits."""
    if target.bits != 16 or target.zero or not isclose(target.scale, 2.0**-15, rel_tol=1e-3):
        what = f"{target.bits} bits, {target.scale:.9g} and {target.zero}"
        raise Refusal(f"the result must have 16 bits, the scale 1/32768 and the zero point 0, not {what}")
    unit = -LEAST_POWER / 65535
    scale = float(np.float32(source.scale)) * float(node.options.Beta()) / unit
    if scale >= 1 << 15:
        raise Refusal(f"scale must be less than {unit * 2**15:.9g}, not {source.scale:.9g}", "quantise it again")
    ctx.result(node, InterpolatedSoftmax, codes, scale=multiplier_of(scale))


def _or_of_numbers(read: Kernel) -> Kernel:
    """An operator of codes that may be one of what DEQUANTIZE made of codes, too."""

    def chosen(ctx: KernelReading, node: CodeNode) -> None:
        (_number_function if ctx.tensors[node.inputs[0]].kind == "FLOAT32" else read)(ctx, node)

    return chosen


def _magnitude(source: UniformAffine, target: UniformAffine, node: CodeNode) -> point_wise.CodeFunction:
    """ABS of codes."""
    scale = multiplier_of(float(source.scale) / float(target.scale))
    return lambda codes: scale.times(np.abs(codes - source.zero)) + target.zero


def _inverse_root(source: UniformAffine, target: UniformAffine, node: CodeNode) -> point_wise.CodeFunction:
    """RSQRT of codes; those of negative numbers are taken for that of 0."""
    if source.bits != 8:
        raise Refusal("has a kernel for codes of int8 alone", "quantise it to int8")
    root = np.float32(1.0 / (np.sqrt(np.float32(source.scale)) * np.float32(target.scale)))
    return point_wise.inverse_root(source, target, multiplier_of(float(root)))


def table_of(ctx: KernelReading, node: CodeNode, function: point_wise.CodeFunction) -> None:
    """Add a function of one code, from the scheme of the operand to that of the result."""
    (y,) = node.outputs
    ctx.tabled(node.op, ctx.codes(node.inputs[0]), function, ctx.scheme_of(y), y)


def _function(make: Callable[[UniformAffine, UniformAffine, CodeNode], point_wise.CodeFunction]) -> Kernel:
    """An operator that is a table."""

    def read(ctx: KernelReading, node: CodeNode) -> None:
        ctx.codes(node.inputs[0])
        try:
            function = make(ctx.scheme_of(node.inputs[0]), ctx.scheme_of(node.outputs[0]), node)
        except ValueError as error:
            raise Refusal(str(error), "quantise the network again") from error
        table_of(ctx, node, function)

    return read


def _limit(least: float, most: float | None) -> Kernel:
    """RELU and the like as operators of their own: rescaled, and clamped."""

    def make(source: UniformAffine, target: UniformAffine, node: CodeNode) -> point_wise.CodeFunction:
        x, y = point_wise.scales_of(source, target)
        function, ends = point_wise.rescaled(source, target, float(x / y)), limited(target, least, most)
        return lambda codes: np.asarray(np.clip(function(codes), *ends))

    return _function(make)


def _of_numbers(name: str) -> Kernel:
    """LOGISTIC and TANH."""

    def make(source: UniformAffine, target: UniformAffine, node: CodeNode) -> point_wise.CodeFunction:
        if source.bits != target.bits:
            raise Refusal(f"must make codes of {source.bits} bits, not {target.bits}", "put QUANTIZE behind it")
        if source.bits == 16:
            return (point_wise.logistic_16 if name == "LOGISTIC" else point_wise.tanh_16)(source, target)
        if name == "LOGISTIC" and target.scale != 1 / 256:
            raise Refusal(f"scale of the result must be 1/256, not {target.scale:.9g}")
        function = point_wise.logistic if name == "LOGISTIC" else point_wise.tanh
        return point_wise.of_numbers(source, target, function)

    return _function(make)


def _quantize(ctx: KernelReading, node: CodeNode) -> None:
    """QUANTIZE of an input, of what DEQUANTIZE makes, or of codes."""
    x, (y,) = node.inputs[0], node.outputs
    target = ctx.scheme_of(y)
    if ctx.tensors[x].kind != "FLOAT32":
        source = ctx.scheme_of(ctx.codes(x))
        table_of(ctx, node, point_wise.rescaled(source, target, float(source.scale) / float(target.scale)))
        return
    known = ctx.graph.inputs.get(ctx.floats[x].name) if x in ctx.floats else None
    if known is not None and ctx.scheme_of(known) != target:
        raise Refusal(f"input {x!r} must be quantised in one way", "quantise it once")
    quantize_as(ctx, node, target, y)


def _dequantize(ctx: KernelReading, node: CodeNode) -> None:
    """Let the result stand for the codes that are dequantised."""
    codes = ctx.codes(node.inputs[0])
    ctx.decoded[node.outputs[0]] = ctx.graph.aliases[node.outputs[0]] = codes


def _number_function(ctx: KernelReading, node: CodeNode) -> None:
    """A function of codes, or of the numbers that DEQUANTIZE made of codes, up to QUANTIZE."""
    (x,), (y,) = node.inputs, node.outputs
    function = number_function(node.operator)
    if ctx.tensors[x].kind == "FLOAT32" and ctx.reads_codes(x):
        leave_function(ctx, node, [function])
        return
    source, target = ctx.scheme_of(ctx.codes(x)), ctx.scheme_of(y)
    if node.op not in WITH_TABLES or source.bits != 8:
        raise Refusal("is not an operator on codes", "end the network in front of it, with outputs=[...]")
    table_of(ctx, node, point_wise.of_numbers(source, target, function))


def _moved(ctx: KernelReading, node: CodeNode) -> None:
    """An operator that moves codes, as nodes of ONNX."""
    for part in ctx.writer.written(MOVED[node.op], node.operator):
        part.name = node.name
        if not is_folded(ctx, part):
            MOVEMENTS[part.op](ctx, part)


def _concatenation(ctx: KernelReading, node: CodeNode) -> None:
    """CONCATENATION; only codes of uint8 may have several scales, and are rescaled first."""
    (y,) = node.outputs
    target, axis = ctx.scheme_of(y), node.options.Axis() % max(len(ctx.tensors[y].shape), 1)
    check_kinds(ctx, node, *node.inputs)
    if axis == 0:
        raise Refusal("axis must not be that of the samples", "compute it outside")
    if node.options.FusedActivationFunction():
        raise Refusal("it must have no activation", "make it an operator of its own")
    parts = []
    for k, part in enumerate(node.inputs):
        name, source = ctx.codes(part), ctx.scheme_of(part)
        if source != target and target.low < 0 and target.bits == 8:
            wanted = f"{part!r} must have the scale and the zero point of the result"
            raise Refusal(wanted, "put QUANTIZE behind it")
        if source != target and target.bits == 8:
            name = ctx.tabled(f"{y}/{k}", name, point_wise.concatenated(source, target), target)
        parts.append(name)
    ctx.result(node, CodeMovement, *parts, move=ConcatMove(axis), low=target.low, high=target.high)


#: By the name of the operator in the schema.
KERNELS: dict[str, Kernel] = {
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
    "LEAKY_RELU": _function(lambda x, y, node: point_wise.leaky_relu(x, y, node.options.Alpha())),
    "HARD_SWISH": _function(lambda x, y, node: point_wise.hard_swish(x, y)),
    "LOGISTIC": _of_numbers("LOGISTIC"),
    "TANH": _of_numbers("TANH"),
    "ABS": _or_of_numbers(_function(_magnitude)),
    "RSQRT": _or_of_numbers(_function(_inverse_root)),
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
    "CONCATENATION": _concatenation,
    **dict.fromkeys(NUMBER_FUNCTIONS, _number_function),
    **dict.fromkeys(MOVED, _moved),
}
