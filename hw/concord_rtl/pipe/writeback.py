"""End of a vector's trip: collecting beats, converting to narrow, writing, retiring."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord_rtl.arith.block_float import activations
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.parts.shapes import shape_of, stream_of
from concord_rtl.parts.stages import delay
from concord_rtl.pipe.layouts import program_addr_bits, retire_layout, vector_addr_bits
from concord_rtl.pipe.ports import RetirePort, WritePort
from concord_rtl.vector.quantizer import Quantizer


class Writeback(wiring.Component):
    """Writes each vector to its wide and narrow destinations and retires it.

    The wide write takes place one cycle after the last beat, the narrow write one after the quantiser is done; both
    retire the entry of their hazard tracker in the cycle of the write. A vector counts as retired, with all its
    flags, at the time of the narrow write, whether it has one or not.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    tokens : In(stream)
        Vectors in order, there before their first beat.
    valid, head, beat : In
        Beats of the second multifunction unit.
    half_overflow, acc_overflow, nonfinite, table_clamped : In(1)
        Flags of the beat, from the units before.
    wide : Out(WritePort)
        Write to the wide memory.
    narrow : Out(WritePort)
        Write to the narrow memory.
    wide_done, narrow_done : Out(TAKERS)
        The same strobes for hazard trackers and gates, from a register for each: these and the memories lie far apart.
    retired : Out(RetirePort)
        Vectors that leave the pipe.
    reset_noise : In(1)
        Start of a run.
    """

    tokens: stream.Interface
    valid: Signal
    head: Signal
    beat: data.View
    half_overflow: Signal
    acc_overflow: Signal
    nonfinite: Signal
    table_clamped: Signal
    wide: Any
    narrow: Any
    wide_done: Signal
    narrow_done: Signal
    retired: Any
    reset_noise: Signal

    #: Units that must know of a write: a tracker, the gate of sources and the one of operands.
    TAKERS = 3

    def __init__(self, config: NpuConfig):
        self.config = config
        addr = vector_addr_bits(config)
        super().__init__(
            {
                "tokens": In(stream_of(retire_layout(config))),
                "valid": In(1),
                "head": In(1),
                "beat": In(data.ArrayLayout(16, config.mfu_lanes)),
                "half_overflow": In(1),
                "acc_overflow": In(1),
                "nonfinite": In(1),
                "table_clamped": In(1),
                "wide": Out(WritePort(addr, shape_of(config.wide_word))),
                "narrow": Out(WritePort(addr, activations(config).word)),
                "wide_done": Out(self.TAKERS),
                "narrow_done": Out(self.TAKERS),
                "retired": Out(RetirePort(config)),
                "reset_noise": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        token = self.tokens.p
        lanes, beats = self.config.mfu_lanes, self.config.beats
        beat = Signal(range(beats))
        last = Signal()
        m.d.comb += [last.eq(self.valid & (beat == beats - 1)), self.tokens.ready.eq(last)]
        with m.If(self.valid):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))

        collected = Signal(self.config.wide_word.width)
        with m.If(self.valid):
            m.d.sync += collected.eq(Cat(collected[16 * lanes :], self.beat))
        m.d.comb += self.wide.data.eq(collected)
        self._write(m, "wide", last & token.to_wide, token.wide)

        flags = Signal(len(Flag))
        now, so_far = Signal(len(Flag)), Signal(len(Flag))
        m.d.comb += [
            now[Flag.ACC_OVERFLOW].eq(self.acc_overflow),
            now[Flag.HALF_OVERFLOW].eq(self.half_overflow),
            now[Flag.NONFINITE].eq(self.nonfinite),
            now[Flag.TABLE_CLAMPED].eq(self.table_clamped),
            flags.eq(now | so_far),
        ]
        with m.If(self.valid):
            m.d.sync += so_far.eq(Mux(last, 0, flags))
        self._narrow(m, last, flags)
        return m

    def _write(self, m, memory, strobe, addr):
        """Strobes and address of a write to ``memory``."""
        m.submodules[f"{memory}_retire"] = retire = KeptRegister(self.TAKERS)
        m.d.comb += [retire.i.eq(strobe.replicate(self.TAKERS)), getattr(self, f"{memory}_done").eq(retire.o)]
        port = getattr(self, memory)
        m.d.sync += [port.en.eq(strobe), port.addr.eq(addr)]

    def _narrow(self, m, last, flags):
        """Conversion, and the retirement that follows it."""
        token = self.tokens.p
        waiting = data.StructLayout(
            {"pc": program_addr_bits(self.config), "narrow": token.narrow.shape(), "write": 1, "flags": len(Flag)}
        )
        m.submodules.quantizer = quantizer = Quantizer(self.config)
        depth = quantizer.LATENCY // self.config.beats + 2
        m.submodules.queue = queue = SyncFIFO(width=waiting.size, depth=depth)
        pushed: Any
        head: Any
        pushed, head = Signal(waiting), Signal(waiting)
        m.d.comb += [
            quantizer.i.eq(self.beat),
            quantizer.valid.eq(self.valid & token.to_narrow),
            quantizer.first.eq(self.head),
            quantizer.ctrl.eq(token.quant),
            quantizer.reset_noise.eq(self.reset_noise),
            pushed.pc.eq(token.pc),
            pushed.narrow.eq(token.narrow),
            pushed.write.eq(token.to_narrow),
            pushed.flags.eq(flags),
            queue.w_data.eq(pushed),
            queue.w_en.eq(last),
            head.eq(queue.r_data),
        ]
        done = delay(m, last, quantizer.LATENCY, "done", reset_less=False)
        self._write(m, "narrow", done & head.write, head.narrow)
        converted = Signal(len(Flag))
        m.d.comb += [
            converted[Flag.NONFINITE].eq(quantizer.nonfinite),
            converted[Flag.SATURATED].eq(quantizer.saturated),
            queue.r_en.eq(done),
        ]
        m.d.sync += [
            self.retired.valid.eq(done),
            self.narrow.data.eq(quantizer.word),
            self.retired.pc.eq(head.pc),
            self.retired.flags.eq(head.flags | Mux(head.write, converted, 0)),
        ]
