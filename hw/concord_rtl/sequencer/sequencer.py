"""The sequencer: fetches a program, executes control instructions, hands over chain descriptors."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec import timing
from concord.spec.config import clog2
from concord.spec.isa import COPY_UNIT, VECTOR_UNIT, VECTOR_UNIT_BITS, Trap
from concord.spec.operations import Op
from concord_rtl.parts.shapes import view
from concord_rtl.sequencer.builder import ChainBuilder
from concord_rtl.sequencer.fetch import Fetch
from concord_rtl.sequencer.interface import SequencerPorts, connect_units
from concord_rtl.sequencer.loops import LoopStack


class Sequencer(SequencerPorts):
    """Runs a program: one instruction per cycle; a taken ``end_loop`` takes ``LOOP_CYCLES``.

    Chain descriptors are handed over while the next chain is assembled. An illegal word stops the program: chains
    dispatched before it complete, the chain it stands in is discarded.

    Parameters
    ----------
    config : NpuConfig
    """

    LOOP_CYCLES = timing.LOOP_JUMP

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.fetch = fetch = Fetch(self.config)
        m.submodules.loops = loops = LoopStack(self.config)
        m.submodules.builder = builder = ChainBuilder(self.config)
        wiring.connect(m, wiring.flipped(self.chains), builder.chains)

        word = fetch.o.p
        integers = self._integers(m, word, builder) if self.config.has(Op.I_RUN) else None
        running, stopped = Signal(), Signal()  # an illegal word takes no other effect than that it stops the program
        step, finish, jump = Signal(), Signal(), Signal()
        trap = connect_units(m, word, builder, loops, start=self.run.start, step=step)
        settled = self.drained & ~self.copies.busy if self.config.has(Op.COPY) else self.drained
        ready = running & fetch.o.valid & ~builder.chains.valid & (~word.waits | settled)
        if integers is not None:
            ready = ready & ~integers.busy
            m.d.comb += integers.execute.eq(step & word.integer & (trap == Trap.NONE))
        if self.config.has(Op.COPY):
            ready = ready & ~self._copies(m, word, builder, step & (trap == Trap.NONE))
        m.d.comb += [
            step.eq(ready),
            finish.eq(Mux(stopped, settled & ~builder.chains.valid, step & word.halt & (trap == Trap.NONE))),
            jump.eq(self.run.start | finish | (step & word.end & loops.again)),
            self.addr.eq(fetch.addr),
            fetch.data.eq(self.data),
            fetch.enable.eq(self.run.busy),
            fetch.o.ready.eq(step),
        ]
        m.d.sync += [fetch.jump.eq(jump), fetch.target.eq(Mux(self.run.start, self.run.pc, loops.target))]
        self._state(m, step, running, stopped, finish, trap, word)
        return m

    def _integers(self, m, word, builder):
        """Words for the integer engine, with the state that chains share."""
        port, chain = self.integers, builder.chains.p
        m.d.comb += [
            port.word.eq(word.word),
            port.offset.eq(builder.offset),
            port.start.eq(self.run.start),
            *(port.loops[name].eq(chain[name]) for name in port.loops.shape().members),
        ]
        return port

    def _copies(self, m, word, builder, executed):
        """Copies from the external memory; returns a bit that is set while the next word waits for one."""
        fields, vectors = view(Op.COPY, word.word), view(Op.V_COPY, word.word)
        copies, overlaps = self.copies, Signal(name="ahead")
        unit = Signal(VECTOR_UNIT_BITS, name="unit")
        m.d.comb += unit.eq(Mux(word.vectors, vectors["dram"], fields["dram"]) + builder.offset.as_signed())
        with m.If(copies.go):
            m.d.sync += overlaps.eq(fields["ahead"] & ~word.vectors)
        m.d.comb += [
            copies.go.eq(executed & word.copy & copies.works),
            copies.column.eq(Mux(word.vectors, unit << clog2(VECTOR_UNIT), unit << clog2(COPY_UNIT))),
            copies.matrix.eq(fields["matrix"]),
            copies.count.eq(Mux(word.vectors, vectors["count"], fields["rows"])),
            copies.vectors.eq(word.vectors),
            *(copies.place[name].eq(vectors[name]) for name in ("addr", "mem", "out")),
        ]
        return copies.busy & ~overlaps

    def _state(self, m, step, running, stopped, finish, trap, word):
        """A run that traps ends when all that was dispatched has drained."""
        cause, cause_pc = Signal.like(trap, name="last_cause"), Signal.like(word.pc, name="last_pc")  # of the last word
        with m.If(step):
            m.d.sync += [cause.eq(trap), cause_pc.eq(word.pc)]
        stops: Value = step & (trap != Trap.NONE)
        if self.config.has(Op.I_RUN):
            with m.If(self.integers.trap):
                m.d.sync += cause.eq(Trap.INTEGER_RANGE)
            stops = stops | self.integers.trap
        if self.config.has(Op.COPY):
            missing = step & word.copy & ~self.copies.works & (trap == Trap.NONE)
            with m.If(missing):
                m.d.sync += cause.eq(Trap.NO_DRAM)
            stops = stops | missing
        with m.If(stopped | self.run.trapped):
            m.d.comb += [self.run.trap.eq(cause), self.run.trap_pc.eq(cause_pc)]
        with m.If(self.run.start):
            m.d.sync += [self.run.busy.eq(1), self.run.done.eq(0), self.run.trapped.eq(0), running.eq(1), stopped.eq(0)]
        with m.Elif(finish):
            m.d.sync += [
                self.run.busy.eq(0),
                self.run.done.eq(~stopped),
                self.run.trapped.eq(stopped),
                running.eq(0),
                stopped.eq(0),
            ]
        with m.Elif(stops):
            m.d.sync += [running.eq(0), stopped.eq(1)]
