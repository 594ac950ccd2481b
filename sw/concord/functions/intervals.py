"""Interval arithmetic in float64: bounds on real results that hold on every platform.

An operation returns an interval that contains every real result for operands in the given intervals. Only additions,
products, quotients and square roots are used, which IEEE 754 rounds correctly, and each bound is moved outwards by one
unit in the last place (:func:`numpy.nextafter`); the functions below add an error bound that is derived where they are
defined. The accuracy of the platform's libm never matters: the one logarithm taken from it is a guess that is verified.

What cannot be bounded (a division by an interval around zero, the logarithm of a negative number) is the whole line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from concord.utils.arrays import FloatArray

#: Relative error bounds of the functions, generous multiples of what is derived beside them.
_EXP_ERROR = 2.0**-45
_ERF_ERROR = 2.0**-42

_EXP_RANGE = (-708.0, 709.0)
_EXP_TERMS = 14
#: ln(2) in two parts: the first has 32 significant bits, so that its products with |k| < 2**11 are exact.
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_ERF_RANGE = 6.0
#: Below, products may be subnormal, and relative errors large.
_ERF_TINY = 1e-300
_ERF_TERMS = 110


def _below(x: FloatArray) -> FloatArray:
    return np.nextafter(x, -np.inf)


def _above(x: FloatArray) -> FloatArray:
    return np.nextafter(x, np.inf)


@dataclass(frozen=True, eq=False)
class Interval:
    """Closed intervals, elementwise; the operators ``+ - * /`` take intervals.

    Parameters
    ----------
    low, high : float64 arrays of one shape
        Ends. Where one is NaN the interval is the whole line.
    """

    low: FloatArray
    high: FloatArray

    def __post_init__(self) -> None:
        unknown = np.isnan(self.low) | np.isnan(self.high)
        object.__setattr__(self, "low", np.where(unknown, -np.inf, self.low))
        object.__setattr__(self, "high", np.where(unknown, np.inf, self.high))

    def __add__(self, other: Interval) -> Interval:
        with np.errstate(all="ignore"):
            return Interval(_below(self.low + other.low), _above(self.high + other.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        with np.errstate(all="ignore"):
            products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
            return _hull(products)

    def __truediv__(self, other: Interval) -> Interval:
        with np.errstate(all="ignore"):
            around_zero = (other.low <= 0) & (other.high >= 0)
            quotients = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
            return _hull([np.where(around_zero, np.nan, quotient) for quotient in quotients])


def _hull(values: list[FloatArray]) -> Interval:
    low, high = values[0], values[0]
    for value in values[1:]:
        low, high = np.minimum(low, value), np.maximum(high, value)
    return Interval(_below(low), _above(high))


def exact(values: FloatArray) -> Interval:
    """Intervals of one point each."""
    return Interval(values, values)


def constant(value: float | Fraction) -> Interval:
    """The narrowest interval of float64 numbers around a rational number."""
    wanted = Fraction(value)
    try:
        nearest = float(wanted)
    except OverflowError:
        nearest = math.inf if wanted > 0 else -math.inf
    low = high = np.float64(nearest)
    if math.isinf(nearest) or Fraction(nearest) != wanted:
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return Interval(np.asarray(low), np.asarray(high))


def _exp_of(x: FloatArray) -> FloatArray:
    """``exp(x)`` for x in ``_EXP_RANGE``, relative error below 2**-50.

    ``x = k ln(2) + r`` with ``|r| < 0.35``: the product with the first part of ln(2) is exact, the two subtractions
    err by at most 2**-55 each, the product with the second part and that part itself by less than 2**-70. The
    polynomial of degree 14 is short of exp(r) by less than 2**-62, and Horner's scheme errs by less than 2**-51 of the
    result, which is above 0.7. The power of two is exact.
    """
    k = np.rint(x * (1 / (_LN2_HIGH + _LN2_LOW)))
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    total = np.ones_like(r)
    for n in range(_EXP_TERMS, 0, -1):
        total = 1 + total * r / n
    return np.asarray(np.ldexp(total, k.astype(np.intc)))


def exp(x: Interval) -> Interval:
    """Exponential function; beyond the range of float64, [0, smallest] or [greatest, inf]."""
    bottom, top = _EXP_RANGE
    low = _exp_of(np.clip(x.low, bottom, top)) * (1 - _EXP_ERROR)
    high = _exp_of(np.clip(x.high, bottom, top)) * (1 + _EXP_ERROR)
    return Interval(np.where(x.low < bottom, 0.0, low), np.where(x.high > top, np.inf, high))


def log(x: Interval) -> Interval:
    """Natural logarithm.

    ``y`` is any guess at ``log(x)``, and ``d = x exp(-y) - 1`` tells its error: ``d - d**2 <= log(1 + d) <= d`` holds
    for ``|d| <= 1/2``.
    """

    def around(end: FloatArray) -> Interval:
        with np.errstate(all="ignore"):
            guess = np.log(end)
            d = exact(end) * exp(exact(-guess)) - constant(1)
            upper = exact(guess) + d
            bad = ~((np.abs(d.low) <= 0.5) & (np.abs(d.high) <= 0.5))
            return Interval(np.where(bad, np.nan, (upper - d * d).low), np.where(bad, np.nan, upper.high))

    return Interval(around(x.low).low, around(x.high).high)


def sqrt(x: Interval) -> Interval:
    """Square root; of ``max(x, 0)``."""
    low, high = np.sqrt(np.maximum(x.low, 0)), np.sqrt(np.maximum(x.high, 0))
    return Interval(np.maximum(_below(low), 0), _above(high))


PI = Interval(np.asarray(math.pi), np.asarray(np.nextafter(math.pi, 4)))  # float64 rounds pi down


def _erf_of(x: FloatArray) -> FloatArray:
    """``erf(x)`` for ``1e-300 <= x <= 6``, relative error below 2**-43.

    ``2/sqrt(pi) * exp(-x*x) * sum of 2**n x**(2n+1) / (2n+1)!!``: all terms are positive, so the errors of 3 operations
    per term and of as many additions make less than 440 half units in the last place, below 2**-44; the product x*x
    errs by 36 * 2**-53 at most, which counts relatively in the exponential; the rest of the series is below 2**-70.
    """
    square = x * x
    total, term = np.zeros_like(x), x
    for n in range(1, _ERF_TERMS):
        total = total + term
        term = term * (2 * square) / (2 * n + 1)
    return np.asarray(total * _exp_of(-square) * (2 / math.sqrt(math.pi)))


def erf(x: Interval) -> Interval:
    """Error function; beyond 6 it differs from +-1 by less than 2**-55, and up to 1e-300 it is below 2e-300."""

    def bound(end: FloatArray, outwards: float) -> FloatArray:
        """An upper (``outwards=1``) or lower (-1) bound of one end."""
        size = np.abs(end)
        away = np.where(end < 0, -outwards, outwards)
        near = np.minimum(_erf_of(np.clip(size, _ERF_TINY, _ERF_RANGE)) * (1 + away * _ERF_ERROR), 1.0)
        near = np.where(size > _ERF_RANGE, np.where(away > 0, 1.0, 1 - 2.0**-53), near)
        near = np.where(size < _ERF_TINY, np.where(away > 0, 2 * _ERF_TINY, 0.0), near)
        return np.where(end < 0, -near, near)

    return Interval(bound(x.low, -1), bound(x.high, 1))


def clip(x: Interval, low: float, high: float) -> Interval:
    """``min(max(x, low), high)`` for bounds that are float64 numbers or infinite."""
    return Interval(np.clip(x.low, low, high), np.clip(x.high, low, high))


def choose(x: Interval, negative: Interval, other: Interval) -> Interval:
    """``negative`` where ``x < 0``, else ``other``; both where x may be either."""
    only_negative, only_other = x.high < 0, x.low >= 0
    low = np.where(only_negative, negative.low, np.where(only_other, other.low, np.minimum(negative.low, other.low)))
    high = np.where(
        only_negative, negative.high, np.where(only_other, other.high, np.maximum(negative.high, other.high))
    )
    return Interval(low, high)
