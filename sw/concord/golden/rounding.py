"""Shifts of integers that round: the one place where bits are dropped."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from concord.spec.formats import NOISE_BITS, Rounding
from concord.utils.arrays import Ints

#: Magnitudes must be below ``2**MAGNITUDE_BITS``, so that their noise fits in 64 bits as well.
MAGNITUDE_BITS = 46
#: Shifts to the right beyond this give what this one does: nothing, or what noise makes of nothing.
_RIGHT_LIMIT = 62


def _scale(magnitude: Ints, left: Ints) -> Ints:
    """``floor(magnitude * 2**left)``."""
    return np.asarray((magnitude << np.maximum(left, 0)) >> np.maximum(-left, 0))


def noise_like(random: ArrayLike | None, shape: tuple[int, ...]) -> Ints:
    """Noise for an array of a shape; ``ValueError`` if there is none."""
    if random is None:
        raise ValueError("noise must be given for stochastic rounding, not None")
    return np.broadcast_to(np.asarray(random), shape).astype(np.int64)


def round_magnitude(magnitude: Ints, right: ArrayLike, rounding: Rounding, noise: ArrayLike | None = None) -> Ints:
    """``magnitude * 2**-right``, rounded.

    Parameters
    ----------
    magnitude : array of int64
        From 0 to below ``2**46``.
    right : array of int
        Bits to drop. Negative ones shift to the left, which is exact; the caller sees to it that the result fits in
        63 bits.
    rounding, noise
        Nearest even, nearest away, or ``(floor(magnitude * 2**(16 - right)) + noise) >> 16`` with 16 bits of noise per
        element.
    """
    shift = np.minimum(np.asarray(right, dtype=np.int64), _RIGHT_LIMIT)
    if rounding == Rounding.NEAREST_AWAY:
        drop = np.maximum(shift, 0)
        return np.asarray(((magnitude << np.maximum(-shift, 0)) + (np.int64(1) << drop >> 1)) >> drop)
    whole = _scale(magnitude, -shift)
    if rounding == Rounding.STOCHASTIC:  # noise is below one unit, so it changes nothing that is exact
        scaled = _scale(magnitude, NOISE_BITS - np.maximum(shift, 0))
        noisy = (scaled + noise_like(noise, magnitude.shape)) >> NOISE_BITS
        return np.asarray(np.where(shift > 0, noisy, whole))
    unit = np.int64(1) << np.maximum(shift, 0)
    rest = 2 * (magnitude - whole * unit) - unit  # what is shifted out against one half: below, equal or above
    up = (rest > 0) | (rest == 0) & (whole & 1 == 1)
    return np.asarray(whole + (up & (shift > 0)))


def round_shift(
    value: ArrayLike, right: ArrayLike, rounding: Rounding = Rounding.NEAREST_AWAY, noise: ArrayLike | None = None
) -> Ints:
    """``value * 2**-right`` of signed integers, their magnitudes rounded as :func:`round_magnitude` does."""
    exact = np.asarray(value, dtype=np.int64)
    rounded = round_magnitude(np.abs(exact), right, rounding, noise)
    return np.asarray(np.where(exact < 0, -rounded, rounded))
