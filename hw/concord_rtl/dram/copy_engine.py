"""Copies of rows of tiles from the external to the matrix memory."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.config import clog2
from concord.spec.isa import COPY_UNIT
from concord_rtl.dram.copy_port import CopyPort
from concord_rtl.dram.native_port import NativePort
from concord_rtl.memories.row_write import RowWrite
from concord_rtl.parts.component import Input, NpuUnit, Output


class CopyEngine(NpuUnit):
    """Reads columns one after the other, and writes a row of a word as soon as its mantissas are there.

    A copy begins with a refresh, and its first column is asked for a fixed time later, when all banks are closed
    whatever the memory did before: so its cycles follow from its size and its address alone
    (:func:`concord.cycles.dram.copy_cycles`).

    Parameters
    ----------
    config : NpuConfig
        Has an external memory.
    """

    copies = Input(CopyPort(), "Copies from the sequencer.")
    port = Output(lambda self: NativePort(self.config.sdram), "The external memory, while a copy goes on.")
    works = Input(1, "The external memory works.")
    restart = Output(1, "A refresh begins, and the interval of refreshes with it.")
    write = Output(lambda self: RowWrite(self.config), "Rows for the matrix memory.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        copies, settle = self.copies, timing.copy_settle(self.config)
        wait, asking = Signal(range(settle + 1)), Signal()
        m.d.comb += copies.works.eq(self.works)
        m.d.sync += self.restart.eq(copies.go)
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
            with m.If(wait == 1):
                m.d.sync += asking.eq(1)
        with m.If(copies.go):
            m.d.sync += [copies.busy.eq(1), wait.eq(settle)]
        self._ask(m, asking)
        self._receive(m)
        return m

    def _ask(self, m: Module, asking: Signal) -> None:
        """Addresses of all columns."""
        cmd, copies = self.port.cmd, self.copies
        column, rows = Signal(range(self.config.row_columns)), Signal.like(copies.rows)
        m.d.comb += cmd.valid.eq(asking)
        with m.If(copies.go):
            m.d.sync += [cmd.p.addr.eq(copies.dram << clog2(COPY_UNIT)), column.eq(0), rows.eq(copies.rows)]
        with m.Elif(asking & cmd.ready):
            m.d.sync += [cmd.p.addr.eq(cmd.p.addr + 1), column.eq(column + 1)]
            with m.If(column == self.config.row_columns - 1):
                m.d.sync += [column.eq(0), rows.eq(rows - 1), asking.eq(rows != 1)]

    def _receive(self, m: Module) -> None:
        """Columns as they come: an exponent, then the mantissas of a row, N/L words of it."""
        config, copies, write, rdata = self.config, self.copies, self.write, self.port.rdata
        size, held = config.wgt_mant, config.lanes // config.column_mantissas
        head, part, last = Signal(init=1), Signal(range(held)), Signal()
        word, tile, rows = Signal(range(config.steps)), Signal(range(config.matrix_depth)), Signal.like(copies.rows)
        row, exp = Signal.like(write.row), Signal(config.wgt_exp_width, reset_less=True)
        mant = Signal(config.lanes * size, reset_less=True)
        bits = config.sdram.width // config.column_mantissas
        column = Cat(rdata.payload[k * bits :][:size] for k in range(config.column_mantissas))
        m.d.sync += [write.en.eq(0), last.eq(0)]
        m.d.comb += write.data.eq(Cat(mant, exp))
        with m.If(copies.go):
            m.d.sync += [tile.eq(copies.matrix >> clog2(config.steps)), row.eq(0), rows.eq(copies.rows)]
        with m.If(rdata.valid & head):
            m.d.sync += [exp.eq(rdata.payload), head.eq(0)]
        with m.Elif(rdata.valid):
            m.d.sync += [mant.eq(Cat(mant[len(column) :], column)), part.eq(part + 1)]
            with m.If(part == held - 1):
                m.d.sync += [part.eq(0), write.en.eq(1), write.row.eq(row), word.eq(word + 1)]
                m.d.sync += write.addr.eq(Cat(word, tile) if config.steps > 1 else tile)
                with m.If(word == config.steps - 1):
                    m.d.sync += [word.eq(0), head.eq(1), row.eq(row + 1), rows.eq(rows - 1), last.eq(rows == 1)]
                    with m.If(row == config.rows - 1):
                        m.d.sync += [row.eq(0), tile.eq(tile + 1)]
        with m.If(last):
            m.d.sync += copies.busy.eq(0)
