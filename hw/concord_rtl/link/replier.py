"""Replies to the framer."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.link import CRC_BYTES, HEADER

from ..shapes import shape_of
from .crc import CRC32
from .framer import PIECE


class Replier(wiring.Component):
    """Send header, payload and checksum of one reply.

    Does not limit the length of the payload.

    One byte per cycle while the payload keeps up.

    Members
    -------
    start : In(1)
        Begin a reply with ``header``; only while no reply is being sent.
    header : In
        Header, needed while ``start`` only.
    i : In(stream)
        Payload; ``header.length`` bytes are taken.
    o : Out(stream)
        To the framer.
    done : Out(1)
        The last byte is being taken.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "header": In(shape_of(HEADER)),
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(PIECE)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = crc = CRC32.create()
        shift = Signal(max(HEADER.nbytes, CRC_BYTES) * 8)  # header, or what is left of the checksum
        length = Signal(HEADER["length"].width)
        left = Signal.like(length)
        last, sent = Signal(), Signal()
        m.d.comb += [last.eq(left == 1), sent.eq(self.o.valid & self.o.ready)]
        m.d.comb += [self.o.p.data.eq(shift[:8]), crc.data.eq(self.o.p.data)]
        with m.If(sent):
            m.d.sync += [left.eq(left - 1), shift.eq(shift >> 8)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += [shift.eq(self.header), length.eq(self.header.length), left.eq(HEADER.nbytes)]
                with m.If(self.start):
                    m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += [self.o.valid.eq(1), crc.valid.eq(sent)]
                with m.If(sent & last):
                    m.d.sync += left.eq(length)
                    m.next = "PAYLOAD"
            with m.State("PAYLOAD"):
                m.d.comb += self.o.p.data.eq(self.i.payload)
                with m.If(left == 0):
                    m.d.sync += [shift.eq(crc.crc), left.eq(CRC_BYTES)]
                    m.next = "CHECKSUM"
                with m.Else():
                    m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready), crc.valid.eq(sent)]
            with m.State("CHECKSUM"):
                m.d.comb += [self.o.valid.eq(1), self.o.p.last.eq(last), self.done.eq(sent & last)]
                with m.If(self.done):
                    m.next = "IDLE"
        return m
