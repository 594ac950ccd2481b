"""Requantisation of accumulators, also of those with 32 bits as the integer kernels of ONNX Runtime do it.

``code = clamp(rne(float32(accumulator) * scale) + zero_point)``, where the product is one of binary32. The scale is
that of what was added up, over that of the codes, and was rounded to binary32 as well. NumPy computes the product, of
which IEEE 754 defines every bit. :class:`concord.integer.float32.Binary32` is the same in integers, as C and RTL do it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concord.integer.float32 import Binary32, Integers
from concord.spec.widths import limits, needed_width
from concord.transfer import Codes

#: Bits of sums of products of two tensors of 16 bits.
LONG_BITS = 62
#: Bits of the accumulator, sign included, and its ends.
ACCUMULATOR_BITS = 32
ACCUMULATOR = limits(ACCUMULATOR_BITS)


class Requantiser(ABC):
    """Requantisation of accumulators to codes."""

    def apply(self, sums: Integers, axis: int) -> Integers:
        """Codes of accumulators, with the channels along ``axis``; ``OverflowError`` if one is beyond the limits."""
        low, high = self.limits
        if sums.size and not (low <= sums.min() and sums.max() <= high):
            raise OverflowError(f"accumulators must fit {self.bits} bits, not be in {sums.min()}..{sums.max()}")
        return self._codes(sums, axis)

    @abstractmethod
    def _codes(self, sums: Integers, axis: int) -> Integers:
        """Codes of accumulators within the limits."""

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest accumulator: those of 32 bits, but for some."""
        return ACCUMULATOR

    @property
    def largest_sum(self) -> int:
        """Largest magnitude that an accumulator of either sign may have."""
        return self.limits[1]

    @property
    def bits(self) -> int:
        """Bits of an accumulator, sign included."""
        return needed_width(self.largest_sum)


@dataclass(frozen=True, eq=False)
class Requantisation(Requantiser):
    """Requantisation of accumulators to codes, by a product of binary32.

    Parameters
    ----------
    scale : array of float32
        One number, or one for each channel; positive.
    zero_point : int
        The code of 0.
    low, high : int
        Least and greatest code of the result. An activation that only limits makes the range smaller.
    """

    scale: NDArray[np.float32]
    zero_point: int
    low: int
    high: int

    def _codes(self, sums: Integers, axis: int) -> Integers:
        with np.errstate(over="ignore"):
            steps = np.rint(sums.astype(np.float32) * along(axis, self.scale, sums.ndim))
        return codes_of_steps(steps, self.zero_point, self.low, self.high)


@dataclass(frozen=True, eq=False)
class FloatRequantisation(Requantiser):
    """Requantisation of accumulators to codes in the steps of a model that makes binary32 numbers of them.

    ``code = clamp(rne(f32(f32(f32(f32(accumulator) * factor) + term) / step)) + zero_point)``

    Parameters
    ----------
    factor, term : array of float32
        One number, or one for each channel.
    step : float32
        Of the codes made; positive.
    zero_point, low, high : int
        As of :class:`Requantisation`.
    sum_bits : int
        Bits of an accumulator, sign included; more than 32 for products of codes of 16 bits.
    """

    factor: NDArray[np.float32]
    term: NDArray[np.float32]
    step: np.float32
    zero_point: int
    low: int
    high: int
    sum_bits: int = ACCUMULATOR_BITS

    @classmethod
    def of_kernel(cls, ratio: np.float32, zero_point: int, shift: int, low: int, high: int) -> FloatRequantisation:
        """Requantisation by an integer kernel of ONNX Runtime, which adds the zero point in front of the rounding.

        ``code = clamp(rne(f32(f32(f32(accumulator) * ratio) + f32(zero_point + shift))) - shift)``

        Parameters
        ----------
        ratio : float32
            Scale of the accumulators over that of the codes.
        zero_point, low, high : int
            As of :class:`Requantisation`.
        shift : int
            Added to the codes made as long as the kernel makes them.
        """
        term = np.array([zero_point + shift], dtype=np.float32)
        return cls(np.asarray(ratio).reshape(1), term, np.float32(1), -shift, low, high, LONG_BITS)

    @property
    def limits(self) -> tuple[int, int]:
        return limits(self.sum_bits)

    def _codes(self, sums: Integers, axis: int) -> Integers:
        factor, term = (Binary32.of(along(axis, numbers, sums.ndim)) for numbers in (self.factor, self.term))
        steps = (Binary32.of_integers(sums) * factor + term) / Binary32.of(self.step)
        return np.clip(steps.integers() + self.zero_point, self.low, self.high)


def codes_of_steps(steps: NDArray[np.float32], zero_point: int, low: int, high: int) -> Integers:
    """Codes of whole numbers of steps, infinities among them."""
    return np.clip(steps, low - zero_point, high - zero_point).astype(np.int64) + zero_point


def along(axis: int, numbers: NDArray[np.float32], rank: int) -> NDArray[np.float32]:
    """One number, or those of the channels along an axis."""
    shape = [1] * rank
    if numbers.size > 1:
        shape[axis] = -1
    return numbers.reshape(shape)


def limited_codes(scheme: Codes, limits: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Least and greatest code of numbers within limits: rounding is monotone, so codes are limited in their place."""
    low, high = scheme.low, scheme.high
    for least, most in limits:
        low, high = (min(max(int(end), low), high) for end in scheme.codes_of(np.array([least, most], np.float32)))
    return low, high
