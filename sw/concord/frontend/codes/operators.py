"""Operators of ONNX on codes: each reads what DequantizeLinear made, and leaves floats for QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from concord.frontend.codes.accumulators import ON_ACCUMULATORS, accumulators_beside, leave
from concord.frontend.codes.maxima import global_max_pool, max_pool, of_several, reduced_max
from concord.frontend.codes.model_values import CodeTarget, Unquantised
from concord.frontend.codes.moving import MOVEMENTS, reduction
from concord.frontend.codes.point_wise import POINT_WISE, beside_number, divide, function
from concord.frontend.codes.products import add_to_product, conv, conv_transpose, gemm, matmul
from concord.frontend.codes.reading import Reading
from concord.frontend.codes.windows import window_settings
from concord.frontend.context import OnnxNode
from concord.integer.graph import IntegerOperation
from concord.integer.moves import ConcatMove, Move, ReshapeMove, TransposeMove
from concord.integer.operations import (
    CodeAverage,
    CodeFloats,
    CodeMean,
    CodeMovement,
    CodeSoftmax,
    CodeSum,
    IntegerProduct,
)
from concord.integer.requantise import FloatRequantisation
from concord.integer.softmaxes import NumberSoftmax
from concord.integer.wide import WIDE, WideDifference, WidePair, WideProduct, WideSum

Operator = Callable[[Reading, OnnxNode], None]

#: Most bits of codes of which there is a kernel for Softmax.
_KERNEL_BITS = 8


def add(ctx: Reading, node: OnnxNode) -> None:
    """Add of two tensors, or of a product or accumulators and a constant."""
    if (operands := accumulators_beside(ctx, node)) is not None and operands[0].term is None:
        sums, constant = operands
        leave(ctx, node, replace(sums, term=sums.numbers(constant, "term")))
        return
    if add_to_product(ctx, node):
        return
    _of_two(ctx, node, WideSum)


def mul(ctx: Reading, node: OnnxNode) -> None:
    """Mul of two tensors, or of accumulators and a constant."""
    operands = accumulators_beside(ctx, node)
    if operands is not None and operands[0].factor is None and operands[0].term is None:
        sums, constant = operands
        leave(ctx, node, replace(sums, factor=sums.numbers(constant, "factor")))
        return
    _of_two(ctx, node, WideProduct)


def sub(ctx: Reading, node: OnnxNode) -> None:
    """Sub of two tensors."""
    _of_two(ctx, node, WideDifference)


def _of_two(ctx: Reading, node: OnnxNode, wide_kind: type[WidePair]) -> None:
    """An operation of two tensors: of codes if both have some and the result becomes codes, else of wide numbers."""

    def widen(name: str) -> list[IntegerOperation]:
        operands = tuple(ctx.numbers(node.input(k)) for k in range(2))
        return [wide_kind(name=node.name, inputs=operands, output=name)]

    if beside_number(ctx, node):
        return
    if not all(ctx.are_codes(name) for name in node.inputs):
        ctx.add_wide(node.outputs[0], widen)
        return
    names, kernel = [ctx.codes(node.input(k)) for k in range(2)], ctx.fusion.kernel(node)
    schemes = [ctx.scheme_of(name) for name in names]
    a, b = (np.float32(scheme.scale) for scheme in schemes)

    def make(target: CodeTarget) -> list[IntegerOperation]:
        zero, low, high, step = target.scheme.zero, target.low, target.high, target.scale
        common: dict[str, Any] = {
            "name": node.name, "inputs": tuple(names), "output": target.name,
            "zeros": tuple(scheme.zero for scheme in schemes),
        }  # fmt: skip
        if kernel is not None and node.op == "Mul":
            how = FloatRequantisation.of_kernel(a * b / step, zero, kernel.shifts[-1], low, high)
            return [IntegerProduct(requantisation=how, **common)]
        common |= {"zero_point": zero, "low": low, "high": high}
        if kernel is None or node.op == "Sub":
            return [CodeFloats(scales=(a, b), step=step, operator=node.op, **common)]
        first, second, last = kernel.shifts
        return [CodeSum(ratios=(a / step, b / step), shifts=(first, second, last), **common)]

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)


def mean(ctx: Reading, node: OnnxNode) -> None:
    """GlobalAveragePool and AveragePool."""
    x = ctx.codes(node.input(0))
    windows: dict[str, Any] = {}
    if node.op == "AveragePool":
        kernel = tuple(node.attrs["kernel_shape"])
        counts = bool(node.attrs.get("count_include_pad", 0))
        windows = {"kernel": kernel, "padding_counts": counts, **window_settings(ctx, node, kernel)}
        kernels = ctx.fusion.kernel(node)
        windows["shift"] = 0 if kernels is None else kernels.shifts[-1]
    order = ctx.fusion.order(node, not any(windows.get("pads", ())))
    ctx.open[node.outputs[0]] = Unquantised(lambda target: [_mean_of(ctx, node, x, order, target, **windows)])


def _mean_of(ctx: Reading, node: OnnxNode, x: str, order: str, target: CodeTarget, **windows: Any) -> CodeMean:
    """The mean of a channel, or of windows."""
    source, kind = ctx.scheme_of(x), CodeAverage if windows else CodeMean
    return kind(
        name=node.name, inputs=(x,), output=target.name, zero_point=source.zero, scale=np.float32(source.scale),
        target_scale=target.scale, target_zero_point=target.scheme.zero, low=target.low, high=target.high, order=order,
        **windows,
    )  # fmt: skip


def reduced_mean(ctx: Reading, node: OnnxNode) -> None:
    """ReduceMean over any axes but that of the samples: the mean of GlobalAveragePool over channels that are kept."""
    x = ctx.codes(node.input(0))
    kept, reduced, shaped = reduction(ctx, node, x)
    shape = ctx.sizes(x)
    in_order = kept == [*range(len(kept))]
    channels = prod(shape[axis] for axis in kept[1:])
    moves: list[Move] = [] if in_order else [TransposeMove((*kept, *reduced))]
    if len(kept) != 2:
        moves.append(ReshapeMove((0, channels, prod(shape[axis] for axis in reduced))))
    x = ctx.moved_codes(node.name, moves, x, ctx.unique(f"{x}/channels in front"))
    order = ctx.fusion.order(node, in_order)

    def make(target: CodeTarget) -> list[IntegerOperation]:
        result = ctx.unique(f"{target.name}/mean")
        ctx.graph.schemes[result] = target.scheme
        last = CodeMovement.of(node.name, (result,), target.name, shaped, target.scheme)
        return [_mean_of(ctx, node, x, order, replace(target, name=result)), last]

    ctx.open[node.outputs[0]] = Unquantised(make)


def softmax(ctx: Reading, node: OnnxNode) -> None:
    """Softmax of codes: as the kernel on codes computes it where there is one, else in binary32."""
    x = ctx.codes(node.input(0))
    source = ctx.scheme_of(x)
    old = int(node.attrs.get("opset", ctx.opset)) < 13
    axis = int(node.attrs.get("axis", 1 if old else -1))

    def make(target: CodeTarget) -> list[IntegerOperation]:
        common: dict[str, Any] = {
            "name": node.name, "inputs": (x,), "output": target.name, "axis": axis, "flattened": old,
            "scale": np.float32(source.scale), "zero_point": target.scheme.zero, "low": target.low, "high": target.high,
        }  # fmt: skip
        if ctx.fusion.kernel(node) is None or max(source.bits, target.scheme.bits) > _KERNEL_BITS:
            return [NumberSoftmax(count=source.count, step=target.scale, **common)]
        return [CodeSoftmax(steps=np.floor(np.float32(1) / target.scale), **common)]

    ctx.open[node.outputs[0]] = Unquantised(make)


def concat(ctx: Reading, node: OnnxNode) -> None:
    """Concat: each operand gets the scheme of the result first; of wide numbers if one operand has no codes."""
    axis = int(node.attrs["axis"])

    def widen(name: str) -> list[IntegerOperation]:
        parts = [ctx.numbers(part) for part in node.inputs]
        return [CodeMovement.of(node.name, parts, name, ConcatMove(axis), WIDE)]

    if not all(map(ctx.reads_codes, node.inputs)):
        ctx.add_wide(node.outputs[0], widen)
        return
    operands = [ctx.operand(name) for name in node.inputs]

    def make(target: CodeTarget) -> list[IntegerOperation]:
        tables, parts = ctx.in_scheme(node.name, operands, target)
        return [*tables, CodeMovement.of(node.name, parts, target.name, ConcatMove(axis), target)]

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)


#: Operators that give the same codes after QuantizeLinear as in front of it, and that ONNX Runtime takes so.
PASSED = ("Relu", "Clip", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
#: By the name of the operator in ONNX.
OPERATORS: dict[str, Operator] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gemm": gemm,
    "MatMul": matmul,
    "Add": add,
    "Mul": mul,
    "Sub": sub,
    "ReduceMean": reduced_mean,
    "Softmax": softmax,
    "GlobalAveragePool": mean,
    "AveragePool": mean,
    "Concat": concat,
    "MaxPool": max_pool,
    "GlobalMaxPool": global_max_pool,
    "Max": of_several,
    "Min": of_several,
    "ReduceMax": reduced_max,
    "ReduceMin": reduced_max,
    "Div": divide,
    **ON_ACCUMULATORS,
    **MOVEMENTS,
    **dict.fromkeys(POINT_WISE, function),
}
