"""The sequencer: fetches a program, executes control instructions, hands over chain descriptors."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.isa import Op, Trap

from ..pipe.layouts import chain_layout, program_addr_bits
from .builder import ChainBuilder
from .decode import Decoder, view
from .fetch import Fetch
from .loops import LoopStack


class Sequencer(wiring.Component):
    """Runs a program: one instruction per cycle, 6 cycles for a taken ``end_loop``.

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

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "pc": In(16),
                "addr": Out(program_addr_bits(config)),
                "data": In(isa.WORD_BITS),
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
        m.submodules.decoder = decoder = Decoder(self.config)
        m.submodules.loops = loops = LoopStack(self.config)
        m.submodules.builder = builder = ChainBuilder(self.config)
        wiring.connect(m, wiring.flipped(self.chains), builder.chains)

        word, word_pc, beyond, valid = Signal(isa.WORD_BITS), Signal(16), Signal(), Signal()
        illegal, is_chain, stage = Signal.like(decoder.trap), Signal(), Signal.like(decoder.stage)
        step, finish = Signal(), Signal()
        with m.If(fetch.o.ready):  # a word is decoded in the cycle before it is executed
            m.d.sync += [
                valid.eq(fetch.o.valid),
                word.eq(fetch.o.p.word),
                word_pc.eq(fetch.o.p.pc),
                beyond.eq(fetch.o.p.beyond),
                illegal.eq(decoder.trap),
                is_chain.eq(decoder.is_chain),
                stage.eq(decoder.stage),
            ]
        with m.If(fetch.jump):
            m.d.sync += valid.eq(0)

        opcode = word[: isa.OPCODE_BITS]
        is_halt, is_loop, is_end = opcode == Op.HALT, opcode == Op.LOOP, opcode == Op.END_LOOP
        trap = self._trap(m, beyond, illegal, builder, (is_loop & loops.full) | (is_end & loops.empty))
        waits = is_halt | (opcode == Op.FENCE)
        # An illegal word is noted and takes no other effect than that; the run ends when all is drained.
        stopped = Signal()
        m.d.comb += [
            step.eq(self.busy & valid & ~stopped & ~builder.chains.valid & (~waits | self.drained)),
            finish.eq(Mux(stopped, self.drained & ~builder.chains.valid, step & is_halt & (trap == Trap.NONE))),
            self.addr.eq(fetch.addr),
            fetch.data.eq(self.data),
            fetch.enable.eq(self.busy),
            fetch.o.ready.eq(~valid | step),
            fetch.jump.eq(self.start | finish | (step & is_end & loops.again)),
            fetch.target.eq(Mux(self.start, self.pc, loops.target)),
            decoder.word.eq(fetch.o.p.word),
            loops.clear.eq(self.start),
            loops.open.eq(step & is_loop),
            loops.close.eq(step & is_end),
            loops.count.eq(view(Op.LOOP, word)["count"]),
            loops.after.eq(word_pc + 1),
            builder.clear.eq(self.start),
            builder.execute.eq(step),
            builder.legal.eq(trap == Trap.NONE),
            builder.word.eq(word),
            builder.pc.eq(word_pc),
            builder.is_chain.eq(is_chain),
            builder.stage.eq(stage),
        ]
        self._state(m, step, stopped, finish, trap, word_pc)
        return m

    def _trap(self, m, beyond, illegal, builder, bad_loop):
        """Why the current word cannot be executed."""
        trap = Signal.like(self.trap, name="cause")
        with m.If(beyond):
            m.d.comb += trap.eq(Trap.PC_RANGE)
        with m.Elif(illegal != Trap.NONE):
            m.d.comb += trap.eq(illegal)
        with m.Elif(builder.misplaced):
            m.d.comb += trap.eq(Trap.CHAIN_ORDER)
        with m.Elif(bad_loop):
            m.d.comb += trap.eq(Trap.LOOP_STACK)
        return trap

    def _state(self, m, step, stopped, finish, trap, word_pc):
        with m.If(self.start):
            m.d.sync += [
                self.busy.eq(1),
                self.done.eq(0),
                self.trapped.eq(0),
                self.trap.eq(Trap.NONE),
                self.trap_pc.eq(0),
                stopped.eq(0),
            ]
        with m.Elif(finish):
            m.d.sync += [self.busy.eq(0), self.done.eq(~stopped), self.trapped.eq(stopped)]
        with m.Elif(step & (trap != Trap.NONE)):
            m.d.sync += [stopped.eq(1), self.trap.eq(trap), self.trap_pc.eq(word_pc)]
