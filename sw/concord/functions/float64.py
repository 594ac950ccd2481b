"""Values of functions in double precision, for arrays: the reference in floating point."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from concord.utils.arrays import FloatArray

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: FloatArray) -> FloatArray:
    """``1 / (1 + exp(-x))``, without an overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def celu(x: FloatArray, alpha: float) -> FloatArray:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0.0) / alpha))


def hardsigmoid(x: FloatArray, alpha: float, beta: float) -> FloatArray:
    """``clamp(alpha * x + beta, 0, 1)``."""
    return np.clip(alpha * x + beta, 0.0, 1.0)


def normal_cdf(x: FloatArray) -> FloatArray:
    """The distribution function of normal numbers."""
    return np.asarray(0.5 * (1.0 + erf(x / math.sqrt(2.0))))


def gelu_tanh_gate(x: FloatArray) -> FloatArray:
    """Approximation of :func:`normal_cdf` in a Gelu."""
    return np.asarray(0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))


def reciprocal(x: FloatArray) -> FloatArray:
    """Zero of either sign gives +infinity."""
    return np.divide(1.0, x, out=np.full_like(x, np.inf), where=x != 0)


def ratio(function: Callable[..., FloatArray], slope: float) -> Callable[..., FloatArray]:
    """A function divided by x, and its slope where x is zero."""

    def divided(x: FloatArray, **parameters: float) -> FloatArray:
        return np.divide(function(x, **parameters), x, out=np.full_like(x, slope), where=x != 0)

    return divided


def where_positive(function: Callable[[FloatArray], FloatArray], pole: float) -> Callable[[FloatArray], FloatArray]:
    """Zero and negative inputs give the value of the pole."""
    return lambda x: np.where(x > 0, function(np.where(x > 0, x, 1.0)), pole)
