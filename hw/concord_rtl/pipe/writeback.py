"""End of a vector's trip: collecting beats, converting to narrow, writing, retiring."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFO

from concord.spec.formats import BINARY16_WIDTH, Flag
from concord.spec.operations import Op
from concord_rtl.arith.block_float import activations
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.memories.row_access import RowPort
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.memory_ports import WritePort
from concord_rtl.parts.shapes import shape_of, stream_of
from concord_rtl.parts.stages import delay
from concord_rtl.pipe.layouts import program_addr_bits, retire_layout, vector_addr_bits
from concord_rtl.pipe.ports import RetirePort
from concord_rtl.vector.quantizer import Quantizer


class Writeback(NpuUnit):
    """Writes each vector to its wide and narrow destinations and retires it.

    The wide write takes place one cycle after the last beat, the narrow write one after the quantiser is done; both
    retire the entry of their hazard tracker in the cycle of the write. A vector counts as retired, with all its
    flags, at the time of the narrow write, whether it has one or not. A row of the matrix memory leaves as its
    mantissas come out of the quantiser; the last ones leave at that time, too.

    Parameters
    ----------
    config : NpuConfig
    """

    tokens = Input(
        lambda self: stream_of(retire_layout(self.config)),
        "Vectors in order, there before their first beat.",
    )
    valid = Input(1, "A beat of the second multifunction unit is there.")
    head = Input(1, "It is the first of its vector.")
    beat = Input(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "Its elements.")
    half_overflow = Input(1, "A result of the units before became infinite, in the beat.")
    acc_overflow = Input(1, "A sum left the accumulator, in the beat.")
    nonfinite = Input(1, "An element was not finite in a unit before, in the beat.")
    table_clamped = Input(1, "An element lay outside of its table, in the beat.")
    wide = Output(
        lambda self: WritePort(vector_addr_bits(self.config), shape_of(self.config.wide_word)),
        "Write to the wide memory.",
    )
    narrow = Output(
        lambda self: WritePort(vector_addr_bits(self.config), activations(self.config).word),
        "Write to the narrow memory.",
    )
    row = Output(
        lambda self: RowPort(self.config),
        "Rows of the matrix memory. Only with ``m_wr``.",
        when=lambda self: self.config.has(Op.M_WR),
    )
    row_done = Output(
        1,
        "A vector that is retired is a row of the matrix memory. Only with ``m_wr``.",
        when=lambda self: self.config.has(Op.M_WR),
    )
    wide_done = Output(
        lambda self: self.TAKERS,
        "As ``done`` of the wide memory, for hazard trackers and gates, from a register for each: these and the "
        "memories lie far apart.",
    )
    narrow_done = Output(
        lambda self: self.TAKERS, "As ``done`` of the narrow memory, from a register for each of these, too."
    )
    retired = Output(lambda self: RetirePort(self.config), "Vectors that leave the pipe.")
    reset_noise = Input(1, "Start of a run.")

    #: Units that must know of a write: a tracker, the gate of sources and the one of operands.
    TAKERS = 3

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
            {
                "pc": program_addr_bits(self.config),
                "narrow": token.narrow.shape(),
                "write": 1,
                **({"matrix": 1} if self.config.has(Op.M_WR) else {}),
                "flags": len(Flag),
            }
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
        write = done & head.write
        if self.config.has(Op.M_WR):
            m.d.comb += [quantizer.to_matrix.eq(token.to_matrix), pushed.matrix.eq(token.to_matrix)]
            self._row(m, delay(m, last, quantizer.LATENCY - self.config.beats + 1, "begin", reset_less=False), head)
            m.d.sync += self.row_done.eq(done & head.matrix)
            write = write & ~head.matrix
        self._write(m, "narrow", write, head.narrow)
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

    def _row(self, m, begins, head):
        """A row of the matrix memory leaves with its vector; ``begins`` when its first mantissas come."""
        row = self.row
        beat = Signal.like(row.beat, name="row_beat")
        there = begins | (beat != 0)
        m.d.sync += [
            beat.eq(beat + there),
            row.valid.eq(there & head.matrix),
            row.beat.eq(beat),
            row.row.eq(head.narrow),
        ]
        m.d.comb += [
            row.mant.eq(self.narrow.data.mant.as_value()[-row.mant.as_value().shape().width :]),
            row.exp.eq(self.narrow.data.exp - self.config.wgt_exp_min),
        ]
