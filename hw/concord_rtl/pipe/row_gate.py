"""Products that wait for the rows of the matrix memory that programs write."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import clog2
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.pipe.layouts import matrix_addr_bits


class RowGate(NpuUnit):
    """Holds a chain with a product back as long as rows that chains before it write are under way.

    It knows the last tile that was written to in this run, and how many rows are on their way. A chain whose first word
    lies behind that tile does not wait, as its other words lie behind the first one; where addresses wrap around to the
    first word (:attr:`~concord.spec.config.NpuConfig.matrix_wraps`), every product waits. Reads come much later behind
    the issue of their vector than a row comes to its memory behind ``written``.

    Nothing waits before a row is written: vectors leave the pipe in the order of their issue, and a product does so
    when all of its weights have been read.

    Parameters
    ----------
    config : NpuConfig
    """

    start = Input(1, "Start of a run: no row has been written.")
    issued = Input(1, "A vector that will be written as ``row`` is issued.")
    row = Input(lambda self: self.config.matrix_row_bits, "Number of the row, counted from the first tile.")
    written = Input(1, "The oldest row is written.")
    load = Input(1, "The next chain is taken: its first vector may be issued in the next cycle.")
    product = Input(1, "It has a product.")
    matrix = Input(lambda self: matrix_addr_bits(self.config), "First word of the product.")
    waits = Output(1, "The chain that was taken must wait in this cycle.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tile = self.row[clog2(self.config.rows) :]
        first = self.matrix[clog2(self.config.steps) :]
        last, left = Signal.like(tile, name="last"), Signal(range(4 * self.config.inflight + 1))
        m.d.sync += left.eq(left + self.issued - self.written)
        with m.If(self.issued & (tile > last)):
            m.d.sync += last.eq(tile)
        with m.If(self.start):
            m.d.sync += last.eq(0)
        above = (first > last) & ~(self.issued & (first <= tile)) & (not self.config.matrix_wraps)
        with m.If(self.load):
            m.d.sync += self.waits.eq(self.product & ~above & (self.issued | (left != 0)))
        with m.Else():
            m.d.sync += self.waits.eq(self.waits & (left != 0))
        return m
