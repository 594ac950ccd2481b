"""The highest bit of a magnitude."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.integers import SUM_BITS
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import register

#: Bits that are looked at together in the first stage.
GROUP = 4


class HighestBit(Component):
    """Place of the highest bit that is set, and whether the magnitude is a power of two.

    Does not stall. One magnitude per cycle, ``LATENCY`` cycles later.
    """

    i = Input(SUM_BITS, "Magnitude.")
    place = Output(range(SUM_BITS), "Place of its highest bit; 0 if there is none.")
    some = Output(1, "It is not zero.")
    single = Output(1, "Exactly one bit is set.")

    LATENCY = 2

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        groups = [self.i[k : k + GROUP] for k in range(0, SUM_BITS, GROUP)]
        used = register(m, Cat(group.any() for group in groups), "used")
        several = register(m, Cat((group & (group - 1)).any() for group in groups).any(), "several")
        fine = [register(m, Mux(g[2:].any(), Cat(g[3], 1), Cat(g[1], 0)), f"fine_{k}") for k, g in enumerate(groups)]

        place = Signal.like(self.place)
        for k, part in enumerate(fine):  # the last assignment counts
            with m.If(used[k]):
                m.d.comb += place.eq(Cat(part, Const(k, len(place) - len(part))))
        single = used.any() & ~several & ~(used & (used - 1)).any()
        m.d.comb += [
            self.place.eq(register(m, place, "place_0")),
            self.some.eq(register(m, used.any(), "some_0")),
            self.single.eq(register(m, single, "single_0")),
        ]
        return m
