"""Operators on integers, as tools write them that quantise: each stands for one on floats between pairs of Q and DQ.

Those of the domain ``com.microsoft`` are ONNX Runtime's. What an operator reads and makes has a scale and a zero point
beside it, as operands of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.frontend.context import Context, OnnxNode
from concord.frontend.errors import Refusal

#: The domain of operators of ONNX Runtime.
MICROSOFT = "com.microsoft"
#: First version in which DequantizeLinear has an axis.
_WITH_AXIS = 13


@dataclass(frozen=True)
class _Form:
    """Operator on floats for which an operator on integers stands, and the places of the operands of that.

    Parameters
    ----------
    op : str
        Operator of ONNX.
    tensors : tuple of int
        Places of the tensors, each with scale and zero point after it.
    result : int
        Place of the scale of the result, with its zero point after it.
    axes : tuple of int
        By tensor, the axis along which it may have several scales.
    bias : int or None
        Place of sums of integers, whose scale is the product of those of both tensors.
    left_out : tuple of str
        Attributes that the operator of ONNX does not have.
    """

    op: str
    tensors: tuple[int, ...]
    result: int
    axes: tuple[int, ...] = (1, 1)
    bias: int | None = None
    left_out: tuple[str, ...] = ()

    def axes_of(self, node: OnnxNode) -> tuple[int, ...]:
        """Axes along which the tensors of a node may have several scales, by tensor."""
        return (1, 0) if self.op == "Gemm" and node.attrs.get("transB", 0) else self.axes

    def attrs_of(self, node: OnnxNode) -> dict[str, Any]:
        """Attributes of the operator of ONNX; ``Refusal`` if the channels are the last axis."""
        if node.attrs.get("channels_last", 0):
            raise Refusal("channels_last must be 0", "export with the channels first")
        attrs = {name: value for name, value in node.attrs.items() if name not in self.left_out}
        if self.op == "Softmax":  # whose axis after the last is that of all opsets
            attrs.setdefault("axis", -1)
        return attrs


_FORMS = {
    "QLinearConv": _Form("Conv", (0, 3), 6, (1, 0), bias=8),
    "QLinearMatMul": _Form("MatMul", (0, 3), 6, (-2, -1)),
}
_MICROSOFT_FORMS = {
    "QLinearAdd": _Form("Add", (0, 3), 6),
    "QLinearMul": _Form("Mul", (0, 3), 6),
    "QGemm": _Form("Gemm", (0, 3), 7, (1, 1), bias=6),
    **{
        f"QLinear{op}": _Form(op, (0,), 3, left_out=("channels_last", "opset"))
        for op in ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax")
    },
}
#: Operators that move codes, or compare them: the results have the same codes.
OF_CODES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "MaxPool", "Identity")


def form_of(node: OnnxNode) -> _Form | None:
    """Operator on floats for which an operator on integers stands; ``None`` for other operators."""
    if node.standard:
        return _FORMS.get(node.op)
    return _MICROSOFT_FORMS.get(node.op) if node.proto.domain == MICROSOFT else None


def quantised(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """DequantizeLinear of what it reads, the operator on floats, and QuantizeLinear of its result."""
    form = form_of(node)
    assert form is not None
    attrs, axes = form.attrs_of(node), form.axes_of(node)
    names = [
        _floats(ctx, node, place, axis) for place, axis in zip(form.tensors, axes, strict=False)
    ]  # the nodes, and the tensor that they make
    parts, operands = [part for part, _ in names], [name for _, name in names]
    if form.bias is not None and node.input(form.bias):
        first, second = (ctx.floats(node.input(place + 1), "scale").reshape(-1) for place in form.tensors)
        scale = (first * second * float(node.attrs.get("alpha", 1.0))).astype(np.float32)
        scale = scale.reshape(()) if scale.size == 1 else scale
        name = ctx.new_constant(node, scale)
        part, bias = _made(ctx, node, "DequantizeLinear", [node.input(form.bias), name], axis=-1)
        parts.append(part)
        operands.append(bias)
    between, y = _made(ctx, node, form.op, operands, **attrs)
    if node.input(form.result):
        last, _ = _made(
            ctx, node, "QuantizeLinear", [y, *node.inputs[form.result : form.result + 2]], node.outputs, axis=axes[0]
        )
    else:  # QGemm may make floats
        last, _ = _made(ctx, node, "Identity", [y], node.outputs)
    outside, with_axis = ctx.opset, max(ctx.opset, _WITH_AXIS)
    ctx.used.update((*operands, y))
    for opset, nodes in (with_axis, parts), (int(node.attrs.get("opset", outside)), [between]), (with_axis, [last]):
        ctx.opset = opset
        yield nodes
    ctx.opset = outside


def on_codes(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """An operator that gives codes as it gets them, between DequantizeLinear and QuantizeLinear with one scale."""
    codes = ctx.codes[node.input(0)][1]
    if codes.axis is not None:
        raise Refusal("codes must have one scale", "put DequantizeLinear in front of it, and QuantizeLinear behind it")
    scales = [
        ctx.new_constant(node, codes.steps.astype(np.float32)),
        ctx.new_constant(node, codes.zero_points.astype(codes.code_type)),
    ]
    first, x = _made(ctx, node, "DequantizeLinear", [node.input(0), *scales])
    between, y = _made(ctx, node, node.op, [x, *node.inputs[1:]], **node.attrs)
    last, _ = _made(ctx, node, "QuantizeLinear", [y, *scales], node.outputs[:1])
    yield [first, between, last]


def dynamic(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """Nothing: the NPU rounds blocks of numbers by their own exponents. Integers are as if their scale were 1."""
    x, (_, scale, zero) = ctx.tensor(node.input(0)), [*node.outputs, "", ""][:3]
    ctx.dynamic |= {name: x for name in node.outputs if name}
    ctx.constants |= {name: np.asarray(value) for name, value in ((scale, np.float32(1)), (zero, np.uint8(0))) if name}
    yield []


def of_integers(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """A product of what DynamicQuantizeLinear has read with constant integers, less their zero points."""
    if node.input(0) not in ctx.dynamic:
        raise Refusal("must read DynamicQuantizeLinear", "export in QDQ form or in floats")
    weight = ctx.constant(node.input(1), "weight").astype(np.float64)
    zero = ctx.constant(node.input(3), "zero point").astype(np.float64) if node.input(3) else np.zeros(())
    if node.op == "ConvInteger" and zero.size > 1:
        zero = zero.reshape(-1, *[1] * (weight.ndim - 1))
    name = ctx.new_constant(node, (weight - zero).astype(np.float32))
    op, operands = node.op.removesuffix("Integer"), [ctx.dynamic[node.input(0)], name]
    made, _ = _made(ctx, node, op, operands, node.outputs, **node.attrs)
    yield [made]


def _floats(ctx: Context, node: OnnxNode, place: int, axis: int) -> tuple[OnnxNode, str]:
    """Dequantise integers: the node, and the name of the floats."""
    scale = node.input(place + 1)
    attrs: dict[str, Any] = {"axis": axis} if ctx.constant(scale, "scale").size > 1 else {}
    return _made(ctx, node, "DequantizeLinear", node.inputs[place : place + 3], **attrs)


def _made(
    ctx: Context, node: OnnxNode, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attrs: Any
) -> tuple[OnnxNode, str]:
    """A node, whose result has a new name if none is given, and the name of that."""
    outputs = outputs or [ctx.unique(f"{node.name}/{op}")]
    return ctx.new_node(node, op, inputs, outputs, **attrs), outputs[0]


QUANTISED_RULES: dict[str, Callable[[Context, OnnxNode], Iterator[list[OnnxNode]]]] = {
    **dict.fromkeys(_FORMS, quantised),
    "DynamicQuantizeLinear": dynamic,
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), of_integers),
}
