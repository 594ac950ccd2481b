"""Ranges of floats mapped on the integers of a width [overflow].

A range [low, high] is divided into ``2**bits`` equal steps, one per integer; the least number has the least integer,
the greatest the greatest. A factor enlarges the range that is mapped: steps grow and the integers of the range shrink.
[-1, 1] at 8 bits has the step 1/128 and the integers -128..127; with the factor 4 it has the step 1/32 and -32..31.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from concord.sums.histogram import check_width
from concord.utils.arrays import Array, Ints

#: Widths of the integers that operands can have.
OPERAND_WIDTHS = range(1, 33)
ROUNDINGS = ("floor", "nearest")


@dataclass(frozen=True)
class Mapping:
    """Mapping of floats on integers.

    The integers are those of the arithmetic: zero is the integer 0, so that padding is exact and products of integers
    stand for products of floats. A range that is not as large on both sides of zero has other integers than two's
    complement of the width, but as many of them: a storage adds a constant to them (a zero point).

    Parameters
    ----------
    low, high : float
        Range of the values; zero is taken into it.
    bits : int
        Width of the integers, 1 to 32.
    factor : float
        How many times the range is mapped. Below 1, what is beyond the mapped range has the integer of its end.
    rounding : str
        ``"floor"``: a step has the integer of its lower end; ``"nearest"``: a number has that of the nearest multiple.

    Raises
    ------
    ValueError
        If a parameter is not possible.
    """

    low: float
    high: float
    bits: int
    factor: float = 1.0
    rounding: str = "floor"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"range must be two finite numbers low <= high, not {self.low!r}, {self.high!r}")
        check_width("bits of operands", self.bits, OPERAND_WIDTHS)
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise ValueError(f"factor must be a finite number above 0, not {self.factor!r}")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
        object.__setattr__(self, "low", min(float(self.low), 0.0))
        object.__setattr__(self, "high", max(float(self.high), 0.0))

    @classmethod
    def of(cls, values: ArrayLike, bits: int, rounding: str = "floor") -> Mapping:
        """Mapping of the range of some values; ``ValueError`` if one is not finite or there are none."""
        array = np.asarray(values, dtype=np.float64)
        if not array.size:
            raise ValueError("values must be at least one number, not none")
        return cls(float(array.min()), float(array.max()), bits, rounding=rounding)

    @property
    def step(self) -> float:
        """Value of an integer; 1 for a range that is zero alone."""
        return self.factor * (self.high - self.low) / 2**self.bits or 1.0

    @property
    def ends(self) -> tuple[int, int]:
        """Least and greatest integer of the range."""
        if self.low == self.high:
            return 0, 0
        first = max(math.ceil(self.low / (self.high - self.low) * 2**self.bits), 1 - 2**self.bits)
        low, high = math.floor(self.low / self.step), math.ceil(self.high / self.step) - 1
        return max(first, low), max(0, min(first + 2**self.bits - 1, high))

    def scaled(self, factor: float) -> Mapping:
        """Mapping with another factor."""
        return replace(self, factor=factor)

    def __call__(self, values: ArrayLike) -> Ints:
        """Integers of some values; ``ValueError`` for values that are not finite."""
        array: Array = np.asarray(values, dtype=np.float64)
        if not np.isfinite(array).all():
            raise ValueError("values must be finite numbers, and are not all")
        steps = array / self.step
        whole = np.floor(steps) if self.rounding == "floor" else np.rint(steps)
        low, high = self.ends
        return np.clip(whole, low, high).astype(np.int64)
