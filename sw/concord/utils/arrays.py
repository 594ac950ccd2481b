"""Types of arrays, by what their elements are: all modules have these and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Elements of any type.
Array = NDArray[Any]
#: Numbers in double precision, and in single precision.
FloatArray = NDArray[np.float64]
Float32s = NDArray[np.float32]
#: Integers of 64 bits, and truth values.
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
#: Integers of any size: of 64 bits where they are known to fit, and Python integers elsewhere.
Integers = NDArray[Any]
#: Numbers of elements of a memory or of a tensor; what a negative one means is up to the module.
Ids = NDArray[np.int64]
#: Bit patterns of binary16, and bytes.
Bits = NDArray[np.uint16]
Bytes = NDArray[np.uint8]


def numbers_of(text: str) -> tuple[float, ...]:
    """Numbers of a text, which blanks and line ends part."""
    return tuple(map(float, text.split()))
