"""Numbers of normalisation in training: quotients and reciprocal roots, rounded to some bits, all in integers.

A number is a mantissa and an exponent, ``mant * 2**exp``, with exactly ``bits`` bits in the mantissa, or 0 and 0.
"""

from __future__ import annotations

from math import isqrt


def rounded_quotient(num: int, den: int) -> int:
    """``num / den`` to the nearest integer, halves away from zero; ``den`` is positive."""
    size = (2 * abs(num) + den) // (2 * den)
    return size if num >= 0 else -size


def _scaled(num: int, den: int, left: int) -> tuple[int, int]:
    """Numerator and denominator of ``num / den * 2**left``."""
    return (num << left, den) if left >= 0 else (num, den << -left)


def nearest(num: int, den: int, exp: int, bits: int) -> tuple[int, int]:
    """The number with that many bits that is nearest to ``num / den * 2**exp``, halves away from zero.

    Parameters
    ----------
    num, den, exp : int
        ``den`` is positive.
    bits : int
        Of the mantissa, without its sign.
    """
    if not num:
        return 0, 0
    right = abs(num).bit_length() - den.bit_length() - bits
    mant = rounded_quotient(*_scaled(num, den, -right))
    while abs(mant) >> bits:
        right += 1
        mant = rounded_quotient(*_scaled(num, den, -right))
    return mant, exp + right


def reciprocal_root(num: int, den: int, exp: int, bits: int) -> tuple[int, int]:
    """The number with that many bits that is nearest to ``1 / sqrt(num / den * 2**exp)``, halves up.

    ``round(sqrt(q)) = (isqrt(floor(4 q)) + 1) >> 1`` for every rational q, so an integer square root is enough.

    Raises
    ------
    ValueError
        If the number under the root is not positive.
    """
    if num <= 0 or den <= 0:
        raise ValueError(f"the number under a root must be above 0, not {num!r} / {den!r}")
    if exp % 2:
        num, exp = 2 * num, exp - 1
    left = (2 * bits - den.bit_length() + num.bit_length()) // 2 - 2
    twice = 0
    while not twice >> bits:
        left += 1
        above, below = _scaled(den, num, 2 * left + 2)
        twice = isqrt(above // below)
    mant = twice + 1 >> 1
    if mant >> bits:  # rounded up
        mant, left = mant >> 1, left - 1
    return mant, -left - exp // 2
