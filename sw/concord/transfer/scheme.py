"""The two sides of a transfer table [transfer-lut]: codes, and the numbers that they encode.

A scheme has the codes ``low..high`` and ``number = (code - zero) * step``, exactly; ``step`` is a fraction. Back,
``code = clamp(round(number / step) + zero, low, high)``, as ONNX's QuantizeLinear does: the zero point is added after
rounding. Infinities give the end they are near; NaN is refused.

Schemes have 1 to 16 bits: a table has an entry per code, so each bit doubles it (128 KiB at 16 bits), and 16 bits are
the widest mantissa and the widest table entry of the hardware.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.functions import Number
from concord.functions.intervals import Interval, constant, exact
from concord.functions.tables import round_array_to_binary16, round_to_binary16
from concord.golden import binary16
from concord.spec.formats import Rounding
from concord.spec.widths import largest
from concord.utils.arrays import FloatArray, Ints

MAX_BITS = 16
_LIMIT = float(1 << 20)  # beyond all codes and zero points


class CodeRange(Enum):
    """Codes of ``bits`` bits that are used."""

    UNSIGNED = "unsigned"  #: ``0 .. 2**bits - 1``
    SIGNED = "signed"  #: ``-2**(bits-1) .. 2**(bits-1) - 1``
    SYMMETRIC = "symmetric"  #: ``-(2**(bits-1) - 1) .. 2**(bits-1) - 1``; with one bit only 0

    def ends(self, bits: int) -> tuple[int, int]:
        """Least and greatest code."""
        if self is CodeRange.UNSIGNED:
            return 0, (1 << bits) - 1
        top = largest(bits)
        return (-top if self is CodeRange.SYMMETRIC else -top - 1), top


def round_number(value: Fraction, rounding: Rounding) -> int:
    """The nearest integer; halves to the even one, or away from zero."""
    if rounding == Rounding.NEAREST_EVEN:
        return round(value)
    size = math.floor(abs(value) + Fraction(1, 2))
    return -size if value < 0 else size


def round_floats(values: FloatArray, rounding: Rounding) -> FloatArray:
    """:func:`round_number` of float64 numbers below 2**52 in magnitude."""
    if rounding == Rounding.NEAREST_EVEN:
        return np.rint(values)
    size = np.abs(values)
    whole = np.floor(size)
    return np.asarray(np.copysign(whole + (size - whole >= 0.5), values))


def require_integer(name: str, value: object, low: int, high: int) -> None:
    """``ValueError`` unless the value is an integer of the range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer in {low}..{high}, not {value!r}")


def require_finite(name: str, value: object) -> None:
    """``ValueError`` unless the value is a number that is neither infinite nor NaN."""
    exact = isinstance(value, int | Fraction) and not isinstance(value, bool)
    if not exact and not (isinstance(value, float) and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number, not {value!r}")


class TableTarget(ABC):
    """Entries of a table: codes, and the numbers they stand for."""

    @property
    @abstractmethod
    def low(self) -> int:
        """Least code, minR of [transfer-lut]."""

    @property
    @abstractmethod
    def high(self) -> int:
        """Greatest code."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[np.generic]:
        """Type of a stored entry, little endian."""

    @abstractmethod
    def quantize(self, number: Number | int) -> int:
        """The code of a number, rounded once and saturated; ``ValueError`` for NaN."""

    @abstractmethod
    def dequantize(self, code: int) -> Fraction:
        """The number of a code; ``ValueError`` if there is no such code."""

    @abstractmethod
    def ends(self, bounds: Interval) -> tuple[Ints, Ints]:
        """Codes between which those of all numbers in the bounds lie."""

    def check(self, codes: ArrayLike) -> NDArray[np.integer[Any]]:
        """Codes as an array; ``ValueError`` if they are not integers in ``low..high``."""
        array = np.asarray(codes)
        if array.dtype.kind not in "iu":
            raise ValueError(f"codes must be integers, not {array.dtype}")
        if array.size and not self.low <= array.min() <= array.max() <= self.high:
            raise ValueError(f"codes must be in {self.low}..{self.high}, not {array.min()}..{array.max()}")
        return array


@dataclass(frozen=True)
class Binary16(TableTarget):
    """Entries of the NPU's tables: finite binary16 patterns, nearest even, limited to +-65504, zero always +0."""

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return 0xFFFF

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype("<u2")

    def quantize(self, number: Number | int) -> int:
        return round_to_binary16(_number(number))

    def dequantize(self, code: int) -> Fraction:
        require_integer("code", code, self.low, self.high)
        if not binary16.is_finite(code):
            raise ValueError(f"code must be a finite binary16 pattern, not {code:#06x}")
        return Fraction(float(binary16.decode(code)))

    def ends(self, bounds: Interval) -> tuple[Ints, Ints]:
        return round_array_to_binary16(bounds.low), round_array_to_binary16(bounds.high)

    def check(self, codes: ArrayLike) -> NDArray[np.integer[Any]]:
        array = super().check(codes)
        if not np.all(binary16.is_finite(array)):
            raise ValueError("codes must be finite binary16 patterns")
        return array


def _number(value: Number | int) -> Number:
    """The value, if it is one."""
    if isinstance(value, float | Decimal) and math.isnan(value):
        raise ValueError("number must not be NaN")
    if isinstance(value, Decimal) and value.is_infinite():
        return float(value)
    return Fraction(value) if isinstance(value, int) else value


class Scheme(TableTarget):
    """Equidistant numbers: the source of a table, and one kind of target. Made by its subclasses."""

    rounding: Rounding

    @property
    @abstractmethod
    def step(self) -> Fraction:
        """Difference of the numbers of neighbouring codes."""

    @property
    def zero(self) -> int:
        """The code of 0."""
        return 0

    @property
    def count(self) -> int:
        """Number of codes."""
        return self.high - self.low + 1

    @property
    def dtype(self) -> np.dtype[np.generic]:
        kinds = (np.dtype(name) for name in ("u1", "i1", "<u2", "<i2"))
        return next(kind for kind in kinds if np.iinfo(kind).min <= self.low and self.high <= np.iinfo(kind).max)

    def dequantize(self, code: int) -> Fraction:
        require_integer("code", code, self.low, self.high)
        return (code - self.zero) * self.step

    def quantize(self, number: Number | int) -> int:
        value = _number(number)
        if isinstance(value, float) and math.isinf(value):
            return self.high if value > 0 else self.low
        return min(max(round_number(Fraction(value) / self.step, self.rounding) + self.zero, self.low), self.high)

    def numbers(self) -> Interval:
        """Bounds on the numbers of all codes, from ``low`` on."""
        steps = exact(np.arange(self.low - self.zero, self.high - self.zero + 1, dtype=np.float64))
        factor = constant(self.step)
        if factor.low == factor.high and (self.step.numerator.bit_length() + MAX_BITS + 1) <= 53:
            return exact(np.asarray(steps.low * factor.low))  # no product has more than 53 bits
        return steps * factor

    def ends(self, bounds: Interval) -> tuple[Ints, Ints]:
        factor = constant(self.step)
        if factor.low == factor.high and math.frexp(factor.low)[0] == 0.5:
            # A quotient by a power of two is exact, unless it is so small that it rounds to 0 anyway.
            with np.errstate(all="ignore"):
                return self._codes(bounds.low / factor.low), self._codes(bounds.high / factor.low)
        scaled = bounds / factor
        return self._codes(scaled.low), self._codes(scaled.high)

    def _codes(self, steps: FloatArray) -> Ints:
        rounded = round_floats(np.clip(steps, -_LIMIT, _LIMIT), self.rounding)
        return np.clip(rounded + self.zero, self.low, self.high).astype(np.int64)
