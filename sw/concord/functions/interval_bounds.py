"""Bounds in float64 on the functions of :mod:`concord.functions`: most entries of a table need no exact arithmetic.

Rounding to a code is monotone. Where both ends of an interval around the value round to the same code, that is the code
of the value; only the other entries (a tie, a pole, a value extremely near to the middle of two codes) are evaluated
exactly. An interval is a point only where exact evaluation is exact as well; else it is wider than 2**-53 of its
values, while exact evaluation errs by less than 10**-45 of them. So both ways give the same code always.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.functions.intervals import PI, Interval, choose, clip, constant, erf, exp, log, sqrt

Enclosure = Callable[[Interval], Interval]
Codes = NDArray[np.int64]

_ONE, _TWO, _HALF = constant(1), constant(2), constant(0.5)
_SQRT_TWO = sqrt(_TWO)
_GELU_FACTOR = sqrt(_TWO / PI)
#: From here on softplus is the identity, as in :mod:`concord.functions`.
_SOFTPLUS_LIMIT = 60


def _sigmoid(x: Interval) -> Interval:
    return clip(_ONE / (_ONE + exp(-x)), 0, 1)


def _tanh(x: Interval) -> Interval:
    """1 - 2 / (exp(2x) + 1): x occurs once, so that bounds stay tight where exp overflows."""
    return clip(_ONE - _TWO / (exp(_TWO * x) + _ONE), -1, 1)


def _softplus(x: Interval) -> Interval:
    curve, limit = log(_ONE + exp(x)), _SOFTPLUS_LIMIT
    above = np.nextafter(x.high, np.inf)
    return Interval(np.where(x.low >= limit, x.low, curve.low), np.where(x.high >= limit, above, curve.high))


def _normal_cdf(x: Interval) -> Interval:
    return (_ONE + erf(x / _SQRT_TWO)) * _HALF


def _gelu_tanh_gate(x: Interval) -> Interval:
    inner = _GELU_FACTOR * (x + constant(Fraction("0.044715")) * (x * x * x))
    return (_ONE + _tanh(inner)) * _HALF


def _positive(curve: Enclosure, pole: float) -> Enclosure:
    """The value of the pole at 0; anything where x is negative, as there is no such number, or may be zero."""

    def bounds(x: Interval) -> Interval:
        inside, zero = x.low > 0, (x.low == 0) & (x.high == 0)
        value = curve(Interval(np.where(inside, x.low, 1.0), np.where(inside, x.high, 1.0)))
        low = np.where(inside, value.low, np.where(zero, pole, -np.inf))
        return Interval(low, np.where(inside, value.high, np.where(zero, pole, np.inf)))

    return bounds


def _root(x: Interval) -> Interval:
    """Anything where x is negative, as there is no such number."""
    value = sqrt(x)
    return Interval(np.where(x.high < 0, -np.inf, value.low), np.where(x.high < 0, np.inf, value.high))


def _leaky_relu(alpha: float | Fraction = 0.01) -> Enclosure:
    return lambda x: choose(x, constant(alpha) * x, x)


def _elu(alpha: float | Fraction = 1.0) -> Enclosure:
    return lambda x: choose(x, constant(alpha) * (exp(x) - _ONE), x)


def _celu(alpha: float | Fraction = 1.0) -> Enclosure:
    return lambda x: choose(x, constant(alpha) * (exp(x / constant(alpha)) - _ONE), x)


def _celu_ratio(alpha: float | Fraction = 1.0) -> Enclosure:
    curve = _celu(alpha)
    return lambda x: choose(x, curve(x) / x, _ONE)


def _linear(slope: float | Fraction = 1.0, offset: float | Fraction = 0.0) -> Enclosure:
    return lambda x: constant(slope) * x + constant(offset)


def _hardsigmoid(alpha: float | Fraction = 0.2, beta: float | Fraction = 0.5) -> Enclosure:
    return lambda x: clip(constant(alpha) * x + constant(beta), 0, 1)


def _plain(curve: Enclosure) -> Callable[[], Enclosure]:
    return lambda: curve


#: Makers of bounds, with the names and parameters of :data:`concord.functions.FUNCTIONS`.
ENCLOSURES: dict[str, Callable[..., Enclosure]] = {
    "identity": _plain(lambda x: x),
    "relu": _plain(lambda x: clip(x, 0, np.inf)),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _plain(lambda x: x * clip(x / constant(6) + _HALF, 0, 1)),
    "reciprocal": _plain(lambda x: _ONE / x),
    "sigmoid": _plain(_sigmoid),
    "tanh": _plain(_tanh),
    "exp": _plain(exp),
    "erf": _plain(erf),
    "gelu": _plain(lambda x: x * _normal_cdf(x)),
    "gelu_tanh": _plain(lambda x: x * _gelu_tanh_gate(x)),
    "normal_cdf": _plain(_normal_cdf),
    "gelu_tanh_gate": _plain(_gelu_tanh_gate),
    "tanh_ratio": _plain(lambda x: _tanh(x) / x),
    "erf_ratio": _plain(lambda x: erf(x) / x),
    "celu": _celu,
    "celu_ratio": _celu_ratio,
    "linear": _linear,
    "silu": _plain(lambda x: x * _sigmoid(x)),
    "softplus": _plain(_softplus),
    "sqrt": _plain(_root),
    "rsqrt": _plain(_positive(lambda x: _ONE / sqrt(x), np.inf)),
    "log": _plain(_positive(log, -np.inf)),
}


def enclosure(name: str, **parameters: Any) -> Enclosure:
    """Bounds on the function that :func:`concord.functions.function` returns for the same arguments."""
    return ENCLOSURES[name](**parameters)


def settle(codes: Codes, others: Codes, evaluate: Callable[[int], int]) -> Codes:
    """Codes of values of which bounds are known.

    Parameters
    ----------
    codes, others : integer arrays ``[n]``
        Codes of the two ends of the bounds, rounded with a monotone function.
    evaluate : callable
        Code of the k-th value, evaluated exactly; called only where the two differ.
    """
    settled = codes.copy()
    for k in np.flatnonzero(codes != others):
        settled[k] = evaluate(int(k))
    return settled
