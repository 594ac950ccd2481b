"""Specifications of tables: the functions that they hold and the inputs that they cover."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.functions.segmented import TableSegment
from concord.utils.arrays import FloatArray

#: Functions of :mod:`concord.functions` by name, each with its parameters.
Functions = tuple[tuple[str, tuple[tuple[str, float], ...]], ...]
#: Least and greatest input of a table.
Domain = tuple[float, float]


class Proven(tuple[float, float]):
    """A domain that inputs cannot be beyond, by what computes them: no flag is needed at its ends."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proven) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(("proven", *self))


@dataclass(frozen=True)
class InputSpan:
    """The inputs of a table whose entries at the ends are right for all inputs beyond, by what is done with them.

    Parameters
    ----------
    low, high : float
        Inputs covered, [low, high); (low, 0] if high is 0.
    ends : pair of float or None
        What the entries at the ends are instead of the function.
    scale : int or None
        log2 of codes per unit of the input; ``None``: the finest one for the entries there are.
    """

    low: float
    high: float
    ends: tuple[float | None, float | None] = (None, None)
    scale: int | None = None


@dataclass(frozen=True)
class WholeEntries:
    """A table of whole numbers for whole numbers, whatever function it is; those beyond have the entry of the end.

    Parameters
    ----------
    low : int
        Least input, a whole number.
    entries : tuple of int
        Results for the inputs from ``low`` on: whole numbers that are binary16 numbers.
    """

    low: int
    entries: tuple[int, ...]

    @property
    def high(self) -> int:
        """Greatest input."""
        return self.low + len(self.entries) - 1

    def at(self, x: FloatArray) -> FloatArray:
        """The entries of numbers, which are rounded."""
        index = np.clip(np.rint(x), self.low, self.high).astype(np.int64) - self.low
        return np.array(self.entries, dtype=np.float64)[index]


#: Functions of a table, and the inputs it covers; ``None``: the default of its first function.
TableSpec = tuple[Functions, Domain | TableSegment | InputSpan | WholeEntries | None]
#: Function that the multifunction units compute without a table.
RELU: TableSpec = ((("relu", ()),), None)
