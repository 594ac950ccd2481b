"""Softmax in binary32, where ONNX Runtime has no kernel on codes: of codes of 16 bits, and of what it does not fuse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from concord.integer.float32 import Binary32
from concord.integer.operations import RowSoftmax


@dataclass(frozen=True, kw_only=True, eq=False)
class NumberSoftmax(RowSoftmax):
    """Softmax of the numbers of codes: ``code = clamp(rne(f32(f32(power / sum) / step)) + zero_point)``.

    Parameters
    ----------
    count : int
        Number of codes that may be read.
    step : float32
        Scale of the codes made.
    """

    count: int
    step: np.float32

    @property
    def powers(self) -> NDArray[np.float32]:
        """Powers by code less the greatest one, the last for 0."""
        return powers_of_numbers(self.scale, self.count)

    def powers_of(self, count: int) -> NDArray[np.float32]:
        return self.powers

    def steps_of(self, powers: Binary32, total: Binary32) -> Binary32:
        return powers / total / Binary32.of(self.step)


@lru_cache(maxsize=16)
def powers_of_numbers(scale: np.float32, count: int) -> NDArray[np.float32]:
    """``exp(scale * k)`` for ``k`` from ``1 - count`` to 0, in binary32."""
    return np.exp(np.arange(1 - count, 1) * np.float64(scale)).astype(np.float32)
