"""Softmax in integers: formulas of the trainer."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from concord.golden.rounding import round_shift
from concord.spec.softmax import LOGIT_LIMIT, LOGIT_POINT, POWER_POINT, PROBABILITY_POINT, TABLE_BITS, powers
from concord.utils.arrays import Ints


@lru_cache(maxsize=1)
def _tables() -> tuple[int, Ints, Ints]:
    scale, *tables = powers()
    coarse, fine = (np.array(table, dtype=np.int64) for table in tables)
    return scale, coarse, fine


def exponentials(below: Ints, exp: int) -> Ints:
    """``exp(-below * 2**exp) * 2**30`` of numbers that are not negative.

    1. d = below * 2**exp with 16 bits after the point, rounded half away, at most 64.
    2. t = (d * log2(e) + half) >> 30, with 16 bits after the point: k = t >> 16, f = t & 65535.
    3. ``coarse[f >> 8] * fine[f & 255]``, with 30 bits after the point, rounded half up; shifted right by k, rounded
    half up.
    """
    scale, coarse, fine = _tables()
    exp = min(exp, LOGIT_LIMIT.bit_length() - 1)  # from there on the least difference is beyond the limit
    whole = LOGIT_LIMIT << -exp if -40 <= exp <= 0 else max(LOGIT_LIMIT >> max(exp, 0), 1) if exp > 0 else 1 << 46
    d = round_shift(np.minimum(below, whole), -(LOGIT_POINT + exp))
    d = np.minimum(d, LOGIT_LIMIT << LOGIT_POINT)
    t = d * scale + (1 << POWER_POINT - 1) >> POWER_POINT
    f = t & (1 << LOGIT_POINT) - 1
    power = coarse[f >> TABLE_BITS] * fine[f & (1 << TABLE_BITS) - 1] + (1 << POWER_POINT - 1) >> POWER_POINT
    return round_shift(power, t >> LOGIT_POINT)


def probabilities(logits: Ints, exp: int) -> Ints:
    """Probabilities along the last axis, 30 bits after the point: ``(2 E 2**30 + S) // (2 S)``, S the sum of all E."""
    power = exponentials(logits.max(axis=-1, keepdims=True) - logits, exp)
    whole = power.sum(axis=-1, keepdims=True)
    return np.asarray(((power << PROBABILITY_POINT + 1) + whole) // (2 * whole))
