"""One weight, its accumulator and an update."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.formats import Rounding
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.integers.lazy.steps import lifted, lowered, outside, shifted, split
from concord_rtl.pipe.integers.lazy.widths import LazyWidths

#: Bits of the shift that are left for the second of its two stages, and for the second step in that.
FINE_BITS, FINEST_BITS = 4, 2


class UpdateLane(Component):
    """Lazy update of one element: steps 1 to 3, and whether the block has to grow for it.

    Does not stall and does not grow; mantissas must be in their symmetric ranges. One element per cycle, ``LATENCY``
    cycles from the update to the results. The weight and the accumulator are needed ``WAIT`` cycles after the update
    only, which is time to read them.

    A weight that would leave its range stays as it is, with all that was added in its accumulator: together they are
    worth the same, and both fit into their formats. :class:`concord_rtl.pipe.integers.lazy.growth_lane.GrowthLane`
    makes a weight and an accumulator of them again.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    """

    change = Input(lambda self: self.widths.increment.members["change"], "The update.")
    noise = Input(
        lambda self: self.widths.increment.members["noise"],
        "16 bits of noise, if it is rounded stochastically.",
        when=lambda self: "noise" in self.widths.increment.members,
    )
    active = Input(1, "The element counts.")
    places = Input(
        lambda self: range(self.widths.places_max + 1),
        "How far the update is shifted (:func:`concord_rtl.pipe.integers.lazy.steps.limited_places`), one cycle after "
        "the update.",
    )
    weight = Input(lambda self: self.widths.element.members["weight"], "Weight, ``WAIT`` cycles after the update.")
    acc = Input(lambda self: self.widths.element.members["acc"], "Accumulator, likewise.")
    limit = Input(lambda self: range(self.widths.growth_max + 1), "By how much the block can grow, likewise.")
    coarser = Input(
        lambda self: range(self.widths.coarser_max + 1),
        "By how many bits the point of the accumulator lies higher, likewise; only where it may.",
        when=lambda self: self.widths.coarser_max,
    )
    o_weight = Output(lambda self: self.widths.element.members["weight"], "New weight.")
    o_acc = Output(lambda self: self.widths.element.members["acc"], "New accumulator.")
    refused = Output(1, "A part of the update was refused, step 1 or the greatest exponent.")
    vanished = Output(1, "The update was rounded to zero.")
    need = Output(lambda self: self.widths.growth_max, "Bit k: the weight is out of range if the block grows by k.")

    WAIT = 4

    def __init__(self, widths: LazyWidths):
        self.widths = widths
        super().__init__()

    @classmethod
    def latency(cls, widths: LazyWidths) -> int:
        """``LATENCY`` with some formats: two cycles more where growth by one may not be enough."""
        return cls.WAIT + 4 + (2 if widths.growth_max > 1 else 0)

    @property
    def LATENCY(self):
        """Cycles from the update to the results."""
        return self.latency(self.widths)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        term, carry, vanished = self._aligned(m)
        held, refused = self._accepted(m, term, carry)
        self._carried(m, held, refused)
        m.d.comb += self.vanished.eq(delay(m, vanished, self.LATENCY - self.WAIT, "vanished"))
        return m

    def _aligned(self, m):
        """Four cycles: the update in units of the accumulator, as the two terms of a sum, and whether it is nothing."""
        bits, fraction = self.widths.accumulator.bits, self.widths.fraction
        negative = delay(m, self.change[-1], 3, "negative")
        magnitude = register(m, abs(self.change), "magnitude")

        value = Cat(Const(0, bits + fraction), magnitude)
        keep, groups = bits + fraction, (self.widths.places_max >> FINE_BITS) + 1
        coarse = shifted(value, self.places[FINE_BITS:], 1 << FINE_BITS, groups, keep + (1 << FINE_BITS) - 1)
        some = delay(m, magnitude.any() & register(m, self.active, "active_1"), 2, "some")
        kept, over_1, lost_1 = (register(m, x, f"coarse_{k}") for k, x in enumerate(coarse))

        fine, finest = register(m, self.places[:FINE_BITS], "fine"), 1 << FINEST_BITS
        groups = 1 << FINE_BITS - FINEST_BITS
        kept, over_2, lost_2 = shifted(kept, fine[FINEST_BITS:], finest, groups, keep + finest - 1)
        kept, over_3, lost_3 = shifted(kept, fine[:FINEST_BITS], 1, finest, keep)
        window, over = register(m, kept, "window"), register(m, over_1 | over_2 | over_3, "over")
        lost = register(m, lost_1 | lost_2 | lost_3, "lost")

        # Beyond the accumulator all ones do: with any number that it holds, the sum is too large for it.
        whole = window[fraction:]
        up = self._rounded_up(m, window, lost)
        term = register(m, Cat((whole | over.replicate(bits)) ^ negative.replicate(bits), negative), "term")
        vanished = register(m, some & ~(whole.any() | over | up), "vanished_0")
        return term.as_signed(), register(m, up ^ negative, "carry"), vanished

    def _rounded_up(self, m, window, lost):
        """Bit that is set if rounding adds one to the magnitude."""
        fraction = self.widths.fraction
        if self.widths.stochastic:
            return (window[:fraction] + delay(m, self.noise, 3, "noise"))[fraction]
        if self.widths.accumulator.rounding == Rounding.NEAREST_EVEN:
            return window[0] & (lost | window[1])
        return window[0]

    def _accepted(self, m, term, carry):
        """Two cycles: the accumulator with the update, and whether that is not all of it."""
        top = self.widths.accumulator.bits - 1
        total = Signal(signed(top + 3), reset_less=True)
        m.d.sync += total.eq(self.acc + term + carry)

        sign, above = total[-1], total[top:-1]
        least = sign & ~total[:top].any()
        refused = (above ^ sign.replicate(len(above))).any() | least
        end = Cat(Const(1, 1), (~sign).replicate(top - 1))
        held = register(m, Cat(Mux(refused, end, total[:top]), sign), "held")
        return held.as_signed(), register(m, refused, "refused_0")

    def _carried(self, m, held, refused):
        """Two cycles, or four: what reaches the weight, unless that would leave its range."""
        widths = self.widths
        weight = delay(m, self.weight, 2, "weight")
        coarser = delay(m, self.coarser, 2, "coarser") if widths.coarser_max else None
        quotient, up, rest = split(lifted(widths, held, coarser), widths.shift)
        moved = Signal(signed(widths.moved_bits), reset_less=True)
        m.d.sync += moved.eq(weight + quotient + up)
        rest = register(m, lowered(widths, rest, coarser), "rest")

        beyond = outside(moved, widths.weight.q_max)
        late = self.LATENCY - self.WAIT - 4
        new_weight = Mux(beyond, register(m, weight, "kept_weight"), moved)[: widths.weight.bits]
        # What is added to a signed rest is its sign.
        new_acc = Signal(signed(widths.accumulator.bits), name="new_acc")
        m.d.comb += new_acc.eq(Mux(beyond, register(m, held, "kept_acc").as_signed(), rest.as_signed()))
        m.d.comb += [
            self.o_weight.eq(delay(m, new_weight, 1 + late, "o_weight")),
            self.o_acc.eq(delay(m, new_acc, 1 + late, "o_acc")),
        ]
        need = self._judged(m, weight, held) if late else beyond
        limit = delay(m, self.limit, 3 + late, "limit")
        ends = (Cat(need, Const(0, 1)) >> limit)[0]
        active = delay(m, self.active, self.LATENCY - 1, "active")
        refused = delay(m, refused, 1 + late, "refused")
        m.d.comb += [
            self.refused.eq(register(m, (refused | ends) & active, "o_refused")),
            self.need.eq(register(m, need & active.replicate(widths.growth_max), "o_need")),
        ]

    def _judged(self, m, weight, held):
        """Bits of ``need``, three cycles later: the magnitude against the greatest one that fits."""
        widths = self.widths
        total = Signal(signed(widths.total_bits), reset_less=True)
        m.d.sync += total.eq(Cat(held[: widths.shift], weight + held[widths.shift :].as_signed()).as_signed())
        magnitude = register(m, abs(total), "magnitude_of_total")
        return register(m, Cat(magnitude > widths.fitting(k) for k in range(widths.growth_max)), "need")
