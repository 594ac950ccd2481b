"""Unit that fetches the words of a script."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.feeder import SCRIPT_DEPTH, SCRIPT_WORD, FeedOp
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of


class ScriptReader(Component):
    """Offers the words of a script to the units that execute them, one after the other, again and again.

    A word takes two cycles, and as long as a unit works on it.
    """

    script_addr = Output(range(SCRIPT_DEPTH), "Address in the script.")
    script_word = Input(shape_of(SCRIPT_WORD), "Its word, at once.")
    word = Output(shape_of(SCRIPT_WORD), "The word that is executed.")
    decode = Output(1, "Strobe: ``word`` is a new one.")
    done = Input(1, "Strobe: the unit that executes ``FILL``, ``RUN`` or ``SEND`` has done so.")
    pending = Input(1, "Bytes of the next input are in the inbox.")
    resting = Output(1, "The script begins again as soon as bytes come.")
    off = Output(1, "There is no script.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        with m.FSM():
            with m.State("FETCH"):
                m.d.sync += [self.word.eq(self.script_word), self.script_addr.eq(self.script_addr + 1)]
                m.next = "DECODE"
            with m.State("DECODE"):
                m.d.comb += self.decode.eq(1)
                m.next = "FETCH"
                with m.Switch(self.word.op):
                    with m.Case(FeedOp.FILL, FeedOp.RUN, FeedOp.SEND):
                        m.next = "EXECUTE"
                    with m.Case(FeedOp.END):
                        m.d.sync += [self.script_addr.eq(0), self.off.eq(self.script_addr == 1)]
                        m.next = "REST"
            with m.State("EXECUTE"):
                with m.If(self.done):
                    m.next = "FETCH"
            with m.State("REST"):
                m.d.sync += self.resting.eq(~self.pending)
                with m.If(self.pending):
                    m.next = "FETCH"
        return m
