"""Rounding of numbers to integers, and shifts of integers that round: the one place where bits are dropped."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.spec.formats import NOISE_BITS, Rounding
from concord.utils.arrays import FloatArray, Ints

#: Magnitudes must be below ``2**MAGNITUDE_BITS``, so that their noise fits in 64 bits as well.
MAGNITUDE_BITS = 46
#: Shifts to the right beyond this give what this one does: nothing, or what noise makes of nothing.
_RIGHT_LIMIT = 62


def round_number(value: Fraction, rounding: Rounding) -> int:
    """The integer below, or the nearest one; halves to the even one, or away from zero."""
    if rounding == Rounding.FLOOR:
        return math.floor(value)
    if rounding == Rounding.NEAREST_EVEN:
        return round(value)
    size = math.floor(abs(value) + Fraction(1, 2))
    return -size if value < 0 else size


def round_floats(values: NDArray[np.floating[Any]], rounding: Rounding) -> FloatArray:
    """:func:`round_number` of floats."""
    if rounding == Rounding.FLOOR:
        return np.asarray(np.floor(values))
    if rounding == Rounding.NEAREST_EVEN:
        return np.asarray(np.rint(values))
    size = np.abs(values)
    whole = np.floor(size)
    with np.errstate(invalid="ignore"):  # of an infinity less itself
        return np.asarray(np.copysign(whole + (size - whole >= 0.5), values))


def nearest_integers(values: ArrayLike, rounding: Rounding = Rounding.NEAREST_AWAY) -> Ints:
    """Integers by :func:`round_floats`; magnitudes are limited to ``2**62``."""
    limited = np.clip(np.asarray(values, dtype=np.float64), -(2.0**62), 2.0**62)
    return round_floats(limited, rounding).astype(np.int64)


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
