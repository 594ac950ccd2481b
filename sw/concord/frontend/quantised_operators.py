"""Operators on integers, as tools write them that quantise: each stands for one on floats between pairs of Q and DQ.

Those of the domain ``com.microsoft`` are ONNX Runtime's. What an operator reads and makes has a scale and a zero point
beside it, as operands of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from concord.frontend.context import Context, NodeReader, OnnxNode
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
        Places of the tensors, each with scale and zero point after it; of the first of them for a Concat.
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

    def places_of(self, node: OnnxNode) -> Sequence[int]:
        """Places of the tensors of a node."""
        return range(self.tensors[0], len(node.inputs), 3) if self.op == "Concat" else self.tensors

    def axes_of(self, node: OnnxNode) -> tuple[int, ...]:
        """Axes along which the tensors of a node may have several scales, by tensor."""
        if self.op == "Concat":
            return self.axes[:1] * len(node.inputs)
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
    "QLinearConcat": _Form("Concat", (2,), 0),
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


def pairs_of(
    ctx: NodeReader, node: OnnxNode, make: Callable[..., OnnxNode]
) -> tuple[list[OnnxNode], OnnxNode, OnnxNode] | None:
    """DequantizeLinear of what an operator reads, the operator on floats, and QuantizeLinear of its result.

    The last one is an Identity if the result is floats. ``None`` if the node is no operator on codes.

    Parameters
    ----------
    make : callable
        ``make(op, inputs, outputs, **attrs)`` makes a node, with a new tensor if there are no outputs.
    """
    form = form_of(node)
    if form is None:
        return None
    places, axes, attrs = form.places_of(node), form.axes_of(node), form.attrs_of(node)
    scales = [ctx.constant(node.input(place + 1), "scale") for place in places]
    parts = [
        make("DequantizeLinear", node.inputs[place : place + 3], **{"axis": axis} if scale.size > 1 else {})
        for place, scale, axis in zip(places, scales, axes, strict=False)
    ]
    if form.bias is not None and node.input(form.bias):
        scale = np.float32(node.attrs.get("alpha", 1.0)) * np.multiply(*(scale.reshape(-1) for scale in scales))
        name = ctx.unique(f"{node.name}/constant")
        ctx.constants[name] = scale.reshape(()) if scale.size == 1 else scale
        parts.append(make("DequantizeLinear", [node.input(form.bias), name], axis=-1))
    between = make(form.op, [part.outputs[0] for part in parts], **attrs)
    if node.input(form.result):
        step = node.inputs[form.result : form.result + 2]
        return parts, between, make("QuantizeLinear", [*between.outputs, *step], node.outputs, axis=axes[0])
    return parts, between, make("Identity", between.outputs, node.outputs)  # QGemm may make floats


def quantised(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """The nodes of :func:`pairs_of`, each in an opset that has it."""
    made = pairs_of(ctx, node, partial(_made, ctx, node))
    assert made is not None
    parts, between, last = made
    outside, with_axis = ctx.opset, max(ctx.opset, _WITH_AXIS)
    ctx.used.update(name for part in (*parts, between) for name in part.outputs)
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
    first = _made(ctx, node, "DequantizeLinear", [node.input(0), *scales])
    between = _made(ctx, node, node.op, [*first.outputs, *node.inputs[1:]], **node.attrs)
    yield [first, between, _made(ctx, node, "QuantizeLinear", [*between.outputs, *scales], node.outputs[:1])]


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
    yield [_made(ctx, node, op, operands, node.outputs, **node.attrs)]


def _made(
    ctx: Context, node: OnnxNode, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attrs: Any
) -> OnnxNode:
    """A node, whose result has a new name if none is given."""
    return ctx.new_node(node, op, inputs, outputs or [ctx.unique(f"{node.name}/{op}")], **attrs)


QUANTISED_RULES: dict[str, Callable[[Context, OnnxNode], Iterator[list[OnnxNode]]]] = {
    **dict.fromkeys(_FORMS, quantised),
    "DynamicQuantizeLinear": dynamic,
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), of_integers),
}
