"""Bytes from the line to the bytes of frames."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import link
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of

#: A byte of a frame, or its end (``data`` then means nothing); ``damaged`` if it ended inside an escape sequence.
CHUNK = data.StructLayout({"data": 8, "end": 1, "damaged": 1})


class Deframer(Component):
    """Remove flags and escape sequences.

    Does not look at the bytes between the flags: the receiver does. The line is taken to be inside a frame after reset,
    so bytes before the first flag are a (damaged) frame of their own. Empty frames leave no trace.

    One byte per cycle, latency 1.
    """

    i = Input(stream_of(8), "Bytes as they come from the line.")
    o = Output(stream_of(CHUNK), "The bytes of each frame, and after each frame one chunk with ``end`` set.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        escaped = Signal()
        inside = Signal()

        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += [self.o.p.end.eq(0), self.o.p.damaged.eq(0)]
            with m.If(self.i.payload == link.FLAG):
                m.d.sync += [self.o.valid.eq(inside), self.o.p.end.eq(1), self.o.p.damaged.eq(escaped)]
                m.d.sync += [inside.eq(0), escaped.eq(0)]
            with m.Elif((self.i.payload == link.ESCAPE) & ~escaped):
                m.d.sync += [inside.eq(1), escaped.eq(1)]
            with m.Else():
                m.d.sync += self.o.p.data.eq(self.i.payload ^ Mux(escaped, link.ESCAPE_XOR, 0))
                m.d.sync += [self.o.valid.eq(1), inside.eq(1), escaped.eq(0)]
        return m
