"""The payload of the frame being received."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory

from concord.spec.link import TARGET
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import stream_of


class PayloadBuffer(NpuUnit):
    """Keep one payload, then play back what follows the target.

    Does not know where a frame begins or ends, and ignores bytes beyond ``max_payload``.

    One byte per cycle both ways. The first byte is on ``o`` two cycles after ``play`` rises.

    Parameters
    ----------
    config : NpuConfig
        Gives ``max_payload``.
    """

    write = Input(1, "Store ``data`` at ``index``; only while ``play`` is low.")
    index = Input(lambda self: range(self.config.max_payload + 1), "Position in the payload.")
    data = Input(8, "Byte to store.")
    play = Input(1, "Whether to play back; while low, playback is at its start.")
    o = Output(stream_of(8), "Bytes from ``TARGET.nbytes`` on. It is for the taker to know where the payload ends.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.mem = mem = memory.Memory(shape=8, depth=self.config.max_payload, init=[])
        write, read = mem.write_port(), mem.read_port()
        m.d.comb += [
            write.addr.eq(self.index),
            write.data.eq(self.data),
            write.en.eq(self.write & ~self.play & (self.index < self.config.max_payload)),
        ]

        fetched = Signal()  # the memory has put out a byte
        free = Signal()
        m.d.comb += free.eq(~self.o.valid | self.o.ready)
        # Never while writing: the memory needs no rule for reads of what is being written.
        m.d.comb += read.en.eq(self.play & (free | ~fetched))
        with m.If(~self.play):
            m.d.sync += [read.addr.eq(TARGET.nbytes), fetched.eq(0), self.o.valid.eq(0)]
        with m.Elif(read.en):
            m.d.sync += [read.addr.eq(read.addr + 1), fetched.eq(1)]
        with m.If(self.play & free):
            m.d.sync += [self.o.valid.eq(fetched), self.o.payload.eq(read.data)]
        return m
