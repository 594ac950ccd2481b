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
        shape = [1] * sums.ndim
        if self.scale.size > 1:
            shape[axis] = -1
        product = Binary32.of_integers(sums) * Binary32.of(self.scale.reshape(shape))
        return np.clip(product.integers() + self.zero_point, self.low, self.high)


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
