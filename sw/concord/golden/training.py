"""Block floating point of training [lazy-update]: ``value = mantissa * 2**exp``, one exponent per block, in integers.

shared exponent
    ``e = ceil(log2(max|x|)) - (bits - 1)``, exact. ``max|x|`` is then ``2**(bits-1)`` steps or fewer, so a block whose
    greatest magnitude is a power of two would need the mantissa ``2**(bits-1)``, which is not there: it saturates to
    ``2**(bits-1) - 1``, as does what rounds up to it. A block of zeros has the exponent 0.
integers
    A block of integers that fit into ``bits`` is kept with its exponent: conversion only ever drops bits.
range of exponents
    8 bits. A block that would need a lesser exponent gets the least one; beyond the greatest mantissas saturate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from concord.golden.blocks import floor_log2
from concord.golden.rounding import round_shift
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN, TrainingFormat
from concord.utils.arrays import FloatArray, Ints


class Block(NamedTuple):
    """Mantissas ``mant[..., n]`` of blocks and their exponents ``exp[...]``."""

    mant: Ints
    exp: Ints


def ceil_log2(magnitude: ArrayLike) -> Ints:
    """``ceil(log2(m))`` of integers from 1 to ``2**53``, exact; 0 gives 0."""
    return floor_log2(np.maximum(np.asarray(magnitude, dtype=np.int64) - 1, 0)) + 1


def bits_to_drop(peak: ArrayLike, bits: int) -> Ints:
    """Number of bits that blocks with these greatest magnitudes must lose to fit into ``bits``: 0 where they fit."""
    return np.asarray(np.maximum(ceil_log2(peak) - (bits - 1), 0))


def shared_exponent(values: ArrayLike, bits: int) -> Ints:
    """``ceil(log2(max|x|)) - (bits - 1)`` of blocks of floats ``values[..., n]``, within the range of exponents."""
    peak = np.max(np.abs(np.asarray(values, dtype=np.float64)), axis=-1, initial=0.0)
    fraction, power = np.frexp(peak)
    wanted = np.where(fraction > 0.5, power, power - 1) - (bits - 1)
    return np.asarray(np.where(peak > 0, np.clip(wanted, TRAIN_EXP_MIN, TRAIN_EXP_MAX), 0), dtype=np.int64)


def quantize(mant: ArrayLike, exp: ArrayLike, fmt: TrainingFormat, noise: ArrayLike | None = None) -> Block:
    """Convert blocks of integers to a format.

    Parameters
    ----------
    mant, exp : arrays of int
        ``[..., n]`` below ``2**46`` in magnitude, and ``[...]``.
    fmt : TrainingFormat
        Bits and rounding; the last axis is the block.
    noise : array of int or None
        16 random bits per element, for stochastic rounding.
    """
    exact, start = np.asarray(mant, dtype=np.int64), np.asarray(exp, dtype=np.int64)
    drop = bits_to_drop(np.max(np.abs(exact), axis=-1, initial=0), fmt.bits)
    empty = ~np.any(exact, axis=-1)
    shared = np.where(empty, np.clip(start, TRAIN_EXP_MIN, TRAIN_EXP_MAX), start + drop)
    shared = np.clip(shared, TRAIN_EXP_MIN, TRAIN_EXP_MAX)
    right = np.where(empty, 0, shared - start)
    left = right < 0  # the greatest exponent is below that of the integers: 31 bits saturate all but zeros
    limited = np.where(left[..., None], np.clip(exact, -fmt.q_max, fmt.q_max), exact)
    rounded = round_shift(limited, np.maximum(right, -31)[..., None], fmt.rounding, noise)
    return Block(np.clip(rounded, -fmt.q_max, fmt.q_max), np.asarray(shared))


def quantize_float(values: ArrayLike, fmt: TrainingFormat) -> Block:
    """Convert blocks of floats ``[..., n]``: data, once, before training. Rounds to the nearest, away from zero.

    Raises
    ------
    ValueError
        If one is not finite.
    """
    exact = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(exact)):
        raise ValueError("values must be finite, not infinite or NaN")
    exp = shared_exponent(exact, fmt.bits)
    return Block(np.clip(nearest_away(np.ldexp(exact, -exp[..., None])), -fmt.q_max, fmt.q_max), exp)


def nearest_away(values: FloatArray) -> Ints:
    """Floats rounded to the nearest integers, halves away from zero; magnitudes are limited to ``2**62``."""
    magnitude = np.minimum(np.abs(values), 2.0**62)
    whole = np.floor(magnitude)
    rounded = (whole + (magnitude - whole >= 0.5)).astype(np.int64)
    return np.asarray(np.where(values < 0, -rounded, rounded))
