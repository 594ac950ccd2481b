"""Exact values of functions, in fractions or in decimals of 60 digits: the platform's libm plays no part.

A function maps an exact input to a number that is either exact (:class:`fractions.Fraction`) or has at least 45 correct
digits (:class:`decimal.Decimal`), or to ``inf``. Functions of decimals become such functions through :func:`precise`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

Number = Fraction | Decimal | float
ExactFunction = Callable[[Fraction], Number]

DIGITS = 60
#: From here on softplus is the identity.
SOFTPLUS_LIMIT = 60
_ONE = Decimal(1)
_EXP_LIMIT = Decimal(1000)


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / x.denominator


def precise(function: Callable[..., Decimal]) -> Callable[..., Number]:
    """A function of fractions from one of decimals: 60 digits, whatever the caller's context is."""

    def evaluate(x: Fraction, **parameters: Fraction) -> Number:
        with localcontext(Context(prec=DIGITS)):
            return function(_decimal(x), **{name: _decimal(value) for name, value in parameters.items()})

    return evaluate


def where_positive(function: Callable[..., Decimal], pole: float) -> Callable[..., Number]:
    """Function as of :func:`precise`; zero and negative inputs, where it has a pole or is undefined, give ``pole``."""
    inside = precise(function)
    return lambda x, **parameters: inside(x, **parameters) if x > 0 else pole


def below_zero(
    function: Callable[..., Decimal], above: Callable[[Fraction], Fraction] = lambda x: x
) -> Callable[..., Number]:
    """Function as :func:`precise` makes it for negative inputs; for the others ``above``, which is exact."""
    negative = precise(function)
    return lambda x, **parameters: above(x) if x >= 0 else negative(x, **parameters)


def ratio(function: Callable[..., Decimal], slope: Callable[[], Decimal]) -> Callable[..., Number]:
    """A function of decimals divided by x, and its slope where x is zero."""
    return precise(lambda x, **parameters: function(x, **parameters) / x if x else +slope())


@lru_cache(maxsize=1)
def pi() -> Decimal:
    """Pi with 70 digits, by Machin's formula."""

    def arctan_inverse(n: int) -> Decimal:
        total, term, k = Decimal(0), _ONE / n, 1
        while abs(term) > Decimal(10) ** -(DIGITS + 5):
            total += term / k if k % 4 == 1 else -term / k
            term, k = term / (n * n), k + 2
        return total

    with localcontext(Context(prec=DIGITS + 10)):
        return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def exp(x: Decimal) -> Decimal:
    """exp, with inputs limited to +-1000: far beyond binary16 on both sides, and of bounded cost."""
    return min(max(x, -_EXP_LIMIT), _EXP_LIMIT).exp()


def sigmoid(x: Decimal) -> Decimal:
    """``1 / (1 + exp(-x))``."""
    return _ONE / (_ONE + exp(-x))


def tanh(x: Decimal) -> Decimal:
    """Through exp(2x) - 1; for tiny x through the first terms of the series, where that difference would cancel."""
    if abs(x) < Decimal("1e-9"):
        return x - x**3 / 3 + 2 * x**5 / 15
    t = exp(2 * x)
    return (t - 1) / (t + 1)


def erf(x: Decimal) -> Decimal:
    """``2/sqrt(pi) * exp(-x*x) * sum of 2**n x**(2n+1) / (2n+1)!!``: no cancellation, all terms have one sign."""
    if abs(x) > 12:
        return _ONE.copy_sign(x)
    total, term, n = Decimal(0), x, 0
    while abs(term) > abs(total) * Decimal(10) ** -DIGITS:
        total += term
        n += 1
        term = term * 2 * x * x / (2 * n + 1)
    return 2 * total * exp(-x * x) / pi().sqrt()


def normal_cdf(x: Decimal) -> Decimal:
    """The distribution function of normal numbers."""
    return (_ONE + erf(x / Decimal(2).sqrt())) / 2


def softplus(x: Decimal) -> Decimal:
    """``log(1 + exp(x))``."""
    return (_ONE + exp(x)).ln() if x < SOFTPLUS_LIMIT else x


def gelu_tanh_gate(x: Decimal) -> Decimal:
    """Approximation of :func:`normal_cdf` in a Gelu."""
    return (_ONE + tanh((2 / pi()).sqrt() * (x + Decimal("0.044715") * x**3))) / 2


def celu(x: Decimal, alpha: Decimal) -> Decimal:
    """``alpha * (exp(x / alpha) - 1)``, the part of Celu below zero."""
    return alpha * (exp(x / alpha) - 1)


def clamp(x: Fraction, low: int, high: int) -> Fraction:
    """``x``, but not below ``low`` and not above ``high``."""
    return min(max(x, Fraction(low)), Fraction(high))
