"""Frames from the line: header, checksum and payload of one request."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, enum, wiring

from concord.spec.config import NpuConfig, clog2
from concord.spec.link import COUNT, CRC_BYTES, HEADER, TARGET
from concord.spec.memmap import regions
from concord_rtl.link.buffer import PayloadBuffer
from concord_rtl.link.crc import Crc32
from concord_rtl.link.deframer import CHUNK
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import shape_of, stream_of


class Part(enum.Enum):
    """Part of a frame to which the next byte belongs; a good frame ends with ``DONE``."""

    HEADER = 0
    PAYLOAD = 1
    CHECKSUM = 2
    DONE = 3
    EXCESS = 4


#: Payload bytes that are kept in registers: as many as READ has.
ARG_BYTES = TARGET.nbytes + COUNT.nbytes


def frame_layout(config: NpuConfig) -> data.StructLayout:
    """Description of a frame that has ended.

    ``good``: checksum and length agree with what arrived. ``words``, ``partial``: words of the target's region in the
    payload after the target, and whether bytes are left over.
    """
    return data.StructLayout(
        {
            "good": 1,
            "header": shape_of(HEADER),
            "args": data.ArrayLayout(8, ARG_BYTES),
            "words": range(config.max_payload + 1),
            "partial": 1,
        }
    )


class Receiver(NpuUnit):
    """Take one frame apart and hold it until it is consumed.

    Does not judge the request. While a frame is held nothing more is taken from the line.

    One byte per cycle; ``frame`` is valid the cycle after its end was taken.

    Parameters
    ----------
    config : NpuConfig
        Gives ``max_payload`` and the sizes of words.
    """

    i = Input(stream_of(CHUNK), "From the deframer.")
    frame = Output(
        lambda self: stream_of(frame_layout(self.config)),
        "One item per frame, good or not. ``words`` and ``partial`` may be wrong if the payload is too long.",
    )
    body = Output(
        stream_of(8),
        "The payload after the target, played back anew for every frame. Goes on beyond the end with old bytes.",
    )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.buffer = buffer = PayloadBuffer(self.config)
        m.submodules.crc = crc = Crc32()
        frame = self.frame.p
        taken = self.i.valid & self.i.ready
        ended = Signal()
        byte = Signal()  # a byte of the frame is taken
        m.d.comb += [
            self.i.ready.eq(~self.frame.valid),
            ended.eq(taken & self.i.p.end),
            byte.eq(taken & ~self.i.p.end),
            crc.data.eq(self.i.p.data),
            crc.valid.eq(byte),
            crc.clear.eq(self.frame.valid),
        ]
        part = self._walk(m, byte, ended)

        argument = Signal()
        index = Signal.like(buffer.index)
        m.d.comb += [
            argument.eq(byte & (part == Part.PAYLOAD)),
            buffer.write.eq(argument),
            buffer.index.eq(index),
            buffer.data.eq(self.i.p.data),
            buffer.play.eq(self.frame.valid),
        ]
        wiring.connect(m, wiring.flipped(self.body), buffer.o)
        self._count(m, argument, index)

        with m.If(ended):
            m.d.sync += self.frame.valid.eq(1)
            m.d.sync += frame.good.eq((part == Part.DONE) & crc.match & ~self.i.p.damaged)
        with m.If(self.frame.valid & self.frame.ready):
            m.d.sync += self.frame.valid.eq(0)
        return m

    def _walk(self, m, byte, ended):
        """Follow the parts of a frame and keep the header; return the part that the next byte belongs to."""
        header = self.frame.p.header.as_value()
        part = Signal(Part)
        left = Signal(16, init=HEADER.nbytes)  # bytes until the next part
        shifted = Cat(header[8:], self.i.p.data)
        length = shifted[-HEADER["length"].width :]
        last = Signal()
        m.d.comb += last.eq(left == 1)
        with m.If(byte):
            m.d.sync += left.eq(left - 1)
            with m.Switch(part):
                with m.Case(Part.HEADER):
                    m.d.sync += header.eq(shifted)
                    with m.If(last & (length == 0)):
                        m.d.sync += [part.eq(Part.CHECKSUM), left.eq(CRC_BYTES)]
                    with m.Elif(last):
                        m.d.sync += [part.eq(Part.PAYLOAD), left.eq(length)]
                with m.Case(Part.PAYLOAD):
                    with m.If(last):
                        m.d.sync += [part.eq(Part.CHECKSUM), left.eq(CRC_BYTES)]
                with m.Case(Part.CHECKSUM):
                    with m.If(last):
                        m.d.sync += part.eq(Part.DONE)
                with m.Default():
                    m.d.sync += part.eq(Part.EXCESS)
        with m.If(ended):
            m.d.sync += [part.eq(Part.HEADER), left.eq(HEADER.nbytes)]
        return part

    def _count(self, m, argument, index):
        """Keep the first bytes of the payload, and count words while their bytes arrive: no division afterwards."""
        frame = self.frame.p
        table = regions(self.config)
        known = {int(region): area.nbytes for region, area in table.items()}
        sizes = Array(known.get(n, 1) for n in range(1 << clog2(max(table) + 1)))
        size = Signal(range(max(region.nbytes for region in table.values()) + 1))
        filled = Signal.like(size, init=1)  # bytes of the current word, the next one included
        m.d.sync += size.eq(sizes[frame.args[0][: clog2(len(sizes))]])
        with m.If(argument):
            with m.If(index != self.config.max_payload):
                m.d.sync += index.eq(index + 1)
            for n, kept in enumerate(frame.args):
                with m.If(index == n):
                    m.d.sync += kept.eq(self.i.p.data)
            with m.If(index >= TARGET.nbytes):
                m.d.sync += [filled.eq(filled + 1), frame.partial.eq(1)]
                with m.If(filled == size):
                    m.d.sync += [filled.eq(1), frame.partial.eq(0), frame.words.eq(frame.words + 1)]
        with m.If(self.frame.valid & self.frame.ready):
            m.d.sync += [index.eq(0), filled.eq(1), frame.partial.eq(0), frame.words.eq(0)]
