"""Operators that read and make codes, with scales and zero points as operands: each becomes nodes of the QDQ form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from concord.frontend.codes.reading import Reading
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.quantised_operators import pairs_of


def in_pairs(ctx: Reading, node: OnnxNode) -> list[OnnxNode] | None:
    """DequantizeLinear of what an operator reads, the operator on floats, and QuantizeLinear of its result.

    ``None`` if the node is no operator on codes.
    """
    from onnx import helper

    def make(op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attrs: Any) -> OnnxNode:
        names = outputs or [ctx.unique(f"{node.outputs[0]}/{op}")]
        name = names[0] if op in ("DequantizeLinear", "QuantizeLinear") else node.name
        return OnnxNode(helper.make_node(op, inputs, names, name, **attrs))

    made = pairs_of(ctx, node, make)
    if made is None:
        return None
    parts, between, last = made
    if last.op != "QuantizeLinear":
        raise Refusal("must make codes", "give it the scale and the zero point of its result")
    if "opset" in node.attrs:  # by which the softmax of an operator on codes goes
        between.attrs["opset"] = node.attrs["opset"]
    return [*parts, between, last]
