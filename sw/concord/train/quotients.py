"""Quotients and reciprocal roots of many numbers at once, with the bits of :mod:`concord.golden.normalise`."""

from __future__ import annotations

import numpy as np

from concord.golden.normalise import reciprocal_root
from concord.golden.rounding import round_shift
from concord.train.tensor import Dyadic, Tensor
from concord.utils.arrays import Ints

#: Mantissas that are nearer to a half than this are rounded with exact integers; double precision is off by far less.
_NEAR = 2.0**-24


def rounded_quotients(nums: Ints, den: int) -> Ints:
    """``nums / den`` to the nearest integers, halves away from zero; ``2 * |num| + den`` is below ``2**63``."""
    sizes = (2 * np.abs(nums) + den) // (2 * den)
    return np.where(nums < 0, -sizes, sizes)


def nearest_quotients(nums: Ints, den: int, bits: int) -> tuple[Ints, Ints]:
    """The numbers with so many bits that are nearest to ``nums / den``, halves away from zero.

    Parameters
    ----------
    nums : array of int64
        Magnitudes below ``2**61``.
    den : int
        Positive, below ``2**(61 - bits)``.
    bits : int
        Of a mantissa, without its sign.

    Returns
    -------
    mantissas, exponents : arrays of int64
        0 and 0 for zeros.
    """
    sizes = np.abs(nums)
    lengths = np.frexp(sizes.astype(np.float64))[1].astype(np.int64)  # a size that is rounded up has one bit more
    right = lengths - den.bit_length() - bits - 1
    mants = _divided(sizes, den, right)
    while (wide := mants >> bits > 0).any():
        right = right + wide
        mants = _divided(sizes, den, right)
    return np.where(nums < 0, -mants, mants), np.where(nums == 0, 0, right)


def _divided(sizes: Ints, den: int, right: Ints) -> Ints:
    """``sizes / den * 2**-right``, halves up."""
    above, below = sizes << np.maximum(-right, 0), np.int64(den) << np.maximum(right, 0)
    return np.asarray((2 * above + below) // (2 * below))


def reciprocal_roots(nums: Ints, den: int, exps: Ints, added: Dyadic, bits: int) -> tuple[Ints, Ints]:
    """The numbers with so many bits that are nearest to ``1 / sqrt(nums / den * 2**exps + added)``.

    They are computed in double precision, whose divisions and roots are the same everywhere; those that are near a half
    are computed with integers of any length.

    Parameters
    ----------
    nums, exps : arrays of int64
        ``nums`` are not negative; exponents have magnitudes below 450.
    den : int
        Positive.
    added : Dyadic
        Above 0.
    bits : int
        Of a mantissa, up to 16.

    Returns
    -------
    mantissas, exponents : arrays of int64
    """
    spreads = np.ldexp(nums / den, exps) + float(added.value)
    fractions, powers = np.frexp(1 / np.sqrt(spreads))
    scaled = np.ldexp(fractions, bits)
    mants, exponents = np.floor(scaled + 0.5).astype(np.int64), powers.astype(np.int64) - bits
    for k in np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < _NEAR).tolist():
        least = min(int(exps[k]), added.exp)
        whole = (int(nums[k]) << int(exps[k]) - least) + (added.mant * den << added.exp - least)
        mants[k], exponents[k] = reciprocal_root(whole, den, least, bits)
    wide = mants >> bits > 0  # rounded up
    return np.where(wide, mants >> 1, mants), exponents + wide


def together_on_one_grid(mants: Ints, exps: Ints, most: int) -> Tensor:
    """Numbers of at most 31 bits on the finest grid any of them has, on which the greatest has at most ``most`` bits.

    What is finer is rounded to the nearest, away from zero: as :func:`concord.train.norm.on_one_grid`.
    """
    used = mants != 0
    if not used.any():
        return Tensor(np.zeros(mants.shape, np.float32), 0, 0)
    lengths = np.frexp(np.abs(mants[used]).astype(np.float64))[1]
    grid = max(int(exps[used].min()), int((lengths + exps[used]).max()) - most)
    moved = round_shift(mants, np.where(used, grid - exps, 0))
    return Tensor.of(moved, grid)
