"""Functions that jump, exact for every number of binary16: whole numbers and signs.

A sum with 1536 has no fractions, so adding and subtracting it rounds what is at most 512 in magnitude, to even in the
middle. What lies beyond, a multiple of 1/2 up to 1024, is rounded by the same two steps; beyond that all numbers are
whole. A sign is a number times 2**24, limited to -1 and 1: the smallest subnormal number becomes 1.
"""

from __future__ import annotations

import numpy as np

from concord.compiler.ir.layers import MfuStep
from concord.compiler.lowering import operands
from concord.compiler.lowering.lower import Lowering, NodeBuilder
from concord.graph.ir import Node
from concord.graph.ops.elementwise import RoundAttributes, SubAttributes
from concord.spec.formats import BINARY16_MAX, BINARY16_PRECISION
from concord.spec.isa import Op

#: Beside it binary16 has no fractions, for whole numbers to a third of it on either side.
_WHOLE = 1.5 * 2.0 ** (BINARY16_PRECISION - 1)
#: Largest magnitude that a sum with it rounds.
_REACH = _WHOLE / 3
#: Two factors that make 1 of the least subnormal number, and the limit in front so that none overflows.
_FACTORS, _SMALL = (2.0**15, 2.0**9), 2.0**-9


def rounding(lowering: Lowering, node: Node) -> None:
    """Whole numbers: a sum that has no fractions, and what was added taken away again."""
    operand = np.array(_WHOLE)
    lowering.elementwise(
        node,
        lambda ids, target: [MfuStep(op, operands.constant(operand, ids, target)) for op in (Op.VV_ADD, Op.VV_SUB)],
        node.inputs[0],
    )


def unlimited_rounding(lowering: Lowering, node: Node) -> list[Node] | None:
    """Two limited parts that are rounded, and the rest, which is whole."""
    if node.attributes(RoundAttributes).limited:
        return None
    build, rest, total = NodeBuilder(lowering, node), node.inputs[0], ""
    for k in ("first", "second"):
        part = build.add("Clip", f"{k} part", rest, min=-_REACH, max=_REACH)
        rest = build.add("Sub", f"without the {k}", rest, part)
        whole = build.add("Round", f"{k} whole", part, limited=True)
        total = build.add("Add", "both", total, whole) if total else whole
    return build.ending("Add", total, rest)


def sign(lowering: Lowering, node: Node) -> list[Node] | None:
    """-1, 0 or 1."""
    build = NodeBuilder(lowering, node)
    value = build.add("Clip", "small", node.inputs[0], min=-_SMALL, max=_SMALL)
    for k, factor in enumerate(_FACTORS):
        value = build.add("Mul", f"grown {k}", value, constant=np.asarray(factor))
    return build.ending("Clip", value, min=-1.0, max=1.0)


def compare(lowering: Lowering, node: Node) -> list[Node] | None:
    """The sign of the difference; a constant beyond binary16 is its end."""
    build, attributes = NodeBuilder(lowering, node), node.attributes(SubAttributes)
    constant, attrs = attributes.constant, dict(node.attrs)
    if len({*node.inputs}) < len(node.inputs):
        return build.ending("Mul", node.inputs[0], constant=np.zeros(()))
    if constant is not None:
        same = lowering.graph.shapes[node.inputs[0]] == lowering.graph.shapes[node.outputs[0]]
        if same and not (constant.any() or attributes.constant_first):
            return build.ending("Sign", node.inputs[0])
        attrs["constant"] = np.clip(constant, -BINARY16_MAX, BINARY16_MAX)
    return build.ending("Sign", build.add("Sub", "difference", *node.inputs, **attrs))
