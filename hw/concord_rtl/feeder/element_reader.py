"""What reads the elements of a vector."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.formats import BINARY16_WIDTH
from concord_rtl.feeder.pointers import pointer_bits
from concord_rtl.parts.component import Input, NpuUnit, Output


class ElementReader(NpuUnit):
    """Pushes the elements of a native vector: of the inbox, of the border of the image, and padding.

    Takes three cycles for an element that comes from the inbox, four if it has two bytes and five if it is looked up in
    the code book, two for one outside of the image and one for padding, and three for an exponent. Whoever asks knows
    where elements are; an address is that of the next element one cycle after a strobe.

    Parameters
    ----------
    config : NpuConfig
    """

    start = Input(1, "Strobe: begin with a vector.")
    blocks = Input(1, "An exponent precedes the elements.")
    double = Input(1, "Elements have two bytes.")
    coded = Input(1, "Elements are addresses in the code book.")
    at = Input(lambda self: pointer_bits(self.config), "Address of the next element, a cycle behind a strobe.")
    inside = Input(1, "Its tap is inside the image; from the second cycle on.")
    ended = Input(1, "There is no element left.")
    border = Input(BINARY16_WIDTH, "What elements outside the image are.")
    step = Output(1, "Strobe: an element was taken.")
    skip = Output(1, "Strobe: an exponent was taken.")
    tail = Input(lambda self: pointer_bits(self.config), "Behind the last byte of the inbox.")
    inbox_addr = Output(lambda self: pointer_bits(self.config) - 1, "Address in the inbox.")
    inbox_data = Input(8, "Its byte, two cycles later.")
    code = Input(BINARY16_WIDTH, "Number of the code book for ``inbox_data``, two cycles later.")
    latest = Input(BINARY16_WIDTH, "The element that was pushed last.")
    push = Output(1, "Strobe: ``element`` is the next one of the vector.")
    element = Output(BINARY16_WIDTH, "A binary16 number, or a mantissa.")
    full = Output(1, "Strobe: it is the last element of the vector.")
    exponent = Output(lambda self: self.config.act_exp_width, "Exponent of the vector.")
    asking = Output(1, "The address of an element is used.")
    starving = Output(1, "Bytes are awaited.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        lane = Signal(range(self.config.native))
        there = Signal(signed(len(self.at)))  # bytes of the inbox from the element on
        missing = Signal()
        low = Signal(8)
        with m.If(self.push):
            m.d.sync += lane.eq(Mux(self.full, 0, lane + 1))
        m.d.comb += self.full.eq(self.push & (lane == self.config.native - 1))
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "LANE"
                    with m.If(self.blocks):
                        m.next = "EXPONENT"
            self._exponent(m, there, missing)
            with m.State("LANE"):
                m.d.comb += [self.inbox_addr.eq(self.at), self.asking.eq(1)]
                m.d.sync += there.eq(self.tail - self.at)
                m.next = "READ"
                with m.If(self.ended):
                    self._push(m, self.latest)
            with m.State("READ"):
                m.d.comb += self.inbox_addr.eq(self.at + 1)
                m.d.sync += missing.eq(there < Mux(self.double, 2, 1))
                m.next = "TAKE"
                with m.If(~self.inside):
                    self._push(m, self.border)
                    m.d.comb += self.step.eq(1)
            with m.State("TAKE"):
                m.next = "LANE"
                m.d.sync += [self.starving.eq(missing), low.eq(self.inbox_data)]
                with m.If(~missing & self.double):
                    m.next = "HIGH"
                with m.Elif(~missing & self.coded):
                    m.next = "LOOK"
                with m.Elif(~missing):
                    self._push(m, self.inbox_data)
                    m.d.comb += self.step.eq(1)
            with m.State("LOOK"):
                m.next = "CODE"
            with m.State("CODE"):
                self._push(m, self.code)
                m.d.comb += self.step.eq(1)
            with m.State("HIGH"):
                self._push(m, Cat(low, self.inbox_data))
                m.d.comb += self.step.eq(1)
        return m

    def _exponent(self, m, there, missing):
        with m.State("EXPONENT"):
            m.d.comb += self.inbox_addr.eq(self.at)
            m.d.sync += there.eq(self.tail - self.at)
            m.next = "WAIT"
        with m.State("WAIT"):
            m.d.sync += missing.eq(there < 1)
            m.next = "COMMON"
        with m.State("COMMON"):
            m.next = "EXPONENT"
            m.d.sync += self.starving.eq(missing)
            with m.If(~missing):
                m.d.sync += self.exponent.eq(self.inbox_data)
                m.d.comb += self.skip.eq(1)
                m.next = "LANE"

    def _push(self, m, element):
        """Take an element; the vector may be complete then."""
        m.d.comb += [self.push.eq(1), self.element.eq(element)]
        m.next = "LANE"
        with m.If(self.full):
            m.next = "IDLE"
