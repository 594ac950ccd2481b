"""Products of ONNX on codes: Conv, ConvTranspose, Gemm and MatMul, their biases, and what an Add behind a MatMul adds.

A bias has the scale of the sums, or is a number. ONNX Runtime rounds the numbers of a Conv, a Gemm and a MatMul with
its Add to the scale of the sums where one QuantizeLinear alone reads the result; elsewhere they are added in binary32,
and so are codes of another scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from concord.frontend.codes.model_values import CodeTarget, ConstantCodes, OpenProduct, ProductBias, Unquantised
from concord.frontend.codes.reading import Reading
from concord.frontend.codes.windows import convolution_settings
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.graph import IntegerOperation
from concord.integer.moves import Move, PadMove, TakeMove
from concord.integer.requantise import (
    ACCUMULATOR,
    ACCUMULATOR_BITS,
    LONG_BITS,
    FloatRequantisation,
    Requantisation,
    Requantiser,
)
from concord.integer.weighted_sums import CodeMatMul, IntegerConvolution, IntegerMatMul
from concord.integer.wide import Dequantisation
from concord.transfer import Codes

#: A bias may have another scale than the product of the others by what rounding makes of it.
_BIAS_TOLERANCE = 1e-6
#: Bits of codes for which ONNX Runtime has a kernel for two tensors; it computes those of more in binary32.
_KERNEL_BITS = 8
_NOTHING = np.zeros(1, dtype=np.float32)


def _without_bias(channels: int) -> ProductBias:
    return ProductBias(np.zeros(channels, dtype=np.int64), _NOTHING)


def bias_of(
    ctx: Reading,
    name: str,
    product: OpenProduct,
    output: str,
    *,
    factor: float = 1.0,
    rounded: bool = True,
    apart: bool = False,
) -> ProductBias:
    """The bias at a name: integers in the scale of the sums as they are, everything else by the rule of the module.

    Parameters
    ----------
    output : str
        The result of the model, whose readers decide.
    factor : float
        By which the bias is multiplied.
    rounded : bool
        Whether numbers may be rounded to the scale of the sums.
    apart : bool
        Whether an operation of its own adds the bias: in binary32, whatever scale it has.
    """
    channels, scale = product.channels, product.scale.reshape(-1)
    if name in ctx.weights:
        codes = ctx.weights[name]
        _check_shape(codes.offsets.shape, channels)
        if factor == 1 and not apart and np.allclose(codes.scale, scale, rtol=_BIAS_TOLERANCE, atol=0):
            return ProductBias(np.broadcast_to(codes.offsets.reshape(-1), channels), _NOTHING)
        numbers, rounded = codes.numbers, False
    elif name in ctx.constants and ctx.constants[name].dtype == np.float32:
        numbers = ctx.constants[name]
    else:
        raise Refusal(f"bias must be constant integers or float32 numbers, not {name!r}", "fold constants")
    _check_shape(numbers.shape, channels)
    if not np.isfinite(numbers).all():
        raise Refusal("bias must be of finite numbers")
    term = np.asarray(numbers * np.float32(factor)).reshape(-1)
    rounded = rounded and factor == 1 and not apart and ctx.fusion.optimised and ctx.uses.end_in_codes(output)
    steps = np.rint(np.broadcast_to(term, channels) / scale).astype(np.float64)
    if rounded and np.abs(steps).max(initial=0) <= ACCUMULATOR[1]:
        return ProductBias(steps.astype(np.int64), _NOTHING, term)
    return ProductBias(np.zeros(channels, dtype=np.int64), term)


def _check_shape(shape: tuple[int, ...], channels: int) -> None:
    if shape not in ((), (1,), (channels,), (1, 1), (1, channels)):
        raise Refusal(
            f"bias must be one number for each of {channels} channels, not of shape {list(shape)}", "make it so"
        )


def _product(
    ctx: Reading, node: OnnxNode, x: str, constant: ConstantCodes, axis: int, alpha: float = 1.0, **windows: Any
) -> OpenProduct:
    """A product of a tensor of codes and a weight whose channels are along an axis; a convolution with ``windows``."""
    if constant.axis is not None and constant.axis % constant.offsets.ndim != axis:
        raise Refusal(f"weight must have its scales along axis {axis}, not {constant.axis}", "quantise it per channel")
    scheme = ctx.scheme_of(x)
    scale = np.float32(alpha) * np.float32(scheme.scale) * constant.scale
    weight = constant.offsets if windows or axis else constant.offsets.T
    fields = {"weight": weight, "zero_point": scheme.zero, "reach": scheme.reach(), **windows}
    kind = IntegerConvolution if windows else IntegerMatMul
    return OpenProduct(kind, node.name, x, scale, constant.offsets.shape[axis], fields)


def conv_product(ctx: Reading, node: OnnxNode) -> OpenProduct:
    """Conv in any number of dimensions, with groups."""
    weight = ctx.weight(node.input(1), "weight")
    windows: dict[str, Any] = convolution_settings(ctx, node, weight.offsets.shape[2:])
    return _product(ctx, node, ctx.codes(node.input(0)), weight, 0, **windows)


def transposed_product(ctx: Reading, node: OnnxNode) -> OpenProduct:
    """ConvTranspose: a Conv with the weight turned round, of codes with codes of 0 between them."""
    if node.attrs.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in node.attrs:
        raise Refusal("pads must be given, not auto_pad or output_shape", "export with pads")
    weight, x = ctx.weight(node.input(1), "weight"), ctx.codes(node.input(0))
    rank, groups = weight.offsets.ndim - 2, int(node.attrs.get("group", 1))
    kernel, (inputs, part) = weight.offsets.shape[2:], weight.offsets.shape[:2]
    if weight.axis is not None and weight.axis % weight.offsets.ndim != 1:
        raise Refusal(f"weight must have its scales along axis 1, not {weight.axis}", "quantise it per channel")
    strides, dilations = (tuple(node.attrs.get(name, [1] * rank)) for name in ("strides", "dilations"))
    pads, more = node.attrs.get("pads", [0] * 2 * rank), node.attrs.get("output_padding", [0] * rank)
    scheme, sizes = ctx.scheme_of(x), ctx.sizes(x)
    takes, around, widths = list[Move](), list[tuple[int, int]](), [(0, 0)] * len(sizes)
    for k, (axis, stride, extent) in enumerate(zip(ctx.spatial_axes(rank), strides, kernel, strict=True)):
        size, reach = sizes[axis], dilations[k] * (extent - 1)
        ends = reach - pads[k], reach - pads[k + rank] + more[k]
        places = [size] * ((size - 1) * stride + 1)
        places[::stride] = range(size)
        kept = places[max(-ends[0], 0) : len(places) + min(ends[1], 0)]
        if not kept:
            raise Refusal(f"pads must leave elements along axis {axis}")
        if size in kept:
            widths[axis] = (0, 1)
        if kept != [*range(size)]:
            takes.append(TakeMove(axis, tuple(kept)))
        around.append((max(ends[0], 0), max(ends[1], 0)))
    pad: list[Move] = [PadMove(tuple(widths), scheme.zero)] if any(map(any, widths)) else []
    x = ctx.moved_codes(node.name, [*pad, *takes], x, ctx.unique(f"{node.outputs[0]}/between"))
    turned = weight.offsets.reshape(groups, inputs // groups, part, *kernel).swapaxes(1, 2)
    turned = np.flip(turned.reshape(groups * part, inputs // groups, *kernel), tuple(range(2, 2 + rank)))
    scale = weight.scale if weight.axis is None else np.tile(weight.scale, groups)
    constant = ConstantCodes(np.ascontiguousarray(turned), scale, None if weight.axis is None else 0, None)
    pads = (*(a for a, _ in around), *(b for _, b in around))
    windows: dict[str, Any] = {
        "strides": (1,) * rank,
        "dilations": dilations,
        "pads": pads,
        "groups": groups,
        "last": ctx.last,
    }
    return _product(ctx, node, x, constant, 0, **windows)


def gemm_product(ctx: Reading, node: OnnxNode) -> OpenProduct:
    """Gemm with a constant weight."""
    if node.attrs.get("transA", 0):
        raise Refusal("transA must be 0", "transpose the constants")
    weight = ctx.weight(node.input(1), "weight")
    axis = 0 if node.attrs.get("transB", 0) else 1
    return _product(ctx, node, ctx.codes(node.input(0)), weight, axis, float(node.attrs.get("alpha", 1.0)))


def conv(ctx: Reading, node: OnnxNode) -> None:
    """Leave a Conv with its bias."""
    _leave(ctx, node, conv_product(ctx, node))


def conv_transpose(ctx: Reading, node: OnnxNode) -> None:
    """Leave a ConvTranspose with its bias."""
    _leave(ctx, node, transposed_product(ctx, node))


def gemm(ctx: Reading, node: OnnxNode) -> None:
    """Leave a Gemm with its bias."""
    alpha, beta = (float(node.attrs.get(name, 1.0)) for name in ("alpha", "beta"))
    _leave(ctx, node, gemm_product(ctx, node), factor=beta, rounded=alpha == 1)


def _leave(ctx: Reading, node: OnnxNode, product: OpenProduct, **settings: Any) -> None:
    """Leave a product with the bias of its node."""
    name, output = node.input(2), node.outputs[0]
    bias = bias_of(ctx, name, product, output, **settings) if name else _without_bias(product.channels)
    ctx.open[output] = product.opened(bias)


def matmul(ctx: Reading, node: OnnxNode) -> None:
    """Read a MatMul with a constant matrix as its second operand, or of two tensors."""
    if node.input(1) not in ctx.weights:
        _of_two_tensors(ctx, node)
        return
    weight = ctx.weight(node.input(1), "second operand")
    if weight.offsets.ndim != 2:
        raise Refusal(f"second operand must be a matrix, not of shape {list(weight.offsets.shape)}", "make it one Gemm")
    product = _product(ctx, node, ctx.codes(node.input(0)), weight, 1)
    ctx.open[node.outputs[0]] = product.opened(_without_bias(product.channels))
    ctx.products[node.outputs[0]] = product


def add_to_product(ctx: Reading, node: OnnxNode) -> bool:
    """Add of a MatMul that nothing else reads and of a constant, which is its bias; ``False`` if it is another one."""
    output = node.outputs[0]
    for x, constant in (node.inputs, node.inputs[::-1]):
        if x not in ctx.products or ctx.uses.only_reader(x) is None or x in ctx.wide:
            continue
        product = ctx.products[x]
        value = ctx.weights[constant].offsets if constant in ctx.weights else ctx.constants.get(constant)
        shapes = (product.channels,), (1, product.channels)
        if value is None or value.shape not in shapes or value.dtype.kind not in "if":
            continue
        bias = bias_of(ctx, constant, product, output, apart=not _is_gemm(ctx, product))
        ctx.open[output] = product.opened(bias)
        return True
    return False


def _is_gemm(ctx: Reading, product: OpenProduct) -> bool:
    """True if ONNX Runtime makes one Gemm of a MatMul and its Add: of a matrix, or where all sizes are fixed."""
    if not ctx.fusion.optimised:
        return False
    if all(shape and None not in shape for shape in ctx.graph.shapes.values()):
        return True
    try:
        return len(ctx.sizes(product.source)) == 2
    except Refusal:
        return False


def product_of_two(
    ctx: Reading, node: OnnxNode
) -> tuple[Callable[[str, Requantiser], list[IntegerOperation]], list[Codes], int]:
    """Product of two tensors of codes, with axes of batches in front.

    Returns
    -------
    tuple
        Maker of the operations for a result and a requantisation, the schemes of both tensors, and the largest sum.
    """
    names = [ctx.codes(node.input(k)) for k in range(2)]
    first, second = (ctx.scheme_of(name) for name in names)
    shapes = [ctx.sizes(name) for name in names]
    fixed = all(None not in shape for shape in ctx.graph.shapes.values())
    if min(len(shape) for shape in shapes) < 3 - fixed or shapes[0][-1] != shapes[1][-2]:
        reason = f"operands must be matrices of each sample, not of shapes {[list(shape) for shape in shapes]}"
        raise Refusal(reason, "fold the second one if it is constant")
    largest = first.reach() * second.reach() * shapes[0][-1]

    def product(output: str, how: Requantiser) -> list[IntegerOperation]:
        fields: dict[str, Any] = {"zeros": (first.zero, second.zero), "largest": largest, "requantisation": how}
        return [CodeMatMul(name=node.name, inputs=tuple(names), output=output, **fields)]

    return product, [first, second], largest


def _of_two_tensors(ctx: Reading, node: OnnxNode) -> None:
    """Leave a MatMul of two tensors of codes."""
    product, (first, second), largest = product_of_two(ctx, node)
    scale = np.asarray(np.float32(first.scale) * np.float32(second.scale)).reshape(1)
    bits = ACCUMULATOR_BITS if largest <= ACCUMULATOR[1] else LONG_BITS

    def make(target: CodeTarget) -> list[IntegerOperation]:
        ends = target.scheme.zero, target.low, target.high
        if max(first.bits, second.bits) > _KERNEL_BITS:
            return product(target.name, FloatRequantisation(scale, _NOTHING, target.scale, *ends, sum_bits=bits))
        return product(target.name, Requantisation(scale / target.scale, *ends))

    def widen(name: str) -> list[IntegerOperation]:
        return product(name, Dequantisation(scale, _NOTHING, sum_bits=bits))

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)
