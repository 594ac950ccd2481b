"""One bank of an SDRAM: its open row, and the commands that its times allow."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.dram import SdramPart, SdramTiming
from concord_rtl.parts.component import Component, Input, Output


class Bank(Component):
    """State of a bank.

    A command given in one cycle counts from the next one on. ``ready`` says that the time after the last ACTIVATE or
    PRECHARGE is over that the next use needs.

    Parameters
    ----------
    part : SdramPart
        Sizes.
    timing : SdramTiming
        Times.
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

    def __init__(self, part: SdramPart, timing: SdramTiming):
        self.part, self.timing = part, timing
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        timing = self.timing
        longest = max(timing.ras, timing.rp, timing.rcd)
        age = Signal(range(longest + 1), init=longest)  # cycles since ACTIVATE or PRECHARGE
        written = Signal(timing.wr)  # a column was written so many cycles ago
        m.d.sync += [age.eq(Mux(age == longest, age, age + 1)), written.eq(Cat(self.write, written))]
        with m.If(self.activate):
            m.d.sync += [self.open.eq(1), self.row.eq(self.row_to_open), age.eq(1)]
        with m.If(self.precharge):
            m.d.sync += [self.open.eq(0), age.eq(1)]
        m.d.comb += [
            self.usable.eq(self.open & (age >= timing.rcd)),
            self.openable.eq(~self.open & (age >= timing.rp)),
            self.closable.eq(~self.open | ((age >= timing.ras) & ~written.any())),
        ]
        return m
