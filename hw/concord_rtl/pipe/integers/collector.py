"""Vectors of integers from their beats."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.integers import DIGIT_BITS
from concord.spec.isa import DIGITS_MAX
from concord_rtl.parts.component import Input, NpuUnit, Output

#: Bits of an element: as many as its digits have.
ELEMENT_BITS = DIGIT_BITS * DIGITS_MAX


class VectorCollector(NpuUnit):
    """Puts the beats of vectors together. The word stays until the last beat of the next vector, shifted if asked to.

    Parameters
    ----------
    config : NpuConfig
    """

    clear = Input(1, "A chain begins.")
    valid = Input(1, "A beat is there.")
    i = Input(lambda self: data.ArrayLayout(ELEMENT_BITS, self.config.mfu_lanes), "Its elements.")
    shift = Input(1, "Move the elements of ``o`` down by a digit.")
    closes = Output(1, "The beat that is there is the last one of its vector.")
    ready = Output(1, "``o`` has a new vector: a cycle after its last beat.")
    o = Output(lambda self: data.ArrayLayout(ELEMENT_BITS, self.config.native), "The vector.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        beats = self.config.beats
        beat = Signal(range(max(2, beats)))
        earlier = Signal(len(self.i.as_value()) * (beats - 1), reset_less=True)
        m.d.comb += self.closes.eq(self.valid & (beat == beats - 1))
        m.d.sync += self.ready.eq(self.closes)
        with m.If(self.clear):
            m.d.sync += beat.eq(0)
        with m.Elif(self.valid):
            m.d.sync += [
                beat.eq(Mux(self.closes, 0, beat + 1)),
                earlier.eq(Cat(earlier, self.i.as_value())[len(self.i.as_value()) :]),
            ]
        with m.If(self.closes):
            m.d.sync += self.o.eq(Cat(earlier, self.i.as_value()))
        with m.Elif(self.shift):
            m.d.sync += [element.eq(element >> DIGIT_BITS) for element in self.o]
        return m
