"""Unit that runs the program."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.feeder import FEED_LAYOUTS, SCRIPT_WORD, FeedOp
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of, stream_of

#: Cycles from the write that starts a run until the core is surely busy.
SETTLE = 8


class ProgramRunner(Component):
    """Executes ``RUN``: starts the program and waits for its end; after a trap it does nothing any more."""

    word = Input(shape_of(SCRIPT_WORD), "Word of a script.")
    decode = Input(1, "Strobe: ``word`` is a new one.")
    start = Output(stream_of(shape_of(FEED_LAYOUTS[FeedOp.RUN])), "Words of runs that begin.")
    core_busy = Input(1, "A program runs.")
    core_trapped = Input(1, "The last run ended with a trap.")
    done = Output(1, "Strobe: the program has come to its end.")
    stopped = Output(1, "The program has trapped.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        left = Signal(range(SETTLE))
        m.d.comb += self.start.payload.eq(self.word)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.decode & (self.word.op == FeedOp.RUN)):
                    m.next = "START"
            with m.State("START"):
                m.d.comb += self.start.valid.eq(1)
                m.d.sync += left.eq(SETTLE - 1)
                with m.If(self.start.ready):
                    m.next = "RUNNING"
            with m.State("RUNNING"):
                with m.If(left != 0):
                    m.d.sync += left.eq(left - 1)
                with m.Elif(self.core_trapped & ~self.core_busy):
                    m.d.sync += self.stopped.eq(1)
                    m.next = "STOPPED"
                with m.Elif(~self.core_busy):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
            with m.State("STOPPED"):
                pass
        return m
