"""Numbers of the tables that integer chains look up: entries of functions and of their slopes [transfer-lut].

A table has an entry for every magnitude that a code may have within a *binade*, the numbers from ``2**b`` to below
``2**(b + 1)``, and for both signs, so that one table serves all exponents of codes. Of codes with m bits an entry is
for ``sign * (2**(m - 2) + k) * 2**(b - m + 2)``; its number is ``((b - BINADE_MIN) * 2 + (sign < 0)) * 2**(m - 2) +
k``.
"""

from __future__ import annotations

#: Bits of an entry, sign included; bits after its binary point, and the greatest one.
ENTRY_BITS = 16
ENTRY_POINT = ENTRY_BITS - 1
ENTRY_TOP = (1 << ENTRY_POINT) - 1
#: The first binade of a table: all functions are constant up to its end, where zero and everything below are looked up.
BINADE_MIN = -17
#: Bits of the number of binades of a table; numbers beyond the last one are looked up in that.
BINADES_BITS = 6


def binade_entries(bits: int) -> int:
    """Entries of a binade, for codes of so many bits, sign included."""
    return 1 << bits - 1


def table_words(binades: int, bits: int, native: int) -> int:
    """Wide words of a table, N entries of 16 bits each."""
    return -(-binades * binade_entries(bits) // native)
