"""Limits of configurations that other packages need, too; the rules are in :mod:`concord.spec.config`."""

from __future__ import annotations

#: Greatest number of instruction words.
PROGRAM_DEPTH_MAX = 4096
#: Least number of bits of an accumulator.
ACC_WIDTH_MIN = 8
#: Most bits of an accumulator that is made a code: two multipliers hold its product with a factor.
SCALED_BITS_MAX = 35
#: Needs of integer chains: bits of mantissas, and products per cycle that have multipliers of their own on the
#: largest device.
INTEGER_MANT, INTEGER_PRODUCTS_MAX = 8, 128
