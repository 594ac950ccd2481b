"""Counts of products without computing each one: every element of a column is multiplied by every weight of it.

How often a code of the activations meets a code of the weights is the product of how often each occurs at the same
place of the sum, added up over the places. The counts are exact.
"""

from __future__ import annotations

import numpy as np

from concord.sums.histogram import WIDEST, needed_bits
from concord.utils.arrays import Array, Ints

#: Pairs of codes of which a table is kept, at most.
_MOST = 1 << 18


def countable(x_max: int, w_max: int) -> bool:
    """True if tables for codes up to these magnitudes are small enough."""
    return (2 * x_max + 1) * (2 * w_max + 1) <= _MOST


class Pairs:
    """Products of the elements ``[K, columns]`` of some vectors with the weights ``[K, rows]`` they meet.

    Parameters
    ----------
    weights : integers ``[K, rows]``
    x_max : int
        Greatest magnitude of the elements.
    """

    def __init__(self, weights: Array, x_max: int):
        self._weights, self._x_max = weights.astype(np.int64), x_max
        self._seen = np.zeros((len(weights), 2 * x_max + 1), dtype=np.int64)

    def add(self, x: Array) -> None:
        """Count some vectors: whole numbers ``[K, columns]`` of any type."""
        self._seen += _occurrences(x.astype(np.int64), self._x_max)

    def counts(self) -> Ints:
        """Counts of all products by the bits they need."""
        w_max = int(np.abs(self._weights).max(initial=0))
        met = _occurrences(self._weights, w_max).T.astype(np.float64) @ self._seen.astype(np.float64)
        codes = np.arange(-self._x_max, self._x_max + 1)
        bits = needed_bits(np.arange(-w_max, w_max + 1)[:, None] * codes)
        return np.bincount(bits.reshape(-1), met.reshape(-1), WIDEST + 1).astype(np.int64)


def _occurrences(codes: Ints, most: int) -> Ints:
    """Counts of each code from ``-most`` to ``most`` in every row ``[K, 2 * most + 1]``."""
    span = 2 * most + 1
    at = codes + most + np.arange(len(codes))[:, None] * span
    return np.bincount(at.reshape(-1), minlength=len(codes) * span).reshape(len(codes), span)
