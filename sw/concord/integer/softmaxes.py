"""Softmax in binary32, where ONNX Runtime has no kernel on codes: of codes of 16 bits, and of what it does not fuse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from concord.integer.float32 import Binary32, Integers
from concord.integer.graph import IntegerOperation


@dataclass(frozen=True, kw_only=True, eq=False)
class NumberSoftmax(IntegerOperation):
    """Softmax along an axis, of the numbers of codes: powers from a table, over their sum, and over the step.

    ``code = clamp(rne(f32(f32(power / sum) / step)) + zero_point)``, where ``sum`` is added up in binary32.

    Parameters
    ----------
    axis : int
        Along which it is; if ``flattened``, the axes from it on are one.
    flattened : bool
        As operators before opset 13 have it.
    scale : float32
        Of the codes read.
    count : int
        Number of codes that may be read.
    step : float32
        Scale of the codes made.
    zero_point, low, high : int
        Of the codes made.
    """

    axis: int
    flattened: bool
    scale: np.float32
    count: int
    step: np.float32
    zero_point: int
    low: int
    high: int

    @property
    def powers(self) -> NDArray[np.float32]:
        """Powers by code less the greatest one, the last for 0."""
        return powers_of_numbers(self.scale, self.count)

    def run(self, *codes: Integers) -> Integers:
        axis = self.axis % codes[0].ndim
        rows = codes[0].reshape(*codes[0].shape[:axis], -1) if self.flattened else np.moveaxis(codes[0], axis, -1)
        own = Binary32.of(self.powers)[rows - rows.max(axis=-1, keepdims=True) + self.count - 1]
        steps = own / own.summed()[..., None] / Binary32.of(self.step)
        made = np.clip(steps.integers() + self.zero_point, self.low, self.high)
        return made.reshape(codes[0].shape) if self.flattened else np.moveaxis(made, -1, axis)


@lru_cache(maxsize=16)
def powers_of_numbers(scale: np.float32, count: int) -> NDArray[np.float32]:
    """``exp(scale * k)`` for ``k`` from ``1 - count`` to 0, in binary32."""
    return np.exp(np.arange(1 - count, 1) * np.float64(scale)).astype(np.float32)
