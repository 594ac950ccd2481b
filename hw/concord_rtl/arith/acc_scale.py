"""From accumulators to codes."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.formats import (
    BINARY16_PRECISION,
    SCALE_FACTOR_BITS,
    SCALE_FRACTION_BITS,
    SCALE_SHIFT_BITS,
    SCALED_MAX,
)
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, round_up
from concord_rtl.cells.dsp import Multiplier
from concord_rtl.parts.bits import leading_zeros
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.stages import delay, register

#: Bits of the lower part of an accumulator, which one multiplier takes; another one takes the rest.
LOW_BITS = 17
#: Bits by which the first of two shifters moves products, as a power of two.
FINE_BITS = 3
#: Bits of a number before its fraction is added: beyond, the result is limited whatever the fraction is.
KEPT_BITS = SCALE_FRACTION_BITS + BINARY16_PRECISION + 1
#: Exponent field of 1.0 times two to the power of the bits in front of the point.
BIAS = (1 << MAGNITUDE - FRACTION - 1) - 1 + BINARY16_PRECISION - 1


class AccScale(NpuUnit):
    """An accumulator times a factor, moved down, plus a fraction, as a whole number in binary16: ``vv_scale``.

    Does not stall. One value per cycle, ``LATENCY`` cycles later; rounds to nearest even, limits to -2047 .. 2047 and
    gives +0 for zero, as :func:`concord.golden.scale.scaled`. Takes two multipliers, for accumulators of at most
    ``LOW_BITS`` bits and a sign one.

    Parameters
    ----------
    config : NpuConfig
        Gives the bits of an accumulator.
    """

    units = Input(lambda self: signed(self.config.scaled_bits), "Accumulator, in units of ``2**wgt_exp_min``.")
    factor = Input(SCALE_FACTOR_BITS, "Factor.")
    shift = Input(SCALE_SHIFT_BITS, "Bits by which the product moves down.")
    fraction = Input(signed(SCALE_FRACTION_BITS), "Added to the value of ``FRACTION_DELAY`` cycles ago.")
    o = Output(16, "Result.")

    LATENCY, FRACTION_DELAY = timing.ACC_SCALE, timing.SCALE_FRACTION

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        product = self._product(m)
        shift = delay(m, self.shift, Multiplier.LATENCY + 1, "shift")
        coarse = register(m, product >> Cat(Const(0, FINE_BITS), shift[FINE_BITS:]), "coarse")
        fine = register(m, coarse >> register(m, shift[:FINE_BITS], "fine_shift"), "fine")
        fraction = register(m, self.fraction, "fraction_1")

        # Sixth cycle: the fraction, and whether there is more than it can bring back.
        sum_ = register(m, fine[:KEPT_BITS].as_signed() + fraction, "sum")
        beyond = fine[KEPT_BITS - 1 :] if len(fine) >= KEPT_BITS else fine[-1]
        negative = register(m, fine[-1], "beyond_negative")
        over = register(m, beyond.any() & ~beyond.all(), "over")

        sign, whole = Mux(over, negative, sum_[-1]), sum_[SCALE_FRACTION_BITS:]
        guard, sticky = sum_[SCALE_FRACTION_BITS - 1], sum_[: SCALE_FRACTION_BITS - 1].any()
        up = round_up(whole[0], guard, sticky)
        rounded = ((whole ^ sum_[-1].replicate(len(whole))) + (up ^ sum_[-1]))[: len(whole)]
        magnitude = register(m, rounded, "magnitude")
        sign, over = register(m, sign, "sign"), register(m, over, "over_7")
        m.d.comb += self.o.eq(self._binary16(m, magnitude, sign, over))
        return m

    def _product(self, m) -> Value:
        """The exact product, three cycles later."""
        units, factor = self.units, Cat(self.factor, Const(0, 1)).as_signed()
        parts = [units] if len(units) <= LOW_BITS + 1 else [Cat(units[:LOW_BITS], Const(0, 1)), units[LOW_BITS:]]
        products = []
        for name, part in zip(("low", "high"), parts, strict=False):
            m.submodules[name] = multiplier = Multiplier(len(part), len(factor))
            m.d.comb += [multiplier.a.eq(part.as_signed()), multiplier.b.eq(factor)]
            products.append(multiplier.o)
        total = products[0] if len(products) == 1 else products[0] + (products[1] << LOW_BITS)
        return register(m, total[: len(units) + SCALE_FACTOR_BITS].as_signed(), "product")

    def _binary16(self, m, magnitude, sign, over) -> Value:
        """Last cycle: limit a magnitude and write it as binary16."""
        limited = magnitude[:BINARY16_PRECISION] | (over | magnitude[BINARY16_PRECISION:].any()).replicate(
            BINARY16_PRECISION
        )
        assert SCALED_MAX == (1 << BINARY16_PRECISION) - 1
        zeros = leading_zeros(limited)
        there = limited.any()
        field = Mux(there, BIAS - zeros, 0)[: MAGNITUDE - FRACTION]
        return register(m, Cat((limited << zeros)[:FRACTION], field, sign & there), "result")
