"""Tables as a quantised model means them: its numbers are binary32, so that every step between two codes is rounded.

A code is ``rne(f32(y / scale)) + zero_point``, of ``y = f32(f(x))`` for every function in a row, of
``x = f32((code - zero_point) * scale)``. Where scales are decimal fractions, roundings decide many codes: 1.5 times a
code may be in the middle between two codes here, and beside it in exact arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from concord.functions import ExactFunction, IntervalBounds, Number
from concord.functions.intervals import exact
from concord.transfer import Codes, TransferTable
from concord.transfer.operators import OperatorLike, PointwiseOperator

Float32s = NDArray[np.float32]
_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, eq=False)
class FloatFunction:
    """A function of one element that no other part of the project has.

    Parameters
    ----------
    name : str
        Label in tables.
    exact : callable
        The exact value, or one with 45 correct digits, at a ``Fraction``.
    interval : callable or None
        Bounds on it; without them each element is computed exactly.
    """

    name: str
    exact: ExactFunction
    interval: IntervalBounds | None = None

    def curve(self) -> ExactFunction:
        """The function."""
        return self.exact

    def bounds(self) -> IntervalBounds | None:
        """The bounds."""
        return self.interval


#: A step of a function.
FunctionStep = OperatorLike | FloatFunction


def code_table(source: Codes, functions: tuple[FunctionStep, ...], target: Codes) -> TransferTable:
    """The table of functions from codes to codes, each step rounded to binary32.

    Raises
    ------
    ValueError
        If a code is of a negative number, and a root or a power that is not whole is taken of it.
    """
    operators = [step_of(choice) for choice in functions]
    step = np.float32(target.scale)

    def quotients(numbers: Float32s) -> Float32s:
        for operator in operators:
            numbers = rounded_to_binary32(operator, numbers)
        with np.errstate(over="ignore"):
            return np.asarray(numbers / step)

    def one_number(x: Fraction) -> Fraction | float:
        """Number to which the exact quantisation gives the same code as the quotient."""
        quotient = float(quotients(np.asarray([float(x)], dtype=np.float32))[0])
        return Fraction(quotient) * target.scale if np.isfinite(quotient) else quotient

    codes = np.arange(source.low, source.high + 1)
    numbers = (codes - source.zero).astype(np.float32) * np.float32(source.scale)
    steps = np.rint(quotients(numbers).astype(np.float64)) + target.zero
    name = " ".join(["binary32:", *(operator.name for operator in operators)])
    operator = PointwiseOperator(name, custom=True, custom_function=one_number)
    return TransferTable(source, (operator,), target, np.clip(steps, target.low, target.high).astype(np.int64))


def number_table(source: Codes, functions: tuple[FunctionStep, ...]) -> Float32s:
    """The numbers of functions of all codes, each step rounded to binary32; ``ValueError`` as of :func:`code_table`."""
    numbers = (np.arange(source.low, source.high + 1) - source.zero).astype(np.float32) * np.float32(source.scale)
    for choice in functions:
        numbers = rounded_to_binary32(step_of(choice), numbers)
    return numbers


def step_of(choice: FunctionStep) -> PointwiseOperator | FloatFunction:
    """One step of a function."""
    return choice if isinstance(choice, FloatFunction) else PointwiseOperator.of(choice)


def rounded_to_binary32(operator: PointwiseOperator | FloatFunction, numbers: Float32s) -> Float32s:
    """A function of numbers, rounded to binary32: from its bounds, and exactly where these are not near enough."""
    if operator.name == "sqrt" and numbers.min() < 0:
        raise ValueError(f"sqrt must be of numbers from 0 on, not of {numbers.min():g}")
    bounds, curve = operator.bounds(), operator.curve()
    numbers = np.clip(numbers, -_LARGEST, _LARGEST)  # beyond them codes saturate, and a function has its limit
    if bounds is None:
        low = high = np.zeros_like(numbers)
        unknown = np.arange(len(numbers))
    else:
        with np.errstate(all="ignore"):
            values = bounds(exact(numbers.astype(np.float64)))
            low, high = values.low.astype(np.float32), values.high.astype(np.float32)
        unknown = np.flatnonzero(low != high)
    result = low.copy()
    with np.errstate(over="ignore"):
        for k in unknown:
            result[k] = _as_float(curve(Fraction(float(numbers[k]))))
    return result


def _as_float(number: Number) -> float:
    """The nearest number of binary64, an infinity beyond all of them."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
