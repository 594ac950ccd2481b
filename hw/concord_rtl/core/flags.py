"""The sticky flags of each instruction."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import Stages
from concord_rtl.pipe.layouts import program_addr_bits
from concord_rtl.pipe.ports import RetirePort


class FlagMemory(Component):
    """ORs the flags of retired vectors into one word per instruction address.

    Vectors must be at least two cycles apart, which N/P >= 2 guarantees.

    Parameters
    ----------
    config : NpuConfig
    held : bool
        Vectors are four cycles apart, and ``pc`` and ``flags`` are held for three cycles.
    """

    retired = Input(lambda self: RetirePort(self.config), "Vectors that leave the pipe.")
    clear = Input(1, "Set everything to zero; takes ``program_depth`` cycles.")
    clearing = Output(1, "That is going on.")
    union = Output(len(Flag), "Union of all flags since the last clear.")
    host_en = Input(1, "The host writes, while nothing else happens.")
    host_addr = Input(lambda self: program_addr_bits(self.config), "Address of its write.")
    host_w_data = Input(len(Flag), "Word of its write.")
    host_data = Output(len(Flag), "Word at ``host_addr``, ``HOST_LATENCY`` cycles later, while nothing else happens.")

    HOST_LATENCY = VectorMemory.LATENCY

    def __init__(self, config: NpuConfig, *, held: bool = False):
        self.config = config
        self.held = held
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        stage = Stages(m, held=self.held)
        depth = self.config.program_depth
        m.submodules.memory = memory = VectorMemory(len(Flag), depth)
        earlier, update = Signal(), Signal()
        m.d.sync += [earlier.eq(self.retired.valid), update.eq(earlier)]
        next_pc = stage.delay(self.retired.pc, memory.LATENCY - 1, "next_pc")
        pc, flags = stage.register(next_pc, "pc_now"), stage.delay(self.retired.flags, memory.LATENCY, "flags_now")
        # The write of the vector before may coincide with the read: its result is kept.
        known, known_pc, known_flags = Signal(), Signal.like(self.retired.pc), Signal.like(self.retired.flags)
        same = stage.register(known & (known_pc == next_pc), "same") & (not self.held)
        result = Signal.like(self.retired.flags)
        m.d.comb += [
            result.eq(flags | Mux(same, known_flags, memory.read.data)),
            memory.read.addr.eq(Mux(self.retired.valid, self.retired.pc, self.host_addr)),
            self.host_data.eq(memory.read.data),
        ]
        with m.If(self.retired.valid):
            m.d.sync += self.union.eq(self.union | self.retired.flags)
        cell = Signal.like(self.retired.pc)
        with m.If(self.clearing):
            m.d.comb += [memory.write.en.eq(1), memory.write.addr.eq(cell)]
            m.d.sync += [cell.eq(cell + 1), known.eq(0), self.union.eq(0)]
            with m.If(cell == depth - 1):
                m.d.sync += self.clearing.eq(0)
        with m.Elif(update):
            m.d.comb += [memory.write.en.eq(1), memory.write.addr.eq(pc), memory.write.data.eq(result)]
            m.d.sync += [known.eq(1), known_pc.eq(pc), known_flags.eq(result)]
        with m.Elif(self.host_en):
            m.d.comb += [memory.write.en.eq(1), memory.write.addr.eq(self.host_addr)]
            m.d.comb += memory.write.data.eq(self.host_w_data)
            m.d.sync += known.eq(0)
        with m.If(self.clear):
            m.d.sync += [self.clearing.eq(1), cell.eq(0)]
        return m
