"""Operators of TensorFlow Lite on codes, as its reference kernels compute them [tflite-kernels]."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, inf, isclose, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.frontend.codes.importer import quantize_as, read_node
from concord.frontend.codes.maxima import of_several, reduced_max
from concord.frontend.codes.model_values import CodeTarget, OpenProduct
from concord.frontend.codes.moving import reduction
from concord.frontend.codes.point_wise import leave_function
from concord.frontend.codes.products import conv_product, gemm_product, product_of_two, transposed_product
from concord.frontend.codes.tflite.number_functions import NUMBER_FUNCTIONS, WITH_TABLES, number_function
from concord.frontend.codes.tflite.reading import KernelReading, multiplier_of
from concord.frontend.codes.windows import window_settings
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.tflite_operators import WRITTEN
from concord.frontend.tflite_writer import CodeNode
from concord.integer.moves import ConcatMove
from concord.integer.operations import CodeMaximum, CodeMovement, IntegerAverage, IntegerProduct
from concord.integer.requantise import Requantisation, Requantiser, limited_codes
from concord.integer.tflite import point_wise
from concord.integer.tflite.fixed_point import EXP_FRACTION_BITS, FixedPointMultiplier, exponentials
from concord.integer.tflite.operations import (
    LEAST_POWER,
    FixedPointMean,
    FixedPointSoftmax,
    FixedPointSum,
    InterpolatedSoftmax,
)
from concord.integer.tflite.requantise import Binary64Requantisation
from concord.transfer import Codes

Kernel = Callable[[KernelReading, OnnxNode], None]

#: The largest shift of a multiplier of sums of 48 bits.
WIDE_SHIFT = 7
#: The number of INT32 in the schema.
_INT32 = 2


def _product_multiplier(source: Codes, scales: NDArray[np.float64], target: Codes, wide: bool) -> FixedPointMultiplier:
    """The multiplier of sums of products of codes with weights of some scales."""
    products = float(source.scale) * scales
    if source.low == 0:  # the kernel for codes of uint8 has a product of binary32
        products = products.astype(np.float32).astype(np.float64)
    scale = multiplier_of(products / float(target.scale))
    if wide and scale.shift.max() > WIDE_SHIFT:
        reason = f"multipliers of sums of 48 bits must be below {1 << WIDE_SHIFT}"
        raise Refusal(f"{reason}, not {(products / float(target.scale)).max():.9g}", "quantise the network again")
    return scale


def _weighted(of: Callable[[KernelReading, OnnxNode], OpenProduct]) -> Kernel:
    """A product with a constant weight, of the codes of a tensor."""

    def read(ctx: KernelReading, node: OnnxNode) -> None:
        product, (y,) = of(ctx, node), node.outputs
        source, target, weight = ctx.scheme_of(product.source), ctx.scheme_of(y), ctx.weights[node.inputs[1]]
        of_uint8 = weight.scheme is not None and weight.scheme.low == 0
        if (source.bits, source.low, of_uint8) != (target.bits, target.low, source.low == 0):
            raise Refusal("what it reads and makes, and its weight, must have one type", "quantise it to int8")
        several = node.kernel != "DEPTHWISE_CONV_2D" and node.options.QuantizedBiasType() == _INT32
        wide, scales = source.bits == 16 and not several, weight.scale.astype(np.float64)
        bias, kind = np.zeros(product.channels, np.int64), "int64" if wide else "int32"
        if node.input(2):
            bias = ctx.constant(node.input(2), "bias")
            if bias.dtype.name != kind or bias.size != product.channels:
                wanted = f"bias must be {product.channels} elements of {kind.upper()}"
                reason = f"{wanted}, not {bias.dtype.name.upper()} of shape {list(bias.shape)}"
                raise Refusal(reason, "quantise the network again")
        how: Requantiser
        once = node.kernel != "TRANSPOSE_CONV" and source.bits == 8 and product.source not in ctx.constants
        if ctx.single and once:
            how = Requantisation(product.scale / np.float32(target.scale), target.zero, *ctx.limits(node))
        elif node.kernel == "FULLY_CONNECTED":
            ratio = float(source.scale) * scales / float(target.scale)
            how = Binary64Requantisation.of(ratio, target.zero, *ctx.limits(node), wide=wide)
        else:
            how = ctx.to_codes(node, _product_multiplier(source, scales, target, wide), wide)
        ctx.add_all(product.made(y, bias.astype(np.int64).reshape(-1), how), target)

    return read


def _of_two(ctx: KernelReading, node: OnnxNode) -> None:
    """BATCH_MATMUL of two tensors that are computed, or of one and a constant."""
    if len(ctx.tensors[node.outputs[0]].shape) < 3:
        raise Refusal("operands must be matrices of each sample, with the axes of the result", "reshape them")
    product, (first, second), _ = product_of_two(ctx, node)
    a, b, y = point_wise.scales_of(first, second, ctx.scheme_of(node.outputs[0]))
    how = ctx.to_codes(node, float(a * b) / float(y), wide=first.bits == 16)
    ctx.add_all(product(node.outputs[0], how), ctx.scheme_of(node.outputs[0]))


def check_kinds(ctx: KernelReading, node: OnnxNode, *names: str) -> None:
    """``Refusal`` unless some tensors and the result have elements of one type."""
    kinds = [ctx.tensors[name].kind for name in (*names, node.outputs[0])]
    if len(set(kinds)) > 1:
        raise Refusal(f"what it reads and makes must have one type, not {', '.join(kinds)}", "quantise it to int8")


def same_scheme(ctx: KernelReading, node: OnnxNode, *names: str) -> None:
    """``Refusal`` unless some tensors and the result have one scale and zero point."""
    if len({ctx.scheme_of(name) for name in (*names, node.outputs[0])}) > 1:
        raise Refusal("what it reads and makes must have one scale and zero point", "put QUANTIZE behind it")


def _pool(ctx: KernelReading, node: OnnxNode) -> None:
    """AVERAGE_POOL_2D and MAX_POOL_2D of codes whose scheme stays."""
    same_scheme(ctx, node, node.inputs[0])
    kind, kernel = IntegerAverage if node.op == "AveragePool" else CodeMaximum, tuple(node.attrs["kernel_shape"])
    (low, high), windows = ctx.limits(node), window_settings(ctx, node, kernel)
    ctx.result(node, kind, ctx.codes(node.inputs[0]), kernel=kernel, low=low, high=high, **windows)


def _reduced(ctx: KernelReading, node: OnnxNode) -> None:
    """REDUCE_MAX and REDUCE_MIN."""
    same_scheme(ctx, node, node.inputs[0])
    reduced_max(ctx, node)


def _extremes(ctx: KernelReading, node: OnnxNode) -> None:
    """MAXIMUM and MINIMUM of two tensors, or of a tensor and one constant code."""
    same_scheme(ctx, node, *node.inputs)
    (y,), (first, other) = node.outputs, sorted(node.inputs, key=lambda name: name in ctx.constants)
    scheme = ctx.scheme_of(y)
    if other not in ctx.constants:
        of_several(ctx, node)
        ctx.add_all(ctx.open.pop(y).make(CodeTarget(y, scheme, scheme.low, scheme.high)), scheme)
        return
    values, limit = np.unique(ctx.constants[other]).astype(np.int64), np.minimum if node.op == "Min" else np.maximum
    if values.size != 1 or ctx.tensors[first].shape != ctx.tensors[y].shape:
        raise Refusal("a constant operand must be one code for all elements", "compute it outside")
    ctx.tabled(node.kernel, ctx.codes(first), lambda codes: limit(codes, values[0]), scheme, y)


def operands_of(ctx: KernelReading, node: OnnxNode) -> tuple[list[str], list[Codes]]:
    """Names and schemes of two operands, one of which may be constant."""
    rank = len(ctx.tensors[node.outputs[0]].shape)
    check_kinds(ctx, node, *node.inputs)
    names = [ctx.beside(name, rank) for name in node.inputs]
    return names, [ctx.scheme_of(name) for name in (*node.inputs, node.outputs[0])]


def _sum(ctx: KernelReading, node: OnnxNode) -> None:
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


def _product(ctx: KernelReading, node: OnnxNode) -> None:
    names, schemes = operands_of(ctx, node)
    first, second, result = point_wise.scales_of(*schemes)
    how, zeros = ctx.to_codes(node, first * second / result), (schemes[0].zero, schemes[1].zero)
    ctx.result(node, IntegerProduct, *names, zeros=zeros, requantisation=how)


def _mean(ctx: KernelReading, node: OnnxNode) -> None:
    """MEAN along constant axes."""
    x = ctx.codes(node.inputs[0])
    check_kinds(ctx, node, x)
    source, target, shape = ctx.scheme_of(x), ctx.scheme_of(node.outputs[0]), ctx.sizes(x)
    _, axes, _ = reduction(ctx, node, x)
    scale = _over(multiplier_of(float(source.scale) / float(target.scale)), prod(shape[axis] for axis in axes))
    ctx.result(
        node, FixedPointMean, x, axes=tuple(axes), kept=bool(node.attrs["keepdims"]), zero_point=source.zero,
        requantisation=ctx.to_codes(node, scale),
    )  # fmt: skip


def _over(scale: FixedPointMultiplier, count: int) -> FixedPointMultiplier:
    """A multiplier over a number of elements, rounded down, with as many bits as there is room for."""
    up = min(count.bit_length() - 1, 32, 31 + int(scale.shift))
    return FixedPointMultiplier(np.asarray((int(scale.multiplier) << up) // count), np.asarray(scale.shift - up))


def _softmax(ctx: KernelReading, node: OnnxNode) -> None:
    (x,), (y,) = node.inputs, node.outputs
    codes, source, target = ctx.codes(x), ctx.scheme_of(x), ctx.scheme_of(y)
    if source.bits == 16:
        _softmax_16(ctx, node, codes, source, target)
        return
    if target.zero != target.low or not isclose(target.scale, 2.0**-target.bits, rel_tol=1e-3):
        wanted = f"1/{1 << target.bits} and {target.low}"
        raise Refusal(
            f"scale and zero point of the result must be {wanted}, not {float(target.scale):.9g} and {target.zero}"
        )
    scale = float(node.options.Beta()) * float(source.scale) * (1 << EXP_FRACTION_BITS)
    if scale <= 1:
        raise Refusal(f"scale must be more than 2**-{EXP_FRACTION_BITS}, not {float(source.scale):.9g}")
    multiplier = multiplier_of(scale)
    least = -((31 << EXP_FRACTION_BITS) >> int(multiplier.shift))
    differences = np.arange(-255, 1)
    known = np.maximum(differences, least)
    powers = np.where(differences < least, 0, exponentials(multiplier.times(known)))
    ctx.result(node, FixedPointSoftmax, codes, powers=powers, bits=target.bits, low=target.low, high=target.high)


def _softmax_16(ctx: KernelReading, node: OnnxNode, codes: str, source: Codes, target: Codes) -> None:
    """SOFTMAX of codes of 16 bits."""
    if target.bits != 16 or target.zero or not isclose(target.scale, 2.0**-15, rel_tol=1e-3):
        what = f"{target.bits} bits, {float(target.scale):.9g} and {target.zero}"
        raise Refusal(f"the result must have 16 bits, the scale 1/32768 and the zero point 0, not {what}")
    unit = -LEAST_POWER / 65535
    scale = float(np.float32(source.scale)) * float(node.options.Beta()) / unit
    if scale >= 1 << 15:
        raise Refusal(f"scale must be less than {unit * 2**15:.9g}, not {float(source.scale):.9g}", "quantise it again")
    ctx.result(node, InterpolatedSoftmax, codes, scale=multiplier_of(scale))


def _or_of_numbers(read: Kernel) -> Kernel:
    """An operator of codes that may be one of what DEQUANTIZE made of codes, too."""

    def chosen(ctx: KernelReading, node: OnnxNode) -> None:
        (_number_function if ctx.tensors[node.inputs[0]].kind == "FLOAT32" else read)(ctx, node)

    return chosen


def _magnitude(source: Codes, target: Codes, node: OnnxNode) -> point_wise.CodeFunction:
    """ABS of codes."""
    scale = multiplier_of(float(source.scale) / float(target.scale))
    return lambda codes: scale.times(np.abs(codes - source.zero)) + target.zero


def _inverse_root(source: Codes, target: Codes, node: OnnxNode) -> point_wise.CodeFunction:
    """RSQRT of codes; those of negative numbers are taken for that of 0."""
    if source.bits != 8:
        raise Refusal("has a kernel for codes of int8 alone", "quantise it to int8")
    root = np.float32(1.0 / (np.sqrt(np.float32(source.scale)) * np.float32(target.scale)))
    return point_wise.inverse_root(source, target, multiplier_of(float(root)))


def table_of(ctx: KernelReading, node: OnnxNode, function: point_wise.CodeFunction) -> None:
    """Add a function of one code, from the scheme of the operand to that of the result."""
    (y,) = node.outputs
    ctx.tabled(node.op, ctx.codes(node.inputs[0]), function, ctx.scheme_of(y), y)


def _function(make: Callable[[Codes, Codes, OnnxNode], point_wise.CodeFunction]) -> Kernel:
    """An operator that is a table."""

    def read(ctx: KernelReading, node: OnnxNode) -> None:
        ctx.codes(node.inputs[0])
        try:
            function = make(ctx.scheme_of(node.inputs[0]), ctx.scheme_of(node.outputs[0]), node)
        except ValueError as error:
            raise Refusal(str(error), "quantise the network again") from error
        table_of(ctx, node, function)

    return read


def _limit(least: float, most: float) -> Kernel:
    """RELU and the like as operators of their own: rescaled, and clamped."""

    def make(source: Codes, target: Codes, node: OnnxNode) -> point_wise.CodeFunction:
        x, y = point_wise.scales_of(source, target)
        function, ends = point_wise.rescaled(source, target, float(x / y)), limited_codes(target, [(least, most)])
        return lambda codes: np.asarray(np.clip(function(codes), *ends))

    return _function(make)


def _of_numbers(name: str) -> Kernel:
    """LOGISTIC and TANH."""

    def make(source: Codes, target: Codes, node: OnnxNode) -> point_wise.CodeFunction:
        if source.bits != target.bits:
            raise Refusal(f"must make codes of {source.bits} bits, not {target.bits}", "put QUANTIZE behind it")
        if source.bits == 16:
            return (point_wise.logistic_16 if name == "LOGISTIC" else point_wise.tanh_16)(source, target)
        if name == "LOGISTIC" and target.scale != 1 / 256:
            raise Refusal(f"scale of the result must be 1/256, not {float(target.scale):.9g}")
        function = point_wise.logistic if name == "LOGISTIC" else point_wise.tanh
        return point_wise.of_numbers(source, target, function)

    return _function(make)


def _quantize(ctx: KernelReading, node: OnnxNode) -> None:
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


def _dequantize(ctx: KernelReading, node: OnnxNode) -> None:
    """Let the result stand for the codes that are dequantised."""
    codes = ctx.codes(node.inputs[0])
    ctx.decoded[node.outputs[0]] = ctx.graph.aliases[node.outputs[0]] = codes


def _number_function(ctx: KernelReading, node: OnnxNode) -> None:
    """A function of codes, or of the numbers that DEQUANTIZE made of codes, up to QUANTIZE."""
    (x,), (y,) = node.inputs, node.outputs
    function: Any = number_function(node)
    if ctx.tensors[x].kind == "FLOAT32" and ctx.reads_codes(x):
        leave_function(ctx, node, [function])
        return
    source, target = ctx.scheme_of(ctx.codes(x)), ctx.scheme_of(y)
    if node.op not in WITH_TABLES or source.bits != 8:
        raise Refusal("is not an operator on codes", "end the network in front of it, with outputs=[...]")
    table_of(ctx, node, point_wise.of_numbers(source, target, function))


def _written(ctx: KernelReading, node: CodeNode) -> None:
    """An operator as nodes of ONNX: what moves codes, and products and pools."""
    for part in ctx.writer.written(WRITTEN[node.op], node.operator):
        if part.op in _OF_NODES:
            _OF_NODES[part.op](ctx, part)
        else:
            read_node(ctx, part)


def _concatenation(ctx: KernelReading, node: OnnxNode) -> None:
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


#: Nodes that a kernel computes, by the name of the operator in ONNX.
_OF_NODES: dict[str, Kernel] = {
    "Conv": _weighted(conv_product),
    "ConvTranspose": _weighted(transposed_product),
    "Gemm": _weighted(gemm_product),
    "MatMul": _of_two,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "ReduceMean": _mean,
    "ReduceMax": _reduced,
    "ReduceMin": _reduced,
    "Max": _extremes,
    "Min": _extremes,
}
#: By the name of the operator in the schema.
KERNELS: dict[str, Callable[[KernelReading, CodeNode], None]] = {
    "ADD": _sum,
    "SUB": _sum,
    "MUL": _product,
    "SOFTMAX": _softmax,
    "RELU": _limit(0, inf),
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
    **dict.fromkeys(WRITTEN, _written),
}
