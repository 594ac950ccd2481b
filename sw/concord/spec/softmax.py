"""Numbers of the integer softmax of the trainer and of the NPU: points, limits and sizes of tables."""

from __future__ import annotations

#: Bits behind the binary point: of differences of logits, of powers, and of probabilities.
LOGIT_POINT, POWER_POINT, PROBABILITY_POINT = 16, 30, 30
#: Differences of logits beyond this count as this: exp(-64) is nothing in 30 bits.
LOGIT_LIMIT = 64
#: Bits of the reciprocal of a sum of powers, as hardware divides by it.
RECIPROCAL_BITS = POWER_POINT + 2
#: Bits of a difference that each of the two tables of powers is for.
TABLE_BITS = LOGIT_POINT // 2
