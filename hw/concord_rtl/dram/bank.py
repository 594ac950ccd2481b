"""One bank of an SDRAM: its open row, and the commands that its times allow."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.dram.unit import SdramUnit
from concord_rtl.parts.component import Input, Output


class Bank(SdramUnit):
    """State of a bank.

    A command given in one cycle counts from the next one on. Outputs are for whoever decides a cycle later: they say
    which commands the times allow then, unless there is another one in this cycle.
    """

    activate = Input(1, "The row is opened. Only if ``openable``.")
    row_to_open = Input(lambda self: self.part.row_bits, "The row.")
    precharge = Input(1, "The row is closed. Only if ``closable``; without an open row it is the start of a rest.")
    write = Input(1, "A column is written. Only if ``usable``.")
    row = Output(lambda self: self.part.row_bits, "The open row.")
    open = Output(1, "A row is open.")
    usable = Output(1, "A row is open, and columns of it may be read and written.")
    openable = Output(1, "No row is open, and one may be opened.")
    closable = Output(1, "No open row keeps the bank from PRECHARGE.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        timing = self.timing
        longest = max(timing.ras, timing.rp, timing.rcd)
        age = Signal(range(longest + 1), init=longest)  # cycles since ACTIVATE or PRECHARGE
        written = Signal(max(timing.wr - 2, 1))  # a column was written so many cycles ago
        m.d.sync += [age.eq(Mux(age == longest, age, age + 1)), written.eq(Cat(self.write, written))]
        with m.If(self.activate):
            m.d.sync += [self.open.eq(1), self.row.eq(self.row_to_open), age.eq(1)]
        with m.If(self.precharge):
            m.d.sync += [self.open.eq(0), age.eq(1)]
        m.d.comb += [
            self.usable.eq(self.open & (age >= timing.rcd - 1)),
            self.openable.eq(~self.open & (age >= timing.rp - 1)),
            self.closable.eq(~self.open | ((age >= timing.ras - 1) & ~written[: max(timing.wr - 2, 0)].any())),
        ]
        return m
