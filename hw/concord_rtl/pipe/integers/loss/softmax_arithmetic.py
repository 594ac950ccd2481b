"""Powers of differences of logits, and their shares in a sum."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory

from concord.spec import timing
from concord.spec.integers import SUM_BITS, WIDE_BITS
from concord.spec.isa import TENSOR_EXP_BITS
from concord.spec.softmax import (
    LOGIT_LIMIT,
    LOGIT_POINT,
    POWER_POINT,
    PROBABILITY_POINT,
    RECIPROCAL_BITS,
    TABLE_BITS,
    powers,
)
from concord_rtl.arith.wide_multiplier import WideMultiplier
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.integers.layouts import PLACES_MAX
from concord_rtl.pipe.integers.magnitude_rounder import MagnitudeRounder

#: The greatest exponent that makes a difference, and the limit of a difference in bits: all ones are beyond it.
EXP_MOST, LIMIT_BITS = LOGIT_LIMIT.bit_length() - 1, LOGIT_POINT + LOGIT_LIMIT.bit_length() - 1
#: Bits of a power, and of a share.
POWER_BITS, SHARE_BITS = POWER_POINT + 1, PROBABILITY_POINT + 1
#: Bits of the product of a power and a reciprocal, and of that of a difference, or a share, and what belongs to it.
RATIO_BITS, PRODUCT_BITS = POWER_BITS + RECIPROCAL_BITS - 1, LIMIT_BITS + POWER_BITS
#: Bits of twice what is left of a power after its share, sign included.
REST_BITS = SUM_BITS + 3


class SoftmaxArithmetic(Component):
    """Both halves of a softmax on the same multipliers: powers, and shares of powers in their sum.

    Formulas are those of :mod:`concord.golden.softmax`. A share is estimated with the reciprocal of the sum, which
    gives it or one less; what is left tells which of them.

    Does not stall. One element per cycle, ``POWER_LATENCY`` or ``SHARE_LATENCY`` cycles later. All inputs but ``value``
    must stay the same while elements are on their way, and must have come a cycle before them.
    """

    divide = Input(1, "``value`` is a power, and its share is asked for; otherwise a difference, and its power.")
    value = Input(WIDE_BITS, "By how much a logit is below the greatest one, or a power.")
    exp = Input(signed(TENSOR_EXP_BITS), "Exponent of the differences.")
    total = Input(SUM_BITS, "Sum of the powers.")
    place = Input(range(SUM_BITS), "Place of its highest bit.")
    reciprocal = Input(RECIPROCAL_BITS, "``(2**(place + 32) - 1) // total``.")
    power = Output(POWER_BITS, "The power; ``POWER_LATENCY``.")
    share = Output(SHARE_BITS, "The share; ``SHARE_LATENCY``.")

    POWER_LATENCY, SHARE_LATENCY = timing.POWER, timing.SHARE

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.ratio = ratio = WideMultiplier(POWER_BITS, RECIPROCAL_BITS, RATIO_BITS)
        m.submodules.product = product = WideMultiplier(SHARE_BITS, SUM_BITS, PRODUCT_BITS)
        m.submodules.rounder = rounder = MagnitudeRounder(RATIO_BITS)
        scale, coarse, fine = powers()

        # Differences move to the left first, so that they all drop bits.
        drop = Mux(self.exp > EXP_MOST, 0, EXP_MOST - self.exp)
        drop = Mux(drop > PLACES_MAX, PLACES_MAX, drop)
        m.d.comb += [
            rounder.i.eq(Mux(self.divide, ratio.o, self.value << LOGIT_POINT + EXP_MOST)),
            rounder.right.eq(register(m, Mux(self.divide, self.place + 2, drop), "right")),
            rounder.limit.eq(Mux(self.divide, (1 << SHARE_BITS) - 1, (1 << LIMIT_BITS) - 1)),
            product.a.eq(rounder.o),
            product.b.eq(Mux(self.divide, self.total, scale)),
        ]
        exponent = _rounded(m, product.o, "exponent")  # its whole part drops bits, its fraction is for the tables
        entries = (
            self._table(m, "coarse", coarse, exponent[TABLE_BITS:LOGIT_POINT]),
            self._table(m, "fine", fine, exponent[:TABLE_BITS]),
        )
        m.d.comb += [
            ratio.a.eq(Mux(self.divide, self.value, entries[0])),
            ratio.b.eq(Mux(self.divide, self.reciprocal, entries[1])),
        ]
        power = _rounded(m, ratio.o, "power_whole")
        whole = delay(m, exponent[LOGIT_POINT:], timing.BLOCK_RAM + WideMultiplier.LATENCY + 1, "whole")
        m.d.comb += self.power.eq(_dropped(m, power, whole))
        self._share(m, rounder.o, product.o)
        return m

    def _table(self, m, name, entries, address):
        """An entry of a table of powers, two cycles later."""
        m.submodules[name] = table = memory.Memory(shape=unsigned(POWER_BITS), depth=len(entries), init=entries)
        port = table.read_port()
        m.d.comb += port.addr.eq(address)
        return register(m, port.data, f"{name}_entry")

    def _share(self, m, estimate, product):
        """The estimate, or one more if at least half of the sum is left."""
        early = WideMultiplier.LATENCY + MagnitudeRounder.LATENCY
        power = delay(m, self.value[:POWER_BITS], early + WideMultiplier.LATENCY, "divided")
        twice = (power << PROBABILITY_POINT + 1) - (product << 1)
        left = register(m, twice[:REST_BITS], "left").as_signed()
        more = register(m, left >= self.total, "more")
        estimate = delay(m, estimate[:SHARE_BITS], WideMultiplier.LATENCY + 2, "estimate")
        m.d.comb += self.share.eq(register(m, (estimate + more)[:SHARE_BITS], "rounded_share"))


def _rounded(m, product, name):
    """Value without the bits after the binary point, rounded half up, a cycle later."""
    return register(m, (product + (1 << POWER_POINT - 1)) >> POWER_POINT, name)


def _dropped(m, power, whole):
    """``power * 2**-whole``, rounded half up, three cycles later."""
    fine_bits = 3
    coarse = register(
        m, Cat(Const(0, 1), power[:POWER_BITS]) >> Cat(Const(0, fine_bits), whole[fine_bits:]), "dropping"
    )
    fine = register(m, coarse >> register(m, whole[:fine_bits], "drop_fine"), "dropped")
    return register(m, (fine[1:] + fine[0])[:POWER_BITS], "power")
