"""QuantizeLinear and DequantizeLinear: the graph stays in floats, and remembers scales and zero points.

Exporters leave out a Relu where codes begin at zero, because rounding to codes does the same. Then it is put back; so
is the upper end of a ReLU6. Other values beyond the range of codes are not limited: that is what rounding costs, not
what the network computes.
"""

from __future__ import annotations

import re

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.graph.ir import Quantization, Shape
from concord.graph.signs import never_negative

_RELU6_END = 6.0


def read(ctx: Context, node: OnnxNode, dtype: str, shape: Shape) -> Quantization:
    """How codes of a type and values of a tensor belong together, from the operands of Q or DQ.

    ``Refusal`` for blocks and for floats of 8 bits.
    """
    scale = ctx.floats(node.input(1), "scale")
    match = re.fullmatch(r"(u?)int(\d+)", dtype)
    if match is None or node.attrs.get("block_size", 0):
        raise Refusal(f"codes must be integers with one scale or one per index of an axis, not {dtype}", "use int8")
    if not scale.size or scale.min() <= 0:
        raise Refusal("scale must be positive", "correct the model")
    zero = np.zeros(scale.shape) if not node.input(2) else ctx.constant(node.input(2), "zero point")
    if scale.size == 1:
        return Quantization(scale.reshape(()), zero.astype(np.int64).reshape(()), int(match[2]), not match[1])
    (axis,) = ctx.axes([node.attrs.get("axis", 1)], len(shape))
    if scale.shape != (shape[axis],):
        raise Refusal(f"scale must be one number or {shape[axis]}, not {list(scale.shape)}", "correct the model")
    return Quantization(scale, zero.astype(np.int64), int(match[2]), not match[1], axis)


def quantize(ctx: Context, node: OnnxNode) -> list[str]:
    """Nothing to compute: DequantizeLinear finds the tensor behind."""
    x = ctx.tensor(node.input(0))
    dtype = "uint8"
    if node.input(2):
        dtype = ctx.constant(node.input(2), "zero point").dtype.name
    elif node.attrs.get("output_dtype", 0):
        from onnx import helper

        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(node.attrs["output_dtype"])).name
    quantization = read(ctx, node, dtype, ctx.shape(x))
    low, high = quantization.range
    # The range of an input is the user's choice.
    if not low.any() and not never_negative(ctx.graph, x, inputs=True):
        if np.all(np.abs(high - _RELU6_END) <= quantization.scale):
            x = ctx.emit(node, "Clip", [x], min=0.0, max=_RELU6_END)
        else:
            x = ctx.emit(node, "Relu", [x])
    ctx.codes[node.outputs[0]] = (x, quantization)
    return []


def dequantize(ctx: Context, node: OnnxNode) -> str:
    """The tensor that was quantised."""
    if node.input(0) not in ctx.codes:
        raise Refusal("must follow QuantizeLinear, or read a constant", "make floats of inputs outside the model")
    x, quantization = ctx.codes[node.input(0)]
    here = read(ctx, node, f"{'' if quantization.signed else 'u'}int{quantization.bits}", ctx.shape(x))
    if not here.same(ctx.graph.quantization.setdefault(x, quantization)):
        raise Refusal(f"'{x}' is quantised in two ways", "export with one scale and zero point per tensor")
    return x


def remember_constant(ctx: Context, node: OnnxNode) -> None:
    """Keep how a constant was quantised, when DequantizeLinear or a Transpose of its result is folded."""
    source, result = node.input(0), node.outputs[0]
    if node.op == "DequantizeLinear":
        codes = ctx.constants[source]
        try:
            ctx.decoded[result] = read(ctx, node, codes.dtype.name, codes.shape)
        except Refusal:
            return  # blocks and small floats: the values are folded, there is no scale per channel
    elif node.op == "Transpose" and source in ctx.decoded:
        from dataclasses import replace

        known = ctx.decoded[source]
        perm = node.attrs.get("perm", list(reversed(range(ctx.constants[source].ndim))))
        ctx.decoded[result] = known if known.axis is None else replace(known, axis=perm.index(known.axis))


HANDLERS: dict[str, Handler] = {"QuantizeLinear": quantize, "DequantizeLinear": dequantize}
