"""Second, naive implementations of the number rules, from their definitions: Python integers and fractions only."""

from __future__ import annotations

import random
from bisect import bisect_left
from fractions import Fraction

NAN = 0x7E00
INF = 0x7C00

#: Every finite binary16 number >= 0 in units of 2**-24, in the order of its pattern; then where infinity starts.
UNITS = [f if e == 0 else (1024 + f) << e - 1 for e in range(31) for f in range(1024)] + [1 << 40]


def is_nan(bits):
    return bits & 0x7FFF > INF


def is_inf(bits):
    return bits & 0x7FFF == INF


def units(bits):
    """Signed value of a finite pattern in units of 2**-24."""
    return -UNITS[bits & 0x7FFF] if bits & 0x8000 else UNITS[bits]


def value(bits):
    """Exact value of a finite pattern."""
    return Fraction(units(bits), 1 << 24)


def nearest(x, negative_zero=False):
    """The pattern nearest to a fraction, by looking for its neighbours; ties go to the even pattern."""
    if x == 0:
        return 0x8000 if negative_zero else 0
    size = abs(x) * (1 << 24)
    above = bisect_left(UNITS, size)
    if above == len(UNITS):
        pattern = INF
    elif UNITS[above] == size or above == 0:
        pattern = above
    else:
        low, high = size - UNITS[above - 1], UNITS[above] - size
        pattern = above - (low < high or (low == high and above % 2 == 1))
    return pattern | (0x8000 if x < 0 else 0)


def add(a, b):
    """IEEE 754 addition of patterns."""
    if is_nan(a) or is_nan(b):
        return NAN
    if is_inf(a) or is_inf(b):
        return NAN if is_inf(a) and is_inf(b) and a != b else (a if is_inf(a) else b)
    return nearest(value(a) + value(b), negative_zero=a == b == 0x8000)


def mul(a, b):
    """IEEE 754 multiplication of patterns."""
    sign = (a ^ b) & 0x8000
    if is_nan(a) or is_nan(b):
        return NAN
    if is_inf(a) or is_inf(b):
        return NAN if a & 0x7FFF == 0 or b & 0x7FFF == 0 else INF | sign
    result = nearest(value(a) * value(b))
    return result & 0x7FFF | sign


def register_sum(terms, bits):
    """Sum of integers in a register of some bits, 0 for any; what does not fit ends it, just beyond that side."""
    total = 0
    for term in terms:
        for value in (term, total + term):
            if bits and not -(1 << bits - 1) <= value < 1 << bits - 1:
                return 1 << bits - 1 if value > 0 else -(1 << bits - 1) - 1
        total += term
    return total


def power(k):
    """2**k as a fraction."""
    return Fraction(1 << k) if k >= 0 else Fraction(1, 1 << -k)


def floor_log2(x):
    """Greatest k with 2**k <= x: a guess, then trying."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    while power(k) > x:
        k -= 1
    while power(k + 1) <= x:
        k += 1
    return k


def round_magnitude(x, rounding, noise=0):
    """Round a fraction >= 0: ``even``, ``away`` or ``stochastic``."""
    if rounding == "stochastic":
        return int(x * (1 << 16)) + noise >> 16
    whole, rest = divmod(x.numerator, x.denominator)
    if 2 * rest == x.denominator:
        return whole + (whole % 2 if rounding == "even" else 1)
    return whole + (2 * rest > x.denominator)


def quantize(patterns, mant, exp_min, rounding="even", static=None, noise=None):
    """One block: mantissas, exponent, nonfinite, saturated."""
    finite = [0 if is_nan(p) else p - 1 if is_inf(p) else p for p in patterns]
    values = [value(p) for p in finite]
    peak = max(abs(v) for v in values)
    exp = static
    if static is None:
        exp = max(exp_min, floor_log2(peak) - (mant - 2)) if peak else exp_min
    limit, step = 2 ** (mant - 1) - 1, power(-exp)
    sizes = [round_magnitude(abs(v) * step, rounding, noise[k] if noise else 0) for k, v in enumerate(values)]
    mants = [min(q, limit) * (-1 if v < 0 else 1) for q, v in zip(sizes, values, strict=True)]
    saturated = static is not None and any(q > limit for q in sizes)
    return mants, exp, any(is_nan(p) or is_inf(p) for p in patterns), saturated


def xorshift(lane, steps):
    """Noise of one lane: the low 16 bits after each step."""
    state, noise = 0x9E3779B9 * (lane + 1) % 2**32, []
    for _ in range(steps):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        noise.append(state & 0xFFFF)
    return noise


def corners():
    """Patterns where something changes: zeros, subnormals, neighbours of powers of two, the largest, specials."""
    sizes = {0, 1, 2, 3, 0x1FF, 0x200, 0x201, 0x7BFE, 0x7BFF, INF, NAN, 0x7C01, 0x7FFF}
    for exponent in range(31):
        sizes |= {(exponent << 10) + step for step in (-1, 0, 1, 0x200, 0x3FF) if (exponent << 10) + step >= 0}
    return sorted(sizes | {size | 0x8000 for size in sizes})


def sample(count, seed):
    """Random patterns, one in four from the corners."""
    rng, special = random.Random(seed), corners()
    return [rng.choice(special) if rng.random() < 0.25 else rng.randrange(1 << 16) for _ in range(count)]
