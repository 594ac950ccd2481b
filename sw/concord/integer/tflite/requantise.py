"""Requantisation of accumulators, as TensorFlow Lite's reference kernels do it [tflite-kernels]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from concord.integer.float32 import Integers, bit_length, shifted_right
from concord.integer.requantise import ACCUMULATOR, Requantiser
from concord.integer.tflite.fixed_point import WIDE, FixedPointMultiplier

#: Bits of the significand of a binary64 number, and of its lower part here.
_BINARY64_BITS, _LOWER_BITS = 53, 27
#: Bits that an accumulator is moved up to in front of a product with a binary64 number.
_ROOM = 35


@dataclass(frozen=True, eq=False)
class FixedPointRequantisation(Requantiser):
    """``code = clamp(sum * scale + zero_point)``, with a product in fixed point.

    Parameters
    ----------
    scale : FixedPointMultiplier
        One, or one for each channel.
    zero_point : int
        The code of 0.
    low, high : int
        Least and greatest code of the result. An activation that only limits makes the range smaller.
    wide : bool
        Whether accumulators have 48 bits, as those of codes of 16 bits; their products are rounded once.
    """

    scale: FixedPointMultiplier
    zero_point: int
    low: int
    high: int
    wide: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        return (-WIDE, WIDE) if self.wide else ACCUMULATOR

    def _codes(self, sums: Integers, axis: int) -> Integers:
        scale = self.scale.reshaped(_along(axis, sums.ndim))
        products = scale.times_wide(sums) if self.wide else scale.times(sums)
        return np.clip(products + self.zero_point, self.low, self.high)


@dataclass(frozen=True, eq=False)
class Binary64Requantisation(Requantiser):
    """``code = clamp(round(float64(sum * scale)) + zero_point)``, of dense layers: halves are rounded away from zero.

    The product is one of binary64, rounded to the nearest even number, and is computed in integers of 64 bits.

    Parameters
    ----------
    significand, exponent : arrays of int64
        The scale, ``significand * 2**exponent`` with 53 bits: one, or one for each channel.
    zero_point, low, high : int
        As of :class:`FixedPointRequantisation`.
    wide : bool
        Whether accumulators have 36 bits with the sign, as those of codes of 16 bits.
    """

    significand: Integers
    exponent: Integers
    zero_point: int
    low: int
    high: int
    wide: bool = False

    @classmethod
    def of(cls, numbers: ArrayLike, zero_point: int, low: int, high: int, wide: bool = False) -> Binary64Requantisation:
        """Requantisation with scales of binary64, which are positive."""
        fraction, exponent = np.frexp(np.asarray(numbers, dtype=np.float64))
        significand = np.asarray(np.ldexp(fraction, _BINARY64_BITS), dtype=np.int64)
        exponent = np.asarray(exponent - _BINARY64_BITS, dtype=np.int64)
        return cls(significand, exponent, zero_point, low, high, wide)

    @property
    def limits(self) -> tuple[int, int]:
        most = (1 << _ROOM) - 1
        return (-most, most) if self.wide else ACCUMULATOR

    def _codes(self, sums: Integers, axis: int) -> Integers:
        size = np.abs(sums)
        shape = () if self.significand.size == 1 else _along(axis, sums.ndim)
        significand, exponent = self.significand.reshape(shape), self.exponent.reshape(shape)
        # The product of _ROOM and 53 bits without its last 27 bits, of which is kept whether they were zero.
        up = _ROOM - bit_length(size)
        moved = size << up
        lower = moved * (significand & ((1 << _LOWER_BITS) - 1))
        product = moved * (significand >> _LOWER_BITS) + (lower >> _LOWER_BITS)
        product = product | ((lower & ((1 << _LOWER_BITS) - 1)) != 0)
        excess = np.maximum(bit_length(product) - _BINARY64_BITS, 0)
        rounded = shifted_right(product, excess)
        down = np.clip(-(exponent - up + _LOWER_BITS + excess), 0, 62)  # codes are far below 2**53
        whole = rounded + (np.int64(1) << down >> 1) >> down
        return np.asarray(np.clip(np.where(sums < 0, -whole, whole) + self.zero_point, self.low, self.high))


def _along(axis: int, rank: int) -> tuple[int, ...]:
    """The shape of one number for each element of an axis."""
    return tuple(-1 if k == axis % rank else 1 for k in range(rank))
