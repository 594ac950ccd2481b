"""Replies to the framer."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.link import CRC_BYTES, HEADER
from concord_rtl.link.crc import Crc32
from concord_rtl.link.framer import PIECE
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import shape_of, stream_of


class Replier(NpuUnit):
    """Send header, payload and checksum of one reply.

    One byte per cycle while the payload keeps up, and three cycles more per reply.

    Parameters
    ----------
    config : NpuConfig
        Gives ``max_payload``.
    """

    start = Input(1, "Begin a reply with ``header``; only while no reply is being sent.")
    header = Input(shape_of(HEADER), "Header, needed while ``start`` only. ``length`` is at most ``max_payload``.")
    i = Input(stream_of(8), "Payload; ``header.length`` bytes are taken.")
    o = Output(stream_of(PIECE), "To the framer.")
    done = Output(1, "The last byte has left but for one register: the next reply may start in the next cycle.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.crc = crc = Crc32()
        header: Any = Signal(shape_of(HEADER))
        index = Signal(range(max(HEADER.nbytes, CRC_BYTES)))  # byte of header or checksum
        left = Signal(range(self.config.max_payload + 1))  # bytes of the payload
        more = Signal()  # some are left
        piece: Any = Signal(PIECE)
        valid, free, sent = Signal(), Signal(), Signal()
        m.d.comb += [free.eq(~self.o.valid | self.o.ready), sent.eq(valid & free), crc.data.eq(piece.data)]
        with m.If(free):
            m.d.sync += [self.o.valid.eq(valid), self.o.payload.eq(piece)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += crc.clear.eq(1)
                m.d.sync += [header.eq(self.header), left.eq(self.header.length), index.eq(0)]
                m.d.sync += more.eq(self.header.length != 0)
                with m.If(self.start):
                    m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += [valid.eq(1), piece.data.eq(header.as_value().word_select(index, 8))]
                m.d.comb += crc.valid.eq(sent)
                with m.If(sent):
                    m.d.sync += index.eq(index + 1)
                    with m.If(index == HEADER.nbytes - 1):
                        m.d.sync += index.eq(0)
                        m.next = "PAYLOAD"
            with m.State("PAYLOAD"):
                m.d.comb += [piece.data.eq(self.i.payload), crc.valid.eq(sent)]
                with m.If(~more):
                    m.next = "CHECKSUM"
                with m.Else():
                    m.d.comb += [valid.eq(self.i.valid), self.i.ready.eq(free)]
                    with m.If(sent):
                        m.d.sync += [left.eq(left - 1), more.eq(left != 1)]
            with m.State("CHECKSUM"):
                m.d.comb += [valid.eq(1), piece.data.eq(crc.crc.word_select(index, 8))]
                m.d.comb += piece.last.eq(index == CRC_BYTES - 1)
                with m.If(sent):
                    m.d.sync += index.eq(index + 1)
                    with m.If(piece.last):
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
        return m
