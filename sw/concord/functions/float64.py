"""Values of functions in double precision, for arrays: the reference in floating point."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Floats) -> Floats:
    """``1 / (1 + exp(-x))``, without an overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def celu(x: Floats, alpha: float) -> Floats:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0.0) / alpha))


def hardsigmoid(x: Floats, alpha: float, beta: float) -> Floats:
    """``clamp(alpha * x + beta, 0, 1)``."""
    return np.clip(alpha * x + beta, 0.0, 1.0)


def normal_cdf(x: Floats) -> Floats:
    """The distribution function of normal numbers."""
    return np.asarray(0.5 * (1.0 + erf(x / math.sqrt(2.0))))


def gelu_tanh_gate(x: Floats) -> Floats:
    """What :func:`normal_cdf` is approximated with in a Gelu."""
    return np.asarray(0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))


def reciprocal(x: Floats) -> Floats:
    """Zero of either sign gives +infinity."""
    return np.divide(1.0, x, out=np.full_like(x, np.inf), where=x != 0)


def ratio(function: Callable[..., Floats], slope: float) -> Callable[..., Floats]:
    """A function divided by x, and its slope where x is zero."""

    def divided(x: Floats, **parameters: float) -> Floats:
        return np.divide(function(x, **parameters), x, out=np.full_like(x, slope), where=x != 0)

    return divided


def where_positive(function: Callable[[Floats], Floats], pole: float) -> Callable[[Floats], Floats]:
    """Zero and negative inputs give the value of the pole."""
    return lambda x: np.where(x > 0, function(np.where(x > 0, x, 1.0)), pole)
