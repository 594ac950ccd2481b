"""Operands of ``vv_scale`` whose results are near 0, near the limits, halfway between two codes, and far beyond."""

import numpy as np

from concord.spec.formats import SCALED_MAX


def draw_scales(rng, count, bits):
    """Accumulators of some bits, factors, fractions and shifts: integer arrays of ``count``.

    Parameters
    ----------
    rng : numpy.random.Generator
    count, bits : int
    """
    most = 1 << bits - 1
    shift = rng.integers(0, 32, count)
    factor = np.where(
        rng.random(count) < 0.2, rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF], count), rng.integers(0, 1 << 16, count)
    )
    ends = [-SCALED_MAX - 1, -SCALED_MAX, SCALED_MAX, SCALED_MAX + 1, 0]
    wanted = np.where(rng.random(count) < 0.4, rng.choice(ends, count), rng.integers(-300, 300, count))
    units = (wanted * (1 << 16) + (1 << 15) << shift) // np.maximum(factor, 1) + rng.integers(-1, 2, count)
    units = np.where(rng.random(count) < 0.1, rng.integers(-most, most, count), units)
    fraction = np.where(
        rng.random(count) < 0.4,
        rng.choice([0, -(1 << 15), (1 << 15) - 1], count),
        rng.integers(-(1 << 15), 1 << 15, count),
    )
    return np.clip(units, -most, most - 1), factor, fraction, shift
