"""Ends of tables: whether the entry of an end stands for all numbers beyond it.

A table clamps. Where the function is constant beyond an end, as a sigmoid is, nothing is lost; where it is not, results
are wrong, and the hardware says so with the flag ``TABLE_CLAMPED``. The descriptor of a table has a
bit for each end that tells the two apart.

An end is constant if the function, rounded to binary16, differs from the entry of the end by no more than the table
errs inside anyway, for every binary16 number beyond the end. What it errs inside is the larger one of

* the mean over the table of half the step between neighbouring entries, and
* 2**-10 of the range of its entries, which is what a unit in the last place of binary16 is of a number.

What is divided by or multiplied with results of a function with a pole needs them to a relative accuracy that no
absolute error stands for: such tables have constant ends only where the function equals the entry.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from concord.functions.intervals import Interval, exact
from concord.golden import binary16
from concord.spec.formats import BINARY16_MAX, BINARY16_MAX_BITS, BINARY16_PRECISION
from concord.utils.arrays import Bools, FloatArray

#: All finite binary16 numbers in ascending order, zero once.
NUMBERS: FloatArray = binary16.decode(
    np.concatenate([np.arange(0x8000 | BINARY16_MAX_BITS, 0x8000, -1), np.arange(BINARY16_MAX_BITS + 1)])
)


#: Each of them as an interval.
POINTS = exact(NUMBERS)


def everywhere(bounds: Interval) -> tuple[FloatArray, FloatArray]:
    """Bounds on a function at all :data:`POINTS`, rounded to finite binary16 numbers; two arrays."""
    low, high = (
        binary16.decode(binary16.encode(np.clip(end, -BINARY16_MAX, BINARY16_MAX))) for end in (bounds.low, bounds.high)
    )
    return low, high


def tolerance(entries: ArrayLike) -> float:
    """Error of a table inside its range, from its binary16 patterns; saturated ones, next to a pole, do not count."""
    values = binary16.decode(np.asarray(entries, dtype=np.uint16))
    values = values[np.abs(values) < BINARY16_MAX]
    if values.size < 2:
        return 0.0
    return max(float(np.abs(np.diff(values)).mean()) / 2, float(np.ptp(values)) * 2.0 ** (1 - BINARY16_PRECISION))


def ends_are_constant(
    low: int, high: int, scale: int, entries: ArrayLike, values: tuple[FloatArray, FloatArray], *, pole: bool
) -> tuple[bool, bool]:
    """True for the end of the least code, and of the greatest, if its entry stands for all numbers beyond it.

    Parameters
    ----------
    low, high, scale : int
        Range of codes, and log2 of codes per unit of the input.
    entries : array of uint16 ``[high - low + 1]``
        binary16 patterns.
    values : pair of arrays
        What :func:`everywhere` gives for the function.
    pole : bool
        Whether the function has a pole.
    """
    most = 0.0 if pole else tolerance(entries)
    ends = binary16.decode(np.asarray(entries, dtype=np.uint16))[[0, -1]]
    codes = np.rint(np.ldexp(NUMBERS, scale))

    def stands(beyond: Bools, entry: float) -> bool:
        return all(bool((np.abs(bound[beyond] - entry) <= most).all()) for bound in values)

    return stands(codes < low, ends[0]), stands(codes > high, ends[1])
