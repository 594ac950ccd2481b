"""Quantisation in ONNX, QuantizeLinear and DequantizeLinear: the graph stays in floats, a pair is a FakeQuantize.

:mod:`concord.graph.passes.fake_quantize` decides which of them stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from concord.frontend.context import Context, Handler, NodeReader, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.host import TypedTensor
from concord.golden.codes import CodeRange, Codes
from concord.graph.ir import Shape


def read(ctx: Context, node: OnnxNode, dtype: str, shape: Shape) -> Codes:
    """Relation of codes of a type to values of a tensor, from the operands of Q or DQ.

    ``Refusal`` for blocks and for floats of 8 bits.
    """
    scale = ctx.floats(node.input(1), "scale")
    match = re.fullmatch(r"(u?)int(\d+)", dtype)
    if match is None or node.attrs.get("block_size", 0):
        raise Refusal(f"codes must be integers with one scale or one per index of an axis, not {dtype}", "use int8")
    if not scale.size or scale.min() <= 0:
        raise Refusal("scale must be positive")
    zero = np.array(0) if not node.input(2) else ctx.constant(node.input(2), "zero point").astype(np.int64)
    used = CodeRange.of(not match[1])
    if scale.size == 1:
        return Codes(int(match[2]), scale, zero, used)
    (axis,) = ctx.axes([node.attrs.get("axis", 1)], len(shape))
    if scale.shape != (shape[axis],):
        raise Refusal(f"scale must be one number or {shape[axis]}, not {list(scale.shape)}")
    return Codes(int(match[2]), scale, zero, used, axis=axis)


def quantize(ctx: Context, node: OnnxNode) -> list[str]:
    """Note the codes of a tensor, for the DequantizeLinear that reads them; nothing is computed."""
    x = ctx.tensor(node.input(0))
    ctx.codes[node.outputs[0]] = (x, read(ctx, node, code_type(ctx, node), ctx.shape(x)))
    return []


def code_type(ctx: NodeReader, node: OnnxNode) -> str:
    """Type of the codes that QuantizeLinear makes, such as ``"int8"``."""
    if node.input(2):
        return ctx.constant(node.input(2), "zero point").dtype.name
    return type_name(node.attrs["output_dtype"]) if node.attrs.get("output_dtype", 0) else "uint8"


def type_name(number: int) -> str:
    """The name of an element type of ONNX, such as ``"int8"``."""
    from onnx import helper

    return np.dtype(helper.tensor_dtype_to_np_dtype(number)).name


def ends_of_clip(constant: Callable[[str, str], Any], node: OnnxNode, low: int, high: int) -> tuple[int, int]:
    """The least and the greatest code after a Clip of codes in ``low..high``.

    ``constant`` finds the constant of a name, which messages call by the second argument. ``Refusal`` if the ends are
    in no order, or leave no code.
    """
    least, most = (
        int(constant(node.input(place), what).item()) if node.input(place) else end
        for place, what, end in ((1, "min", low), (2, "max", high))
    )
    if least > most or most < low or least > high:
        reason = f"min and max must be in order and leave some of the codes {low} to {high}"
        raise Refusal(f"{reason}, unlike {least} and {most}", "make them the ends of the codes")
    return max(least, low), min(most, high)


def clip_codes(ctx: Context, node: OnnxNode) -> list[str]:
    """Limit the integers of QuantizeLinear, as Brevitas does: they have fewer bits, or their values are limited.

    ``Refusal`` if the ends are in no order, or not those of a number of bits where there are several scales.
    """
    x, codes = ctx.codes[node.input(0)]
    ends = ends_of_clip(ctx.constant, node, *codes.ends)
    for bits in range(1, codes.bits + 1):
        if ends == CodeRange.of(codes.signed).ends(bits):
            ctx.codes[node.outputs[0]] = (x, replace(codes, bits=bits))
            return []
    if codes.axis is not None:
        raise Refusal("min and max must be those of a number of bits where there is a scale per channel")
    values = [(end - codes.zero) * float(codes.scale) for end in ends]
    ctx.codes[node.outputs[0]] = (ctx.emit(node, "Clip", [x], min=values[0], max=values[1]), codes)
    return []


def codes_of(ctx: Context, name: str) -> tuple[str, str]:
    """The integers of QuantizeLinear as a tensor of the graph, which the host computes, and their type."""
    from onnx import helper

    x, codes = ctx.codes[name]
    node = OnnxNode(helper.make_node("QuantizeLinear", [], [name], ctx.unique(f"{name}/codes")))
    rank = len(ctx.graph.shapes[x])
    scale, zero = (codes.along(numbers, rank) for numbers in (codes.steps, codes.zero_points))
    y = ctx.emit(node, "Divide", [x], constant=scale)
    y = ctx.emit(node, "Add", [ctx.emit(node, "Round", [y], limited=False)], constant=zero)
    y = ctx.emit(node, "Clip", [y], min=float(codes.low), max=float(codes.high))
    return y, codes.code_type


def meaning(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Values of the integers of an input: less the zero point, times the scale."""
    x = ctx.tensor(node.input(0))
    codes = read(ctx, node, str(ctx.element_types[node.input(0)]), ctx.shape(x))
    rank = len(ctx.shape(x))
    y = ctx.emit(node, "Sub", [x], constant=codes.along(codes.zero_points, rank))
    return [TypedTensor(ctx.emit(node, "Mul", [y], constant=codes.along(codes.steps, rank)))]


def dequantize(ctx: Context, node: OnnxNode) -> str:
    """Values of codes; with another scale or zero point than they were made with, other values than were quantised."""
    if node.input(0) in ctx.dynamic:
        return ctx.dynamic[node.input(0)]
    if node.input(0) not in ctx.codes:
        raise Refusal("must follow QuantizeLinear, or read a constant", "make floats of inputs outside the model")
    x, codes = ctx.codes[node.input(0)]
    here = read(ctx, node, codes.code_type, ctx.shape(x))
    result = ctx.emit(node, "FakeQuantize", [x], quantization=codes)
    if here == codes:
        return result
    rank = len(ctx.shape(x))
    (scale, zero), (scale_of_codes, zero_of_codes) = (
        (scheme.along(scheme.steps, rank), scheme.along(scheme.zero_points, rank)) for scheme in (here, codes)
    )
    if not np.array_equal(scale, scale_of_codes):
        result = ctx.emit(node, "Mul", [result], constant=scale / scale_of_codes)
    if not np.array_equal(zero, zero_of_codes):
        result = ctx.emit(node, "Add", [result], constant=(zero_of_codes - zero) * scale)
    return result


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
        known = ctx.decoded[source]
        perm = node.attrs.get("perm", list(reversed(range(ctx.constants[source].ndim))))
        ctx.decoded[result] = known if known.axis is None else replace(known, axis=perm.index(known.axis))


HANDLERS: dict[str, Handler] = {"QuantizeLinear": quantize, "DequantizeLinear": dequantize}
