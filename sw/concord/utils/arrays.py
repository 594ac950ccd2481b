"""Types of arrays that many modules share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Numbers in double precision.
FloatArray = NDArray[np.float64]
#: Integers of 64 bits, and truth values.
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
#: Numbers of elements of a memory or of a tensor; what a negative one means is up to the module.
Ids = NDArray[np.int64]


def numbers(text: str) -> tuple[float, ...]:
    """Numbers of a text, which blanks and line ends part."""
    return tuple(map(float, text.split()))
