"""A queue between two clocks."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory
from amaranth.lib.cdc import FFSynchronizer

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


def _binary(gray: Value) -> Value:
    return Cat(gray[k:].xor() for k in range(len(gray)))


def _successor(gray: Value) -> Value:
    """The Gray code of the next number."""
    after = (_binary(gray) + 1)[: len(gray)]
    return after ^ (after >> 1)


class CrossingQueue(Component):
    """Bytes from one clock domain to another, either of which may stand still for any time.

    A byte can be taken as soon as two edges of the reading clock have come after the edge that wrote it, without
    another edge of the writing clock. Its place is free two edges of the writing clock after it was taken.

    Ignores the resets of both domains: a reset of one side alone would make bytes of nothing. Its registers start with
    the values of the configuration.

    Parameters
    ----------
    depth : int
        Bytes that it holds, a power of two from 2 on. They are registers where the memories of the device have none
        that is read without a clock.
    writing, reading : str
        The domains.
    """

    i = Input(stream_of(8), "Bytes, in the domain ``writing``.")
    o = Output(stream_of(8), "The same bytes, in the domain ``reading``.")

    def __init__(self, depth: int, *, writing: str, reading: str):
        if depth < 2 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two from 2 on, not {depth!r}")
        self.depth, self.writing, self.reading = depth, writing, reading
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits = self.depth.bit_length()
        # Gray codes of the bytes written and read, in both domains: one bit changes at a time.
        written, read = Signal(bits, reset_less=True), Signal(bits, reset_less=True)
        written_seen, read_seen = Signal(bits), Signal(bits)
        m.submodules.written = FFSynchronizer(written, written_seen, o_domain=self.reading)
        m.submodules.read = FFSynchronizer(read, read_seen, o_domain=self.writing)
        m.submodules.bytes = places = memory.Memory(shape=8, depth=self.depth, init=[])
        write, front = places.write_port(domain=self.writing), places.read_port(domain="comb")
        full = read_seen ^ (0b11 << bits - 2)  # what ``written`` is one round later
        m.d.comb += [
            self.i.ready.eq(written != full),
            write.en.eq(self.i.valid & self.i.ready),
            write.addr.eq(_binary(written)),
            write.data.eq(self.i.payload),
            self.o.valid.eq(written_seen != read),
            front.addr.eq(_binary(read)),
            self.o.payload.eq(front.data),
        ]
        with m.If(write.en):
            m.d[self.writing] += written.eq(_successor(written))
        with m.If(self.o.valid & self.o.ready):
            m.d[self.reading] += read.eq(_successor(read))
        return m
