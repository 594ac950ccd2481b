"""Bounds within which sums of products of integers are exact, and types of floats that hold them."""

from __future__ import annotations

import numpy as np

from concord.integer.float32 import MANTISSA_BITS, Integers
from concord.integer.wide_numbers import WideNumbers
from concord.transfer import UniformAffine

#: Types that BLAS multiplies, and up to where every integer is exact in them.
EXACT_UP_TO: dict[type[np.generic], int] = {np.float32: 1 << MANTISSA_BITS, np.float64: 1 << 53}


def reach_of(scheme: UniformAffine | WideNumbers, zero_point: int) -> int:
    """Largest magnitude of a code less a zero point."""
    return max(scheme.high - zero_point, zero_point - scheme.low)


def sum_bound(weights: Integers, axes: int | tuple[int, ...], reach: int) -> int:
    """The greatest magnitude of a sum of products along axes, whatever the factors up to ``reach`` are."""
    return int(np.abs(weights).sum(axis=axes, dtype=np.int64).max(initial=0)) * reach


def exact_type(bound: int) -> type[np.generic]:
    """The fastest type in which sums of that magnitude are exact, in any order."""
    return next((kind for kind, end in EXACT_UP_TO.items() if bound <= end), np.int64)
