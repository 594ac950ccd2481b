"""Reader of the elements of a vector."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.formats import BINARY16_WIDTH
from concord_rtl.feeder.pointers import pointer_bits
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.stages import delay

NUMBER, CODE = timing.FEEDER_NUMBER, timing.FEEDER_CODE


class ElementReader(NpuUnit):
    """Pushes the elements of a native vector: of the inbox, and of the border of the image.

    Takes a cycle for an element, two if it comes from the inbox and has two bytes, and three for an exponent. Whoever
    asks for a vector knows where its elements are, and says where the next one is before the bytes of the last one have
    come. A vector may begin while elements of the one before are on their way. Nothing is pushed for lanes behind the
    last element.

    Parameters
    ----------
    config : NpuConfig
    """

    start = Input(1, "Strobe: begin with a vector, whose first element has its address in the next cycle.")
    close = Input(1, "Strobe: the vector is ``full``, and the next one may begin.")
    blocks = Input(1, "An exponent precedes the elements.")
    double = Input(1, "Elements have two bytes.")
    coded = Input(1, "Elements are addresses in the code book.")
    at = Input(lambda self: pointer_bits(self.config), "Address of the next element, a cycle behind a strobe.")
    inside = Input(1, "Its tap is inside the image.")
    final = Input(1, "No element comes behind it.")
    border = Input(BINARY16_WIDTH, "What elements outside the image are.")
    step = Output(1, "Strobe: ``at`` and ``inside`` were taken.")
    skip = Output(1, "Strobe: an exponent was taken.")
    tail = Input(lambda self: pointer_bits(self.config), "Behind the last byte of the inbox.")
    inbox_addr = Output(lambda self: pointer_bits(self.config) - 1, "Address in the inbox.")
    inbox_data = Input(8, "Its byte, two cycles later.")
    code = Input(BINARY16_WIDTH, "Number of the code book for ``inbox_data``, two cycles later.")
    push = Output(1, "Strobe: ``element`` is that of ``lane``.")
    lane = Output(lambda self: range(self.config.native), "Number of the element in its vector.")
    element = Output(BINARY16_WIDTH, "A binary16 number, or a mantissa.")
    full = Output(1, "All bytes of the vector have been asked for, until the next ``start``.")
    closing = Output(1, "The elements of a closed vector are on their way.")
    closed = Output(1, "Strobe: all elements of a closed vector have been pushed.")
    exponent = Output(lambda self: self.config.act_exp_width, "Exponent of the vector, up to ``closed``.")
    starving = Output(1, "Bytes are awaited.")

    #: The least number of cycles from ``close`` to ``closed``.
    CLOSING = timing.feeder_close(coded=False)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        lane = Signal(range(self.config.native))  # of the element at ``at``
        free = Signal(init=1)  # the next element may be asked for
        self._push(m, *self._ask(m, lane, free))
        self._close(m)

        with m.FSM():
            with m.State("FULL"):
                m.d.comb += self.full.eq(free)
                with m.If(self.start):
                    m.d.sync += lane.eq(0)
                    m.next = "ELEMENTS"
                    with m.If(self.blocks):
                        m.next = "EXPONENT"
            self._exponent(m)
            with m.State("ELEMENTS"):
                m.d.comb += self.step.eq(free)
                with m.If(free):
                    m.d.sync += lane.eq(lane + 1)
                    with m.If(self.final | (lane == self.config.native - 1)):
                        m.next = "FULL"
        return m

    def _ask(self, m, lane, free):
        """Ask for the bytes of an element; returns when the last one is, its lane, and whether it is inside."""
        at, asked, inside = Signal.like(self.at), Signal.like(self.lane), Signal()
        asking, enough, second = Signal(), Signal(), Signal()  # its bytes have come; it is its second byte
        short = Signal()  # it has one byte, or none
        m.d.comb += self.inbox_addr.eq(at + second)
        m.d.sync += second.eq(asking & enough & ~free)
        with m.If(asking):
            m.d.sync += self.starving.eq(~enough)
        # No element is asked for, or the last byte of one: a register, since every step of the walk depends on it.
        with m.If(free):
            come, single = self._has_come(m, self.at, "next") | ~self.inside, ~self.double | ~self.inside
            m.d.sync += [asking.eq(self.step), at.eq(self.at), asked.eq(lane), inside.eq(self.inside)]
            m.d.sync += [enough.eq(come), short.eq(single), free.eq(~self.step | (come & single))]
        with m.Else():  # an element of the inbox
            come = self._has_come(m, at, "same")
            m.d.sync += [enough.eq(come), free.eq(come & (enough | short))]
        return asking & free, asked, inside

    def _has_come(self, m, at, name):
        """Bit that is set if the bytes of an element are in the inbox, without a carry, which has just been there."""
        there = Signal(signed(len(at)), name=f"there_{name}")  # bytes of the inbox from its first one on
        m.d.comb += there.eq(self.tail - at)
        return ~there[-1] & (there[1:-1].any() | (there[0] & ~self.double))

    def _push(self, m, taken, lane, inside):
        """Elements in turn when their numbers are there."""
        m.d.sync += self.element.eq(self.border)
        low = delay(m, self.inbox_data, 1, "low")

        def push(latency, number):
            m.d.sync += [self.push.eq(strobes[latency - 1]), self.lane.eq(lanes[latency - 1])]
            with m.If(places[latency - 1]):
                m.d.sync += self.element.eq(number)

        strobes, lanes, places = _aged(m, taken, "taken"), _aged(m, lane, "lane"), _aged(m, inside, "inside")
        with m.If(self.coded):
            push(CODE, self.code)
        with m.Elif(self.double):
            push(NUMBER, Cat(low, self.inbox_data))
        with m.Else():
            push(NUMBER, self.inbox_data)

    def _close(self, m):
        """A vector is closed ``FEEDER_END`` cycles after its last element."""
        strobes = _aged(m, self.close, "close")
        last = Mux(self.coded, strobes[CODE], strobes[NUMBER])
        m.d.comb += self.closed.eq(delay(m, last, timing.FEEDER_END, "closed", reset_less=False))
        m.d.sync += self.closing.eq(Cat(strobes[: NUMBER + 1]).any() | (self.coded & Cat(strobes[NUMBER + 1 :]).any()))

    def _exponent(self, m):
        there = Signal(signed(len(self.at)))  # bytes of the inbox from the exponent on
        missing, exponent = Signal(), Signal.like(self.exponent)
        m.d.sync += self.exponent.eq(exponent)  # the next one may be there before the vector is closed
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
                m.d.sync += exponent.eq(self.inbox_data)
                m.d.comb += self.skip.eq(1)
                m.next = "ELEMENTS"


def _aged(m, value, name):
    """A value as it was 0, 1, ... ``CODE`` cycles ago."""
    values = [value]
    for age in range(1, CODE + 1):
        values.append(delay(m, values[-1], 1, f"{name}_{age}", reset_less=False))
    return values
