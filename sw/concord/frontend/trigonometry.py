"""Functions of angles and of hyperbolas, by polynomials, exponentials, roots and logarithms.

Polynomials need no table, and err by less than the steps of binary16 (Abramowitz and Stegun, 4.3.97, 4.4.46, 4.4.49).
An angle x is reduced by whole turns first: ``x - 6.25 k - k / 32 - 0.0019353 k`` with the whole number k next to
``x / 2 pi``. The first two products and differences are exact for up to 64 turns, so little more is lost than the last
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.pointwise import absolute_of, apply, times
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import numbers_of

#: Turns that are taken off exactly.
_MOST_TURNS = 64.0
#: Parts of a turn: products with up to 64 are exact in binary16 for all but the last.
_TURN = (6.25, 1 / 32, 2 * math.pi - 6.25 - 1 / 32)
#: Of ``sin(v pi / 2) / v`` in powers of ``v * v``, for v from -1 to 1.
_SINE = tuple(
    factor * (math.pi / 2) ** (2 * k + 1)
    for k, factor in enumerate((1.0, -0.1666666664, 0.0083333315, -0.0001984090, 0.0000027526, -0.0000000239))
)
#: Of ``acos(x) / sqrt(1 - x)`` in powers of x, from 0 to 1.
_ARC_COSINE = numbers_of(
    "1.5707963050 -0.2145988016 0.0889789874 -0.0501743046 0.0308918810 -0.0170881256 0.0066700901 -0.0012624911"
)
#: Of ``atan(x) / x`` in powers of ``x * x``, from 0 to 1.
_ARC_TANGENT = numbers_of(
    "1.0 -0.3333314528 0.1999355085 -0.1420889944 0.1065626393 -0.0752896400 0.0429096138 -0.0161657367 0.0028662257"
)
#: From here on the root of ``x * x + 1`` is x; squares of less do not overflow.
_LARGE = 250.0
#: Arc tangents of more are those of this number, but for 0.001.
_STEEP = 1024.0


def _plus(ctx: Context, node: OnnxNode, x: str, value: float) -> str:
    return ctx.emit(node, "Add", [x], constant=np.asarray(value))


def _less(ctx: Context, node: OnnxNode, value: float, x: str) -> str:
    """A number less a tensor."""
    return ctx.emit(node, "Sub", [x], constant=np.asarray(value), reversed=True)


def _polynomial(ctx: Context, node: OnnxNode, x: str, factors: Sequence[float]) -> str:
    y = times(ctx, node, x, factors[-1])
    for factor in factors[-2:0:-1]:
        y = ctx.emit(node, "Mul", [_plus(ctx, node, y, factor), x])
    return _plus(ctx, node, y, factors[0])


def _angle(ctx: Context, node: OnnxNode, x: str) -> str:
    """Angle from -pi to pi, or a tenth beyond: whole turns are counted in binary16.

    Of more turns than are taken off exactly the angle becomes infinite, which raises a flag: the next number of turns
    is 1/16 more, and the square of 65504 times that is beyond binary16.
    """
    turns = times(ctx, node, x, 1 / (2 * math.pi))
    limited = ctx.emit(node, "Clip", [turns], min=-_MOST_TURNS, max=_MOST_TURNS)
    whole = ctx.emit(node, "Round", [limited], limited=True)
    for part in _TURN:
        x = ctx.emit(node, "Sub", [x, times(ctx, node, whole, part)])
    beyond = times(ctx, node, ctx.emit(node, "Sub", [turns, limited]), BINARY16_MAX)
    return ctx.emit(node, "Add", [x, ctx.emit(node, "Mul", [beyond, beyond])])


def _wave(ctx: Context, node: OnnxNode, angle: str) -> str:
    """The sine of an angle from -pi / 2 to pi / 2."""
    share = ctx.emit(node, "Clip", [times(ctx, node, angle, 2 / math.pi)], min=-1.0, max=1.0)
    square = ctx.emit(node, "Mul", [share, share])
    return ctx.emit(node, "Mul", [_polynomial(ctx, node, square, _SINE), share])


def _sine(ctx: Context, node: OnnxNode, x: str) -> str:
    """The angle is folded: sin(x) = sin(pi - x)."""
    angle = _angle(ctx, node, x)
    low = ctx.emit(node, "Min", [angle, _less(ctx, node, math.pi, angle)])
    return _wave(ctx, node, ctx.emit(node, "Max", [low, _less(ctx, node, -math.pi, angle)]))


def _cosine(ctx: Context, node: OnnxNode, x: str) -> str:
    """cos(x) = sin(pi / 2 - |x|); the turn may be a little more than half of one."""
    angle = _less(ctx, node, math.pi / 2, absolute_of(ctx, node, _angle(ctx, node, x)))
    return _wave(ctx, node, ctx.emit(node, "Max", [angle, _less(ctx, node, -math.pi, angle)]))


def sine(ctx: Context, node: OnnxNode) -> str:
    """Sine."""
    return _sine(ctx, node, ctx.tensor(node.input(0)))


def cosine(ctx: Context, node: OnnxNode) -> str:
    """Cosine."""
    return _cosine(ctx, node, ctx.tensor(node.input(0)))


def tangent(ctx: Context, node: OnnxNode) -> str:
    """Sine by cosine."""
    x = ctx.tensor(node.input(0))
    inverse = apply(ctx, node, _cosine(ctx, node, x), "reciprocal")
    return ctx.emit(node, "Mul", [_sine(ctx, node, x), inverse])


def arc(cosine: bool, ctx: Context, node: OnnxNode) -> str:
    """``acos(|x|)`` by a root and a polynomial; the sign turns it around ``pi / 2``."""
    x = ctx.emit(node, "Clip", [ctx.tensor(node.input(0))], min=-1.0, max=1.0)
    size = absolute_of(ctx, node, x)
    root = apply(ctx, node, _less(ctx, node, 1.0, size), "sqrt")
    half_turn = ctx.emit(node, "Mul", [root, _polynomial(ctx, node, size, _ARC_COSINE)])
    sine_ = ctx.emit(node, "Mul", [_less(ctx, node, math.pi / 2, half_turn), ctx.emit(node, "Sign", [x])])
    return _less(ctx, node, math.pi / 2, sine_) if cosine else sine_


def arc_tangent(ctx: Context, node: OnnxNode) -> str:
    """Arc tangent, from that of x or of 1 / x, whichever is smaller."""
    x = ctx.tensor(node.input(0))
    size = absolute_of(ctx, node, x)
    inverse = apply(ctx, node, ctx.emit(node, "Clip", [size], min=1.0, max=_STEEP), "reciprocal")
    small = ctx.emit(node, "Clip", [ctx.emit(node, "Min", [size, inverse])], min=0.0, max=1.0)
    square = ctx.emit(node, "Mul", [small, small])
    angle = ctx.emit(node, "Mul", [_polynomial(ctx, node, square, _ARC_TANGENT), small])
    turned = ctx.emit(node, "Relu", [ctx.emit(node, "Sign", [_plus(ctx, node, size, -1.0)])])
    rest = ctx.emit(node, "Mul", [_plus(ctx, node, times(ctx, node, angle, -2.0), math.pi / 2), turned])
    return ctx.emit(node, "Mul", [ctx.emit(node, "Add", [angle, rest]), ctx.emit(node, "Sign", [x])])


def _hyperbolic_cosine(ctx: Context, node: OnnxNode, x: str) -> str:
    parts = [times(ctx, node, apply(ctx, node, times(ctx, node, x, sign), "exp"), 0.5) for sign in (1.0, -1.0)]
    return ctx.emit(node, "Add", parts)


def hyperbolic(sine_: bool, ctx: Context, node: OnnxNode) -> str:
    """The mean of two exponentials; times tanh, which is right for small x, too."""
    x = ctx.tensor(node.input(0))
    y = _hyperbolic_cosine(ctx, node, x)
    return ctx.emit(node, "Mul", [apply(ctx, node, x, "tanh"), y]) if sine_ else y


def _logarithm_of_sum(ctx: Context, node: OnnxNode, a: str, b: str) -> str:
    """``log(a + b)``, for sums beyond binary16, too."""
    mean = ctx.emit(node, "Add", [times(ctx, node, a, 0.5), times(ctx, node, b, 0.5)])
    return _plus(ctx, node, apply(ctx, node, mean, "log"), math.log(2))


def area_sine(ctx: Context, node: OnnxNode) -> str:
    """``log(|x| + sqrt(x * x + 1))`` with the sign of x."""
    x = ctx.tensor(node.input(0))
    size = absolute_of(ctx, node, x)
    limited = ctx.emit(node, "Clip", [size], min=-math.inf, max=_LARGE)
    square = _plus(ctx, node, ctx.emit(node, "Mul", [limited, limited]), 1.0)
    root = ctx.emit(node, "Add", [apply(ctx, node, square, "sqrt"), ctx.emit(node, "Sub", [size, limited])])
    return ctx.emit(node, "Mul", [_logarithm_of_sum(ctx, node, size, root), ctx.emit(node, "Sign", [x])])


def area_cosine(ctx: Context, node: OnnxNode) -> str:
    """``log(x + sqrt(x - 1) sqrt(x + 1))``; 0 for less than 1."""
    x = ctx.emit(node, "Clip", [ctx.tensor(node.input(0))], min=1.0, max=math.inf)
    roots = [apply(ctx, node, _plus(ctx, node, x, value), "sqrt") for value in (-1.0, 1.0)]
    return _logarithm_of_sum(ctx, node, x, ctx.emit(node, "Mul", roots))


def area_tangent(ctx: Context, node: OnnxNode) -> str:
    """Half of ``log(1 + x) - log(1 - x)``."""
    x = ctx.tensor(node.input(0))
    above, below = apply(ctx, node, _plus(ctx, node, x, 1.0), "log"), apply(ctx, node, _less(ctx, node, 1.0, x), "log")
    return times(ctx, node, ctx.emit(node, "Sub", [above, below]), 0.5)


HANDLERS: dict[str, Handler] = {
    "Sin": sine,
    "Cos": cosine,
    "Tan": tangent,
    "Asin": partial(arc, False),
    "Acos": partial(arc, True),
    "Atan": arc_tangent,
    "Sinh": partial(hyperbolic, True),
    "Cosh": partial(hyperbolic, False),
    "Asinh": area_sine,
    "Acosh": area_cosine,
    "Atanh": area_tangent,
}
