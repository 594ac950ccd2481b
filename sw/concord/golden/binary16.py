"""binary16 arithmetic on bit patterns (``uint16`` arrays of any shape).

Operands are decoded to float64, where the sum, difference or product of two binary16 numbers is exact (at most 41 and
22 significant bits), and the result is rounded once, nearest even, to binary16. Every NaN result is ``0x7E00``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from concord.spec.formats import BINARY16_INF, BINARY16_NAN
from concord.utils.arrays import Array, Bits, Bools, FloatArray, Ints

_SIGN = 0x8000
_MAGNITUDE = 0x7FFF


def as_bits(values: ArrayLike) -> Bits:
    """Return bit patterns as ``uint16``; ``ValueError`` if one has more than 16 bits."""
    array: Array = np.asarray(values)
    if array.dtype == np.uint16:
        return array
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() > 0xFFFF):
        raise ValueError(f"binary16 bit patterns must be integers in 0..65535, not {values!r}")
    return array.astype(np.uint16)


def encode(values: ArrayLike) -> Bits:
    """Round float64 values once, nearest even; NaN becomes the canonical one."""
    exact = np.asarray(values, dtype=np.float64)
    with np.errstate(all="ignore"):
        bits = np.asarray(exact.astype(np.float16)).view(np.uint16)
    return np.where(np.isnan(exact), np.uint16(BINARY16_NAN), bits)


def decode(bits: ArrayLike) -> FloatArray:
    """Return the exact values of bit patterns."""
    with np.errstate(all="ignore"):
        return np.asarray(as_bits(bits).view(np.float16)).astype(np.float64)


def is_nan(bits: ArrayLike) -> Bools:
    """True where a pattern is a NaN."""
    return np.asarray((as_bits(bits) & _MAGNITUDE) > BINARY16_INF)


def is_inf(bits: ArrayLike) -> Bools:
    """True where a pattern is an infinity."""
    return np.asarray((as_bits(bits) & _MAGNITUDE) == BINARY16_INF)


def is_finite(bits: ArrayLike) -> Bools:
    """True where a pattern is neither infinity nor NaN."""
    return np.asarray((as_bits(bits) & _MAGNITUDE) < BINARY16_INF)


def add(a: ArrayLike, b: ArrayLike) -> Bits:
    """``a + b``; an exact cancellation gives +0."""
    with np.errstate(all="ignore"):
        return encode(decode(a) + decode(b))


def sub(a: ArrayLike, b: ArrayLike) -> Bits:
    """``a - b``."""
    with np.errstate(all="ignore"):
        return encode(decode(a) - decode(b))


def rsub(a: ArrayLike, b: ArrayLike) -> Bits:
    """``b - a``."""
    return sub(b, a)


def mul(a: ArrayLike, b: ArrayLike) -> Bits:
    """``a * b``."""
    with np.errstate(all="ignore"):
        return encode(decode(a) * decode(b))


def order(bits: ArrayLike) -> Ints:
    """Integers that compare like the numbers: -inf < ... < -0 < +0 < ... < inf."""
    wide = as_bits(bits).astype(np.int64)
    magnitude = wide & _MAGNITUDE
    return np.where(wide & _SIGN, -1 - magnitude, magnitude)


def _pick(a: ArrayLike, b: ArrayLike, take_a: Bools) -> Bits:
    chosen = np.where(take_a, as_bits(a), as_bits(b))
    return np.where(is_nan(a) | is_nan(b), np.uint16(BINARY16_NAN), chosen)


def maximum(a: ArrayLike, b: ArrayLike) -> Bits:
    """The greater of two in the total order (-0 < +0); NaN if either is."""
    return _pick(a, b, np.asarray(order(a) >= order(b)))


def minimum(a: ArrayLike, b: ArrayLike) -> Bits:
    """The lesser of two in the total order (-0 < +0); NaN if either is."""
    return _pick(a, b, np.asarray(order(a) <= order(b)))


def relu(a: ArrayLike) -> Bits:
    """The maximum with +0: -0 becomes +0, NaN stays NaN."""
    return maximum(a, np.uint16(0))


def overflowed(result: ArrayLike, *operands: ArrayLike) -> Bools:
    """True where finite operands gave an infinity: ``HALF_OVERFLOW``."""
    flags = is_inf(result)
    for operand in operands:
        flags = flags & is_finite(operand)
    return np.asarray(flags)
