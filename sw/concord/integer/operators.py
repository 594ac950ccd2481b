"""Operators of ONNX on codes: each reads what DequantizeLinear made, and leaves floats for QuantizeLinear."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.functions import by_onnx_name
from concord.integer.accumulators import ON_ACCUMULATORS, accumulators_beside, leave
from concord.integer.code_limits import clip_codes, is_clip_of_codes
from concord.integer.exact_sums import reach_of
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerOperation
from concord.integer.model_values import CodeTarget, ConstantCodes, Unquantised
from concord.integer.moves import (
    ConcatMove,
    NoMove,
    ReshapeMove,
    TransposeMove,
)
from concord.integer.moving import MOVEMENTS, node_axes
from concord.integer.operations import (
    CodeAverage,
    CodeDifference,
    CodeMaximum,
    CodeMean,
    CodeMovement,
    CodeProduct,
    CodeSoftmax,
    CodeSum,
)
from concord.integer.reading import PAIR, Reading
from concord.integer.requantise import Requantisation
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul
from concord.integer.wide import WIDE, Dequantisation, WideDifference, WidePair, WideProduct, WideSum, limit_of
from concord.integer.wide_numbers import WideNumbers
from concord.integer.windows import window_settings
from concord.transfer import UniformAffine
from concord.transfer.operators import OperatorLike

Operator = Callable[[Reading, OnnxNode], None]

#: A bias may have another scale than the product of the others by what rounding makes of it.
_BIAS_TOLERANCE = 1e-6


def _bias(ctx: Reading, node: OnnxNode, scale: np.ndarray[Any, np.dtype[np.float32]], channels: int) -> Integers:
    """The bias in the scale of the sums; nothing has to be rounded."""
    if not node.input(2):
        return np.zeros(channels, dtype=np.int64)
    bias = ctx.weight(node.input(2), "bias")
    if bias.offsets.shape not in ((), (1,), (channels,), (1, 1), (1, channels)):
        shape = list(bias.offsets.shape)
        raise Refusal(f"bias must be one number for each of {channels} channels, not of shape {shape}", "make it so")
    if not np.allclose(bias.scale, scale.reshape(-1), rtol=_BIAS_TOLERANCE, atol=0):
        raise Refusal("scale of the bias must be the product of those of input and weight", "quantise it to int32 so")
    return np.broadcast_to(bias.offsets.reshape(-1), channels)


def _product(
    ctx: Reading, node: OnnxNode, constant: ConstantCodes, axis: int, alpha: float, kind: Any, **settings: Any
) -> None:
    """A product whose channels are along an axis of the weight."""
    if constant.axis is not None and constant.axis % constant.offsets.ndim != axis:
        raise Refusal(f"weight must have its scales along axis {axis}, not {constant.axis}", "quantise it per channel")
    x = ctx.codes(node.input(0))
    source = ctx.scheme_of(x)
    scale = np.float32(alpha) * np.float32(source.scale) * constant.scale
    bias = _bias(ctx, node, scale, constant.offsets.shape[axis])
    reach = reach_of(source, source.zero)

    def make(target: CodeTarget) -> list[IntegerOperation]:
        requantisation = Requantisation(scale / target.scale, target.scheme.zero, target.low, target.high)
        product = kind(
            name=node.name, inputs=(x,), output=target.name, bias=bias, zero_point=source.zero, reach=reach,
            requantisation=requantisation, **settings,
        )  # fmt: skip
        return [product]

    def widen(name: str) -> list[IntegerOperation]:
        product = kind(
            name=node.name, inputs=(x,), output=name, bias=bias, zero_point=source.zero, reach=reach,
            requantisation=Dequantisation(scale, np.zeros(1, dtype=np.float32)), **settings,
        )  # fmt: skip
        return [product]

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)


def conv(ctx: Reading, node: OnnxNode) -> None:
    """Conv in any number of dimensions, with groups."""
    weight = ctx.weight(node.input(1), "weight")
    windows = window_settings(ctx, node, weight.offsets.shape[2:])
    groups = int(node.attrs.get("group", 1))
    _product(ctx, node, weight, 0, 1.0, IntegerConvolution, weight=weight.offsets, groups=groups, **windows)


def gemm(ctx: Reading, node: OnnxNode) -> None:
    """Gemm with a constant weight."""
    if node.attrs.get("transA", 0) or node.attrs.get("beta", 1.0) != 1.0:
        raise Refusal("transA must be 0 and beta 1", "transpose or scale the constants")
    weight = ctx.weight(node.input(1), "weight")
    transposed = bool(node.attrs.get("transB", 0))
    matrix = weight.offsets.T if transposed else weight.offsets
    alpha = float(node.attrs.get("alpha", 1.0))
    _product(ctx, node, weight, 0 if transposed else 1, alpha, IntegerMatMul, weight=matrix)


def matmul(ctx: Reading, node: OnnxNode) -> None:
    """Read a MatMul with a constant matrix as its second operand."""
    weight = ctx.weight(node.input(1), "second operand")
    if weight.offsets.ndim != 2:
        raise Refusal(f"second operand must be a matrix, not of shape {list(weight.offsets.shape)}", "make it one Gemm")
    _product(ctx, node, weight, 1, 1.0, IntegerMatMul, weight=weight.offsets)


def add(ctx: Reading, node: OnnxNode) -> None:
    """Add of two tensors, or of accumulators and a constant."""
    if (operands := accumulators_beside(ctx, node)) is not None and operands[0].term is None:
        sums, constant = operands
        leave(ctx, node, replace(sums, term=sums.numbers(constant, "term")))
        return
    _of_two(ctx, node, CodeSum, WideSum, lambda a, b, y: {"ratios": (a / y, b / y)})


def mul(ctx: Reading, node: OnnxNode) -> None:
    """Mul of two tensors, of accumulators and a constant, or of constants."""
    if all(name in ctx.constants for name in node.inputs):
        ctx.constants[node.outputs[0]] = np.multiply(*(ctx.constants[name] for name in node.inputs))
        return
    operands = accumulators_beside(ctx, node)
    if operands is not None and operands[0].factor is None and operands[0].term is None:
        sums, constant = operands
        leave(ctx, node, replace(sums, factor=sums.numbers(constant, "factor")))
        return
    _of_two(ctx, node, CodeProduct, WideProduct, lambda a, b, y: {"ratio": a * b / y})


def sub(ctx: Reading, node: OnnxNode) -> None:
    """Sub of two tensors."""
    _of_two(ctx, node, CodeDifference, WideDifference, lambda a, b, y: {"scales": (a, b), "step": y})


def _of_two(
    ctx: Reading,
    node: OnnxNode,
    kind: Any,
    wide_kind: type[WidePair],
    settings: Callable[[np.float32, np.float32, np.float32], dict[str, Any]],
) -> None:
    """An operation of two tensors: of codes if both have some and the result becomes codes, else of wide numbers.

    ``settings`` makes the parameters of the one of codes, of the scales of both and of the result.
    """

    def widen(name: str) -> list[IntegerOperation]:
        operands = tuple(ctx.numbers(node.input(k)) for k in range(2))
        return [wide_kind(name=node.name, inputs=operands, output=name)]

    if not all(ctx.are_codes(name) for name in node.inputs):
        output = node.outputs[0]
        ctx.add_all(widen(output), WIDE)
        ctx.wide[output] = output
        return
    names = [ctx.codes(node.input(k)) for k in range(2)]
    first, second = (ctx.scheme_of(name) for name in names)

    def make(target: CodeTarget) -> list[IntegerOperation]:
        operation = kind(
            name=node.name, inputs=tuple(names), output=target.name, zeros=(first.zero, second.zero),
            zero_point=target.scheme.zero, low=target.low, high=target.high,
            **settings(np.float32(first.scale), np.float32(second.scale), target.scale),
        )  # fmt: skip
        return [operation]

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)


def mean(ctx: Reading, node: OnnxNode) -> None:
    """GlobalAveragePool and AveragePool."""
    x = ctx.codes(node.input(0))
    windows: dict[str, Any] = {}
    if node.op == "AveragePool":
        kernel = tuple(node.attrs["kernel_shape"])
        counts = bool(node.attrs.get("count_include_pad", 0))
        windows = {"kernel": kernel, "padding_counts": counts, **window_settings(ctx, node, kernel)}

    ctx.open[node.outputs[0]] = Unquantised(lambda target: [_mean_of(ctx, node, x, target, **windows)])


def _mean_of(ctx: Reading, node: OnnxNode, x: str, target: CodeTarget, **windows: Any) -> CodeMean:
    """The mean of a channel, or of windows."""
    source, kind = ctx.scheme_of(x), CodeAverage if windows else CodeMean
    return kind(
        name=node.name, inputs=(x,), output=target.name, zero_point=source.zero, scale=np.float32(source.scale),
        target_scale=target.scale, target_zero_point=target.scheme.zero, low=target.low, high=target.high, **windows,
    )  # fmt: skip


def reduced_mean(ctx: Reading, node: OnnxNode) -> None:
    """ReduceMean over all axes but that of the samples and one other: the mean of GlobalAveragePool."""
    axes, x = node_axes(ctx, node), ctx.codes(node.input(0))
    rank = len(ctx.sizes(x))
    reduced = sorted({axis % rank for axis in axes}) if axes else [*range(rank)]
    kept = [axis for axis in range(rank) if axis not in reduced]
    if len(kept) != 2 or kept[0] != 0 or not reduced:
        reason = f"axes must be all but those of samples and channels, not {axes} of {rank}"
        raise Refusal(reason, "put Reshape in front of it")
    if kept[1] != 1:
        first = ctx.unique(f"{x}/channels in front")
        ctx.move(node.name, x, TransposeMove((*kept, *reduced)), ctx.scheme_of(x), first)
        x = first
    keeps = bool(node.attrs.get("keepdims", 1))
    sizes = tuple(0 if axis == 0 else -1 if axis == kept[1] else 1 for axis in range(rank)) if keeps else (0, -1)

    def make(target: CodeTarget) -> list[IntegerOperation]:
        result = ctx.unique(f"{target.name}/mean")
        ctx.graph.schemes[result] = target.scheme
        ends = target.scheme.low, target.scheme.high
        shaped = CodeMovement(
            name=node.name, inputs=(result,), output=target.name, move=ReshapeMove(sizes), low=ends[0], high=ends[1]
        )
        return [_mean_of(ctx, node, x, replace(target, name=result)), shaped]

    ctx.open[node.outputs[0]] = Unquantised(make)


def softmax(ctx: Reading, node: OnnxNode) -> None:
    """Softmax of codes of at most 8 bits."""
    x = ctx.codes(node.input(0))
    source = ctx.scheme_of(x)
    old = int(node.attrs.get("opset", ctx.opset)) < 13
    axis = int(node.attrs.get("axis", 1 if old else -1))

    def make(target: CodeTarget) -> list[IntegerOperation]:
        shares = CodeSoftmax(
            name=node.name, inputs=(x,), output=target.name, axis=axis, flattened=old, scale=np.float32(source.scale),
            steps=np.floor(np.float32(1) / target.scale), zero_point=target.scheme.zero, low=target.low,
            high=target.high,
        )  # fmt: skip
        return [shares]

    if source.bits > 8:
        raise Refusal(f"must read codes of at most 8 bits, not {source.bits}", "quantise its input to int8")
    ctx.open[node.outputs[0]] = Unquantised(make)


def concat(ctx: Reading, node: OnnxNode) -> None:
    """Concat: each operand gets the scheme of the result first; of wide numbers if one operand has no codes."""
    axis = int(node.attrs["axis"])

    def widen(name: str) -> list[IntegerOperation]:
        parts = tuple(ctx.numbers(part) for part in node.inputs)
        return [
            CodeMovement(name=node.name, inputs=parts, output=name, move=ConcatMove(axis), low=WIDE.low, high=WIDE.high)
        ]

    if not all(ctx.are_codes(name) for name in node.inputs):
        output = node.outputs[0]
        ctx.add_all(widen(output), WIDE)
        ctx.wide[output] = output
        return
    names = [ctx.codes(name) for name in node.inputs]

    def make(target: CodeTarget) -> list[IntegerOperation]:
        operations: list[IntegerOperation] = []
        parts = []
        for k, name in enumerate(names):
            part = name
            if ctx.scheme_of(name) != target.scheme:
                part = ctx.unique(f"{target.name}/{k}")
                operations.append(ctx.table(f"{node.name}/{k}", name, (), target.scheme, part))
                ctx.graph.schemes[part] = target.scheme
            parts.append(part)

        last = CodeMovement(
            name=node.name, inputs=tuple(parts), output=target.name, move=ConcatMove(axis), low=target.low,
            high=target.high,
        )  # fmt: skip
        return [*operations, last]

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)


def function(ctx: Reading, node: OnnxNode) -> None:
    """A function of one element: a part of a table, or a limit of what is made of an accumulator."""
    if is_clip_of_codes(ctx, node):
        clip_codes(ctx, node)
        return
    x, y = node.input(0), node.outputs[0]
    limits = _limits(ctx, node)
    if limits is not None and ctx.are_numbers(x) and not ctx.are_codes(x) and not _is_limited_later(ctx, x):
        ctx.emit(_limited(ctx, node, limits, y), WIDE)
        ctx.wide[y] = y
        return
    if x in ctx.open and limits is not None and ctx.open[x].source is None:
        ctx.open[y] = replace(ctx.open[x], limits=(*ctx.open[x].limits, limits))
        return
    if x in ctx.open and ctx.open[x].source is not None:
        before, source = ctx.open[x].functions, ctx.open[x].source
    elif x in ctx.open:
        raise Refusal("must read codes, not what a product or a sum makes", PAIR)
    else:
        before, source = (), ctx.codes(x)
    functions = (*before, *_functions(node, limits))
    assert source is not None

    def make(target: CodeTarget) -> list[IntegerOperation]:
        return [ctx.table(node.name, source, functions, target.scheme, target.name)]

    def widen(name: str) -> list[IntegerOperation]:
        assert limits is not None
        return [_limited(ctx, node, limits, name)]

    widens = limits is not None and (ctx.are_codes(x) or ctx.are_numbers(x))
    ctx.open[y] = Unquantised(make, source=source, functions=functions, widen=widen if widens else None)


def _is_limited_later(ctx: Reading, x: str) -> bool:
    """True if limits of a tensor can be those of the codes that are made of it."""
    return x not in ctx.wide and (ctx.open[x].source is not None or ctx.uses.end_in_codes(x))


def _limited(ctx: Reading, node: OnnxNode, limits: tuple[float, float], output: str) -> CodeMovement:
    """Numbers within limits."""
    low, high = (limit_of(end) for end in limits)
    return CodeMovement(
        name=node.name, inputs=(ctx.numbers(node.input(0)),), output=output, move=NoMove(), low=low, high=max(low, high)
    )


def _limits(ctx: Reading, node: OnnxNode) -> tuple[float, float] | None:
    """The numbers to which Relu and Clip limit."""
    if node.op == "Relu":
        return 0.0, math.inf
    if node.op != "Clip":
        return None
    ends = []
    for place, name, end in ((1, "min", -math.inf), (2, "max", math.inf)):
        operand = node.input(place)
        if operand in ctx.weights:
            constant = ctx.weights[operand]
            ends.append(float(constant.offsets.item() * constant.scale.item()))
        else:
            ends.append(float(ctx.constant(operand, name).item()) if operand else float(node.attrs.get(name, end)))
    return ends[0], ends[1]


def _functions(node: OnnxNode, limits: tuple[float, float] | None) -> list[OperatorLike]:
    """The node as functions of :mod:`concord.transfer`."""
    if node.op == "Relu":
        return ["relu"]
    if limits is not None:
        largest = float(np.finfo(np.float32).max)
        return [("clip", {"min": max(limits[0], -largest), "max": min(limits[1], largest)})]
    if node.op == "Gelu":
        return ["gelu_tanh" if node.attrs.get("approximate", "none") == "tanh" else "gelu"]
    if node.op == "HardSigmoid":  # in the steps of ONNX Runtime, each of which is rounded
        alpha, beta = (float(np.float32(node.attrs.get(key, value))) for key, value in (("alpha", 0.2), ("beta", 0.5)))
        return [("mul", {"by": alpha}), ("add", {"to": beta}), ("clip", {"min": 0.0, "max": 1.0})]
    record = by_onnx_name()[node.op]
    return [(record.name, {key: float(node.attrs.get(key, value)) for key, value in record.parameters.items()})]


def max_pool(ctx: Reading, node: OnnxNode) -> None:
    """Read a MaxPool of codes, whose scheme stays, or of wide numbers."""
    if len([name for name in node.outputs if name]) > 1:
        raise Refusal("must have one output", "leave out the indices")
    kernel, x = tuple(node.attrs["kernel_shape"]), node.input(0)

    def appended(first: str, last: str, scheme: UniformAffine | WideNumbers) -> list[IntegerOperation]:
        return [CodeMaximum(name=node.name, inputs=(first,), output=last, kernel=kernel, **windows)]

    if ctx.passes(x):
        windows = window_settings(ctx, node, kernel)
        ctx.pass_numbers(x, node.outputs[0], appended)
        return
    codes = ctx.codes(x)
    windows = window_settings(ctx, node, kernel)
    output, scheme = ctx.moved_name(x, node.outputs[0]), ctx.scheme_of(codes)
    ctx.add_all(appended(codes, output, scheme), scheme)


#: Operators that give the same codes after QuantizeLinear as in front of it, and that ONNX Runtime takes so.
PASSED = ("Relu", "Clip", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
#: By the name of the operator in ONNX.
OPERATORS: dict[str, Operator] = {
    "Conv": conv,
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
    **ON_ACCUMULATORS,
    **MOVEMENTS,
    **dict.fromkeys(("Relu", "Clip", "Gelu", *by_onnx_name()), function),
}
