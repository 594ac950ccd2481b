"""Element-wise operators on two or more operands, any of which may be constant."""

from __future__ import annotations

from functools import partial

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.pointwise import apply


def binary(op: str, ctx: Context, node: OnnxNode) -> str:
    """Operands from left to right, two at a time."""
    y = node.input(0)
    if len(node.inputs) == 1:
        return ctx.tensor(y)
    constants = [name for name in node.inputs if ctx.is_constant(name)]
    if constants == node.inputs[: len(constants)] and len(constants) > 1:
        raise Refusal("has several constants in front", "export with constants folded")
    for name in node.inputs[1:]:
        y = _two(op, ctx, node, y, name)
    return y


def _two(op: str, ctx: Context, node: OnnxNode, a: str, b: str) -> str:
    if ctx.is_constant(b):
        return ctx.emit(node, op, [ctx.tensor(a)], constant=ctx.floats(b, "operand"))
    if ctx.is_constant(a):
        reversed_ = {"reversed": True} if op == "Sub" else {}
        return ctx.emit(node, op, [ctx.tensor(b)], constant=ctx.floats(a, "operand"), **reversed_)
    return ctx.emit(node, op, [ctx.tensor(a), ctx.tensor(b)])


def mean(ctx: Context, node: OnnxNode) -> str:
    """The sum, divided by the number of operands."""
    return ctx.emit(node, "Mul", [binary("Add", ctx, node)], constant=np.asarray(1.0 / len(node.inputs)))


def divide(ctx: Context, node: OnnxNode) -> str:
    """A product with the reciprocal."""
    a, b = node.input(0), node.input(1)
    if ctx.is_constant(b):
        divisor = ctx.floats(b, "divisor")
        if not divisor.all():
            raise Refusal(f"divisor '{b}' must not be zero", "correct the model")
        return ctx.emit(node, "Mul", [ctx.tensor(a)], constant=1.0 / divisor)
    inverse = apply(ctx, node, ctx.tensor(b), "reciprocal")
    if ctx.is_constant(a):
        numerator = ctx.floats(a, "numerator")
        return (
            inverse
            if numerator.shape == () and numerator == 1
            else ctx.emit(node, "Mul", [inverse], constant=numerator)
        )
    return ctx.emit(node, "Mul", [ctx.tensor(a), inverse])


def power(ctx: Context, node: OnnxNode) -> str:
    """Only exponents that are products or functions."""
    x, exponents = ctx.tensor(node.input(0)), ctx.floats(node.input(1), "exponent")
    exponent = float(exponents.reshape(-1)[0])
    functions = {0.5: "sqrt", -1.0: "reciprocal", -0.5: "rsqrt"}
    if exponents.size != 1 or exponent not in (1.0, 2.0, 3.0, *functions):
        raise Refusal(
            f"exponent must be one of -1, -0.5, 0.5, 1, 2, 3, not {exponents.tolist()}", "use Mul, Exp or Log"
        )
    if exponent in functions:
        return apply(ctx, node, x, functions[exponent])
    y = x
    for _ in range(int(exponent) - 1):
        y = ctx.emit(node, "Mul", [y, x])
    return y


HANDLERS: dict[str, Handler] = {
    **{op: partial(binary, op) for op in ("Add", "Sub", "Mul", "Max", "Min")},
    "Sum": partial(binary, "Add"),
    "Mean": mean,
    "Div": divide,
    "Pow": power,
}
