"""Look-up tables [transfer-lut]: contents computed once, equal contents stored once.

``entry = f(code * 2**-scale)`` for every code, correctly rounded to binary16 and limited to +-65504, so that a table
never makes an infinity or a NaN; a zero is +0. The contents then travel as data: nothing computes them elsewhere.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from concord.functions.catalogue import function
from concord.functions.exact import ExactFunction, Number
from concord.functions.interval_bounds import resolve
from concord.functions.intervals import exact
from concord.functions.table_ends import POINTS, ends_are_constant, everywhere
from concord.golden import binary16
from concord.golden.table import Found, clamped, index
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_EXP_MIN, BINARY16_MAX, BINARY16_PRECISION
from concord.utils.arrays import Bits, FloatArray, Ints

_MINUS_ZERO = 0x8000
#: log2 of codes per unit of the input.
SCALES = range(-32, 32)


def _power(k: int) -> Fraction:
    return Fraction(2) ** k


def round_to_binary16(value: Number) -> int:
    """Bit pattern of the nearest finite binary16 number, ties to even; a zero is +0."""
    if isinstance(value, float) and math.isinf(value):
        return int(binary16.encode(math.copysign(BINARY16_MAX, value)))
    exact = Fraction(value)
    size = abs(exact)
    if not size:
        return 0
    top = size.numerator.bit_length() - size.denominator.bit_length()
    if size < _power(top):
        top -= 1
    unit = _power(max(top, BINARY16_EXP_MIN) - (BINARY16_PRECISION - 1))
    rounded = float(min(round(size / unit) * unit, Fraction(BINARY16_MAX)))
    return int(binary16.encode(-rounded if exact < 0 and rounded else rounded))


def round_array_to_binary16(values: FloatArray) -> Ints:
    """:func:`round_to_binary16` of float64 numbers, infinities included."""
    limited = np.clip(values, -BINARY16_MAX, BINARY16_MAX)
    bits = binary16.encode(limited)
    return np.where(bits == _MINUS_ZERO, 0, bits).astype(np.int64)


@dataclass(frozen=True)
class Table:
    """Stored contents of one function.

    Parameters
    ----------
    name : str
        For reports.
    low, high : int
        Least and greatest code.
    scale : int
        log2 of codes per unit of the input.
    entries : tuple of int
        binary16 patterns, of code ``low`` first.
    constant_ends : pair of bool
        Whether the first entry stands for all lower numbers, too, and the last one for all higher ones. Numbers beyond
        another end raise ``TABLE_CLAMPED``.
    """

    name: str
    low: int
    high: int
    scale: int
    entries: tuple[int, ...]
    constant_ends: tuple[bool, bool] = (False, False)

    def __post_init__(self) -> None:
        if len(self.entries) != self.high - self.low + 1:
            raise ValueError(f"entries must be {self.high - self.low + 1} for this range, not {len(self.entries)}")
        if any(not 0 <= entry <= 0xFFFF for entry in self.entries):
            raise ValueError("entries must be binary16 patterns in 0..65535")

    def apply(self, bits: ArrayLike) -> Found:
        """Look binary16 patterns up: results, and where they raise flags."""
        codes = index(bits, self.low, self.high, self.scale)
        entries = np.array(self.entries, dtype=np.uint16)[codes.code - self.low]
        return Found(entries, codes.nonfinite, clamped(codes, *self.constant_ends))


@lru_cache(maxsize=64)
def _everywhere(name: str, parameters: tuple[tuple[str, Any], ...]) -> tuple[FloatArray, FloatArray]:
    return everywhere(function(name).bounds_with(**dict(parameters))(POINTS))


def build_table(
    source: str | ExactFunction,
    config: NpuConfig,
    *,
    low: int,
    high: int,
    scale: int,
    name: str = "",
    constant_ends: tuple[bool, bool] | None = None,
    **parameters: Any,
) -> Table:
    """Compute a table.

    Parameters
    ----------
    source : str or callable
        A name of :data:`concord.functions.FUNCTIONS`, or a function from the exact input (a ``Fraction``) to a
        ``Fraction``, ``Decimal`` or float, which is rounded once.
    config : NpuConfig
        Its table memory limits the codes.
    low, high, scale : int
        Range of codes, and log2 of codes per unit of the input.
    name : str
        For reports; the name of the function if left out.
    constant_ends : pair of bool
        Whether the first and the last entry stand for all numbers beyond them. Left out, it is computed for a function
        by name as :mod:`concord.functions.table_ends` says, and no end of the caller's function is constant.
    parameters
        Of a function given by name.
    """
    curve = function(source).exact_with(**parameters) if isinstance(source, str) else source
    label = name or (source if isinstance(source, str) else getattr(source, "__name__", "custom"))
    depth = config.table_depth
    if not -depth <= low <= high < depth:
        raise ValueError(f"codes must be in {-depth}..{depth - 1}, not {low}..{high}")
    if high - low >= depth:
        raise ValueError(f"a table must have at most table_depth={depth} entries, not {high - low + 1}")
    if scale not in SCALES:
        raise ValueError(f"scale must be in {SCALES[0]}..{SCALES[-1]}, not {scale!r}")

    def entry(k: int) -> int:
        value = curve(Fraction(low + k) * _power(-scale))
        if isinstance(value, float | Decimal) and math.isnan(value):
            raise ValueError(f"{label} must be a number at {low + k} * 2**{-scale}, not NaN")
        return round_to_binary16(value)

    count = high - low + 1
    if isinstance(source, str):
        inputs = exact(np.ldexp(np.arange(low, high + 1, dtype=np.float64), -scale))
        bounds = function(source).bounds_with(**parameters)(inputs)
        entries = resolve(round_array_to_binary16(bounds.low), round_array_to_binary16(bounds.high), entry).tolist()
        if constant_ends is None:
            values = _everywhere(source, tuple(sorted(parameters.items())))
            constant_ends = ends_are_constant(low, high, scale, entries, values, pole=function(source).pole)
    else:
        entries = [entry(k) for k in range(count)]
    return Table(label, low, high, scale, tuple(entries), constant_ends or (False, False))


def standard_table(
    name: str,
    config: NpuConfig,
    entries: int | None = None,
    domain: tuple[float, float] | None = None,
    **parameters: Any,
) -> Table:
    """A table with the finest scale at which ``domain`` fits in ``entries``.

    Parameters
    ----------
    name : str
        Of :data:`concord.functions.FUNCTIONS`.
    entries : int
        Greatest number of entries; 256 (or the whole table memory, if smaller) when left out.
    domain : pair of numbers
        Inputs covered, [low, high); (low, 0] if high is 0. the ``domain`` of the function when left out.
    parameters
        Of the function.
    """
    low, high, scale = standard_range(name, config, entries, domain)
    return build_table(name, config, low=low, high=high, scale=scale, **parameters)


def standard_range(
    name: str, config: NpuConfig, entries: int | None = None, domain: tuple[float, float] | None = None
) -> tuple[int, int, int]:
    """Least code, greatest code and scale of a :func:`standard_table`."""
    room = min(256, config.table_depth) if entries is None else entries
    if not 2 <= room <= config.table_depth:
        raise ValueError(f"entries must be in 2..table_depth={config.table_depth}, not {entries!r}")
    bottom, top = map(Fraction, domain if domain is not None else function(name).domain)
    if bottom >= top:
        raise ValueError(f"domain must be (low, high) with low < high, not {domain!r}")
    # Codes have a sign and the bits of an address of the table memory.
    farthest = max(-bottom, top)
    fits = ((top - bottom) * _power(s) <= room and farthest * _power(s) <= config.table_depth for s in SCALES)
    scale = max(itertools.compress(SCALES, fits), default=SCALES[0])
    first, last = bottom * _power(scale), top * _power(scale)
    # One end is left out: the top, or the bottom of a range that ends at zero.
    low, high = (math.floor(first) + 1, 0) if top == 0 else (math.ceil(first), math.ceil(last) - 1)
    return low, max(low, high), scale  # a range between two codes has the upper one


def _place(held: tuple[int, ...], entries: tuple[int, ...]) -> int | None:
    """Position at which entries follow each other in ``held``; ``None`` if they do not."""
    starts = [k for k in range(len(held) - len(entries) + 1) if held[k] == entries[0]]
    return next((k for k in starts if held[k : k + len(entries)] == entries), None)


class TableSet:
    """The tables of one program, in the table memory.

    Equal tables share a slot; a table whose entries follow each other among those of another one shares them.

    Parameters
    ----------
    config : NpuConfig
        Depth of the table memory and number of slots.

    Members
    -------
    tables : list of Table
        By slot.
    used : int
        Entries of the table memory in use.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self.tables: list[Table] = []
        self._bases: dict[tuple[int, ...], int] = {}
        self._slots: dict[tuple[int, int, int, tuple[int, ...], tuple[bool, bool]], int] = {}
        self.used = 0

    def add(self, table: Table) -> int:
        """Store a table and return its slot; ``ValueError`` if it does not fit, which leaves the set as it was."""
        key = (table.low, table.high, table.scale, table.entries, table.constant_ends)
        if key in self._slots:
            return self._slots[key]
        slots = self.config.table_slots
        if len(self.tables) == slots:
            names = ", ".join(t.name for t in self.tables)
            raise ValueError(f"tables must fit in table_slots={slots}: {table.name} does not, beside {names}")
        self.store(table.name, table.entries)
        self._slots[key] = len(self.tables)
        self.tables.append(table)
        return self._slots[key]

    def store(self, name: str, entries: tuple[int, ...]) -> None:
        """Put entries into the memory, unless they are there; tables that have some of them need no more."""
        if entries in self._bases:
            return
        for held, base in self._bases.items():
            at = _place(held, entries)
            if at is not None:
                self._bases[entries] = base + at
                return
        depth = self.config.table_depth
        if self.used + len(entries) > depth:
            raise ValueError(
                f"tables must fit in table_depth={depth}: {name} needs {len(entries)} entries, "
                f"{depth - self.used} are left"
            )
        self._bases[entries] = self.used
        self.used += len(entries)

    @property
    def stored(self) -> int:
        """Number of different contents in the memory."""
        return len(self._bases)

    def descriptors(self) -> list[dict[str, int]]:
        """Fields of the slot descriptors, by slot."""
        return [
            {
                "low": t.low,
                "high": t.high,
                "offset": self._bases[t.entries] - t.low,
                "scale": t.scale,
                "settled_low": int(t.constant_ends[0]),
                "settled_high": int(t.constant_ends[1]),
            }
            for t in self.tables
        ]

    def slots(self) -> list[int]:
        """Words of the slot descriptors in use."""
        return [self.config.table_slot.pack(**fields) for fields in self.descriptors()]

    def memory(self) -> Bits:
        """Contents of the table memory in use."""
        words = np.zeros(self.used, dtype=np.uint16)
        for entries, base in self._bases.items():
            words[base : base + len(entries)] = entries
        return words
