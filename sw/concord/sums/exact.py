"""Types of floats that hold integers exactly, whatever the order in which they are added up."""

from __future__ import annotations

import numpy as np

#: Bits of the significands of binary32 and binary64.
SINGLE_BITS, DOUBLE_BITS = 24, 53
#: Every integer up to these magnitudes is exact in binary32 and in binary64.
SINGLE, DOUBLE = 1 << SINGLE_BITS, 1 << DOUBLE_BITS
#: Types that BLAS multiplies, and up to where every integer is exact in them.
EXACT_UP_TO: dict[type[np.generic], int] = {np.float32: SINGLE, np.float64: DOUBLE}


def exact_type(bound: int) -> type[np.generic]:
    """The fastest type in which integers up to a magnitude are exact: float32, float64 or int64."""
    return next((kind for kind, end in EXACT_UP_TO.items() if bound <= end), np.int64)
