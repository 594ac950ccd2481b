"""Ports and parts that the sequencers of all configurations share."""

from amaranth import *

from concord.spec.isa import WORD_BITS, Op, Trap
from concord_rtl.dram.copy_port import CopyPort
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import stream_of, view
from concord_rtl.parts.stages import register
from concord_rtl.pipe.integers.ports import IntegerPort
from concord_rtl.pipe.layouts import chain_layout, program_addr_bits
from concord_rtl.pipe.ports import RunPort


class SequencerPorts(NpuUnit):
    """Ports of the sequencer of any configuration.

    Parameters
    ----------
    config : NpuConfig
    """

    run = Input(RunPort(), "Start and state of a run.")
    addr = Output(lambda self: program_addr_bits(self.config), "Address in the program memory.")
    data = Input(
        WORD_BITS,
        "Its word, as many cycles later as the memory takes: a vector memory, or a column memory in element-serial "
        "configurations.",
    )
    chains = Output(lambda self: stream_of(chain_layout(self.config)), "Chain descriptors, held until they are taken.")
    drained = Input(1, "Everything that has been handed over has been written.")
    integers = Output(
        lambda self: IntegerPort(self.config),
        "Words for the integer engine. Only with integer chains.",
        when=lambda self: self.config.has(Op.I_RUN),
    )
    copies = Output(
        CopyPort(), "Copies from the external memory. Only with one.", when=lambda self: self.config.has(Op.COPY)
    )


def connect_units(m, word, builder, loops, *, start, step, held=False) -> Signal:
    """Offer ``word`` to chain builder and loop stack, which act on it if ``step``; return why it cannot be executed.

    If ``word`` and what it meets are ``held`` from the cycle before ``step`` on, reasons are found in that cycle.
    """
    cause = Signal(range(max(Trap) + 1), name="cause")
    trap, misplaced = word.trap, builder.misplaced
    unbalanced = (word.loop & loops.full) | (word.end & loops.empty)
    if held:
        trap, misplaced, unbalanced = (
            register(m, value, name)
            for name, value in (("trap", trap), ("misplaced", misplaced), ("unbalanced", unbalanced))
        )
    m.d.comb += [
        loops.clear.eq(start),
        loops.open.eq(step & word.loop),
        loops.close.eq(step & word.end),
        loops.count.eq(view(Op.LOOP, word.word)["count"]),
        loops.after.eq(word.pc + 1),
        builder.clear.eq(start),
        builder.execute.eq(step),
        builder.legal.eq(cause == Trap.NONE),
        builder.word.eq(word),
    ]
    with m.If(trap != Trap.NONE):
        m.d.comb += cause.eq(trap)
    with m.Elif(misplaced):
        m.d.comb += cause.eq(Trap.CHAIN_ORDER)
    with m.Elif(unbalanced):
        m.d.comb += cause.eq(Trap.LOOP_STACK)
    return cause
