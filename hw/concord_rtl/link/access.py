"""A checked request to accesses on the host bus."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig, clog2
from concord.spec.link import TARGET
from concord.spec.memmap import regions
from concord_rtl.host.bus import ADDR_BITS, HostBus, word_bits
from concord_rtl.link.words import WordAssembler, WordSplitter
from concord_rtl.parts.shapes import shape_of, stream_of


class BusAccess(wiring.Component):
    """Write words from a byte stream, or read words into one.

    Does not check anything. Reads are not overlapped: a word is requested when the last byte of the previous has left.

    Bytes of a word plus two cycles per word, and the time of the bus.

    Parameters
    ----------
    config : NpuConfig
        Gives the widths.

    Members
    -------
    run : In(1)
        Carry out what the other inputs say; low for at least one cycle before. They must not change while it is high.
    write : In(1)
        Direction.
    target : In
        Region and first address.
    words : In
        Number of words.
    size : In
        Bytes of one word.
    i : In(stream)
        Bytes to write.
    o : Out(stream)
        Bytes read.
    bus : Out(HostBus)
        The accesses.
    done : Out(1)
        All requests have been taken.
    """

    run: Signal
    write: Signal
    target: data.View
    words: Signal
    size: Signal
    i: stream.Interface
    o: stream.Interface
    bus: Any
    done: Signal

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "run": In(1),
                "write": In(1),
                "target": In(shape_of(TARGET)),
                "words": In(range(config.max_payload + 1)),
                "size": In(range(max(region.nbytes for region in regions(config).values()) + 1)),
                "i": In(stream_of(8)),
                "o": Out(stream_of(8)),
                "bus": Out(HostBus(config)),
                "done": Out(1),
            }
        )

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
        addr = Signal(min(clog2(max(region.depth for region in regions(self.config).values())), ADDR_BITS))
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
