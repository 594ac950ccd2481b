"""Operators between two layers: functions by name or given by the caller, composed one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from concord.functions import FUNCTIONS, ExactFunction, IntervalBounds, Number, function
from concord.functions.intervals import Interval, clip, constant
from concord.golden.codes import require_finite

Parameters = Mapping[str, float | Fraction]
#: A name, a name with parameters, or a function from the exact input to a number.
OperatorLike = str | tuple[str, Parameters] | ExactFunction


def _clip_bounds(low: Fraction, high: Fraction) -> IntervalBounds:
    """The bounds may lie between two float64 numbers."""
    bottom, top = constant(low), constant(high)
    return lambda x: Interval(
        clip(x, float(bottom.low), float(top.low)).low, clip(x, float(bottom.high), float(top.high)).high
    )


def _clip(min: float | Fraction, max: float | Fraction) -> tuple[ExactFunction, IntervalBounds]:
    low, high = Fraction(min), Fraction(max)
    if low > high:
        raise ValueError(f"min of clip must be at most max={max}, not {min}")
    return lambda x: sorted((low, x, high))[1], _clip_bounds(low, high)


def _multiply(by: float | Fraction) -> tuple[ExactFunction, IntervalBounds]:
    factor = Fraction(by)
    return lambda x: x * factor, lambda x: x * constant(factor)


def _add(to: float | Fraction) -> tuple[ExactFunction, IntervalBounds]:
    term = Fraction(to)
    return lambda x: x + term, lambda x: x + constant(term)


#: Operators with constants, beside the functions of :mod:`concord.functions`: makers of a function and its bounds.
CONSTANT_OPERATORS: dict[str, Callable[..., tuple[ExactFunction, IntervalBounds]]] = {
    "mul": _multiply,
    "add": _add,
    "clip": _clip,
}


@dataclass(frozen=True)
class PointwiseOperator:
    """One point-wise operator.

    Parameters
    ----------
    name : str
        Of :data:`concord.functions.FUNCTIONS` or :data:`CONSTANT_OPERATORS`, or a label of the caller's function.
    parameters : tuple of (str, Fraction)
        Of a function by name, sorted.
    custom : bool
        Whether it is the caller's function, and the name only its label.
    custom_function : callable, optional
        The caller's function; not compared, and None in a table that was read from a file.
    """

    name: str
    parameters: tuple[tuple[str, Fraction], ...] = ()
    custom: bool = False
    custom_function: ExactFunction | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, operator: OperatorLike) -> PointwiseOperator:
        """An operator from what :func:`transfer_table` takes."""
        if callable(operator):
            return cls(getattr(operator, "__name__", "custom"), custom=True, custom_function=operator)
        name, parameters = (operator, {}) if isinstance(operator, str) else operator
        for key, value in parameters.items():
            require_finite(f"{key} of {name}", value)
        by_name = cls(name, tuple(sorted((key, Fraction(value)) for key, value in parameters.items())))
        by_name.curve()
        return by_name

    def curve(self) -> ExactFunction:
        """The function; ``ValueError`` for an unknown name, ``TypeError`` for an unknown parameter."""
        if self.custom:
            if self.custom_function is None:
                raise ValueError(f"operator {self.name} must be given as a callable: it is not one by name")
            return self.custom_function
        arguments: dict[str, Any] = dict(self.parameters)
        if self.name in CONSTANT_OPERATORS:
            return CONSTANT_OPERATORS[self.name](**arguments)[0]
        if self.name not in FUNCTIONS:
            names = sorted([*FUNCTIONS, *CONSTANT_OPERATORS])
            raise ValueError(f"operator must be one of {names} or a callable, not {self.name!r}")
        return function(self.name).exact_with(**arguments)

    def bounds(self) -> IntervalBounds | None:
        """Bounds in float64, if the function is one by name."""
        if self.custom:
            return None
        if self.name in CONSTANT_OPERATORS:
            return CONSTANT_OPERATORS[self.name](**dict(self.parameters))[1]
        return function(self.name).bounds_with(**dict(self.parameters))

    @property
    def pole(self) -> bool:
        """True if the operator is a function by name that has a pole."""
        return not self.custom and self.name in FUNCTIONS and FUNCTIONS[self.name].pole


def _is_finite(value: Number) -> bool:
    """True if a number is no infinity; a decimal may be far beyond floats."""
    return value.is_finite() if isinstance(value, Decimal) else not isinstance(value, float) or math.isfinite(value)


class Composition:
    """Operators applied one after the other; none is the identity.

    Intermediate numbers pass on as they are: a fraction exactly, a decimal number with all its 60 digits.

    Parameters
    ----------
    operators : sequence of PointwiseOperator
        In the order of application.
    """

    def __init__(self, operators: Sequence[PointwiseOperator]):
        self.operators = tuple(operators)
        self._curves = [operator.curve() for operator in self.operators]

    def __call__(self, x: Fraction) -> Number:
        """The value; ``ValueError`` if it is not a number, or if an operator would be applied to an infinity."""
        value: Number = x
        for operator, curve in zip(self.operators, self._curves, strict=True):
            if not _is_finite(value):
                raise ValueError(f"{operator.name} must be given a finite number, not {value} (for the input {x})")
            value = curve(Fraction(value))
            if isinstance(value, float | Decimal) and math.isnan(value):
                raise ValueError(f"{operator.name} must give a number, not NaN (for the input {x})")
        return value

    def bounds_of(self, x: Interval) -> Interval | None:
        """Bounds on the values for inputs in the bounds ``x``; None if an operator is the caller's."""
        for operator in self.operators:
            bounds = operator.bounds()
            if bounds is None:
                return None
            x = bounds(x)
        return x
