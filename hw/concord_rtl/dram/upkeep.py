"""Start and refreshes of an SDRAM."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.dram.pins import ALL_BANKS, Command
from concord_rtl.dram.unit import SdramUnit
from concord_rtl.parts.component import Input, Output


class Upkeep(SdramUnit):
    """Commands that a memory needs whatever is done with it: those of a start, and a refresh at every interval.

    A refresh takes ``1 + rp + rfc`` cycles of the timing from the moment at which all banks can be closed.
    """

    closable = Input(1, "All banks can be closed, as they were a cycle ago.")
    initialise = Input(1, "The mode is set again. Only while ``idle``.")
    restart = Input(1, "A refresh begins, and the interval of refreshes with it.")
    idle = Output(1, "Other commands may be given in this cycle.")
    command = Output(3, "Command, for all banks, while not ``idle``.", init=Command.NONE)
    addr = Output(lambda self: self.part.row_bits, "Address lines with the command.")

    #: Refreshes at the start.
    REFRESHES = 8

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        timing = self.timing
        timer, due = Signal(range(timing.refresh), init=timing.refresh - 1), Signal()
        wait = Signal(range(max(timing.rfc, timing.mrd)))
        rest = -(-timing.power_up // timing.refresh)  # intervals of refreshes at rest after power-up
        left = Signal(range(max(rest, self.REFRESHES) + 1), init=rest)  # of these, then of the refreshes of a start
        m.d.sync += timer.eq(timer - 1)
        with m.If((timer == 0) | self.restart):
            m.d.sync += [timer.eq(timing.refresh - 1), due.eq(1)]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.FSM() as states:
            with m.State("START"):
                with m.If(left == 0):
                    m.d.sync += left.eq(self.REFRESHES)
                    m.next = "DRAIN"
                with m.Elif(timer == 0):
                    m.d.sync += left.eq(left - 1)
            with m.State("DRAIN"):  # until ``closable`` knows of the last command
                m.next = "CLOSE"
            with m.State("CLOSE"), m.If(self.closable):
                m.d.comb += [self.command.eq(Command.PRECHARGE), self.addr[ALL_BANKS].eq(1)]
                m.d.sync += wait.eq(timing.rp - 1)
                m.next = "REFRESH"
            with m.State("REFRESH"), m.If(wait == 0):
                m.d.comb += self.command.eq(Command.REFRESH)
                m.d.sync += [wait.eq(timing.rfc - 1), left.eq(Mux(left == 0, 0, left - 1)), due.eq(0)]
                with m.Switch(left):
                    with m.Case(0):
                        m.next = "REST"
                    with m.Case(1):
                        m.next = "MODE"
            with m.State("MODE"), m.If(wait == 0):
                m.d.comb += [self.command.eq(Command.MODE), self.addr.eq(timing.cas << 4)]
                m.d.sync += wait.eq(timing.mrd - 1)
                m.next = "REST"
            with m.State("REST"), m.If(wait <= 1):
                m.next = "RUN"
            with m.State("RUN"):
                with m.If(self.initialise):
                    m.next = "START"
                with m.Elif(due):
                    m.next = "DRAIN"
        m.d.comb += self.idle.eq(states.ongoing("RUN") & ~due)
        return m
