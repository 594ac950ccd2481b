"""Random numbers that depend on a seed and a place alone: Philox 4x64-10, counter-based (Salmon et al., SC 2011)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from concord.spec.formats import NOISE_BITS

_WORD = 1 << 64


def raw(seed: int, place: Sequence[int], count: int) -> npt.NDArray[np.uint64]:
    """``count`` numbers of 64 bits for a seed and a place of up to three numbers.

    The key is the seed, words 1 to 3 of the counter are the place, word 0 counts.
    """
    if not 0 <= seed < _WORD:
        raise ValueError(f"seed must be in 0..2**64 - 1, not {seed!r}")
    words = [*place, 0, 0, 0][:3]
    counter = sum(int(word) % _WORD << 64 * k for k, word in enumerate([0, *words]))
    # The generator adds one to its counter before it takes the first block.
    return np.random.Philox(key=seed, counter=counter).random_raw(count) if count else np.zeros(0, np.uint64)


def permutation(seed: int, place: Sequence[int], count: int) -> npt.NDArray[np.int64]:
    """An order of ``count`` things: that of their numbers, the earlier one first where two are equal."""
    return np.argsort(raw(seed, place, count), kind="stable")


def uniform(seed: int, place: Sequence[int], count: int) -> npt.NDArray[np.float64]:
    """Numbers strictly between -1 and 1, odd multiples of ``2**-32``."""
    high = (raw(seed, place, count) >> np.uint64(32)).astype(np.float64)
    return (2 * high + 1) / 2.0**32 - 1


class NoiseStream:
    """Noise of stochastic rounding: call k takes the numbers of the place ``(*place, k)``."""

    def __init__(self, seed: int, place: Sequence[int]):
        if len(place) > 2:
            raise ValueError(f"place must have at most two numbers, not {len(place)}")
        self.seed, self.place, self.calls = seed, [*place, 0][:2], 0

    def take(self, shape: Sequence[int]) -> npt.NDArray[np.int64]:
        """16 bits for every element in C order, four of each number of 64 bits, the low ones first."""
        count = math.prod(shape)
        words = raw(self.seed, (*self.place, self.calls), -(-count // 4))
        self.calls += 1
        parts = words[:, None] >> (np.arange(4, dtype=np.uint64) * np.uint64(NOISE_BITS)) & np.uint64(0xFFFF)
        return parts.reshape(-1)[:count].astype(np.int64).reshape(tuple(shape))
