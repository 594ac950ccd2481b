"""Operations of TensorFlow Lite on codes in fixed point; the first axis is that of the samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.integer.float32 import Integers, bit_length
from concord.integer.graph import IntegerOperation
from concord.integer.tflite.fixed_point import (
    FixedPointMultiplier,
    checked,
    divided,
    high_product,
    interpolated,
    reciprocals,
    table_to_interpolate,
)
from concord.integer.tflite.requantise import FixedPointRequantisation

#: Bits in front of the point of a sum of powers.
SUM_BITS = 12
#: Ends of codes of 16 bits.
LEAST_16, MOST_16 = -(1 << 15), (1 << 15) - 1
#: Negative number whose power is the smallest that softmax of codes of 16 bits has.
LEAST_POWER = -10.0
#: exp from there to 0, and 1 / (1 + x) from 0 to 1.
POWERS_16 = table_to_interpolate(np.exp, LEAST_POWER, 0)
RECIPROCALS_16 = table_to_interpolate(lambda x: 1 / (1 + x), 0, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedPointMean(IntegerOperation):
    """The mean along axes: a sum, requantised by the scale over the number of elements.

    Parameters
    ----------
    axes : tuple of int
        Not the first one.
    kept : bool
        Whether they stay, with the size 1.
    zero_point : int
        Of the codes read.
    requantisation : FixedPointRequantisation
        From sums to codes.
    """

    axes: tuple[int, ...]
    kept: bool
    zero_point: int
    requantisation: FixedPointRequantisation

    def run(self, *codes: Integers) -> Integers:
        sums = (codes[0] - self.zero_point).sum(axis=self.axes, keepdims=self.kept)
        return self.requantisation.apply(sums, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedPointSum(IntegerOperation):
    """The sum or the difference of two tensors, which may be broadcast.

    Each operand less its zero point is moved up, and multiplied by its scale over twice the larger one. The sum is
    requantised.

    Parameters
    ----------
    zeros : pair of int
        Zero points of the operands.
    up : int
        Bits by which codes are moved up.
    scales : pair of FixedPointMultiplier
        Of the operands.
    difference : bool
        Whether the second one is subtracted.
    requantisation : FixedPointRequantisation
        From sums to codes.
    """

    zeros: tuple[int, int]
    up: int
    scales: tuple[FixedPointMultiplier, FixedPointMultiplier]
    difference: bool
    requantisation: FixedPointRequantisation

    def run(self, *codes: Integers) -> Integers:
        parts = zip(codes, self.zeros, self.scales, strict=True)
        a, b = (scale.times(part - zero << self.up) for part, zero, scale in parts)
        return self.requantisation.apply(a - b if self.difference else a + b, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedPointSoftmax(IntegerOperation):
    """Softmax of codes of 8 bits along the last axis: powers from a table, and a reciprocal of their sum.

    Parameters
    ----------
    powers : array of int64 ``[256]``
        ``exp`` of differences of codes from -255 to 0, over 2**31.
    bits : int
        Bits of the codes made, which reach from 0 to 1.
    low, high : int
        Least and greatest code.
    """

    powers: Integers
    bits: int
    low: int
    high: int

    def run(self, *codes: Integers) -> Integers:
        own = self.powers[codes[0] - codes[0].max(axis=-1, keepdims=True) + len(self.powers) - 1]
        sums = checked(divided(own, SUM_BITS).sum(axis=-1, keepdims=True))
        mantissa, exponent = reciprocals(sums)
        shares = divided(high_product(mantissa, own), exponent + SUM_BITS - 1 - self.bits)
        return np.clip(shares + self.low, self.low, self.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class InterpolatedSoftmax(IntegerOperation):
    """Softmax of codes of 16 bits along the last axis: powers and a reciprocal on lines between the values of tables.

    Codes of the result reach from 0 to 1.

    Parameters
    ----------
    scale : FixedPointMultiplier
        From differences of codes to 65535ths of ``LEAST_POWER``.
    """

    scale: FixedPointMultiplier

    def powers(self, differences: Integers) -> Integers:
        """``exp`` of differences of codes from -65535 to 0, over 2**15."""
        return interpolated(POWERS_16, np.clip(self.scale.times(differences) + MOST_16, LEAST_16, MOST_16))

    def run(self, *codes: Integers) -> Integers:
        own = self.powers(codes[0] - codes[0].max(axis=-1, keepdims=True))
        sums = checked(own.sum(axis=-1, keepdims=True))
        bits = bit_length(sums)
        mantissa = ((sums << 31 - bits) + (1 << 13) >> 14) - (3 << 15)  # 2 to the power of 16 is 1, and becomes -1
        share = interpolated(RECIPROCALS_16, np.minimum(mantissa, MOST_16))
        return np.asarray(np.clip(own * share + (np.int64(1) << bits - 2) >> bits - 1, 0, MOST_16))
