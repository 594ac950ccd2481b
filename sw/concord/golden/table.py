"""Look-up tables: ``entry = memory[offset + clamp(rne(x * 2**scale), low, high)]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from concord.golden import binary16
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import Bits, Bools, Ints


class TableCodes(NamedTuple):
    """Codes of inputs, and where the inputs were not finite or beyond an end; arrays like the inputs."""

    code: Ints
    nonfinite: Bools
    under: Bools
    over: Bools


class Found(NamedTuple):
    """Entries for inputs, and where these raise ``NONFINITE`` and ``TABLE_CLAMPED``; arrays like the inputs."""

    entries: Bits
    nonfinite: Bools
    clamped: Bools


def index(bits: ArrayLike, low: int, high: int, scale: int) -> TableCodes:
    """Return the codes of binary16 patterns.

    The product with a power of two is exact; it is rounded nearest even and clamped. An infinity counts as +-65504
    and a NaN as 0.
    """
    nonfinite = ~binary16.is_finite(bits)
    value = np.clip(np.where(binary16.is_nan(bits), 0.0, binary16.decode(bits)), -BINARY16_MAX, BINARY16_MAX)
    whole = np.rint(np.ldexp(value, scale))
    code = np.clip(whole, low, high).astype(np.int64)
    return TableCodes(code, np.asarray(nonfinite), np.asarray(whole < low), np.asarray(whole > high))


def lookup(bits: ArrayLike, entries: ArrayLike, slot: Mapping[str, int]) -> Found:
    """Look values up in a table memory.

    Parameters
    ----------
    bits : array of uint16
        Inputs.
    entries : array of uint16
        The whole table memory.
    slot : mapping
        Fields of the slot descriptor (``NpuConfig.table_slot``): low, high, offset, scale, settled_low, settled_high.

    Raises
    ------
    ValueError
        If an entry would be outside the memory.
    """
    memory = binary16.as_bits(entries)
    low, high, offset = slot["low"], slot["high"], slot["offset"]
    if not 0 <= offset + low <= offset + high < len(memory):
        raise ValueError(f"slot must stay inside {len(memory)} entries, not {offset + low}..{offset + high}")
    codes = index(bits, low, high, slot["scale"])
    return Found(
        memory[codes.code + offset], codes.nonfinite, clamped(codes, slot["settled_low"], slot["settled_high"])
    )


def clamped(codes: TableCodes, settled_low: int, settled_high: int) -> Bools:
    """True where a code was clamped at an end that is not constant."""
    return (codes.under & (not settled_low)) | (codes.over & (not settled_high))
