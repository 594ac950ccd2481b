"""Functions of one element as operations of the host, which have stated bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from concord.graph.host_operations import Action, OperationBuilder
from concord.utils.arrays import numbers_of

#: The polynomial of :func:`_erfc`, from the highest power down: Chebyshev polynomials up to degree 25, multiplied out.
_ERFC = numbers_of(
    """
    -3.75315827795962e-11 4.2514714447963895e-10 5.457157304704688e-10 -5.1739902140113095e-09
    -4.389284159986328e-09 3.8675334242222354e-08 2.4289762925488707e-08 -2.5866850716155884e-07
    -5.826281078800777e-08 1.751637648849062e-06 -9.72849582211122e-07 -1.1444146237700524e-05
    2.2383912036550678e-05 5.164909889268241e-05 -0.00029015397928986765 0.0002937136655913448 0.0017556258324217529
    -0.009746579558029276 0.0283622774215156 -0.05869339858963677 0.09230432116019834 -0.10880393014174886
    0.08227673849015102 0.0035854154854644293 -0.14024059858554702 1.2375126308378275
    """
)
#: The series of the error function divided by x, in powers of its square, from the highest one down.
_ERF = tuple(2.0 / math.sqrt(math.pi) * (-1.0) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(9, -1, -1))


def between(make: OperationBuilder, x: str, low: float, high: float) -> str:
    """Limited to two numbers."""
    return make.arithmetic(Action.MIN, make.arithmetic(Action.MAX, x, np.array(low)), np.array(high))


def negated(make: OperationBuilder, x: str) -> str:
    """Times -1."""
    return make.arithmetic(Action.MUL, x, np.array(-1.0))


def size_of(make: OperationBuilder, x: str) -> str:
    """The magnitude."""
    return make.arithmetic(Action.MAX, x, negated(make, x))


def one_more(make: OperationBuilder, x: str) -> str:
    """The sum with 1."""
    return make.arithmetic(Action.ADD, x, np.array(1.0))


def _linear(make: OperationBuilder, x: str, slope: float, offset: float) -> str:
    scaled = make.arithmetic(Action.MUL, np.array(float(slope)), x)
    return make.arithmetic(Action.ADD, scaled, np.array(float(offset)))


def _hard_sigmoid(make: OperationBuilder, x: str, alpha: float, beta: float) -> str:
    return between(make, _linear(make, x, alpha, beta), 0.0, 1.0)


def _softsign(make: OperationBuilder, x: str) -> str:
    return make.arithmetic(Action.DIV, x, one_more(make, size_of(make, x)))


def _falling_exp(make: OperationBuilder, x: str, slope: float) -> str:
    """The exponential function of ``-slope |x|``, which does not overflow."""
    return make.unary(Action.EXP, make.arithmetic(Action.MUL, size_of(make, x), np.array(-slope)))


def sigmoid(make: OperationBuilder, x: str) -> str:
    """1 / (1 + exp(-x)), of powers that do not overflow."""
    power = _falling_exp(make, x, 1.0)
    negative = make.arithmetic(Action.LESS, x, np.array(0.0))
    return make.arithmetic(Action.DIV, make.select(negative, power, np.array(1.0)), one_more(make, power))


def _tanh(make: OperationBuilder, x: str) -> str:
    power = _falling_exp(make, x, 2.0)
    size = make.arithmetic(Action.DIV, make.arithmetic(Action.SUB, np.array(1.0), power), one_more(make, power))
    return make.select(make.arithmetic(Action.LESS, x, np.array(0.0)), negated(make, size), size)


def _softplus(make: OperationBuilder, x: str) -> str:
    rest = make.unary(Action.LOG, one_more(make, _falling_exp(make, x, 1.0)))
    return make.arithmetic(Action.ADD, make.arithmetic(Action.MAX, x, np.array(0.0)), rest)


def _leaky_relu(make: OperationBuilder, x: str, alpha: float) -> str:
    negative = make.arithmetic(Action.LESS, x, np.array(0.0))
    return make.select(negative, make.arithmetic(Action.MUL, x, np.array(float(alpha))), x)


def _elu(make: OperationBuilder, x: str, alpha: float) -> str:
    negative = make.arithmetic(Action.LESS, x, np.array(0.0))
    power = make.arithmetic(Action.SUB, _falling_exp(make, x, 1.0), np.array(1.0))
    return make.select(negative, make.arithmetic(Action.MUL, power, np.array(float(alpha))), x)


def _celu(make: OperationBuilder, x: str, alpha: float) -> str:
    below = make.arithmetic(Action.MIN, x, np.array(0.0))
    power = make.unary(Action.EXP, make.arithmetic(Action.DIV, below, np.array(float(alpha))))
    curve = make.arithmetic(Action.MUL, make.arithmetic(Action.SUB, power, np.array(1.0)), np.array(float(alpha)))
    return make.arithmetic(Action.ADD, make.arithmetic(Action.MAX, x, np.array(0.0)), curve)


def _polynomial(make: OperationBuilder, x: str, coefficients: Sequence[float]) -> str:
    """Polynomial by Horner's rule; coefficients from the highest power down."""
    first, second, *others = coefficients
    y = make.arithmetic(Action.ADD, make.arithmetic(Action.MUL, x, np.array(first)), np.array(second))
    for coefficient in others:
        y = make.arithmetic(Action.ADD, make.arithmetic(Action.MUL, y, x), np.array(coefficient))
    return y


def _erfc(make: OperationBuilder, size: str) -> str:
    """1 less the error function of a number from 0 to 40: ``p(t) / (1 + 2 x) exp(-x^2)``, ``t = (x - c) / (x + c)``."""
    middle = np.array(3.75)
    t = make.arithmetic(
        Action.DIV, make.arithmetic(Action.SUB, size, middle), make.arithmetic(Action.ADD, size, middle)
    )
    scale = one_more(make, make.arithmetic(Action.ADD, size, size))
    power = make.unary(Action.EXP, negated(make, make.arithmetic(Action.MUL, size, size)))
    return make.arithmetic(Action.MUL, make.arithmetic(Action.DIV, _polynomial(make, t, _ERFC), scale), power)


def _limited_size(make: OperationBuilder, x: str) -> str:
    return make.arithmetic(Action.MIN, size_of(make, x), np.array(40.0))


def _erf(make: OperationBuilder, x: str) -> str:
    """Error function, by its series below 1/2."""
    size = _limited_size(make, x)
    far = make.arithmetic(Action.SUB, np.array(1.0), _erfc(make, size))
    near = make.arithmetic(Action.MUL, size, _polynomial(make, make.arithmetic(Action.MUL, size, size), _ERF))
    both = make.select(make.arithmetic(Action.LESS, size, np.array(0.5)), near, far)
    return make.select(make.arithmetic(Action.LESS, x, np.array(0.0)), negated(make, both), both)


def _normal_cdf(make: OperationBuilder, x: str) -> str:
    size = _limited_size(make, make.arithmetic(Action.MUL, x, np.array(math.sqrt(0.5))))
    below = make.arithmetic(Action.MUL, _erfc(make, size), np.array(0.5))
    above = make.arithmetic(Action.SUB, np.array(1.0), below)
    return make.select(make.arithmetic(Action.LESS, x, np.array(0.0)), below, above)


def _gelu_tanh_gate(make: OperationBuilder, x: str) -> str:
    cube = make.arithmetic(Action.MUL, make.arithmetic(Action.MUL, x, x), x)
    inner = make.arithmetic(Action.ADD, x, make.arithmetic(Action.MUL, cube, np.array(0.044715)))
    curve = _tanh(make, make.arithmetic(Action.MUL, inner, np.array(math.sqrt(2.0 / math.pi))))
    return make.arithmetic(Action.MUL, one_more(make, curve), np.array(0.5))


def _reciprocal_root(make: OperationBuilder, x: str) -> str:
    """Infinite for zero and below, as on the NPU."""
    positive = make.arithmetic(Action.LESS, np.array(0.0), x)
    root = make.unary(Action.ROOT, make.select(positive, x, np.array(1.0)))
    return make.select(positive, make.arithmetic(Action.DIV, np.array(1.0), root), np.array(np.inf))


def _root(make: OperationBuilder, x: str) -> str:
    """Square root; that of a negative number is 0, as on the NPU."""
    return make.unary(Action.ROOT, make.arithmetic(Action.MAX, x, np.array(0.0)))


#: Functions of :mod:`concord.functions` that are made of operations of the host.
HOST_FUNCTIONS: dict[str, Callable[..., str]] = {
    "identity": lambda make, x: x,
    "relu": lambda make, x: make.arithmetic(Action.MAX, x, np.array(0.0)),
    "linear": _linear,
    "hardsigmoid": _hard_sigmoid,
    "softsign": _softsign,
    "log": lambda make, x: make.unary(Action.LOG, x),
    "exp": lambda make, x: make.unary(Action.EXP, x),
    "leaky_relu": _leaky_relu,
    "hardswish": lambda make, x: make.arithmetic(Action.MUL, x, _hard_sigmoid(make, x, 1 / 6, 0.5)),
    "sigmoid": sigmoid,
    "silu": lambda make, x: make.arithmetic(Action.MUL, x, sigmoid(make, x)),
    "tanh": _tanh,
    "softplus": _softplus,
    "elu": _elu,
    "celu": _celu,
    "erf": _erf,
    "normal_cdf": _normal_cdf,
    "gelu": lambda make, x: make.arithmetic(Action.MUL, x, _normal_cdf(make, x)),
    "gelu_tanh_gate": _gelu_tanh_gate,
    "gelu_tanh": lambda make, x: make.arithmetic(Action.MUL, x, _gelu_tanh_gate(make, x)),
    "sqrt": _root,
    "rsqrt": _reciprocal_root,
    "reciprocal": lambda make, x: make.arithmetic(Action.DIV, np.array(1.0), x),
}
