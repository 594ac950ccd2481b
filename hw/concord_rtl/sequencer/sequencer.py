"""The sequencer: fetches a program, executes control instructions, hands over chain descriptors."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.isa import WORD_BITS, Op, Trap

from ..pipe.layouts import chain_layout, program_addr_bits
from .builder import ChainBuilder
from .decode import view
from .fetch import Fetch
from .loops import LoopStack


class Sequencer(wiring.Component):
    """Runs a program: one instruction per cycle; a taken ``end_loop`` takes ``LOOP_CYCLES``.

    Chain descriptors are handed over while the next chain is assembled. An illegal word stops the program: chains
    dispatched before it complete, the chain it stands in is discarded.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    start : In(1)
        Begin at ``pc``; only when not ``busy``.
    pc : In(16)
        First instruction.
    addr, data : Out, In
        Program memory, latency 2.
    chains : Out(stream)
        Chain descriptors.
    drained : In(1)
        Everything that has been handed over has been written.
    busy, done, trapped : Out(1)
        State; ``done`` and ``trapped`` of the last run.
    trap, trap_pc : Out
        Why and where the last run trapped.
    """

    #: The jump leaves a register; the word it leads to is executed when it is there.
    LOOP_CYCLES = 1 + Fetch.JUMP_LATENCY

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "pc": In(16),
                "addr": Out(program_addr_bits(config)),
                "data": In(WORD_BITS),
                "chains": Out(stream.Signature(chain_layout(config))),
                "drained": In(1),
                "busy": Out(1),
                "done": Out(1),
                "trapped": Out(1),
                "trap": Out(range(max(Trap) + 1)),
                "trap_pc": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetch = fetch = Fetch(self.config)
        m.submodules.loops = loops = LoopStack(self.config)
        m.submodules.builder = builder = ChainBuilder(self.config)
        wiring.connect(m, wiring.flipped(self.chains), builder.chains)

        word = fetch.o.p
        running, stopped = Signal(), Signal()  # an illegal word takes no other effect than that it stops the program
        step, finish, jump = Signal(), Signal(), Signal()
        trap = self._trap(m, word, builder, loops)
        m.d.comb += [
            step.eq(running & fetch.o.valid & ~builder.chains.valid & (~word.waits | self.drained)),
            finish.eq(Mux(stopped, self.drained & ~builder.chains.valid, step & word.halt & (trap == Trap.NONE))),
            jump.eq(self.start | finish | (step & word.end & loops.again)),
            self.addr.eq(fetch.addr),
            fetch.data.eq(self.data),
            fetch.enable.eq(self.busy),
            fetch.o.ready.eq(step),
            loops.clear.eq(self.start),
            loops.open.eq(step & word.loop),
            loops.close.eq(step & word.end),
            loops.count.eq(view(Op.LOOP, word.word)["count"]),
            loops.after.eq(word.pc + 1),
            builder.clear.eq(self.start),
            builder.execute.eq(step),
            builder.legal.eq(trap == Trap.NONE),
            builder.word.eq(word),
        ]
        m.d.sync += [fetch.jump.eq(jump), fetch.target.eq(Mux(self.start, self.pc, loops.target))]
        self._state(m, step, running, stopped, finish, trap, word.pc)
        return m

    def _trap(self, m, word, builder, loops):
        """Why the current word cannot be executed."""
        trap = Signal.like(self.trap, name="cause")
        with m.If(word.trap != Trap.NONE):
            m.d.comb += trap.eq(word.trap)
        with m.Elif(builder.misplaced):
            m.d.comb += trap.eq(Trap.CHAIN_ORDER)
        with m.Elif((word.loop & loops.full) | (word.end & loops.empty)):
            m.d.comb += trap.eq(Trap.LOOP_STACK)
        return trap

    def _state(self, m, step, running, stopped, finish, trap, pc):
        """A run that traps ends when all that was dispatched has drained."""
        cause, cause_pc = Signal.like(trap, name="last_cause"), Signal.like(pc, name="last_pc")  # of the last word
        with m.If(step):
            m.d.sync += [cause.eq(trap), cause_pc.eq(pc)]
        with m.If(stopped | self.trapped):
            m.d.comb += [self.trap.eq(cause), self.trap_pc.eq(cause_pc)]
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), self.done.eq(0), self.trapped.eq(0), running.eq(1), stopped.eq(0)]
        with m.Elif(finish):
            m.d.sync += [
                self.busy.eq(0),
                self.done.eq(~stopped),
                self.trapped.eq(stopped),
                running.eq(0),
                stopped.eq(0),
            ]
        with m.Elif(step & (trap != Trap.NONE)):
            m.d.sync += [running.eq(0), stopped.eq(1)]
