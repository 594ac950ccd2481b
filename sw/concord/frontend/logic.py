"""Whole numbers, signs, comparisons and truth values: truth is 1 and its opposite 0, in the floats of the NPU.

A difference of two binary16 numbers is zero only where they are equal, and its sign is right, so comparisons are exact.
Inputs are no such numbers before the NPU reads them: a Compare compares them, which the host computes if it may.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from concord.frontend import arithmetic, moving
from concord.frontend.arithmetic import two
from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.load import FLOAT_TYPES
from concord.frontend.moving import broadcast_to
from concord.frontend.pointwise import opposite
from concord.graph.ops import OperatorKind, operator_of
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Types of which binary16 holds all numbers, and of which the range is known well enough for tables.
BYTE_TYPES = ("bool", "int8", "uint8")

#: ``BOOL`` of ``onnx.TensorProto``.
_BOOL = 9
#: Divisors by which quotients in binary16 are exact.
_DIVISORS = (1, 1 << 15)


def rounded(ctx: Context, node: OnnxNode) -> str:
    """The nearest whole number, the even one in the middle."""
    return ctx.emit(node, "Round", [ctx.tensor(node.input(0))])


def sign(ctx: Context, node: OnnxNode) -> str:
    """-1, 0 or 1."""
    return _sign(ctx, node, ctx.tensor(node.input(0)))


def whole_below(ctx: Context, node: OnnxNode, x: str) -> str:
    """The nearest whole number, less 1 where it is greater."""
    nearest = ctx.emit(node, "Round", [x])
    return ctx.emit(node, "Sub", [nearest, _is_positive(ctx, node, ctx.emit(node, "Sub", [nearest, x]))])


def whole_above(ctx: Context, node: OnnxNode, x: str) -> str:
    """The nearest whole number, and 1 more where it is less."""
    nearest = ctx.emit(node, "Round", [x])
    return ctx.emit(node, "Add", [nearest, _is_positive(ctx, node, ctx.emit(node, "Sub", [x, nearest]))])


def towards_zero(ctx: Context, node: OnnxNode, x: str) -> str:
    """The sum of both halves, one of which is zero."""
    below = ctx.emit(node, "Clip", [x], min=-np.inf, max=0.0)
    return ctx.emit(node, "Add", [whole_below(ctx, node, ctx.emit(node, "Relu", [x])), whole_above(ctx, node, below)])


def floor(ctx: Context, node: OnnxNode) -> str:
    """The greatest whole number that is not greater."""
    return whole_below(ctx, node, ctx.tensor(node.input(0)))


def ceil(ctx: Context, node: OnnxNode) -> str:
    """The least whole number that is not less."""
    return whole_above(ctx, node, ctx.tensor(node.input(0)))


def modulo(ctx: Context, node: OnnxNode) -> str:
    """Remainder of x without the whole part of a quotient, which must be exact; without ``fmod`` rounded down."""
    x, divisor = ctx.tensor(node.input(0)), ctx.floats(node.input(1), "divisor")
    mantissas, _ = np.frexp(np.abs(divisor))
    if (mantissas != 0.5).any() or np.abs(divisor).min() < _DIVISORS[0] or np.abs(divisor).max() > _DIVISORS[1]:
        low, high = _DIVISORS
        raise Refusal(
            f"divisor must be a power of two from {low} to {high}: binary16 rounds other quotients, at times past "
            "a whole number",
            "compute it outside the model",
        )
    whole = towards_zero if node.attrs.get("fmod", 0) else whole_below
    quotient = whole(ctx, node, ctx.emit(node, "Mul", [x], constant=1 / divisor))
    return ctx.emit(node, "Sub", [x, ctx.emit(node, "Mul", [quotient], constant=divisor)])


def _is_positive(ctx: Context, node: OnnxNode, x: str) -> str:
    return ctx.emit(node, "Relu", [ctx.emit(node, "Sign", [x])])


def _is_rounded_first(ctx: Context, names: Sequence[str], values: FloatArray) -> bool:
    """True if the NPU would round operands that nothing has computed but the host: elements of inputs, or of tables."""
    producers = {name: node for node in ctx.graph.nodes for name in node.outputs}
    waiting, seen = [*names], set[str]()
    held = bool((values == np.clip(values, -BINARY16_MAX, BINARY16_MAX).astype(np.float16)).all())
    while waiting:
        name = waiting.pop()
        node = producers.get(name)
        if node is None:
            held &= ctx.element_types.get(name) in BYTE_TYPES
        elif not operator_of(node).view:
            held = False
            if operator_of(node).kind is not OperatorKind.HOST and ctx.whole.isdisjoint(node.outputs):
                return False
        if node is not None and name not in seen:
            waiting += [operand for operand in node.inputs if operand]
        seen.add(name)
    return not held


def sign_beside(ctx: Context, node: OnnxNode, x: str, values: FloatArray, *, first: bool = False) -> str:
    """The sign of the difference of a tensor and a constant; with ``first`` the constant is the first operand."""
    reversed_ = {"reversed": True} if first else {}
    if _is_rounded_first(ctx, [x], values):
        return ctx.emit(node, "Compare", [x], constant=values, **reversed_)
    kept = np.clip(values, -BINARY16_MAX, BINARY16_MAX)  # what is beyond binary16 is beyond all of its numbers
    return ctx.emit(node, "Sign", [ctx.emit(node, "Sub", [x], constant=kept, **reversed_)])


def _sign(ctx: Context, node: OnnxNode, x: str) -> str:
    zero = np.zeros(())
    if _is_rounded_first(ctx, [x], zero):
        return ctx.emit(node, "Compare", [x], constant=zero)
    return ctx.emit(node, "Sign", [x])


def _difference(ctx: Context, node: OnnxNode, a: str, b: str) -> str:
    """The sign of a - b."""
    if ctx.is_constant(a) or ctx.is_constant(b):
        name, constant = (b, a) if ctx.is_constant(a) else (a, b)
        values = ctx.constant(constant, "operand").astype(np.float64)
        if np.isnan(values).any():
            raise Refusal(f"operand '{constant}' must be numbers, it has NaN")
        return sign_beside(ctx, node, ctx.tensor(name), values, first=constant == a)
    x, y = ctx.tensor(a), ctx.tensor(b)
    if _is_rounded_first(ctx, [x, y], np.zeros(())):
        return ctx.emit(node, "Compare", [x, y])
    return ctx.emit(node, "Sign", [two("Sub", ctx, node, a, b)])


def compared(first: int, negated: bool, ctx: Context, node: OnnxNode) -> str:
    """1 where operand ``first`` is greater than the other one, or the opposite of that."""
    a, b = node.input(first), node.input(1 - first)
    greater = ctx.emit(node, "Relu", [_difference(ctx, node, a, b)])
    return opposite(ctx, node, greater) if negated else greater


def equal(ctx: Context, node: OnnxNode) -> str:
    """1 less the square of the sign."""
    difference = _difference(ctx, node, node.input(0), node.input(1))
    return opposite(ctx, node, ctx.emit(node, "Mul", [difference, difference]))


def exclusive_or(ctx: Context, node: OnnxNode) -> str:
    """The square of the difference."""
    difference = two("Sub", ctx, node, node.input(0), node.input(1))
    return ctx.emit(node, "Mul", [difference, difference])


def negation(ctx: Context, node: OnnxNode) -> str:
    """1 less the truth."""
    return opposite(ctx, node, ctx.tensor(node.input(0)))


def cast(ctx: Context, node: OnnxNode) -> str:
    """Nothing, between types of floats and from truth to floats; whether numbers are not zero."""
    x, kind = node.input(0), node.attrs["to"]
    if kind == _BOOL and x not in ctx.truths:
        nonzero = _sign(ctx, node, ctx.tensor(x))
        return ctx.emit(node, "Mul", [nonzero, nonzero])
    if kind not in (*FLOAT_TYPES, _BOOL):
        raise Refusal("makes integers of computed values", "cast behind the model")
    return ctx.tensor(x)


def where(ctx: Context, node: OnnxNode) -> str:
    """A computed condition: each operand times its share, added up.

    What is not chosen must be finite, as zero times infinity is no number.
    """
    name = node.input(0)
    if ctx.is_constant(name):
        return arithmetic.where(ctx, node)
    if name not in ctx.truths:
        raise Refusal(f"condition must be constant or a comparison, not '{name}'", "compare in the model")
    share, parts = ctx.tensor(name), []
    for operand, part in ((node.input(1), share), (node.input(2), opposite(ctx, node, share))):
        if ctx.is_constant(operand):
            values = ctx.floats(operand, "operand", lowest=True)
            if values.any():
                parts.append(ctx.emit(node, "Mul", [part], constant=values))
        else:
            parts.append(ctx.emit(node, "Mul", [ctx.tensor(operand), part]))
    if not parts:
        parts = [ctx.emit(node, "Mul", [share], constant=np.zeros(()))]
    y = parts[0] if len(parts) == 1 else ctx.emit(node, "Add", parts)
    shapes = [ctx.operand_shape(part) for part in node.inputs]
    return broadcast_to(ctx, node, y, np.broadcast_shapes(*shapes))


#: Operators whose results are truth values.
COMPARISONS: dict[str, Handler] = {
    "Greater": partial(compared, 0, False),
    "Less": partial(compared, 1, False),
    "GreaterOrEqual": partial(compared, 1, True),
    "LessOrEqual": partial(compared, 0, True),
    "Equal": equal,
    "And": partial(arithmetic.binary, "Min"),
    "Or": partial(arithmetic.binary, "Max"),
    "Xor": exclusive_or,
    "Not": negation,
}
#: Operators whose results are truth values if the first operand is.
_MOVING = {*moving.HANDLERS, "Identity"}
HANDLERS: dict[str, Handler] = {
    **COMPARISONS,
    "Round": rounded,
    "Sign": sign,
    "Floor": floor,
    "Ceil": ceil,
    "Mod": modulo,
    "Cast": cast,
    "Where": where,
}


def note_truths(ctx: Context, node: OnnxNode) -> None:
    """Remember results that are truth values."""
    if (
        node.op in COMPARISONS
        or (node.op == "Cast" and node.attrs["to"] == _BOOL)
        or (node.op in _MOVING and any(name in ctx.truths for name in node.inputs))
    ):
        ctx.truths.update(node.outputs)
