"""The search for the phase of the clock of an SDRAM, and for the cycle in which its data are taken."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.dram import SdramPart
from concord_rtl.dram.native_port import NativePort
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


class PhaseSearch(Component):
    """Tries all phases of the memory clock with both read latencies after reset, and keeps the middle of what works.

    With each of them the memory is started again, and a pattern is written and read back. Phases are tried for two
    periods, so that a run of those that work is met in one piece: with the earlier latency from the first to the last
    one, with the later one back to the first. After the search the memory is started and tried once more. It takes
    ``4 * phases`` trials of about ``8 * LENGTH`` cycles.

    Parameters
    ----------
    part : SdramPart
        Sizes.
    phases : int
        Steps of the clock that are a period or more, a power of two, at least 8.
    """

    step = Output(stream_of(1), "The clock of the memory is to be one phase later, for 1 earlier; moved when it is.")
    port = Output(lambda self: NativePort(self.part), "The memory.")
    late = Output(1, "Read latency of the controller.")
    initialise = Output(1, "The memory is to be started again.")
    idle = Input(1, "The memory accepts commands.")
    busy = Output(1, "The memory belongs to the search.", init=1)
    works = Output(1, "The last search has come to its end, and its choice works.")
    phase = Output(lambda self: range(2 * self.phases), "Phase that was chosen, counted in steps.")
    width = Output(lambda self: range(self.phases + 1), "Number of neighbouring phases that work with this latency.")

    #: Columns of a pattern.
    LENGTH = 16
    #: Least number of neighbouring phases that have to work: one on each side of the one that is kept.
    LEAST = 3

    def __init__(self, part: SdramPart, phases: int):
        if phases < 8 or phases & (phases - 1):
            raise ValueError(f"phases must be a power of two, at least 8, not {phases!r}")
        self.part, self.phases = part, phases
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        port, bits = self.port, (self.LENGTH - 1).bit_length()
        sent, done, wrong = Signal(bits + 1), Signal(bits), Signal()
        at = Signal(range(2 * self.phases))  # phase of the clock
        length, middle, best = Signal.like(self.width), Signal.like(at), Signal.like(self.width)
        chosen_late, last = Signal(), Signal()  # the trial is that of the choice

        m.d.comb += [
            port.cmd.p.addr.eq(sent[:-1]),
            port.wdata.p.data.eq(_pattern(done, self.part.width)),
            port.wdata.p.we.eq(~0),
            self.width.eq(best),
        ]
        with m.If(port.cmd.valid & port.cmd.ready):
            m.d.sync += sent.eq(sent + 1)
        with m.FSM():
            with m.State("BEGIN"):
                m.d.comb += self.initialise.eq(1)
                m.d.sync += [sent.eq(0), done.eq(0), wrong.eq(0)]
                with m.If(self.idle):
                    m.next = "RESTART"
            with m.State("RESTART"):
                m.next = "WRITE"
            with m.State("WRITE"), m.If(self.idle | sent.any()):
                m.d.comb += [port.cmd.valid.eq(~sent[-1]), port.cmd.p.we.eq(1), port.wdata.valid.eq(1)]
                with m.If(port.wdata.ready):
                    m.d.sync += done.eq(done + 1)
                    with m.If(done.all()):
                        m.d.sync += sent.eq(0)
                        m.next = "READ"
            with m.State("READ"):
                m.d.comb += port.cmd.valid.eq(~sent[-1])
                with m.If(port.rdata.valid):
                    m.d.sync += [
                        done.eq(done + 1),
                        wrong.eq(wrong | (port.rdata.payload != _pattern(done, self.part.width))),
                    ]
                    with m.If(done.all()):
                        m.next = "JUDGE"
            with m.State("JUDGE"):
                with m.If(last):
                    m.d.sync += [self.works.eq(~wrong), self.busy.eq(0)]
                    m.next = "DONE"
                with m.Else():
                    self._judge(m, wrong, at, length, middle, best, chosen_late)
                    m.next = "STEP"
            with m.State("STEP"):
                m.d.comb += self.step.payload.eq(self.late)
                with m.If(at != Mux(self.late, 0, 2 * self.phases - 1)):
                    m.d.comb += self.step.valid.eq(1)
                    with m.If(self.step.ready):
                        m.d.sync += at.eq(Mux(self.late, at - 1, at + 1))
                        m.next = "BEGIN"
                with m.Elif(~self.late):
                    m.d.sync += [length.eq(0), self.late.eq(1)]
                    m.next = "BEGIN"
                with m.Else():
                    m.d.sync += [last.eq(1), self.late.eq(chosen_late)]
                    m.next = "MOVE"
            with m.State("MOVE"):
                with m.If(best < self.LEAST):
                    m.d.sync += self.busy.eq(0)
                    m.next = "DONE"
                with m.Elif(at == self.phase):
                    m.next = "BEGIN"
                with m.Else():
                    m.d.comb += self.step.valid.eq(1)
                    with m.If(self.step.ready):
                        m.d.sync += at.eq(at + 1)
            with m.State("DONE"):
                pass
        return m

    def _judge(
        self, m: Module, wrong: Value, at: Value, length: Signal, middle: Signal, best: Signal, chosen_late: Signal
    ) -> None:
        """Lengthen a run of phases that work, or end it; the longest one so far is the choice."""
        longer, centre, onward = Signal.like(length), Signal.like(middle), Mux(self.late, middle - 1, middle + 1)
        m.d.comb += [longer.eq(length + 1), centre.eq(Mux(length == 0, at, Mux(length[0], middle, onward)))]
        with m.If(wrong):
            m.d.sync += length.eq(0)
        with m.Elif(length != self.phases):
            m.d.sync += [length.eq(longer), middle.eq(centre)]
            with m.If(longer > best):
                m.d.sync += [best.eq(longer), self.phase.eq(centre), chosen_late.eq(self.late)]


def _pattern(number: Value, width: int) -> Value:
    """Data of a column: neighbours differ in most bits, and no two columns are equal."""
    turned = Cat(number[0].replicate(width)) ^ int("01" * (width // 2), 2)
    return turned ^ Cat(number[1:], ~number[1:]).shift_left(2)[:width]
