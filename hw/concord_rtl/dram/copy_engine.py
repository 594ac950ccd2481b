"""Copies of rows of tiles from the external to the matrix memory, and of vectors."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec import timing
from concord.spec.config import clog2
from concord.spec.isa import Mem
from concord_rtl.dram.copy_port import CopyPort
from concord_rtl.dram.native_port import NativePort
from concord_rtl.dram.vector_mover import VectorMover
from concord_rtl.memories.row_write import RowWrite
from concord_rtl.memories.vector_access import VectorAccess
from concord_rtl.parts.component import Input, NpuUnit, Output


class CopyEngine(NpuUnit):
    """Reads columns one after the other, and writes a row of a word as soon as its mantissas are there; of vectors a
    word as soon as it is complete. Vectors that go to the external memory are columns that are written.

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
    access = Output(lambda self: VectorAccess(self.config), "The vector memories.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        copies, settle = self.copies, timing.copy_settle(self.config)
        wait, asking, vectors = Signal(range(settle + 1)), Signal(), Signal()
        m.submodules.mover = mover = VectorMover(self.config)
        wiring.connect(m, mover.access, wiring.flipped(self.access))
        m.d.comb += [
            copies.works.eq(self.works),
            mover.go.eq(copies.go & copies.vectors),
            mover.place.eq(copies.place),
            mover.count.eq(copies.count),
            mover.begin.eq(wait == 1),
            mover.rdata.valid.eq(self.port.rdata.valid),
            mover.rdata.payload.eq(self.port.rdata.payload),
            self.port.wdata.valid.eq(mover.wdata.valid),
            self.port.wdata.p.eq(mover.wdata.p),
            mover.wdata.ready.eq(self.port.wdata.ready),
        ]
        m.d.sync += self.restart.eq(copies.go)
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
            with m.If(wait == 1):
                m.d.sync += asking.eq(1)
        with m.If(copies.go):
            m.d.sync += [copies.busy.eq(1), wait.eq(settle), vectors.eq(copies.vectors)]
        self._ask(m, asking, vectors)
        last = self._receive(m, self.port.rdata.valid & ~vectors)
        with m.If(last | mover.over):
            m.d.sync += copies.busy.eq(0)
        return m

    def _ask(self, m: Module, asking: Signal, vectors: Signal) -> None:
        """Addresses of all columns."""
        config, cmd, copies = self.config, self.port.cmd, self.copies
        narrow, wide = (config.vector_columns(mem) for mem in (Mem.NARROW, Mem.WIDE))
        column, left = Signal(range(max(config.row_columns, wide))), Signal.like(copies.count)
        most = Signal.like(column)
        m.d.comb += cmd.valid.eq(asking)
        with m.If(copies.go):
            m.d.sync += [
                cmd.p.addr.eq(copies.column),
                cmd.p.we.eq(copies.vectors & copies.place.out),
                most.eq(Mux(copies.vectors, Mux(copies.place.mem, wide, narrow), config.row_columns) - 1),
                column.eq(0),
                left.eq(copies.count),
            ]
        with m.Elif(asking & cmd.ready):
            m.d.sync += [cmd.p.addr.eq(cmd.p.addr + 1), column.eq(column + 1)]
            with m.If(column == most):
                m.d.sync += [column.eq(0), left.eq(left - 1), asking.eq(left != 1)]

    def _receive(self, m: Module, arrives: Value) -> Value:
        """Columns as they come: an exponent, then the mantissas of a row, N/L words of it.

        Returns a bit that is set when the last row is on its way.
        """
        config, copies, write, rdata = self.config, self.copies, self.write, self.port.rdata
        size, held = config.wgt_mant, config.lanes // config.column_mantissas
        head, part, last = Signal(init=1), Signal(range(held)), Signal()
        word, tile, rows = Signal(range(config.steps)), Signal(range(config.matrix_depth)), Signal.like(copies.count)
        row, exp = Signal.like(write.row), Signal(config.wgt_exp_width, reset_less=True)
        mant = Signal(config.lanes * size, reset_less=True)
        bits = config.sdram.width // config.column_mantissas
        column = Cat(rdata.payload[k * bits :][:size] for k in range(config.column_mantissas))
        m.d.sync += [write.en.eq(0), last.eq(0)]
        m.d.comb += write.data.eq(Cat(mant, exp))
        with m.If(copies.go):
            m.d.sync += [tile.eq(copies.matrix >> clog2(config.steps)), row.eq(0), rows.eq(copies.count)]
        with m.If(arrives & head):
            m.d.sync += [exp.eq(rdata.payload), head.eq(0)]
        with m.Elif(arrives):
            m.d.sync += [mant.eq(Cat(mant[len(column) :], column)), part.eq(part + 1)]
            with m.If(part == held - 1):
                m.d.sync += [part.eq(0), write.en.eq(1), write.row.eq(row), word.eq(word + 1)]
                m.d.sync += write.addr.eq(Cat(word, tile) if config.steps > 1 else tile)
                with m.If(word == config.steps - 1):
                    m.d.sync += [word.eq(0), head.eq(1), row.eq(row + 1), rows.eq(rows - 1), last.eq(rows == 1)]
                    with m.If(row == config.rows - 1):
                        m.d.sync += [row.eq(0), tile.eq(tile + 1)]
        return last
