"""Operators that read and make codes, with scales and zero points as operands: each becomes nodes of the QDQ form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.quantised_operators import MICROSOFT, form_of
from concord.integer.reading import Reading


def in_pairs(ctx: Reading, node: OnnxNode) -> list[OnnxNode] | None:
    """DequantizeLinear of what an operator reads, the operator on floats, and QuantizeLinear of its result.

    ``None`` if the node is no operator on codes.
    """
    if node.op == "QLinearConcat" and node.proto.domain == MICROSOFT:
        return _concat(ctx, node)
    form = form_of(node)
    if form is None:
        return None
    attrs = form.attrs_of(node)
    if "opset" in node.attrs:  # by which the softmax of an operator on codes goes
        attrs["opset"] = node.attrs["opset"]
    if not node.input(form.result):
        raise Refusal("must make codes", "give it the scale and the zero point of its result")
    nodes, output = [], node.outputs[0]
    operands = [ctx.unique(f"{output}/operand {place}") for place in form.tensors]
    for name, place, axis in zip(operands, form.tensors, form.axes_of(node), strict=False):
        nodes.append(_made("DequantizeLinear", node.inputs[place : place + 3], name, axis=axis))
    if form.bias is not None and node.input(form.bias):
        scales = (ctx.constant(node.input(place + 1), "scale").reshape(-1) for place in form.tensors)
        first, second = scales
        scale = ctx.unique(f"{output}/scale of the bias")
        ctx.constants[scale] = np.float32(node.attrs.get("alpha", 1.0)) * first * second
        operands.append(ctx.unique(f"{output}/bias"))
        nodes.append(_made("DequantizeLinear", [node.input(form.bias), scale], operands[-1], axis=0))
    result = ctx.unique(f"{output}/result")
    nodes.append(_made(form.op, operands, result, name=node.name, **attrs))
    nodes.append(_made("QuantizeLinear", node.inputs[form.result : form.result + 2], output, first=result))
    return nodes


def _concat(ctx: Reading, node: OnnxNode) -> list[OnnxNode]:
    """Concat, whose result has the first scale and zero point; each operand has its own after it."""
    places, output = range(2, len(node.inputs), 3), node.outputs[0]
    operands = [ctx.unique(f"{output}/operand {place}") for place in places]
    nodes = [
        _made("DequantizeLinear", node.inputs[place : place + 3], name)
        for place, name in zip(places, operands, strict=True)
    ]
    result = ctx.unique(f"{output}/result")
    nodes.append(_made("Concat", operands, result, name=node.name, axis=node.attrs["axis"]))
    return [*nodes, _made("QuantizeLinear", node.inputs[:2], output, first=result)]


def _made(op: str, inputs: Sequence[str], output: str, *, name: str = "", first: str = "", **attrs: Any) -> OnnxNode:
    """A node; its first input may stand apart."""
    from onnx import helper

    return OnnxNode(helper.make_node(op, [*([first] if first else []), *inputs], [output], name or output, **attrs))
