"""The slots of samples, sample by sample and pass by pass."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.integers import judged_per_word
from concord.spec.isa import FORMS, Op
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.pipe.counters import Countdown
from concord_rtl.pipe.integers.loss.layouts import Pass, slot_layout
from concord_rtl.pipe.integers.ports import loops_layout


class SampleWalker(Component):
    """Goes over every sample three times, word by word: a cycle for each class, and at least one for a word.

    The second pass follows the first one at once, the third one ``LOSS_TOTAL`` cycles after the second one, and the
    next sample ``LOSS_REST`` cycles after that (:mod:`concord.spec.timing`).

    Parameters
    ----------
    config : NpuConfig
    """

    loops = Input(lambda self: loops_layout(self.config), "Turns: vectors of a sample, and samples, which stay.")
    valid = Input(lambda self: FORMS[Op.I_LOSS].fields["valid"].width, "Classes of the last vector; 0: all elements.")
    load = Input(1, "The first slot is there three cycles later.")
    number = Output(Pass, "The pass.")
    active = Output(1, "There is a slot.")
    slot = Output(lambda self: slot_layout(self.config), "The slot.")
    starts = Output(1, "The slot is the first one of its word.")
    begins = Output(1, "A sample begins in the next cycle.")
    again = Output(1, "A pass over a sample begins in the next cycle, or later.")
    advance = Output(1, "The slot is the last one of its vector.")
    step = Output(1, "A sample is over, and there is another one.")
    last = Output(2, "Turn of the inner and of the outer loop: it is the last one.")
    finished = Output(1, "The last sample is over.")

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.rows = rows = Countdown(len(self.loops.rows), held=True)
        m.submodules.inner = inner = Countdown(len(self.loops.inner), held=True)
        m.submodules.outer = outer = Countdown(len(self.loops.outer), held=True)
        m.d.comb += [
            *(loop.load.eq(self.load) for loop in (rows, inner, outer)),
            rows.turns.eq(self.loops.rows),
            inner.turns.eq(self.loops.inner),
            outer.turns.eq(self.loops.outer),
            rows.step.eq(self.advance),
            inner.step.eq(self.step),
            outer.step.eq(self.step & inner.last),
            self.last.eq(Cat(inner.last, outer.last)),
        ]
        over = Signal()  # the slot is the last one of its pass
        m.d.comb += over.eq(self.advance & rows.last)
        self._slot(m, rows.last, over)
        self._passes(m, over)
        return m

    def _slot(self, m, last_row, over):
        """Slots of the vector, and which of them are classes."""
        half, native = judged_per_word(self.config.native), self.config.native
        slot, first = self.slot, Signal()
        count = Signal(range(native + 1))  # classes of the vector
        m.d.comb += count.eq(Mux(last_row & (self.valid != 0), self.valid, native))
        classes = Mux(slot.second, Mux(count > half, count - half, 0), Mux(count > half, half, count))
        m.d.comb += [
            slot.keep.eq(slot.place < classes),
            slot.ends.eq(slot.place + 1 >= classes),
            slot.first.eq(first),
            slot.last.eq(over),
            self.starts.eq(self.active & (slot.place == 0)),
            self.advance.eq(self.active & slot.ends & slot.second),
        ]
        with m.If(self.active):
            m.d.sync += [slot.place.eq(Mux(slot.ends, 0, slot.place + 1)), first.eq(over)]
            with m.If(slot.ends):
                m.d.sync += slot.second.eq(~slot.second)
        with m.If(self.load):
            m.d.sync += first.eq(1)

    def _passes(self, m, over):
        """Passes of a sample, and the cycles between them."""
        wait = Signal(range(max(timing.LOSS_TOTAL, timing.LOSS_REST)))
        with m.FSM(name="passes"):
            with m.State("IDLE"):
                with m.If(self.load):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += [self.begins.eq(1), self.again.eq(1)]
                m.d.sync += self.number.eq(Pass.MAXIMUM)
                m.next = "SLOTS"
            with m.State("SLOTS"):
                m.d.comb += [self.active.eq(1), self.again.eq(over)]
                with m.If(over):
                    with m.Switch(self.number):
                        with m.Case(Pass.MAXIMUM):
                            m.d.sync += self.number.eq(Pass.TOTAL)
                        with m.Case(Pass.TOTAL):
                            m.d.sync += wait.eq(timing.LOSS_TOTAL - 2)
                            m.next = "TOTAL"
                        with m.Default():
                            m.d.sync += wait.eq(timing.LOSS_REST - 3)
                            m.next = "REST"
            with m.State("TOTAL"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.d.sync += self.number.eq(Pass.SHARES)
                    m.next = "SLOTS"
            with m.State("REST"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    with m.If(self.last.all()):
                        m.d.comb += self.finished.eq(1)
                        m.next = "IDLE"
                    with m.Else():
                        m.d.comb += self.step.eq(1)
                        m.next = "BEGIN"
        return m
