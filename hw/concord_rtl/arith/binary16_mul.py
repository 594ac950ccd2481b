"""binary16 multiplier."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.formats import BINARY16_INF, BINARY16_NAN, BINARY16_PRECISION, BINARY16_WIDTH
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, exponent, is_normal, is_special, round_up
from concord_rtl.arith.binary16_fields import significand as significand_of
from concord_rtl.cells.dsp import Multiplier
from concord_rtl.parts.bits import below, leading_zeros
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import Stages

#: Bits of the exact product of two significands.
PRODUCT = 2 * BINARY16_PRECISION
#: The shifter output has this many bits: significand, carry, guard.
WINDOW = BINARY16_PRECISION + 2
#: Shift count that leaves the product in place: products of exponents 1 and 1 are shifted by 0.
NEUTRAL = 14
#: First bit of the window in the shifted product.
LOWEST = NEUTRAL + PRODUCT - WINDOW
INF_FIELD = 31


class Binary16Mul(Component):
    """Product of two binary16 numbers, subnormals included, rounded once to nearest even.

    Does not stall; every NaN result is the canonical one. One product per cycle, ``LATENCY`` cycles later. The
    significands are multiplied in one :class:`concord_rtl.cells.dsp.Multiplier`, unnormalised, and one shifter serves
    normal and subnormal results.

    Parameters
    ----------
    held : bool
        Inputs are held for ``LATENCY`` cycles and until the result has been used.
    """

    a = Input(16, "First factor.")
    b = Input(16, "Second factor.")
    skip = Input(1, "Leave the multiplication out: the result is ``a``, bit by bit.")
    o = Output(16, "Product.")
    overflow = Output(1, "Finite factors gave an infinity.")

    LATENCY = timing.BINARY16_MUL

    def __init__(self, *, held=False):
        self.held = held
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        stage = Stages(m, held=self.held)
        product = self._multiply(stage)
        low, zeros, special, value = self._stage_1_2(stage)
        high = (zeros + NEUTRAL)[:5]
        count = Mux(low < high, low, high)[: len(high)]
        # Of a leading one in bit 20, minus 1.
        field = stage.register(Mux(low < high, 0, low - high)[: len(low)], "field")
        mask = self._sticky_mask(stage, low, zeros)
        self._stage_3_4(stage, product, stage.register(count, "count"), mask, field, special, value)
        return m

    def _multiply(self, stage):
        m = stage.m
        m.submodules.multiplier = multiplier = Multiplier(BINARY16_PRECISION + 1, BINARY16_PRECISION + 1)
        m.d.comb += [multiplier.a.eq(significand_of(self.a)), multiplier.b.eq(significand_of(self.b))]
        return multiplier.o[:PRODUCT]

    def _stage_1_2(self, stage):
        """Exponents and special values, up to the third cycle."""
        a, b = self.a, self.b
        # The shift that brings the result to the least exponent, and the leading zeros, of which all but NEUTRAL have
        # to be shifted out to normalise it; the lesser shift is right. If both factors are subnormal the former is 0,
        # so the zeros of the two may be mixed.
        low = stage.register((exponent(a) + exponent(b) - 2)[:6], "low")
        counts = [Mux(is_normal(x), 0, leading_zeros(x[:FRACTION]) + 1)[:4] for x in (a, b)]
        zeros = stage.register(counts[0], "zeros_a") | stage.register(counts[1], "zeros_b")

        top = [stage.register(is_special(x), f"top_{n}") for n, x in [("a", a), ("b", b)]]
        rest = [stage.register(x[:FRACTION].any(), f"rest_{n}") for n, x in [("a", a), ("b", b)]]
        nonzero = [stage.register(x[:MAGNITUDE].any(), f"nonzero_{n}") for n, x in [("a", a), ("b", b)]]
        sign = stage.register(a[MAGNITUDE] ^ b[MAGNITUDE], "sign_1")
        skip, kept = stage.register(self.skip, "skip"), stage.register(a, "kept")
        nan = (top[0] & (rest[0] | ~nonzero[1])) | (top[1] & (rest[1] | ~nonzero[0]))
        known = Mux(nan, BINARY16_NAN, Cat(Const(BINARY16_INF, MAGNITUDE), sign))
        special = stage.register(skip | top[0] | top[1], "special_2")
        # Without a special value only the sign matters.
        value = stage.register(Mux(skip, kept, Mux(top[0] | top[1], known, Cat(Const(0, MAGNITUDE), sign))), "value_2")
        return low, zeros, special, value

    def _sticky_mask(self, stage, low, zeros):
        """Mask of bits of the product that fall below the window when it is shifted by the lesser of the two counts."""
        limits = [LOWEST - k for k in range(PRODUCT)]
        return stage.register(Cat(below(low, n) | below(zeros, n - NEUTRAL) for n in limits), "mask")

    def _stage_3_4(self, stage, product, count, mask, field, special, value):
        m = stage.m
        window = stage.register((product << count)[LOWEST : LOWEST + WINDOW], "window")
        sticky = stage.register((product & mask).any(), "sticky")
        fields = [stage.register((field + k)[: len(field)], f"field_{k}") for k in (1, 2)]
        huge = [stage.register(field + k >= INF_FIELD, f"huge_{k}") for k in (1, 2)]
        special, value = stage.register(special, "special_3"), stage.register(value, "value_3")

        carry = window[WINDOW - 1]
        guard = Mux(carry, window[1], window[0])
        up = round_up(Mux(carry, window[2], window[1]), guard, sticky | (carry & window[0]))
        kept = Mux(carry, window[2:], window[1:])[:FRACTION]
        # Without a leading one the result is subnormal, or zero.
        exp = Mux(carry, fields[1], Mux(window[WINDOW - 2], fields[0], 0))[: MAGNITUDE - FRACTION]
        rounded = Signal(MAGNITUDE)
        too_big = Mux(carry, huge[1], huge[0] & window[WINDOW - 2])
        m.d.comb += rounded.eq(Cat(kept, exp) + up)
        magnitude = Mux(too_big, BINARY16_INF, rounded)
        result = Mux(special, value, Cat(magnitude[:MAGNITUDE], value[MAGNITUDE]))
        m.d.comb += self.o.eq(stage.register(result[:BINARY16_WIDTH], "result"))
        m.d.comb += self.overflow.eq(stage.register(~special & (too_big | is_special(rounded)), "over"))
