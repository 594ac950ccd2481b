"""Record in the place of a scheme for a wide tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class WideNumbers:
    """Binary32 numbers as integers, in the order of the numbers (:mod:`concord.integer.wide`)."""

    #: Bits of an integer; those of the greatest and of the least number, and that of 0; the type of the numbers.
    bits: ClassVar[int] = 32
    high: ClassVar[int] = int(np.finfo(np.float32).max.view(np.uint32))
    low: ClassVar[int] = -high
    zero: ClassVar[int] = 0
    dtype: ClassVar[np.dtype[np.float32]] = np.dtype(np.float32)

    def __str__(self) -> str:
        """Type of the numbers, where codes have a meaning."""
        return "float32"
