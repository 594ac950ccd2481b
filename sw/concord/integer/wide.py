"""Wide tensors: binary32 numbers between layers on codes [dtype-pass], kept as integers.

The integer of a number is its place in the order of all numbers: the bits of its magnitude, with its sign. So the
greater number has the greater integer, 0 is 0, and limits, maxima and movements are the same as of codes. There is one
zero, and there are no infinities: a number beyond binary32 is an ``OverflowError``, as an accumulator beyond 32 bits.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.integer.float32 import Integers
from concord.integer.graph import IntegerOperation
from concord.integer.requantise import ACCUMULATOR_BITS, Requantiser, along, codes_of_steps
from concord.integer.wide_numbers import WideNumbers
from concord.spec.widths import limits

Numbers = NDArray[np.float32]


def numbers_of(integers: Integers) -> Numbers:
    """The binary32 numbers of a wide tensor."""
    size = np.abs(integers).astype(np.uint32).view(np.float32)
    return np.where(integers < 0, -size, size)


def integers_of(numbers: NDArray[np.floating[Any]]) -> Integers:
    """The integers of binary32 numbers.

    Raises
    ------
    ValueError
        For NaN.
    OverflowError
        For an infinity.
    """
    values = np.asarray(numbers, dtype=np.float32)
    if np.isnan(values).any():
        raise ValueError("numbers must not be NaN")
    if np.isinf(values).any():
        raise OverflowError("numbers must fit binary32, and some are beyond it")
    size = np.abs(values).view(np.uint32).astype(np.int64)
    return np.where(values < 0, -size, size)


def limit_of(end: float) -> int:
    """The integer of an end of a range: infinities become the greatest numbers."""
    return int(integers_of(np.asarray(np.clip(end, -_LARGEST, _LARGEST))))


_LARGEST = float(np.finfo(np.float32).max)
#: Entry of a wide tensor in :attr:`IntegerGraph.schemes`.
WIDE = WideNumbers()


@dataclass(frozen=True, eq=False)
class Dequantisation(Requantiser):
    """Conversion of accumulators to binary32 numbers: ``f32(f32(f32(accumulator) * factor) + term)``.

    Parameters
    ----------
    factor, term : array of float32
        One number, or one for each channel.
    sum_bits : int
        Bits of an accumulator, sign included.
    """

    factor: NDArray[np.float32]
    term: NDArray[np.float32]
    sum_bits: int = ACCUMULATOR_BITS

    @property
    def limits(self) -> tuple[int, int]:
        return limits(self.sum_bits)

    def _codes(self, sums: Integers, axis: int) -> Integers:
        factor, term = (along(axis, numbers, sums.ndim) for numbers in (self.factor, self.term))
        with np.errstate(over="ignore"):
            return integers_of(sums.astype(np.float32) * factor + term)


@dataclass(frozen=True, kw_only=True, eq=False)
class NumbersOfCodes(IntegerOperation):
    """Codes to a wide tensor: ``f32(scale * (code - zero_point))``.

    Parameters
    ----------
    scale : float32
    zero_point : int
    """

    scale: np.float32
    zero_point: int

    def run(self, *codes: Integers) -> Integers:
        with np.errstate(over="ignore"):
            return integers_of((codes[0] - self.zero_point).astype(np.float32) * self.scale)


@dataclass(frozen=True, kw_only=True, eq=False)
class TabledNumbers(IntegerOperation):
    """A function of codes to a wide tensor, as a table.

    Parameters
    ----------
    numbers : array of float32
        By code.
    least : int
        The code of the first one.
    """

    numbers: Numbers
    least: int

    def run(self, *codes: Integers) -> Integers:
        return integers_of(self.numbers)[codes[0] - self.least]


@dataclass(frozen=True, kw_only=True, eq=False)
class CodesOfNumbers(IntegerOperation):
    """A wide tensor to codes: ``clamp(rne(f32(number / step)) + zero_point)``.

    Parameters
    ----------
    step : float32
    zero_point, low, high : int
        Of the codes made.
    """

    step: np.float32
    zero_point: int
    low: int
    high: int

    def run(self, *codes: Integers) -> Integers:
        with np.errstate(over="ignore"):
            steps = np.rint(numbers_of(codes[0]) / self.step)
        return codes_of_steps(steps, self.zero_point, self.low, self.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class WidePair(IntegerOperation):
    """An operation of two wide tensors, which may be broadcast; each result is rounded once."""

    def run(self, *codes: Integers) -> Integers:
        with np.errstate(over="ignore"):
            return integers_of(self.of_numbers(*map(numbers_of, codes)))

    @abstractmethod
    def of_numbers(self, a: ArrayLike, b: ArrayLike) -> Numbers:
        """Result of the operation on binary32 numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WideSum(WidePair):
    """Add of two wide tensors."""

    def of_numbers(self, a: ArrayLike, b: ArrayLike) -> Numbers:
        return np.add(a, b, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class WideDifference(WidePair):
    """Sub of two wide tensors."""

    def of_numbers(self, a: ArrayLike, b: ArrayLike) -> Numbers:
        return np.subtract(a, b, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class WideProduct(WidePair):
    """Mul of two wide tensors."""

    def of_numbers(self, a: ArrayLike, b: ArrayLike) -> Numbers:
        return np.multiply(a, b, dtype=np.float32)
