"""Instruction fetch: words are decoded on their way into a short queue."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib.fifo import SyncFIFOBuffered

from concord.spec import isa, timing
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.sequencer.decode import Decoder, decoded_layout

#: Words on their way or waiting; covers the way through memory, decoder and queue at one word per cycle.
DEPTH = 8


class Fetch(NpuUnit):
    """Reads words one after the other, from ``target`` on after a ``jump``.

    Throughput: one word per cycle. The first word after a jump is there ``JUMP_LATENCY`` cycles later.

    Parameters
    ----------
    config : NpuConfig
    """

    enable = Input(1, "Fetch; when low, nothing new is read.")
    jump = Input(1, "Drop everything and go on at ``target``.")
    target = Input(16, "Instruction address.")
    addr = Output(lambda self: range(self.config.program_depth), "Address of the program memory.")
    data = Input(isa.WORD_BITS, "Its word, ``VectorMemory.LATENCY`` cycles later.")
    o = Output(lambda self: stream_of(decoded_layout(self.config)), "Decoded words in order, from a register.")

    JUMP_LATENCY = timing.FETCH_JUMP

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.decoder = decoder = Decoder(self.config)
        queue = SyncFIFOBuffered(width=decoder.o.shape().size, depth=DEPTH)
        m.submodules.queue = ResetInserter(self.jump)(queue)
        pc = Signal(16)
        room = Signal(range(DEPTH + 1), init=DEPTH)
        issue, taken = Signal(), Signal()
        m.d.comb += [
            self.addr.eq(pc),
            issue.eq(self.enable & ~self.jump & (room != 0)),
            self.o.valid.eq(queue.r_rdy & ~self.jump),
            self.o.p.eq(queue.r_data),
            taken.eq(self.o.valid & self.o.ready),
            queue.r_en.eq(taken),
        ]
        valid, address = issue, pc
        for k in range(VectorMemory.LATENCY + Decoder.LATENCY):
            if k == VectorMemory.LATENCY:
                m.d.comb += [decoder.word.eq(self.data), decoder.pc.eq(address)]
            next_valid, next_address = Signal(name=f"valid_{k}"), Signal(16, name=f"pc_{k}")
            m.d.sync += [next_valid.eq(valid & ~self.jump), next_address.eq(address)]
            valid, address = next_valid, next_address
        m.d.comb += [queue.w_en.eq(valid & ~self.jump), queue.w_data.eq(decoder.o)]
        m.d.sync += room.eq(room - issue + taken)
        with m.If(issue):
            m.d.sync += pc.eq(pc + 1)
        with m.If(self.jump):
            m.d.sync += [pc.eq(self.target), room.eq(DEPTH)]
        return m
