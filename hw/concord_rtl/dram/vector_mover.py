"""Vectors between columns of the external memory and the vector memories."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.isa import COPY_ROWS_BITS, Mem
from concord_rtl.dram.copy_port import place_layout
from concord_rtl.dram.native_port import columns_read, columns_written
from concord_rtl.memories.vector_access import VectorAccess
from concord_rtl.parts.component import Input, NpuUnit, Output


class VectorMover(NpuUnit):
    """Makes words of columns that were read, and columns of words; a column a cycle.

    The first column of a word from a vector memory comes ``VECTOR_COLUMN`` cycles (:mod:`concord.spec.timing`) after
    the last one of the word before.

    Parameters
    ----------
    config : NpuConfig
        Has an external memory.
    """

    go = Input(1, "A copy of vectors begins.")
    place = Input(place_layout(), "Its first vector, the memory and the direction.")
    count = Input(COPY_ROWS_BITS, "Its vectors.")
    begin = Input(1, "The accesses of the host are over, and columns are asked for from the next cycle on.")
    rdata = Input(lambda self: columns_read(self.config.sdram), "Columns of the external memory.")
    wdata = Output(lambda self: columns_written(self.config.sdram), "Columns for it.")
    access = Output(lambda self: VectorAccess(self.config), "The vector memories.")
    over = Output(1, "The last word is on its way to its memory.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, access = self.config, self.access
        left, at, out = Signal(COPY_ROWS_BITS), Signal(range(config.vector_columns(Mem.WIDE))), Signal()
        narrow, wide = (config.vector_columns(mem) for mem in (Mem.NARROW, Mem.WIDE))
        last = at == Mux(access.mem, wide - 1, narrow - 1)
        received, sent = self.rdata.valid & access.owns & ~out, self._send(m, at, last, left, out)
        self._receive(m, at, received & last)
        with m.If(received | sent):
            m.d.sync += at.eq(Mux(last, 0, at + 1))
            with m.If(last):
                m.d.sync += left.eq(left - 1)
        with m.If(access.write | (sent & last)):
            m.d.sync += access.addr.eq(access.addr + 1)
        with m.If(self.go):
            m.d.sync += [Cat(access.addr, access.mem, out).eq(self.place), left.eq(self.count), access.busy.eq(1)]
        with m.If(self.begin):
            m.d.sync += access.owns.eq(access.busy)
        m.d.comb += self.over.eq((left == 0) & Mux(out, self.wdata.valid & self.wdata.ready, access.write))
        with m.If(self.over):
            m.d.sync += [access.busy.eq(0), access.owns.eq(0)]
        return m

    def _receive(self, m: Module, at: Value, complete: Value) -> None:
        """Columns to their places in a word, which is written when it is complete."""
        width, rdata = self.config.sdram.width, self.rdata
        with m.If(rdata.valid), m.Switch(at):
            for k in range(self.config.vector_columns(Mem.WIDE)):
                with m.Case(k):
                    m.d.sync += self.access.data[k * width :][:width].eq(rdata.payload)
        m.d.sync += self.access.write.eq(complete)

    def _send(self, m: Module, at: Value, last: Value, left: Value, out: Value) -> Value:
        """Columns of a word, through a register; returns a bit that is set when one enters it."""
        config, wdata, access = self.config, self.wdata, self.access
        word = Mux(access.mem, access.word, access.word[: config.narrow_word.width])
        wait = Signal(range(timing.VECTOR_WORD + 1))
        loads = access.owns & out & (left != 0) & (wait == 0) & (~wdata.valid | wdata.ready)
        with m.If(loads):
            m.d.sync += [wdata.p.data.eq(word.word_select(at, config.sdram.width)), wdata.valid.eq(1)]
        with m.Elif(wdata.ready):
            m.d.sync += wdata.valid.eq(0)
        m.d.comb += wdata.p.we.eq(~0)
        with m.If(self.begin | (loads & last)):
            m.d.sync += wait.eq(timing.VECTOR_WORD)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        return loads
