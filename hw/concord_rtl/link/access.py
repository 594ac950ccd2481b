"""A checked request to accesses on the host bus."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.config import clog2
from concord.spec.link import TARGET
from concord.spec.memmap import regions
from concord_rtl.feeder.pointers import depth_of
from concord_rtl.host.bus import ADDR_BITS, HostBus, word_bits
from concord_rtl.link.words import WordAssembler, WordSplitter
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import shape_of, stream_of


class BusAccess(NpuUnit):
    """Write words from a byte stream, or read words into one.

    Does not check anything. Reads are not overlapped: a word is requested when the last byte of the previous has left.

    Bytes of a word plus two cycles per word, and the time of the bus.

    Parameters
    ----------
    config : NpuConfig
        Gives the widths.
    """

    run = Input(
        1,
        "Carry out what the other inputs say; low for at least one cycle before. They must not change while it is "
        "high.",
    )
    write = Input(1, "Direction.")
    target = Input(shape_of(TARGET), "Region and first address.")
    words = Input(lambda self: range(self.config.max_payload + 1), "Number of words.")
    size = Input(
        lambda self: range(max(region.nbytes for region in regions(self.config).values()) + 1),
        "Bytes of one word.",
    )
    i = Input(stream_of(8), "Bytes to write.")
    o = Output(stream_of(8), "Bytes read.")
    bus = Output(lambda self: HostBus(self.config), "The accesses.")
    done = Output(1, "All requests have been taken.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        width = word_bits(self.config)
        m.submodules.assembler = assembler = WordAssembler(width)
        m.submodules.splitter = splitter = WordSplitter(width)
        m.d.comb += [assembler.size.eq(self.size), splitter.size.eq(self.size)]
        taking = self.run & self.write & ~self.done
        m.d.comb += [assembler.i.payload.eq(self.i.payload), assembler.i.valid.eq(self.i.valid & taking)]
        m.d.comb += self.i.ready.eq(assembler.i.ready & taking)
        wiring.connect(m, wiring.flipped(self.bus.rsp), splitter.i)
        wiring.connect(m, splitter.o, wiring.flipped(self.o))

        req = self.bus.req
        depth = max(depth_of(region, self.config) for region in regions(self.config).values())
        addr = Signal(min(clog2(depth), ADDR_BITS))
        left = Signal.like(self.words)
        more = Signal()  # some are left
        pending = Signal()  # a read has not been answered yet
        m.d.comb += [
            req.p.region.eq(self.target.region),
            req.p.addr.eq(addr),
            req.p.write.eq(self.write),
            req.p.data.eq(assembler.o.payload),
            self.done.eq(~more),
        ]
        with m.If(~self.run):
            m.d.sync += [addr.eq(self.target.addr), left.eq(self.words), more.eq(self.words != 0), pending.eq(0)]
        with m.Elif(~self.done):
            with m.If(self.write):
                m.d.comb += [req.valid.eq(assembler.o.valid), assembler.o.ready.eq(req.ready)]
            with m.Else():
                m.d.comb += req.valid.eq(~pending)
        with m.If(req.valid & req.ready):
            m.d.sync += [addr.eq(addr + 1), left.eq(left - 1), more.eq(left != 1), pending.eq(1)]
        with m.If(self.bus.rsp.valid & self.bus.rsp.ready):
            m.d.sync += pending.eq(0)
        return m
