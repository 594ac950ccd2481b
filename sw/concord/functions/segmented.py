"""Segmented tables: several tables for one function, each with a step of its own for a segment of the inputs.

A table has the same step everywhere. A function that is steep near zero and read over many powers of two, as a square
root of powers is, needs a fine step for small inputs and many entries for large ones. Segments have both. For inputs of
another segment, the entry of a segment is never above the right one. So the maximum over all segments is the entry of
the right segment. At a border, within half a step of the finer segment, the result may be that of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from concord.functions.catalogue import evaluate
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Entry of a segment where another one must be the largest.
LEAST = -float(BINARY16_MAX)


@dataclass(frozen=True)
class TableSegment:
    """The inputs of one table of a function that rises, or falls, all the way.

    Parameters
    ----------
    low, high : int
        Least and greatest code.
    scale : int
        log2 of codes per unit of the input.
    start, stop : float or None
        Where the previous segment ends and the next one begins; ``None`` if there is none. Of a rising function, the
        first code lies below ``start``; of a falling one, the last code lies above ``stop``. The entry of that code is
        the least number instead of the function.
    falling : bool
        Whether the function falls.
    """

    low: int
    high: int
    scale: int
    start: float | None = None
    stop: float | None = None
    falling: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low must be less than high={self.high}, not {self.low!r}")

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self.high - self.low + 1

    @property
    def step(self) -> float:
        """Distance of the inputs of neighbouring entries."""
        return float(np.ldexp(1.0, -self.scale))

    @property
    def undivided(self) -> bool:
        """True if no other segment continues it, as of the tables of a normalisation."""
        return self.start is None and self.stop is None

    @property
    def least(self) -> int | None:
        """Index of the entry that is the least number, if there is one."""
        if self.falling:
            return None if self.stop is None else self.entries - 1
        return None if self.start is None else 0

    def nearest(self, x: FloatArray) -> FloatArray:
        """The inputs whose function values the table has for ``x``, where this segment is the right one."""
        codes = np.clip(np.rint(np.ldexp(x, self.scale)), self.low, self.high)
        return self._limited(np.ldexp(codes, -self.scale))

    def evaluate(self, functions: Iterable[tuple[str, Mapping[str, float]]], x: FloatArray) -> FloatArray:
        """The functions as the segment limits them, in double precision."""
        y = evaluate(functions, self._limited(x))
        if self.falling:
            return y if self.stop is None else np.where(x >= self.stop, LEAST, y)
        return y if self.start is None else np.where(x <= self.start, LEAST, y)

    def _limited(self, x: FloatArray) -> FloatArray:
        return np.asarray(
            np.clip(x, -np.inf if self.start is None else self.start, np.inf if self.stop is None else self.stop)
        )
