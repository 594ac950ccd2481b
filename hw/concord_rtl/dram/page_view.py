"""State of a page of an SDRAM, and the command that it needs before its columns are read and written."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.dram import SdramPart
from concord_rtl.dram.pins import Command
from concord_rtl.parts.component import Component, Input, Output


def state_layout(part: SdramPart) -> data.StructLayout:
    """Outputs of a bank by name."""
    return data.StructLayout({"row": part.row_bits, "open": 1, "usable": 1, "openable": 1, "closable": 1})


class PageView(Component):
    """State of the bank of a page, as it was a cycle ago; a page is a row of a bank.

    Parameters
    ----------
    part : SdramPart
        Sizes.
    """

    banks = Input(
        lambda self: data.ArrayLayout(state_layout(self.part), 1 << self.part.bank_bits), "Outputs of the banks."
    )
    page = Input(lambda self: self.part.row_bits + self.part.bank_bits, "Number of the page, that of its bank first.")
    usable = Output(1, "Columns may be read and written.")
    wanted = Output(1, "``command`` has to be given first, and may be.")
    command = Output(3, "ACTIVATE or PRECHARGE.")
    addr = Output(lambda self: self.part.row_bits, "Address lines with the command.")

    def __init__(self, part: SdramPart):
        self.part = part
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits = self.part.bank_bits
        row, bank = self.page[bits:], self.banks[self.page[:bits]]
        there = bank.row == row
        m.d.sync += [
            self.usable.eq(bank.usable & there),
            self.wanted.eq(Mux(bank.open, bank.closable & ~there, bank.openable)),
            self.command.eq(Mux(bank.open, Command.PRECHARGE, Command.ACTIVATE)),
        ]
        m.d.comb += self.addr.eq(Mux(self.command == Command.ACTIVATE, row, 0))
        return m
