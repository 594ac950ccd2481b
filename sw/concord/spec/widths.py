"""Integers of some bits, two's complement: their range, and the bits that integers need."""

from __future__ import annotations


def largest(bits: int) -> int:
    """Greatest integer of ``bits`` bits, at least 1, sign included; the least of a symmetric range is its negative."""
    return (1 << bits - 1) - 1


def limits(bits: int) -> tuple[int, int]:
    """Least and greatest integer of ``bits`` bits, at least 1, sign included."""
    return -largest(bits) - 1, largest(bits)


def needed_width(*values: int) -> int:
    """Bits, at least 1, that hold each of some integers, sign included: 1 for 0 and -1, 8 for 127 and -128."""
    return 1 + max((value if value >= 0 else ~value).bit_length() for value in values)
