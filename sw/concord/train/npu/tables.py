"""Tables of functions and of their slopes, for integer chains that look them up (:mod:`concord.spec.lookup`)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from concord.spec.lookup import BINADE_MIN, BINADES_BITS, binade_entries, table_words
from concord.spec.training import TRAIN_EXP_MAX, TrainingFormats
from concord.train.layers.pointwise import entries_at
from concord.train.npu.words import Ints

#: Bits of what is looked up.
_BITS = TrainingFormats().activation.bits
#: Most binades of a table.
_BINADES_MAX = (1 << BINADES_BITS) - 1


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """A table.

    Parameters
    ----------
    entries : array of int64
        ``[binades, 2, fractions]``: positive and negative numbers of each binade.
    """

    entries: Ints

    @property
    def binades(self) -> int:
        """Binades that it has."""
        return len(self.entries)

    def words(self, native: int) -> int:
        """Wide words that it takes."""
        return table_words(self.binades, _BITS, native)


@lru_cache
def function_tables(name: str) -> tuple[FunctionTable, FunctionTable]:
    """Tables of a function and of its slope, for activations of any exponent.

    Value and slope rise or fall on each side of zero. So what is one number up to the end of the first binade and at
    zero is that for everything in between; and what is one number in the last binade and at the end of all exponents is
    that for everything beyond.

    Parameters
    ----------
    name : str
        Of a function with a slope.

    Raises
    ------
    ValueError
        If entries of the first binade differ from that of zero, or if the entries become constant beyond what a table
        has.
    """
    signs, half = (1, -1), binade_entries(_BITS) // 2
    far = np.array([entries_at(name, Fraction(sign << TRAIN_EXP_MAX + _BITS)) for sign in signs])
    binades: list[Ints] = []
    counts = [0, 0]
    while not all(counts):
        if len(binades) == _BINADES_MAX:
            raise ValueError(
                f"a function that is looked up must be constant from 2**{BINADE_MIN + _BINADES_MAX - 1} on, not {name}"
            )
        step = Fraction(2) ** (BINADE_MIN + len(binades) - _BITS + 2)
        numbers = [[sign * (half + fraction) * step for fraction in range(half)] for sign in signs]
        binades.append(np.array([[entries_at(name, number) for number in row] for row in numbers]))
        if len(binades) == 1 and (binades[0] != entries_at(name, Fraction(0))).any():
            raise ValueError(f"a function that is looked up must be constant up to 2**{BINADE_MIN + 1}, not {name}")
        last = (binades[-1] == far[:, None]).all(axis=(0, 1))
        counts = [count or len(binades) * int(constant) for count, constant in zip(counts, last, strict=True)]
    whole = np.stack(binades)
    values, slopes = (FunctionTable(whole[:count, ..., kind]) for kind, count in enumerate(counts))
    return values, slopes


@dataclass(frozen=True)
class TableMemory:
    """A table in the wide memory.

    Parameters
    ----------
    first : int
        Address of the first wide word.
    table : FunctionTable
        Entries in the order of their numbers.
    """

    first: int
    table: FunctionTable


@dataclass(frozen=True)
class FunctionMemory:
    """A function.

    Parameters
    ----------
    values : TableMemory
    slopes : TableMemory or None
        ``None``: no gradient goes through it.
    """

    values: TableMemory
    slopes: TableMemory | None

    @property
    def tables(self) -> tuple[TableMemory, ...]:
        """Tables that there are: values, and slopes if there are any."""
        return (self.values,) if self.slopes is None else (self.values, self.slopes)
