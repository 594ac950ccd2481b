"""Bounds in float64 on functions: most entries of a table need no exact arithmetic.

Rounding to a code is monotone. Where both ends of an interval around the value round to the same code, that is the code
of the value; only the other entries (a tie, a pole, a value extremely near to the middle of two codes) are evaluated
exactly. An interval is a point only where exact evaluation is exact as well; else it is wider than 2**-53 of its
values, while exact evaluation errs by less than 10**-45 of them. So both ways give the same code always.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from concord.functions.exact import SOFTPLUS_LIMIT
from concord.functions.intervals import PI, Interval, choose, clip, constant, erf, exp, log, sqrt
from concord.utils.arrays import Ints

IntervalBounds = Callable[[Interval], Interval]

ONE, TWO, HALF = constant(1), constant(2), constant(0.5)
_SQRT_TWO = sqrt(TWO)
_GELU_FACTOR = sqrt(TWO / PI)


def magnitude(x: Interval) -> Interval:
    """``|x|``."""
    return choose(x, -x, x)


def sigmoid(x: Interval) -> Interval:
    """``1 / (1 + exp(-x))``."""
    return clip(ONE / (ONE + exp(-x)), 0, 1)


def tanh(x: Interval) -> Interval:
    """1 - 2 / (exp(2x) + 1): x occurs once, so that bounds stay tight where exp overflows."""
    return clip(ONE - TWO / (exp(TWO * x) + ONE), -1, 1)


def softplus(x: Interval) -> Interval:
    """``log(1 + exp(x))``; as the exact value, the identity from a limit on."""
    curve, limit = log(ONE + exp(x)), SOFTPLUS_LIMIT
    above = np.nextafter(x.high, np.inf)
    return Interval(np.where(x.low >= limit, x.low, curve.low), np.where(x.high >= limit, above, curve.high))


def normal_cdf(x: Interval) -> Interval:
    """The distribution function of normal numbers."""
    return (ONE + erf(x / _SQRT_TWO)) * HALF


def gelu_tanh_gate(x: Interval) -> Interval:
    """Bounds of the approximation of :func:`normal_cdf` in a Gelu."""
    inner = _GELU_FACTOR * (x + constant(Fraction("0.044715")) * (x * x * x))
    return (ONE + tanh(inner)) * HALF


def celu(x: Interval, alpha: Interval) -> Interval:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return choose(x, alpha * (exp(x / alpha) - ONE), x)


def where_positive(curve: IntervalBounds, pole: float) -> IntervalBounds:
    """The value of the pole at 0; anything where x is negative, as there is no such number, or may be zero."""

    def bounds(x: Interval) -> Interval:
        inside, zero = x.low > 0, (x.low == 0) & (x.high == 0)
        value = curve(Interval(np.where(inside, x.low, 1.0), np.where(inside, x.high, 1.0)))
        low = np.where(inside, value.low, np.where(zero, pole, -np.inf))
        return Interval(low, np.where(inside, value.high, np.where(zero, pole, np.inf)))

    return bounds


def root(x: Interval) -> Interval:
    """Square root; anything where x is negative, as there is no such number."""
    value = sqrt(x)
    return Interval(np.where(x.high < 0, -np.inf, value.low), np.where(x.high < 0, np.inf, value.high))


def resolve(codes: Ints, others: Ints, evaluate: Callable[[int], int]) -> Ints:
    """Resolve codes of values of which bounds are known.

    Parameters
    ----------
    codes, others : integer arrays ``[n]``
        Codes of the two ends of the bounds, rounded with a monotone function.
    evaluate : callable
        Code of the k-th value, evaluated exactly; called only where the two differ.
    """
    resolved = codes.copy()
    for k in np.flatnonzero(codes != others):
        resolved[k] = evaluate(int(k))
    return resolved
