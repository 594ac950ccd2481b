"""Arithmetic of binary32 in integers, rounded to the nearest even number: what C and RTL can do without floats.

A number is a mantissa and an exponent, ``mantissa * 2**exponent``. Numbers too small or too large for binary32 keep
their 24 bits here: they round to the same integer, or saturate to the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.integer.sum_orders import Step

Integers = NDArray[np.int64]

#: Bits of the mantissa of a binary32 number.
MANTISSA_BITS = 24
#: Bits by which the larger one of two terms is moved up: beyond them the other one only says on which side a sum lies.
_ROOM = 20


@dataclass(frozen=True, eq=False)
class Binary32:
    """Numbers of binary32 in integers.

    Parameters
    ----------
    mantissa : array of int64
        Of any shape, below 2**24 in magnitude, or exact up to 2**62 in front of :meth:`rounded`.
    exponent : array of int64
        Of the same shape, or one that is broadcast to it.
    """

    mantissa: Integers
    exponent: Integers

    @classmethod
    def of(cls, numbers: ArrayLike) -> Binary32:
        """Finite float32 numbers; ``ValueError`` for others."""
        values = np.asarray(numbers, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError("numbers must be finite")
        fraction, exponent = np.frexp(values)
        mantissa = np.ldexp(fraction.astype(np.float64), MANTISSA_BITS).astype(np.int64)
        return cls(mantissa, np.asarray(exponent, dtype=np.int64) - MANTISSA_BITS)

    @classmethod
    def of_integers(cls, values: NDArray[np.integer[Any]]) -> Binary32:
        """Integers below 2**62 in magnitude, each rounded to a binary32 number."""
        mantissa = np.asarray(values, dtype=np.int64)
        return cls(mantissa, np.zeros(mantissa.shape, dtype=np.int64)).rounded()

    def rounded(self) -> Binary32:
        """The nearest numbers whose mantissa has 24 bits; of two that are as near the even one."""
        excess = np.maximum(bit_length(self.mantissa) - MANTISSA_BITS, 0)
        return Binary32(shifted_right(self.mantissa, excess), self.exponent + excess)

    def __mul__(self, other: Binary32) -> Binary32:
        """Products, each rounded once."""
        return Binary32(self.mantissa * other.mantissa, self.exponent + other.exponent).rounded()

    def __add__(self, other: Binary32) -> Binary32:
        """Sums, each rounded once."""
        return _sum(self.mantissa, self.exponent, other.mantissa, other.exponent)

    def __neg__(self) -> Binary32:
        """The numbers with the other sign."""
        return Binary32(-self.mantissa, self.exponent)

    def __truediv__(self, other: Binary32) -> Binary32:
        """Quotients, each rounded once; the divisor is positive."""
        up = 62 - MANTISSA_BITS
        quotient, rest = np.divmod(np.abs(self.mantissa) << up, other.mantissa)
        quotient = quotient | (rest != 0)  # only on which side of a middle it is; 37 bits or more are in front of it
        signed = np.where(self.mantissa < 0, -quotient, quotient)
        return Binary32(signed, self.exponent - other.exponent - up).rounded()

    def __getitem__(self, index: Any) -> Binary32:
        """Some of the numbers."""
        return Binary32(self.mantissa[index], np.broadcast_to(self.exponent, self.mantissa.shape)[index])

    def summed(self) -> Binary32:
        """Sums along the last axis, in its order, each step rounded."""
        total = self[..., 0]
        for k in range(1, self.mantissa.shape[-1]):
            total = total + self[..., k]
        return total

    def summed_in(self, steps: Sequence[Step]) -> Binary32:
        """Sums along the last axis in an order of :mod:`concord.integer.sum_orders`."""
        values = self
        for step in steps:
            sums = [values[..., list(group)].summed() for group in step]
            values = Binary32(*(np.stack(parts, axis=-1) for parts in zip(*map(astuple, sums), strict=True)))
        return values[..., 0]

    def plus_product(self, factor: Integers, other: Binary32) -> Binary32:
        """``self + factor * other`` with one rounding, as FMA does it; ``factor`` is below 2**17."""
        product = factor * other.mantissa
        return _sum(product, np.broadcast_to(other.exponent, product.shape), self.mantissa, self.exponent)

    def integers(self) -> Integers:
        """The nearest integers, of two the even one; saturated at 2**40 in magnitude, far beyond all codes."""
        up = np.clip(self.exponent, 0, 40 - MANTISSA_BITS)
        return shifted_right(self.mantissa << up, np.maximum(-self.exponent, 0))


def bit_length(values: Integers) -> Integers:
    """Bits of the magnitude of integers below 2**62; 0 has none."""
    size = np.abs(values)
    length = np.asarray(np.frexp(size.astype(np.float64))[1], dtype=np.int64)
    too_long = (length > 0) & (
        size >> np.maximum(length - 1, 0) == 0
    )  # the conversion has rounded up to a power of two
    return np.asarray(length - too_long)


def shifted_right(values: Integers, bits: Integers) -> Integers:
    """``values / 2**bits``, rounded to the nearest even integer; ``bits`` are not negative."""
    size, by = np.abs(values), np.minimum(bits, 63)
    whole = size >> by
    rest = size - (whole << by)
    middle = np.int64(1) << np.maximum(by - 1, 0)
    up = (by > 0) & ((rest > middle) | ((rest == middle) & (whole & 1 == 1)))
    return np.asarray(np.where(values < 0, -(whole + up), whole + up))


def _sum(a: Integers, a_exponent: Integers, b: Integers, b_exponent: Integers) -> Binary32:
    """The sum of two numbers with mantissas below 2**41, rounded once."""
    a, a_exponent, b, b_exponent = np.broadcast_arrays(a, a_exponent, b, b_exponent)
    # What is 0 has the exponent of the other one.
    a_exponent, b_exponent = np.where(a == 0, b_exponent, a_exponent), np.where(b == 0, a_exponent, b_exponent)
    # A mantissa of fewer than 24 bits is moved up, so that an exponent says how large a number is.
    a, a_exponent = _filled(a, a_exponent)
    b, b_exponent = _filled(b, b_exponent)
    exponent = np.maximum(np.minimum(a_exponent, b_exponent), np.maximum(a_exponent, b_exponent) - _ROOM)
    return Binary32(_aligned(a, a_exponent - exponent) + _aligned(b, b_exponent - exponent), exponent).rounded()


def _filled(mantissa: Integers, exponent: Integers) -> tuple[Integers, Integers]:
    up = np.maximum(MANTISSA_BITS - bit_length(mantissa), 0)
    return mantissa << up, exponent - up


def _aligned(mantissa: Integers, up: Integers) -> Integers:
    """Moved up, or down with the last bit set if a bit was lost: it says on which side of a middle the sum is."""
    by = np.minimum(np.maximum(-up, 0), 62)
    size = np.abs(mantissa)
    down = size >> by
    down = down | ((down << by) != size)
    return np.where(up >= 0, mantissa << np.maximum(up, 0), np.where(mantissa < 0, -down, down))
