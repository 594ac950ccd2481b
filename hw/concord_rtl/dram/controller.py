"""The controller of an SDR SDRAM, at the clock of the core."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.dram import OPENED_AHEAD, SdramPart, SdramTiming
from concord_rtl.dram.bank import Bank
from concord_rtl.dram.native_port import NativePort
from concord_rtl.dram.page_view import PageView, state_layout
from concord_rtl.dram.pins import Command, SdramPins
from concord_rtl.dram.unit import SdramUnit
from concord_rtl.dram.upkeep import Upkeep
from concord_rtl.parts.component import Input, Output


class SdramController(SdramUnit):
    """Reads and writes columns of an SDRAM, one command a cycle.

    Columns of a row follow each other without a pause, and the row that follows in the address is opened while the last
    columns of a row are used: bank bits are those below the row bits. Sequential accesses take the whole bus but for
    refreshes and four cycles a row. A column of another row costs a PRECHARGE and an ACTIVATE.

    Data are written when ``wdata`` is taken. Data read come at the later of the two times at which pads and wires may
    let them, whatever ``late`` is: so cycles do not depend on the board.

    Rows are refreshed every ``timing.refresh`` cycles, and at ``restart``, after which the interval begins anew.
    """

    port = Input(lambda self: NativePort(self.part), "The requester.")
    pins = Output(lambda self: SdramPins(self.part), "Pins, one cycle in front of the registers in the pads.")
    late = Input(1, "Data read are at the pads a cycle later than they can be at the earliest.")
    initialise = Input(1, "All banks are closed and the mode is set again. Only while ``idle``.")
    restart = Input(1, "A refresh begins as soon as rows can be closed, and the interval of refreshes with it.")
    idle = Output(1, "Commands are accepted: neither a start nor a refresh is going on.")

    #: Cycles from ACTIVATE to the next one of any bank, at the least.
    ROWS_APART = 3

    def __init__(self, part: SdramPart, timing: SdramTiming):
        if timing.rrd > self.ROWS_APART:
            raise ValueError(f"rrd must be at most {self.ROWS_APART} cycles, not {timing.rrd!r}")
        super().__init__(part, timing)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        part, timing, port = self.part, self.timing, self.port
        m.submodules.upkeep = upkeep = Upkeep(part, timing)
        command, chosen, addr = Signal(3, init=Command.NONE), Signal(part.bank_bits), Signal(part.row_bits)
        banks = self._banks(m, command, chosen, addr, ~upkeep.idle)
        read, written = command == Command.READ, command == Command.WRITE
        accessed, opens = read | written, (command == Command.ACTIVATE) | (command == Command.PRECHARGE)

        # The request that is worked on, and the next one at its end.
        held, we, column, page = Signal(), Signal(), Signal(part.column_bits), Signal(part.bank_bits + part.row_bits)
        turned = Signal()  # the request is of another page than the one before
        m.d.comb += port.cmd.ready.eq(~held | accessed)
        with m.If(port.cmd.ready):
            m.d.sync += [held.eq(port.cmd.valid), we.eq(port.cmd.p.we), Cat(column, page).eq(port.cmd.p.addr)]
            m.d.comb += turned.eq(port.cmd.p.addr[part.column_bits :] != page)

        # What is known of both pages is a cycle old, so it is not used in the cycles after a change.
        following = Signal.like(page)
        m.d.sync += following.eq(page + 1)
        current = self._view(m, "current", page, banks)
        upcoming = self._view(m, "upcoming", following, banks)
        changed, known_upcoming, turning = Signal(), Signal(), Signal(timing.cas + 1)
        m.d.sync += [changed.eq(turned | opens), known_upcoming.eq(~(turned | opens | changed))]
        m.d.sync += turning.eq(Cat(read, turning))
        ends = column >= (1 << part.column_bits) - OPENED_AHEAD
        may = ~we | (port.wdata.valid & ~turning.any())
        with m.If(~upkeep.idle):
            m.d.comb += [command.eq(upkeep.command), addr.eq(upkeep.addr)]
        with m.Elif(held & ~changed):
            with m.If(current.usable & ends & known_upcoming & upcoming.wanted):
                m.d.comb += [command.eq(upcoming.command), chosen.eq(following), addr.eq(upcoming.addr)]
            with m.Elif(current.usable):
                m.d.comb += [chosen.eq(page), addr.eq(column)]
                with m.If(may):
                    m.d.comb += command.eq(Mux(we, Command.WRITE, Command.READ))
            with m.Elif(current.wanted):
                m.d.comb += [command.eq(current.command), chosen.eq(page), addr.eq(current.addr)]

        m.d.sync += upkeep.closable.eq(Cat(bank.closable for bank in banks).all())
        m.d.comb += [
            upkeep.initialise.eq(self.initialise),
            upkeep.restart.eq(self.restart),
            self.idle.eq(upkeep.idle),
            port.wdata.ready.eq(written),
        ]
        self._pads(m, command, chosen, addr, written)
        self._answers(m, read)
        return m

    def _banks(self, m: Module, command: Value, chosen: Value, addr: Value, every: Value) -> list[Bank]:
        """The banks, each with the commands that are for it."""
        banks = [Bank(self.part, self.timing) for _ in range(1 << self.part.bank_bits)]
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = bank
            hit = every | (chosen == number)
            m.d.comb += [
                bank.row_to_open.eq(addr),
                bank.activate.eq(hit & (command == Command.ACTIVATE)),
                bank.precharge.eq(hit & (command == Command.PRECHARGE)),
                bank.write.eq(hit & (command == Command.WRITE)),
            ]
        return banks

    def _view(self, m: Module, name: str, page: Value, banks: list[Bank]) -> PageView:
        """State of the bank of a page."""
        m.submodules[name] = view = PageView(self.part)
        m.d.comb += view.page.eq(page)
        for state, bank in zip(view.banks, banks, strict=True):
            m.d.comb += [getattr(state, part).eq(getattr(bank, part)) for part in state_layout(self.part).members]
        return view

    def _pads(self, m: Module, command: Value, chosen: Value, addr: Value, written: Value) -> None:
        """Registers in front of those of the pads."""
        pins, wdata = self.pins, self.port.wdata.p
        m.d.sync += [
            pins.command.eq(command),
            pins.bank.eq(chosen),
            pins.addr.eq(addr),
            pins.oe.eq(written),
            pins.dq_o.eq(wdata.data),
            pins.mask.eq(Mux(written, ~wdata.we, 0)),
        ]

    def _answers(self, m: Module, read: Value) -> None:
        """Data read, at the later of the two latencies."""
        underway, before = Signal(self.timing.read_latency - 1), Signal(self.part.width, reset_less=True)
        rdata = self.port.rdata
        m.d.sync += [underway.eq(Cat(read, underway)), before.eq(self.pins.dq_i)]
        m.d.sync += [rdata.valid.eq(underway[-1]), rdata.payload.eq(Mux(self.late, self.pins.dq_i, before))]
