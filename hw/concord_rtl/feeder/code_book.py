"""Memory of the numbers that bytes of inputs stand for."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory

from concord.spec.blocks import code_book_in_ram
from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE
from concord.spec.formats import BINARY16_WIDTH
from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay


class CodeBook(Component):
    """Pages of ``CODE_PAGE`` numbers in binary16: one read port, one write port.

    In block RAM or in LUTs, as :func:`concord.spec.blocks.code_book_in_ram` says. One word per cycle, ``LATENCY``
    cycles after its address. A read in the cycle of a write to the same address gives an undefined word.

    Parameters
    ----------
    config : NpuConfig
        Says how many pages there are, and where the memory is.
    """

    addr = Input(lambda self: range(self.depth), "Address.")
    data = Output(BINARY16_WIDTH, "Its word, ``LATENCY`` cycles later.")
    w_en = Input(1, "Write ``w_data`` at the edge.")
    w_addr = Input(lambda self: range(self.depth), "Address to write.")
    w_data = Input(BINARY16_WIDTH, "Word to write.")

    LATENCY = BlockRam.LATENCY

    def __init__(self, config: NpuConfig):
        self.in_ram, self.depth = code_book_in_ram(config), config.code_pages * CODE_PAGE
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        if self.in_ram:
            m.submodules.store = ram = BlockRam(BINARY16_WIDTH, self.depth)
            m.d.comb += [ram.addr.eq(self.addr), self.data.eq(ram.data)]
            m.d.comb += [ram.w_en.eq(self.w_en), ram.w_addr.eq(self.w_addr), ram.w_data.eq(self.w_data)]
            return m
        m.submodules.store = store = memory.Memory(
            shape=BINARY16_WIDTH, depth=self.depth, init=[], attrs={"ram_style": "distributed"}
        )
        read, write = store.read_port(domain="comb"), store.write_port()
        m.d.comb += [read.addr.eq(self.addr), self.data.eq(delay(m, read.data, self.LATENCY, "word"))]
        m.d.comb += [write.en.eq(self.w_en), write.addr.eq(self.w_addr), write.data.eq(self.w_data)]
        return m
