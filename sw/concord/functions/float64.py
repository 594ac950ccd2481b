"""The transfer functions of :mod:`concord.functions` in double precision, vectorised: the float reference.

Names, parameters and defaults are those of :data:`concord.functions.FUNCTIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from concord.golden.host_math import host_log

Floats = npt.NDArray[np.float64]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Floats) -> Floats:
    """``1 / (1 + exp(-x))``, without an overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def leaky_relu(x: Floats, alpha: float = 0.01) -> Floats:
    """``x`` where positive, else ``alpha * x``."""
    return np.where(x >= 0, x, alpha * x)


def elu(x: Floats, alpha: float = 1.0) -> Floats:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def celu(x: Floats, alpha: float = 1.0) -> Floats:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0.0) / alpha))


def _ratio(function: Callable[..., Floats], slope: float) -> Callable[..., Floats]:
    """A function divided by x, and its slope where x is zero."""

    def ratio(x: Floats, **parameters: float) -> Floats:
        return np.divide(function(x, **parameters), x, out=np.full_like(x, slope), where=x != 0)

    return ratio


def hardsigmoid(x: Floats, alpha: float = 0.2, beta: float = 0.5) -> Floats:
    """``clamp(alpha * x + beta, 0, 1)``."""
    return np.clip(alpha * x + beta, 0.0, 1.0)


def _normal_cdf(x: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + _erf(x / math.sqrt(2.0))))


def _gelu_tanh_gate(x: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))


def _where_positive(function: Callable[[Floats], Floats], pole: float) -> Callable[[Floats], Floats]:
    """Zero and negative inputs give the value of the pole."""
    return lambda x: np.where(x > 0, function(np.where(x > 0, x, 1.0)), pole)


def _reciprocal(x: Floats) -> Floats:
    """Zero of either sign gives +infinity."""
    return np.divide(1.0, x, out=np.full_like(x, np.inf), where=x != 0)


#: By the names of :data:`concord.functions.FUNCTIONS`: array in, array of the same shape out.
FLOAT_FUNCTIONS: dict[str, Callable[..., Floats]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": leaky_relu,
    "elu": elu,
    "hardsigmoid": hardsigmoid,
    "hardswish": lambda x: x * hardsigmoid(x, 1 / 6, 0.5),
    "reciprocal": _reciprocal,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "exp": np.exp,
    "erf": _erf,
    "gelu": lambda x: x * _normal_cdf(x),
    "gelu_tanh": lambda x: x * _gelu_tanh_gate(x),
    "normal_cdf": _normal_cdf,
    "gelu_tanh_gate": _gelu_tanh_gate,
    "tanh_ratio": _ratio(np.tanh, 1.0),
    "erf_ratio": _ratio(_erf, 2.0 / math.sqrt(math.pi)),
    "celu": celu,
    "celu_ratio": _ratio(celu, 1.0),
    "linear": lambda x, slope=1.0, offset=0.0: slope * x + offset,
    "silu": lambda x: x * sigmoid(x),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "sqrt": lambda x: np.sqrt(np.maximum(x, 0.0)),
    "rsqrt": _where_positive(lambda x: 1.0 / np.sqrt(x), np.inf),
    "log": lambda x: np.asarray(host_log(x)),
}


def evaluate(functions: Iterable[tuple[str, Mapping[str, float]]], x: Floats) -> Floats:
    """Apply functions one after the other, each a name with its parameters."""
    for name, parameters in functions:
        x = FLOAT_FUNCTIONS[name](x, **parameters)
    return x
