"""Functions of one element of ONNX between two pairs, as steps whose results are rounded to binary32.

Most are records of :mod:`concord.functions`, or operators with constants of :mod:`concord.transfer`; the others are
here. Where ONNX Runtime rounds in between, a function is as many steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from concord.frontend.errors import Refusal
from concord.functions import ExactFunction, Number, by_onnx_name, exact
from concord.functions import interval_bounds as bounds
from concord.functions.intervals import choose, constant, exp
from concord.integer.tables import FloatFunction, FunctionStep

#: From where on Mish is the identity in binary32.
_MISH_LIMIT = 60


_Attributes = Mapping[str, Any]


def _plain(name: str, function: ExactFunction) -> Callable[[_Attributes], list[FunctionStep]]:
    """A function without attributes, by its exact value."""
    return lambda attrs: [FloatFunction(name, function)]


def _sign(x: Fraction) -> Fraction:
    return Fraction((x > 0) - (x < 0))


def _mish(x: Decimal) -> Decimal:
    return x if x > _MISH_LIMIT else x * exact.tanh(exact.softplus(x))


def _number(attrs: _Attributes, name: str, default: float) -> Fraction:
    """An attribute, which is a number of binary32."""
    return Fraction(float(np.float32(attrs.get(name, default))))


def _selu(attrs: _Attributes) -> list[FunctionStep]:
    alpha = _number(attrs, "alpha", 1.67326319217681884765625)
    gamma = _number(attrs, "gamma", 1.05070102214813232421875)

    def below(x: Decimal) -> Decimal:
        size = Decimal((alpha * gamma).numerator) / (alpha * gamma).denominator
        return size * (exact.exp(x) - 1)

    value = exact.below_zero(below, above=lambda x: gamma * x)
    a, g = constant(alpha * gamma), constant(gamma)
    return [FloatFunction("selu", value, lambda x: choose(x, a * (exp(x) - bounds.ONE), g * x))]


def _thresholded(attrs: _Attributes) -> list[FunctionStep]:
    alpha = _number(attrs, "alpha", 1.0)
    return [FloatFunction("thresholded_relu", lambda x: x if x > alpha else Fraction(0))]


def _shrink(attrs: _Attributes) -> list[FunctionStep]:
    bias, end = _number(attrs, "bias", 0.0), _number(attrs, "lambd", 0.5)
    return [FloatFunction("shrink", lambda x: x + bias if x < -end else x - bias if x > end else Fraction(0))]


def _hard_sigmoid(attrs: _Attributes) -> list[FunctionStep]:
    alpha, beta = (float(_number(attrs, key, value)) for key, value in (("alpha", 0.2), ("beta", 0.5)))
    return [("mul", {"by": alpha}), ("add", {"to": beta}), ("clip", {"min": 0.0, "max": 1.0})]


def _gelu(attrs: _Attributes) -> list[FunctionStep]:
    return ["gelu_tanh" if attrs.get("approximate", "none") == "tanh" else "gelu"]


NEGATIVE = FloatFunction("neg", lambda x: -x)
_FUNCTIONS: dict[str, Callable[[_Attributes], list[FunctionStep]]] = {
    "Relu": lambda attrs: ["relu"],
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "Abs": _plain("abs", abs),
    "Neg": lambda attrs: [NEGATIVE],
    "Sign": _plain("sign", _sign),
    "Floor": _plain("floor", lambda x: Fraction(math.floor(x))),
    "Ceil": _plain("ceil", lambda x: Fraction(math.ceil(x))),
    "Round": _plain("round", lambda x: Fraction(round(x))),
    "Mish": lambda attrs: [FloatFunction("mish", exact.precise(_mish), lambda x: x * bounds.tanh(bounds.softplus(x)))],
    "Selu": _selu,
    "ThresholdedRelu": _thresholded,
    "Shrink": _shrink,
}
#: Operators that are functions of one element whatever their operands are.
FUNCTION_NAMES = (*_FUNCTIONS, *(name for name in by_onnx_name() if name not in _FUNCTIONS))


def steps_of(op: str, attrs: _Attributes) -> list[FunctionStep]:
    """The steps of an operator with attributes."""
    if op in _FUNCTIONS:
        return _FUNCTIONS[op](attrs)
    record = by_onnx_name()[op]
    return [(record.name, {key: float(attrs.get(key, value)) for key, value in record.parameters.items()})]


def power(exponent: float) -> FloatFunction:
    """Pow with a constant exponent; a cube is rounded twice, as in ONNX Runtime.

    The exact function raises ``ValueError`` for a negative number and an exponent that is not whole.
    """

    def cube(x: Fraction) -> Number:
        number = np.float32(float(x))
        with np.errstate(all="ignore"):
            value = float(number * number * number)
        return Fraction(value) if math.isfinite(value) else value

    def value(x: Fraction) -> Number:
        if not x:
            return Fraction(not exponent) if exponent >= 0 else math.inf
        if float(exponent).is_integer() and abs(exponent) <= 64:
            return x ** int(exponent)
        if x < 0 and not float(exponent).is_integer():
            raise ValueError(f"a power of {exponent:g} must be of numbers from 0 on, not of {float(x):g}")
        size = exact.precise(lambda number: abs(number) ** Decimal(exponent))(x)
        return -size if x < 0 and exponent % 2 else size

    return FloatFunction(f"power of {exponent:g}", cube if exponent == 3 else value)


def beside_constant(op: str, value: float, *, first: bool) -> list[FunctionStep]:
    """Add, Sub, Mul or Div of an element and one number; ``first`` if the number is the first operand.

    Raises
    ------
    Refusal
        For a quotient by 0.
    """
    number = Fraction(value)
    if op == "Add":
        return [("add", {"to": value})]
    if op == "Mul":
        return [("mul", {"by": value})]
    if op == "Sub":
        return [NEGATIVE, ("add", {"to": value})] if first else [("add", {"to": -value})]
    if first:
        return [FloatFunction(f"{value:g} over", lambda x: number / x if x else math.copysign(math.inf, value))]
    if not number:
        raise Refusal("second operand must not be 0", "remove it")
    return [FloatFunction(f"over {value:g}", lambda x: x / number, lambda x: x / constant(number))]
