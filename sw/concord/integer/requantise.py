"""From accumulators of 32 bits to codes, as the integer kernels of ONNX Runtime do it.

``code = clamp(rne(float32(accumulator) * scale) + zero_point)``, where the product is one of binary32. The scale is
that of what was added up, over that of the codes, and was rounded to binary32 as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.integer.float32 import Binary32, Integers
from concord.transfer import UniformAffine

#: Ends of the accumulator.
ACCUMULATOR = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, eq=False)
class Requantisation:
    """From accumulators to codes.

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

    def apply(self, sums: Integers, axis: int) -> Integers:
        """Codes of accumulators, with the channels along ``axis``.

        Raises
        ------
        OverflowError
            If an accumulator does not fit 32 bits.
        """
        check_sums(sums)
        product = Binary32.of_integers(sums) * _along(axis, self.scale, sums.ndim)
        return np.clip(product.integers() + self.zero_point, self.low, self.high)


@dataclass(frozen=True, eq=False)
class FloatRequantisation:
    """From accumulators to codes in the steps of a model that makes binary32 numbers of them.

    ``code = clamp(rne(f32(f32(f32(f32(accumulator) * factor) + term) / step)) + zero_point)``

    Parameters
    ----------
    factor, term : array of float32
        One number, or one for each channel.
    step : float32
        Of the codes made; positive.
    zero_point, low, high : int
        As of :class:`Requantisation`.
    """

    factor: NDArray[np.float32]
    term: NDArray[np.float32]
    step: np.float32
    zero_point: int
    low: int
    high: int

    def apply(self, sums: Integers, axis: int) -> Integers:
        """As of :class:`Requantisation`, with its error."""
        check_sums(sums)
        factor, term = (_along(axis, numbers, sums.ndim) for numbers in (self.factor, self.term))
        steps = (Binary32.of_integers(sums) * factor + term) / Binary32.of(self.step)
        return np.clip(steps.integers() + self.zero_point, self.low, self.high)


def _along(axis: int, numbers: NDArray[np.float32], rank: int) -> Binary32:
    """One number, or those of the channels along an axis."""
    shape = [1] * rank
    if numbers.size > 1:
        shape[axis] = -1
    return Binary32.of(numbers.reshape(shape))


def check_sums(sums: Integers) -> None:
    """``OverflowError`` if an accumulator does not fit 32 bits."""
    if sums.size and not (ACCUMULATOR[0] <= sums.min() and sums.max() <= ACCUMULATOR[1]):
        raise OverflowError(f"accumulators must fit 32 bits, not be in {sums.min()}..{sums.max()}")


def codes_of_floats(values: ArrayLike, scheme: UniformAffine) -> Integers:
    """The codes of numbers as QuantizeLinear makes them, with a quotient of binary32; ``ValueError`` for NaN."""
    steps = np.asarray(values, dtype=np.float32) / np.float32(scheme.scale)
    if np.isnan(steps).any():
        raise ValueError("inputs must be numbers, not NaN")
    codes = np.clip(np.rint(steps).astype(np.float64) + scheme.zero, scheme.low, scheme.high)
    return np.asarray(codes.astype(np.int64))
