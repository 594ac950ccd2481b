"""Products whose sums are tensors of the model: MatMulInteger and ConvInteger, with Cast, Mul and Add after them.

That is what ONNX Runtime's dynamic quantisation writes. Here scales are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from concord.frontend.codes.model_values import Accumulators, OpenProduct
from concord.frontend.codes.reading import Reading
from concord.frontend.codes.windows import convolution_settings
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.float32 import Integers
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul


def accumulators_beside(ctx: Reading, node: OnnxNode) -> tuple[Accumulators, np.ndarray[Any, Any]] | None:
    """Accumulators as floats, and the constant beside them, if a node reads these two."""
    for first, second in (node.inputs, node.inputs[::-1]):
        if first in ctx.sums:
            if not ctx.sums[first].floats:
                raise Refusal("must read accumulators as floats", "put Cast in front of it")
            return (ctx.sums[first], ctx.constants[second]) if second in ctx.constants else None
    return None


def leave(ctx: Reading, node: OnnxNode, sums: Accumulators) -> None:
    ctx.sums[node.outputs[0]], ctx.open[node.outputs[0]] = sums, sums.opened()


def cast(ctx: Reading, node: OnnxNode) -> None:
    """Cast of accumulators to float32."""
    from onnx import TensorProto

    if node.input(0) not in ctx.sums:
        raise Refusal("must read accumulators of MatMulInteger or ConvInteger", "leave it out")
    if node.attrs["to"] != TensorProto.FLOAT:
        raise Refusal("accumulators must be cast to float32", "export with floats of 32 bits")
    leave(ctx, node, replace(ctx.sums[node.input(0)], floats=True))


def matmul_integer(ctx: Reading, node: OnnxNode) -> None:
    """MatMulInteger with a constant matrix as its second operand."""
    weight = ctx.constant(node.input(1), "second operand")
    if weight.ndim != 2:
        raise Refusal(f"second operand must be a matrix, not of shape {list(weight.shape)}", "make it one product")
    offsets = weight.astype(np.int64) - _zero_points(ctx, node, weight.shape[1])
    _accumulate(ctx, node, IntegerMatMul, offsets.shape[1], 0, weight=offsets)


def conv_integer(ctx: Reading, node: OnnxNode) -> None:
    """ConvInteger with a constant weight."""
    weight = ctx.constant(node.input(1), "weight")
    rank = weight.ndim - 2
    offsets = weight.astype(np.int64) - _zero_points(ctx, node, len(weight)).reshape(-1, *[1] * (rank + 1))
    windows = convolution_settings(ctx, node, weight.shape[2:])
    _accumulate(ctx, node, IntegerConvolution, len(weight), rank, weight=offsets, **windows)


def _zero_points(ctx: Reading, node: OnnxNode, channels: int) -> Integers:
    """Zero points of a weight: one, or one for each channel."""
    zeros = ctx.zero_point(node, 3, np.zeros(()))
    if zeros.size != 1 and zeros.shape != (channels,):
        raise Refusal(f"zero point of the weight must be one or {channels}, not of shape {list(zeros.shape)}")
    return zeros.reshape(-1)


def _accumulate(ctx: Reading, node: OnnxNode, kind: Any, channels: int, rank: int, **settings: Any) -> None:
    """A product whose sums are a tensor of the model; its zero points are its own."""
    x, zero = ctx.codes(node.input(0)), ctx.zero_point(node, 2, np.zeros(()))
    if zero.size != 1:
        raise Refusal("zero point of the first operand must be one number", "quantise it with one scale")
    source, zero_point = ctx.scheme_of(x), int(zero.item())
    fields = {"zero_point": zero_point, "reach": source.reach(zero_point), **settings}
    product = OpenProduct(kind, node.name, x, np.ones(1, dtype=np.float32), channels, fields)
    ctx.sums[node.outputs[0]] = Accumulators(product, rank)


def dynamic(ctx: Reading, node: OnnxNode) -> None:
    """DynamicQuantizeLinear of a constant, which becomes constants; ``Refusal`` for a tensor."""
    if node.input(0) not in ctx.constants:
        reason = f"scale must be a constant, and that of {node.input(0)!r} follows from the data"
        raise Refusal(reason, "quantise with samples, as quantize_static of ONNX Runtime does")
    x = ctx.constants[node.input(0)].astype(np.float32)
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    codes = np.clip(np.rint(x / scale) + zero, 0, 255)
    for name, value in zip(node.outputs, (codes.astype(np.uint8), scale, zero.astype(np.uint8)), strict=False):
        ctx.constants[name] = np.asarray(value)


#: By the name of the operator in ONNX.
ON_ACCUMULATORS: dict[str, Callable[[Reading, OnnxNode], None]] = {
    "Cast": cast,
    "MatMulInteger": matmul_integer,
    "ConvInteger": conv_integer,
    "DynamicQuantizeLinear": dynamic,
}
