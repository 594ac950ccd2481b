"""Number formats: binary16 (wide), block floating point (narrow), the accumulator grid, and their rules.

The executable definition of every rule is :mod:`concord.golden`; this module holds the parameters.

wide
    IEEE 754 binary16 with subnormals, round to nearest even, one canonical NaN (``0x7E00``).
narrow
    BFP-m: ``element = q * 2**e`` with one signed exponent ``e`` per block and ``q`` in the symmetric
    range ``-(2**(m-1) - 1) .. 2**(m-1) - 1``.
accumulator
    Fixed point on an absolute grid: least bit ``2**-frac``; sums are exact, the final value saturates to ``width``
    bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from concord.spec.fields import Field, Layout
from concord.spec.widths import largest, needed_width

#: binary16 bit patterns and limits
BINARY16_NAN = 0x7E00
BINARY16_INF = 0x7C00
BINARY16_MAX = 65504
BINARY16_MAX_BITS = 0x7BFF
#: Logit that a softmax leaves out: nothing is left of it less a maximum, and a number of up to 32,000 taken off it does
#: not overflow.
MASKED = -BINARY16_MAX / 2
#: floor(log2(x)) of the largest finite and the least normal binary16 number
BINARY16_EXP_MAX = 15
BINARY16_EXP_MIN = -14
#: significand bits, the hidden one included
BINARY16_PRECISION = 11
BINARY16_WIDTH = 16
#: Every finite binary16 number is a multiple of 2**-BINARY16_FRAC.
BINARY16_FRAC = BINARY16_PRECISION - 1 - BINARY16_EXP_MIN
#: Widths of mantissas.
MANT_MIN, MANT_MAX = 3, 16
#: Widest mantissas, sign included, of which every code is a binary16 number: those of activations.
ACT_MANT_MAX = BINARY16_PRECISION + 1


#: Codes that are made of accumulators: bits of a factor, fraction bits of what is rounded, bits of the number by which
#: products move down, and the greatest magnitude of a result. All whole numbers up to that are binary16 numbers.
SCALE_FACTOR_BITS = 16
SCALE_FRACTION_BITS = 16
SCALE_SHIFT_BITS = 5
SCALED_MAX = (1 << BINARY16_PRECISION) - 1


class Rounding(IntEnum):
    """Rounding of a value between two codes. The number is the encoding in the ISA, which has no ``FLOOR``."""

    NEAREST_EVEN = 0
    NEAREST_AWAY = 1
    STOCHASTIC = 2
    FLOOR = 3


#: Roundings of the mantissas of a block.
BLOCK_ROUNDINGS = (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY, Rounding.STOCHASTIC)


#: Noise of stochastic rounding: lane p of a converter has an xorshift register of ``NOISE_STATE_BITS`` that starts at
#: ``NOISE_SEED * (p + 1)`` modulo ``2**NOISE_STATE_BITS``; one step is ``x ^= x << a; x ^= x >> b; x ^= x << c`` with
#: these shifts, and the low ``NOISE_BITS`` of the new state are the noise.
NOISE_STATE_BITS = 32
NOISE_SEED = 0x9E3779B9
NOISE_SHIFTS = (13, 17, 5)
NOISE_BITS = 16


class ExponentMode(IntEnum):
    """Origin of the exponent of a narrow block. The number is the encoding in the ISA."""

    DYNAMIC = 0
    STATIC = 1


class Flag(IntEnum):
    """Sticky flags of an instruction: the number is the bit position in a flag word."""

    ACC_OVERFLOW = 0  #: an accumulator left its W bits and was saturated
    HALF_OVERFLOW = 1  #: a finite operation gave an infinity in binary16
    NONFINITE = 2  #: an infinity or NaN reached a converter or a table
    SATURATED = 3  #: a mantissa was saturated by a static exponent
    TABLE_CLAMPED = 4  #: a table was given a number beyond an end where its function is not constant


#: Bits of a flag word by the names of the flags.
FLAG_BITS = {flag.name: 1 << flag for flag in Flag}


@dataclass(frozen=True)
class BlockFormat:
    """Block floating point with ``mant`` bits, ``block`` elements and exponents ``exp_min..exp_max``.

    Parameters
    ----------
    mant : int
        Mantissa width m in bits, 3 to 16, two's complement, symmetric range.
    block : int
        Elements that share one exponent.
    exp_min, exp_max : int
        Range of the shared exponent. The dynamic exponent of a binary16 block never exceeds ``BINARY16_EXP_MAX - (m -
        2)``.
    """

    mant: int
    block: int
    exp_min: int
    exp_max: int

    def __post_init__(self) -> None:
        if not MANT_MIN <= self.mant <= MANT_MAX:
            raise ValueError(f"mant must be in {MANT_MIN}..{MANT_MAX}, not {self.mant!r}")
        if self.block < 1:
            raise ValueError(f"block must be at least 1, not {self.block!r}")
        if self.exp_min > self.exp_max:
            raise ValueError(f"exp_min must be at most exp_max={self.exp_max}, not {self.exp_min!r}")

    @property
    def q_max(self) -> int:
        """Greatest mantissa; the least is its negative."""
        return largest(self.mant)

    @property
    def headroom(self) -> int:
        """``m - 2``: the shared exponent lies this far below floor(log2) of the largest magnitude."""
        return self.mant - 2

    @property
    def limit(self) -> float:
        """Magnitudes must be below this: from here on a block would need an exponent above ``exp_max``."""
        return 2.0 ** (self.exp_max + self.mant - 1)

    def dot_bits(self, other: BlockFormat, terms: int) -> int:
        """Bits of the exact sum of ``terms`` products of mantissas of this format and another, sign included."""
        return needed_width(terms * self.q_max * other.q_max)

    def narrowed(self, mant: int) -> BlockFormat:
        """Format of this range with ``mant`` bits, not more than here: every number of it is one of this format."""
        if not MANT_MIN <= mant <= self.mant:
            raise ValueError(f"mant must be in {MANT_MIN}..{self.mant}, not {mant!r}")
        return replace(self, mant=mant, exp_max=self.exp_max + self.mant - mant)

    def layout(self, exp_width: int, bias: int = 0) -> Layout:
        """Return the stored word: mantissas first, then the exponent minus ``bias`` (unsigned if there is a bias)."""
        exponent = Field("exp", exp_width, signed=bias == 0, doc="shared exponent")
        return Layout((Field("mant", self.mant, True, self.block, "mantissas"), exponent))


#: MXINT8 of the OCP Microscaling specification 1.0: m = 8, blocks of 32, power-of-two scale.
#: An MX element is ``q * 2**-6 * 2**(scale-127)``: the same numbers with e = scale - 133.
MXINT8 = BlockFormat(mant=8, block=32, exp_min=-133, exp_max=121)
