"""Numbers of the integer softmax of the trainer: points, limits and tables."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from functools import lru_cache

#: Bits after the binary point: of differences of logits, of powers, and of probabilities.
LOGIT_POINT, POWER_POINT, PROBABILITY_POINT = 16, 30, 30
#: Differences of logits beyond this count as this: exp(-64) is nothing in 30 bits.
LOGIT_LIMIT = 64
#: Bits of a difference that each of the two tables of powers is for.
TABLE_BITS = LOGIT_POINT // 2


@lru_cache(maxsize=1)
def powers() -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """``log2(e)``, ``2**(-j/256)`` and ``2**(-j/65536)`` for j < 256, times ``2**30``, rounded half up."""
    with localcontext(Context(prec=50)):
        ln2, entries = Decimal(2).ln(), 1 << TABLE_BITS

        def rounded(number: Decimal) -> int:
            return int((number * (1 << POWER_POINT)).to_integral_value(ROUND_HALF_UP))

        coarse = tuple(rounded((-ln2 * j / entries).exp()) for j in range(entries))
        fine = tuple(rounded((-ln2 * j / entries**2).exp()) for j in range(entries))
        return rounded(1 / ln2), coarse, fine
