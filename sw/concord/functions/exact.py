"""Transfer functions for tables, evaluated in exact or 50-digit decimal arithmetic: the platform's libm plays no part.

A function maps an exact input to a number that is either exact (:class:`fractions.Fraction`) or has at least 45 correct
digits (:class:`decimal.Decimal`), or to ``inf``. Parameters follow ONNX and its defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

Number = Fraction | Decimal | float
Function = Callable[[Fraction], Number]

DIGITS = 60
_ONE = Decimal(1)
_EXP_LIMIT = Decimal(1000)


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / x.denominator


def _precise(function: Callable[[Decimal], Decimal]) -> Function:
    """Evaluate with a fixed context, whatever the caller's is."""

    def evaluate(x: Fraction) -> Number:
        with localcontext(Context(prec=DIGITS)):
            return function(_decimal(x))

    return evaluate


@lru_cache(maxsize=1)
def _pi() -> Decimal:
    """Machin's formula."""

    def arctan_inverse(n: int) -> Decimal:
        total, term, k = Decimal(0), _ONE / n, 1
        while abs(term) > Decimal(10) ** -(DIGITS + 5):
            total += term / k if k % 4 == 1 else -term / k
            term, k = term / (n * n), k + 2
        return total

    with localcontext(Context(prec=DIGITS + 10)):
        return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def _exp(x: Decimal) -> Decimal:
    """exp, with inputs limited to +-1000: far beyond binary16 on both sides, and of bounded cost."""
    return min(max(x, -_EXP_LIMIT), _EXP_LIMIT).exp()


def _sigmoid(x: Decimal) -> Decimal:
    return _ONE / (_ONE + _exp(-x))


def _tanh(x: Decimal) -> Decimal:
    """Through exp(2x) - 1; for tiny x through the first terms of the series, where that difference would cancel."""
    if abs(x) < Decimal("1e-9"):
        return x - x**3 / 3 + 2 * x**5 / 15
    t = _exp(2 * x)
    return (t - 1) / (t + 1)


def _erf(x: Decimal) -> Decimal:
    """``2/sqrt(pi) * exp(-x*x) * sum of 2**n x**(2n+1) / (2n+1)!!``: no cancellation, all terms have one sign."""
    if abs(x) > 12:
        return _ONE.copy_sign(x)
    total, term, n = Decimal(0), x, 0
    while abs(term) > abs(total) * Decimal(10) ** -DIGITS:
        total += term
        n += 1
        term = term * 2 * x * x / (2 * n + 1)
    return 2 * total * _exp(-x * x) / _pi().sqrt()


def _normal_cdf(x: Decimal) -> Decimal:
    return (_ONE + _erf(x / Decimal(2).sqrt())) / 2


def _softplus(x: Decimal) -> Decimal:
    return (_ONE + _exp(x)).ln() if x < 60 else x


def _gelu_tanh_gate(x: Decimal) -> Decimal:
    return (_ONE + _tanh((2 / _pi()).sqrt() * (x + Decimal("0.044715") * x**3))) / 2


def _ratio(function: Callable[[Decimal], Decimal], slope: Callable[[], Decimal]) -> Function:
    """A function divided by x, and its slope where x is zero."""
    return _precise(lambda x: function(x) / x if x else +slope())


def _where_positive(function: Callable[[Decimal], Decimal], pole: float) -> Function:
    """Zero and negative inputs, where the function has a pole or is undefined, give the value of the pole."""
    precise = _precise(function)
    return lambda x: precise(x) if x > 0 else pole


def _exact(value: float | Fraction) -> Fraction:
    return Fraction(value)


def leaky_relu(alpha: float = 0.01) -> Function:
    """``x`` where positive, else ``alpha * x``."""
    slope = _exact(alpha)
    return lambda x: x if x >= 0 else slope * x


def elu(alpha: float = 1.0) -> Function:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    factor = _exact(alpha)
    curve = _precise(lambda x: _decimal(factor) * (_exp(x) - 1))
    return lambda x: x if x >= 0 else curve(x)


def celu(alpha: float = 1.0) -> Function:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
    factor = _exact(alpha)
    curve = _precise(lambda x: _decimal(factor) * (_exp(x / _decimal(factor)) - 1))
    return lambda x: x if x >= 0 else curve(x)


def celu_ratio(alpha: float = 1.0) -> Function:
    """:func:`celu` divided by ``x``."""
    curve = celu(alpha)
    whole = _precise(lambda x: _decimal(Fraction(curve(Fraction(x)))) / x)
    return lambda x: Fraction(1) if x >= 0 else whole(x)


def linear(slope: float = 1.0, offset: float = 0.0) -> Function:
    """``slope * x + offset``."""
    factor, term = _exact(slope), _exact(offset)
    return lambda x: factor * x + term


def hardsigmoid(alpha: float = 0.2, beta: float = 0.5) -> Function:
    """``clamp(alpha * x + beta, 0, 1)``."""
    slope, offset = _exact(alpha), _exact(beta)
    return lambda x: min(max(slope * x + offset, Fraction(0)), Fraction(1))


def hardswish() -> Function:
    """``x * clamp(x / 6 + 1/2, 0, 1)``."""
    return lambda x: x * min(max(x / 6 + Fraction(1, 2), Fraction(0)), Fraction(1))


def _reciprocal(x: Fraction) -> Number:
    return 1 / x if x else float("inf")


def _plain(function: Function) -> Callable[[], Function]:
    return lambda: function


#: Makers of functions by name; keyword arguments are the parameters of the ONNX operator.
FUNCTIONS: dict[str, Callable[..., Function]] = {
    "identity": _plain(lambda x: x),
    "relu": _plain(lambda x: max(x, Fraction(0))),
    "leaky_relu": leaky_relu,
    "elu": elu,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "reciprocal": _plain(_reciprocal),
    "sigmoid": _plain(_precise(_sigmoid)),
    "tanh": _plain(_precise(_tanh)),
    "exp": _plain(_precise(_exp)),
    "erf": _plain(_precise(_erf)),
    "gelu": _plain(_precise(lambda x: x * _normal_cdf(x))),
    "gelu_tanh": _plain(_precise(lambda x: x * _gelu_tanh_gate(x))),
    "normal_cdf": _plain(_precise(_normal_cdf)),
    "gelu_tanh_gate": _plain(_precise(_gelu_tanh_gate)),
    "tanh_ratio": _plain(_ratio(_tanh, lambda: _ONE)),
    "erf_ratio": _plain(_ratio(_erf, lambda: 2 / _pi().sqrt())),
    "celu": celu,
    "celu_ratio": celu_ratio,
    "linear": linear,
    "silu": _plain(_precise(lambda x: x * _sigmoid(x))),
    "softplus": _plain(_precise(_softplus)),
    "sqrt": _plain(_precise(lambda x: max(x, Decimal(0)).sqrt())),
    "rsqrt": _plain(_where_positive(lambda x: _ONE / x.sqrt(), float("inf"))),
    "log": _plain(_where_positive(Decimal.ln, float("-inf"))),
}


def function(name: str, **parameters: float) -> Function:
    """Return a function by name; ``ValueError`` lists the names, ``TypeError`` an unknown parameter."""
    if name not in FUNCTIONS:
        raise ValueError(f"function must be one of {sorted(FUNCTIONS)}, not {name!r}")
    return FUNCTIONS[name](**parameters)
