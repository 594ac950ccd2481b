"""Block floating point in hardware: codes, words, conversion and sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.fields import Layout
from concord.spec.formats import BINARY16_MAX_BITS, NOISE_BITS, BlockFormat, Rounding
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, exponent, is_nan, is_special, significand
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import Stages

FIELD_BITS = MAGNITUDE - FRACTION
#: The exponent field of 1.0, and of the unit of a significand read as an integer.
BIAS = 15
UNIT_BIAS = BIAS + FRACTION

#: A block while it is converted. ``base`` is the exponent plus an offset that makes it positive.
BLOCK = data.StructLayout({"base": FIELD_BITS, "static": 1, "rounding": 2, "wild": 1})


def finite(x):
    """Infinities count as the greatest number, NaNs as +0."""
    limited = Mux(is_special(x), BINARY16_MAX_BITS, x[:MAGNITUDE])
    return Mux(is_nan(x), 0, Cat(limited[:MAGNITUDE], x[MAGNITUDE]))


@dataclass(frozen=True)
class BlockFloat:
    """One format of blocks: how codes and words look, how binary16 becomes codes, how wide sums of products are.

    Parameters
    ----------
    format : BlockFormat
        The numbers.
    layout : Layout
        A stored word: mantissas ``mant`` and exponent ``exp``.
    stochastic : bool
        Whether conversion can round stochastically.
    """

    format: BlockFormat
    layout: Layout
    stochastic: bool = False

    @property
    def code(self) -> Shape:
        """A mantissa."""
        return signed(self.format.mant)

    @property
    def word(self) -> data.StructLayout:
        """A stored word."""
        return shape_of(self.layout)

    @property
    def exp(self) -> Any:
        """Shape of the exponent in a word."""
        return self.word["exp"].shape

    @property
    def offset(self) -> int:
        """Exponent field of the greatest element minus exponent of the block."""
        return BIAS + self.format.headroom

    def dot(self, other: BlockFloat, terms: int) -> Shape:
        """Shape of the sum of ``terms`` products of a code of this format and one of another, exact."""
        return signed(self.format.dot_bits(other.format, terms))

    def convert(self, stage: Stages, name: Any, x: Any, blocks: Sequence[Any], noise: Value) -> tuple[Value, Value]:
        """Shift, round and limit one finite element: four cycles, the last one without its registers.

        ``blocks`` are the blocks that the element belongs to in these cycles. Returns whether it was limited, and the
        code.
        """
        mant = self.format.mant
        bias = UNIT_BIAS - self.offset  # base + bias - exponent: places to shift right for the mantissa
        exp = stage.register(exponent(x) - bias, f"exp_{name}")
        sign = stage.delay(x[MAGNITUDE], timing.CONVERT, f"sign_{name}")
        sig = stage.delay(significand(x), 2, f"sig_{name}")

        right = blocks[0].base - exp
        count = stage.register(Mux(right[FIELD_BITS], (1 << FIELD_BITS) - 1, right)[:FIELD_BITS], f"count_{name}")
        # Only normal numbers come here, and with one place to the left they exceed every mantissa.
        large = stage.delay(right < 0, 3, f"large_{name}")

        fine = stage.register(Cat(Const(0, NOISE_BITS), sig) >> count, f"fine_{name}")
        stochastic = (blocks[2].rounding == Rounding.STOCHASTIC) & self.stochastic
        away = blocks[2].rounding == Rounding.NEAREST_AWAY
        even = ~stochastic & ~away
        addend = Mux(stochastic, noise, Cat(even.replicate(NOISE_BITS - 1), away))
        total = Cat(Const(1, 1), fine) + Cat(even & fine[NOISE_BITS], addend)
        code = stage.register(total[NOISE_BITS + 1 :], f"code_{name}")

        outside = large | code[mant - 1 :].any()
        magnitude = Mux(outside, self.format.q_max, code)[: mant - 1]
        return outside, (Cat(magnitude ^ sign.replicate(mant - 1), sign) + sign)[:mant]


def activations(config: NpuConfig) -> BlockFloat:
    """The format of narrow vectors."""
    return BlockFloat(config.act, config.narrow_word, config.stochastic)


def weights(config: NpuConfig) -> BlockFloat:
    """The format of rows of the matrix memory, L mantissas in each."""
    return BlockFloat(config.wgt, config.matrix_row)
