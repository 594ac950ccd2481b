"""From exact numbers to codes: a significand and a shift for each scale, and statements that round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.integer.float32 import MANTISSA_BITS, Binary32, Integers

#: Shifts that a number of 62 bits is rounded by.
SHIFTS = (1, 62)
#: Bits that significands may have beyond those of binary32, so that all of a layer have the same shift.
_SPARE_BITS = 6


@dataclass(frozen=True, eq=False)
class FixedScale:
    """Scales as ``significand / 2**shift``.

    Parameters
    ----------
    significands : array of int64
        Below 2**31, one or one for each channel.
    shifts : array of int64
        The same; one where all are equal.
    """

    significands: Integers
    shifts: Integers

    @classmethod
    def of(cls, scales: npt.ArrayLike) -> FixedScale:
        """Positive float32 numbers.

        Those with which every accumulator but 0 saturates, or none gives anything but 0, may become others of which
        the same is true.
        """
        numbers = Binary32.of(np.asarray(scales).reshape(-1))
        shifts = np.clip(-numbers.exponent, *SHIFTS)
        significands, most = numbers.mantissa, int(shifts.max())
        if most - shifts.min() <= _SPARE_BITS:
            return cls(significands << (most - shifts), np.array([most]))
        return cls(significands, shifts)


@dataclass(frozen=True)
class CodeRounding:
    """Range of the codes that a number may become.

    Parameters
    ----------
    zero_point, low, high : int
        Code of 0, least and greatest code.
    """

    zero_point: int
    low: int
    high: int

    @property
    def near(self) -> str:
        """Distance from a middle between integers within which binary32 may have moved a number to it, in 2**-64."""
        most = max(abs(self.low - self.zero_point), abs(self.high - self.zero_point)) + 1
        return f"(uint64_t)1 << {64 - (MANTISSA_BITS + 1 - most.bit_length())}"

    @property
    def ends(self) -> str:
        """Limits in front of the zero point, as arguments."""
        return f"{self.low - self.zero_point}, {self.high - self.zero_point}"


def binary32_literal(number: Binary32) -> str:
    """A number as a compound literal."""
    return f"(binary32){{{int(number.mantissa)}, {int(number.exponent)}}}"
