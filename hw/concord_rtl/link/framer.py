"""The bytes of frames to bytes on the line: the inverse of the deframer."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import link
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of

#: A byte of a frame and whether it is the last one.
PIECE = data.StructLayout({"data": 8, "last": 1})


class Framer(Component):
    """Put a flag before and after each frame and escape what must not appear inside.

    Does not add the checksum: the replier does.

    One byte on the line per cycle, latency 1.
    """

    i = Input(stream_of(PIECE), "Bytes of frames, none of them empty.")
    o = Output(stream_of(8), "Bytes for the line.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        escaped = Signal()
        special = Signal()
        free = Signal()

        m.d.comb += special.eq((self.i.p.data == link.FLAG) | (self.i.p.data == link.ESCAPE))
        m.d.comb += free.eq(~self.o.valid | self.o.ready)
        with m.If(free):
            m.d.sync += self.o.valid.eq(0)
            with m.FSM():
                with m.State("OUTSIDE"):
                    with m.If(self.i.valid):
                        m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(link.FLAG)]
                        m.next = "INSIDE"
                with m.State("INSIDE"):
                    m.d.comb += self.i.ready.eq(~special | escaped)
                    with m.If(self.i.valid):
                        m.d.sync += self.o.valid.eq(1)
                        m.d.sync += self.o.payload.eq(self.i.p.data ^ Mux(escaped, link.ESCAPE_XOR, 0))
                        m.d.sync += escaped.eq(0)
                        with m.If(~self.i.ready):
                            m.d.sync += [self.o.payload.eq(link.ESCAPE), escaped.eq(1)]
                        with m.Elif(self.i.p.last):
                            m.next = "CLOSE"
                with m.State("CLOSE"):
                    m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(link.FLAG)]
                    m.next = "OUTSIDE"
        return m
