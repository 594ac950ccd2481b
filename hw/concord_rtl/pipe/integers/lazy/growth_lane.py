"""One weight and its accumulator when the exponent of their block grows."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.integers.lazy.steps import lifted, lowered, outside, split
from concord_rtl.pipe.integers.lazy.widths import LazyWidths


class GrowthLane(Component):
    """A weight and its accumulator in units of a greater exponent.

    Takes what :class:`concord_rtl.pipe.integers.lazy.update_lane.UpdateLane` gives, shifts both as one number, rounded
    to the nearest away, and divides it into a weight and an accumulator. A weight that is still out of range, which is
    so only where the exponent cannot grow as far, becomes the greatest or least one, with an accumulator of zero. Does
    not stall. One element per cycle, ``LATENCY`` cycles later.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    """

    weight = Input(lambda self: self.widths.element.members["weight"], "Weight.")
    acc = Input(lambda self: self.widths.element.members["acc"], "Accumulator.")
    places = Input(
        lambda self: range(self.widths.growth_max + 1),
        "By how much the exponent grows; 0 divides anew only.",
    )
    coarser = Input(
        lambda self: range(self.widths.coarser_max + 1),
        "By how many bits the point of the accumulator lies higher; only where it may.",
        when=lambda self: self.widths.coarser_max,
    )
    o_weight = Output(lambda self: self.widths.element.members["weight"], "New weight.")
    o_acc = Output(lambda self: self.widths.element.members["acc"], "New accumulator.")

    LATENCY = 5

    def __init__(self, widths: LazyWidths):
        self.widths = widths
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        widths, shift = self.widths, self.widths.shift
        own = self.coarser if widths.coarser_max else None
        held = lifted(widths, self.acc, own)
        total = Signal(signed(widths.total_bits), reset_less=True)
        m.d.sync += total.eq(Cat(held[:shift], self.weight + held[shift:].as_signed()).as_signed())
        places = register(m, self.places, "places")

        guarded = Cat(Const(0, 1), total).as_signed() >> places
        below = Cat(total[j] & (places > j + 1) for j in range(widths.growth_max - 1)).any()
        coarser = [delay(m, own, k, f"coarser_{k}") if widths.coarser_max else None for k in range(4)]
        half, whole = self._parted(guarded, coarser[1])
        up = register(m, half & ~(total[-1] & ~below), "up")
        halved = register(m, whole.as_signed(), "halved")
        rounded = Signal(signed(widths.total_bits), reset_less=True)
        m.d.sync += rounded.eq(halved + lifted(widths, Cat(up, Const(0, 1)).as_signed(), coarser[2]))

        quotient, up, rest = split(rounded, shift)
        weight = register(m, quotient + up, "weight")
        acc = register(m, lowered(widths, rest, coarser[3]), "acc")
        ends = outside(weight, widths.weight.q_max)
        end = Mux(weight[-1], -widths.weight.q_max, widths.weight.q_max)
        m.d.comb += [
            self.o_weight.eq(register(m, Mux(ends, end, weight)[: widths.weight.bits], "o_weight")),
            self.o_acc.eq(register(m, Mux(ends, 0, acc), "o_acc")),
        ]
        return m

    def _parted(self, guarded, coarser):
        """The bit below the last one of the accumulator, and all above it with zeros below."""
        most = self.widths.coarser_max
        if not most:
            return guarded[0], guarded[1:]
        below = Cat(guarded[k + 1] & (coarser != k + 1) for k in range(most))
        return Array(guarded[k] for k in range(most + 1))[coarser], Cat(below, guarded[most + 1 :])
