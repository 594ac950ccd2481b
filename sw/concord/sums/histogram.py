"""Histograms of the bits that integers need: counts per width, for all widths at once.

The width that an integer needs is that of two's complement: w bits hold ``-2**(w-1) .. 2**(w-1) - 1``, so 0 and -1 need
one bit, 127 and -128 eight. A value leaves a storage of w bits exactly if it needs more than w of them [overflow].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from concord.operations.float32 import Pool
from concord.spec.widths import needed_width
from concord.sums.exact import EXACT_UP_TO
from concord.utils.arrays import Array, Ints

#: Widths that can be told apart; wider than any sum that a configuration or 64-bit integers can make.
WIDEST = 256
#: Widths of a storage that can be asked for [overflow].
STORAGE_WIDTHS = range(1, 65)

#: Per float type: unsigned type of the same size, bits of the fraction, bias of the exponent.
_FLOATS: dict[type, tuple[type, int, int]] = {
    np.float32: (np.uint32, 23, 127),
    np.float64: (np.uint64, 52, 1023),
}
_HALF_WORD = 32
#: Exponent fields that are counted together.
_COLLECTED = 1 << 19


class SumStage(StrEnum):
    """Stage of a value on its way into a sum."""

    PRODUCT = "product"  # of two integers
    LANE_SUM = "lane sum"  # of some lanes of a step of the machine, an addition each; none with one lane, or depthwise
    TERM = "term"  # sum of a step, shifted onto the grid
    SUM = "sum"  # after an addition
    OUTPUT = "output"  # after the last addition


def check_width(name: str, width: int, widths: range = STORAGE_WIDTHS) -> int:
    """The width; ``ValueError`` unless it is an integer among ``widths``."""
    if isinstance(width, bool) or not isinstance(width, int) or width not in widths:
        raise ValueError(f"{name} must be an integer in {widths[0]}..{widths[-1]}, not {width!r}")
    return width


def needed_bits(values: ArrayLike) -> Ints:
    """Bits that integers of any size need.

    Parameters
    ----------
    values : array of integers, or of Python integers (dtype object)

    Raises
    ------
    TypeError
        For anything else: floats are not exact.
    """
    array: Array = np.asarray(values)
    if array.dtype == object:
        return np.array([needed_width(int(v)) for v in array.flat], dtype=np.int64).reshape(array.shape)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise TypeError(f"values must be integers of at most 64 bits with a sign, not {array.dtype}")
    whole = array.astype(np.int64)
    magnitude = whole ^ (whole >> 63)
    high, low = magnitude >> _HALF_WORD, magnitude & (1 << _HALF_WORD) - 1
    bits = np.where(high > 0, np.frexp(high.astype(np.float64))[1] + _HALF_WORD, np.frexp(low.astype(np.float64))[1])
    return np.asarray(bits, dtype=np.int64) + 1


class Histogram:
    """Numbers of values by the bits they need.

    Members
    -------
    counts : int64 ``[WIDEST + 1]``
        Values that need exactly so many bits.
    """

    def __init__(self, counts: ArrayLike | None = None):
        self.counts: Ints = np.zeros(WIDEST + 1, dtype=np.int64)
        if counts is not None:
            numbers = np.asarray(counts, dtype=np.int64)
            self.counts[: len(numbers)] = numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and bool(np.array_equal(self.counts, other.counts))

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Histogram({ {int(w): int(self.counts[w]) for w in np.flatnonzero(self.counts)} })"

    @property
    def total(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    @property
    def bits(self) -> int:
        """The least width that holds all values; 0 if there are none."""
        return int(np.flatnonzero(self.counts)[-1]) if self.counts.any() else 0

    def beyond(self, width: int) -> int:
        """Values that leave a storage of ``width`` bits."""
        return int(self.counts[width + 1 :].sum())

    def curve(self, widths: Iterable[int] = STORAGE_WIDTHS) -> dict[int, int]:
        """Values that leave a storage, by its width."""
        return {width: self.beyond(width) for width in widths}

    def add(self, other: Histogram | Ints) -> None:
        """Count the values of another one, too."""
        self.counts += other.counts if isinstance(other, Histogram) else other

    def count(self, values: ArrayLike) -> None:
        """Count integers."""
        self.counts += np.bincount(needed_bits(values).reshape(-1), minlength=WIDEST + 1)


class Histograms(dict[SumStage, Histogram]):
    """Histograms by stage; one of a stage that has none is made when it is asked for."""

    def __missing__(self, stage: SumStage) -> Histogram:
        return self.setdefault(stage, Histogram())

    def add(self, other: Histograms) -> None:
        """Count the values of another one, too."""
        for stage, histogram in other.items():
            self[stage].add(histogram)


class Tally:
    """Counts numbers that are integers times ``2**-frac``, held exactly in float32 or float64, fast.

    A quarter of the least bit is added: that changes no exponent but those of zero and of negative powers of two, which
    need one bit less than the positive ones. The exponent field is then the length of the integer. Fields are collected
    and counted in pairs, many at a time.

    Parameters
    ----------
    kind : type
        float32 or float64.
    frac : int
        Bits after the binary point of the values: the integers are values times ``2**frac``.
    pool : Pool
        Of the thread.

    Members
    -------
    LIMITS : dict
        By float type: the integers must not be beyond two to the power of this.
    """

    LIMITS: ClassVar[dict[type, int]] = {kind: end.bit_length() - 3 for kind, end in EXACT_UP_TO.items()}

    def __init__(self, kind: type, frac: int, pool: Pool):
        self._kind, self._frac, self._pool = kind, frac, pool
        self._fields = np.empty(_COLLECTED, dtype=np.uint8)
        self._filled = 0
        self._pairs = np.zeros(1 << 16, dtype=np.int64)
        self._odd: list[int] = []

    def add(self, values: Array) -> None:
        """Count contiguous floats."""
        flat = values.reshape(-1)
        for start in range(0, flat.size, _COLLECTED):
            part = flat[start : start + _COLLECTED]
            if self._filled + part.size > _COLLECTED:
                self._flush()
            self._collect(part)

    def _collect(self, values: Array) -> None:
        integer, fraction, _ = _FLOATS[self._kind]
        moved = self._pool.take("moved", values.shape, self._kind)
        np.add(values, 2.0 ** -(self._frac + 2), out=moved)
        field: Array = moved.view(integer)
        np.right_shift(field, fraction, out=field)
        end = self._filled + values.size
        np.copyto(self._fields[self._filled : end], field, casting="unsafe")  # without the sign
        self._filled = end

    def _flush(self) -> None:
        even = self._filled & ~1
        self._pairs += np.bincount(self._fields[:even].view(np.uint16), minlength=1 << 16)
        if self._filled > even:
            self._odd.append(int(self._fields[even]))
        self._filled = 0

    def counts(self) -> Ints:
        """Counts of everything by the bits it needs; begins again."""
        self._flush()
        square = self._pairs.reshape(256, 256)
        fields = square.sum(axis=0) + square.sum(axis=1) + np.bincount(self._odd, minlength=256)
        counts = np.zeros(WIDEST + 1, dtype=np.int64)
        counts[:256] = np.roll(fields, self._frac + 2 - _FLOATS[self._kind][2])
        counts[1] += counts[0]  # zero
        counts[0] = 0
        self._pairs[:] = 0
        self._odd = []
        return counts


class StageCounter:
    """Counts the values of several stages, in one thread: floats with a tally, Python integers one by one.

    Parameters
    ----------
    fracs : mapping, optional
        Bits after the binary point of floats by stage, integers times ``2**-frac``. Those of other stages are integers.

    Members
    -------
    pool : Pool
        Arrays for whoever makes the values.
    """

    def __init__(self, fracs: Mapping[SumStage, int] | None = None):
        self.pool, self._fracs, self._whole = Pool(), fracs or {}, Histograms()
        self._tallies: dict[tuple[SumStage, type], Tally] = {}

    def count(self, stage: SumStage, values: Array) -> None:
        """Count contiguous floats, or Python integers."""
        kind = values.dtype.type
        if kind is np.object_:
            self._whole[stage].count(values)
            return
        if (stage, kind) not in self._tallies:
            self._tallies[stage, kind] = Tally(kind, self._fracs.get(stage, 0), self.pool)
        self._tallies[stage, kind].add(values)

    def taken(self) -> Histograms:
        """Counts since the last call."""
        for (stage, _), tally in self._tallies.items():
            self._whole[stage].add(tally.counts())
        counts, self._whole = self._whole, Histograms()
        return counts
