"""Element-wise operators on two or more operands, any of which may be constant."""

from __future__ import annotations

from functools import partial

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.moving import broadcast_to
from concord.frontend.pointwise import apply, power_by_logarithm
from concord.utils.arrays import FloatArray

#: Every exponent more is a product; beyond this one 2**x is no binary16 number any more.
_LARGEST_POWER = 15


def binary(op: str, ctx: Context, node: OnnxNode) -> str:
    """Operands from left to right, two at a time."""
    y = node.input(0)
    if len(node.inputs) == 1:
        return ctx.tensor(y)
    constants = [name for name in node.inputs if ctx.is_constant(name)]
    if constants == node.inputs[: len(constants)] and len(constants) > 1:
        raise Refusal("has several constants in front", "export with constants folded")
    for name in node.inputs[1:]:
        y = two(op, ctx, node, y, name)
    return y


def two(op: str, ctx: Context, node: OnnxNode, a: str, b: str) -> str:
    """An operator of the graph on two operands, one of which may be constant."""
    if ctx.is_constant(a) or ctx.is_constant(b):
        name, constant = (b, a) if ctx.is_constant(a) else (a, b)
        values = ctx.floats(constant, "operand", lowest=op == "Add")
        reversed_ = {"reversed": True} if op == "Sub" and constant == a else {}
        return ctx.emit(node, op, [ctx.tensor(name)], constant=values, **reversed_)
    x, y = ctx.tensor(a), ctx.tensor(b)
    if x == y and op in ("Sub", "Max", "Min"):
        return ctx.emit(node, "Mul", [x], constant=np.zeros(())) if op == "Sub" else x
    return ctx.emit(node, op, [x, y])


def mean(ctx: Context, node: OnnxNode) -> str:
    """The sum, divided by the number of operands."""
    return ctx.emit(node, "Mul", [binary("Add", ctx, node)], constant=np.asarray(1.0 / len(node.inputs)))


def divide(ctx: Context, node: OnnxNode) -> str:
    """A product with the reciprocal."""
    a, b = node.input(0), node.input(1)
    if ctx.is_constant(b):
        divisor = ctx.floats(b, "divisor")
        if not divisor.all():
            raise Refusal(f"divisor '{b}' must not be zero")
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
    """A constant base, exponents that are products, which may differ from element to element, or functions."""
    if ctx.is_constant(node.input(0)):
        return _exponential(ctx, node)
    x = ctx.tensor(node.input(0))
    if not ctx.is_constant(node.input(1)):
        return power_by_logarithm(ctx, node, x, ctx.tensor(node.input(1)))
    exponents = ctx.floats(node.input(1), "exponent")
    functions = {-1.0: "reciprocal", -0.5: "rsqrt"}
    exponent = float(exponents.reshape(-1)[0])
    if (exponents == exponent).all() and exponent in functions:
        y = apply(ctx, node, x, functions[exponent])
    elif (exponents == exponent).all() and exponent % 1 and not 4 * exponent % 1 and abs(exponent) < _LARGEST_POWER:
        y = _fraction(ctx, node, x if exponent > 0 else apply(ctx, node, x, "reciprocal"), abs(exponent))
    elif (exponents == exponent).all() and -_LARGEST_POWER <= exponent < 0 and not exponent % 1:
        y = _product(ctx, node, apply(ctx, node, x, "reciprocal"), -exponents)
    elif (exponents == np.rint(exponents)).all() and 0 <= exponents.min() <= exponents.max() <= _LARGEST_POWER:
        y = _product(ctx, node, x, exponents)
    else:
        y = power_by_logarithm(ctx, node, x, exponents)
    return broadcast_to(ctx, node, y, exponents.shape)


def _exponential(ctx: Context, node: OnnxNode) -> str:
    """A constant to computed powers."""
    x, base = ctx.tensor(node.input(1)), ctx.floats(node.input(0), "base")
    if base.min() <= 0:
        raise Refusal(f"base must be positive, not {_few(base)}", "use Mul")
    return apply(ctx, node, ctx.emit(node, "Mul", [x], constant=np.log(base)), "exp")


def _fraction(ctx: Context, node: OnnxNode, x: str, exponent: float) -> str:
    """A power that is a multiple of a quarter: a whole one, times roots."""
    whole = int(exponent)
    factors = [_product(ctx, node, x, np.asarray(float(whole)))] if whole else []
    root = apply(ctx, node, x, "sqrt")
    if exponent % 1 >= 0.5:
        factors.append(root)
    if 4 * exponent % 2:
        factors.append(apply(ctx, node, root, "sqrt"))
    y, *others = factors
    for other in others:
        y = ctx.emit(node, "Mul", [y, other])
    return y


def _product(ctx: Context, node: OnnxNode, x: str, exponents: FloatArray) -> str:
    """Whole powers."""
    y = None
    for k in range(1, int(exponents.max()) + 1):
        factor = x
        if exponents.min() < k:  # x where it counts, else 1
            counts = (exponents >= k).astype(np.float64)
            factor = ctx.emit(node, "Mul", [x], constant=counts)
            factor = ctx.emit(node, "Add", [factor], constant=1 - counts)
        y = factor if y is None else ctx.emit(node, "Mul", [y, factor])
    if y is None:
        raise Refusal("exponent must not be zero for all elements", "use a constant")
    return y


def _few(values: FloatArray) -> str:
    """The first values, for a message."""
    text = ", ".join(f"{value:g}" for value in values.reshape(-1)[:4])
    return text if values.size == 1 else f"[{text}, ...]" if values.size > 4 else f"[{text}]"


def where(ctx: Context, node: OnnxNode) -> str:
    """A constant mask of zeros and ones chooses: each operand times its mask, added up.

    What is not chosen must be finite, as zero times infinity is no number; a flag says so.
    """
    mask = ctx.constant(node.input(0), "condition").astype(np.float64)
    parts, known = [], np.zeros(())
    for name, share in ((node.input(1), mask), (node.input(2), 1 - mask)):
        if ctx.is_constant(name):
            known = known + np.where(share != 0, ctx.floats(name, "operand", lowest=True), 0.0)
        else:
            parts.append(ctx.emit(node, "Mul", [ctx.tensor(name)], constant=share))
    y = parts[0] if len(parts) == 1 else ctx.emit(node, "Add", parts)
    return ctx.emit(node, "Add", [y], constant=known) if known.any() else broadcast_to(ctx, node, y, known.shape)


def triangle(ctx: Context, node: OnnxNode) -> str:
    """Zeros on one side of a diagonal: a product with a mask."""
    x = ctx.tensor(node.input(0))
    (diagonal,) = ctx.integers(node, 1, "k") or [0]
    ones = np.ones(ctx.shape(x)[-2:])
    mask = np.triu(ones, diagonal) if node.attrs.get("upper", 1) else np.tril(ones, diagonal)
    return ctx.emit(node, "Mul", [x], constant=mask)


HANDLERS: dict[str, Handler] = {
    "Trilu": triangle,
    **{op: partial(binary, op) for op in ("Add", "Sub", "Mul", "Max", "Min")},
    "Sum": partial(binary, "Add"),
    "Mean": mean,
    "Div": divide,
    "Pow": power,
}
