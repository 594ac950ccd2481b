"""Record in the place of a scheme for a wide tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class WideNumbers:
    """Binary32 numbers as integers, in the order of the numbers (:mod:`concord.integer.wide`)."""

    def __str__(self) -> str:
        """Type of the numbers, where codes have a meaning."""
        return "float32"

    @property
    def bits(self) -> int:
        """Bits of an integer."""
        return 32

    @property
    def low(self) -> int:
        """The integer of the least number."""
        return -self.high

    @property
    def high(self) -> int:
        """The integer of the greatest number."""
        return int(np.finfo(np.float32).max.view(np.uint32))

    @property
    def zero(self) -> int:
        """The integer of 0."""
        return 0

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """Type of the numbers."""
        return np.dtype(np.float32)
