"""Look-up tables: ``entry = memory[offset + clamp(rne(x * 2**scale), low, high)]``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..spec.formats import HALF_MAX
from . import half


def index(bits: ArrayLike, low: int, high: int, scale: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the codes of binary16 patterns, and where they are not finite (``NONFINITE``).

    The product with a power of two is exact; it is rounded nearest even and clamped. An infinity counts as +-65504
    and a NaN as 0.
    """
    nonfinite = ~half.is_finite(bits)
    value = np.clip(np.where(half.is_nan(bits), 0.0, half.decode(bits)), -HALF_MAX, HALF_MAX)
    code = np.clip(np.rint(np.ldexp(value, scale)), low, high).astype(np.int64)
    return code, np.asarray(nonfinite)


def lookup(bits: ArrayLike, entries: ArrayLike, slot: Mapping[str, int]) -> tuple[half.Bits, NDArray[np.bool_]]:
    """Look values up in a table memory.

    Parameters
    ----------
    bits : array of uint16
        Inputs.
    entries : array of uint16
        The whole table memory.
    slot : mapping
        Fields of the slot descriptor (``NpuConfig.table_slot``): low, high, offset, scale.

    Returns
    -------
    entries, nonfinite : arrays like ``bits``
    """
    memory = half.as_bits(entries)
    low, high, offset = slot["low"], slot["high"], slot["offset"]
    if not 0 <= offset + low <= offset + high < len(memory):
        raise ValueError(f"slot must stay inside {len(memory)} entries, not {offset + low}..{offset + high}")
    code, nonfinite = index(bits, low, high, slot["scale"])
    return memory[code + offset], nonfinite
