"""The sequencer of an element-serial configuration: no instruction is fetched before the one in front of it is done."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory, wiring

from concord.spec import isa, timing
from concord.spec.isa import Op, Trap
from concord.spec.operations import ADDRESSED
from concord_rtl.element_serial.address_book import book_port
from concord_rtl.parts.component import Output
from concord_rtl.pipe.layouts import matrix_addr_bits, vector_addr_bits
from concord_rtl.sequencer.builder import ChainBuilder
from concord_rtl.sequencer.decode import Decoder
from concord_rtl.sequencer.interface import SequencerPorts, connect_units
from concord_rtl.sequencer.loops import LoopStack

#: Cycles from the address of a word to its execution: program memory, then address registers.
FETCH = timing.SERIAL_WORD - 1


class ElementSerialBuilder(ChainBuilder):
    """Chain builder with address registers in block RAM, which enters vector operands in an address book.

    ``word`` must be there one cycle before ``execute``. The descriptors have no addresses but that of the matrix.

    Parameters
    ----------
    config : NpuConfig
    """

    enter = Output(lambda self: book_port(self.config), "To the address book.")

    def _address(self, m, name, op, register):
        fields = self._view(op)
        m.d.comb += [
            self.enter.en.eq(1),
            self.enter.port.eq(ADDRESSED.index(name)),
            self.enter.start.eq(fields["addr"]),
            self.enter.offset.eq(register),
            *(getattr(self.enter, step).eq(fields[step]) for step in ("row", "inner", "outer")),
        ]

    def _address_registers(self, m, opcode):
        """The registers are as wide as addresses are; those not written since the start read as register 0."""
        bits = max(matrix_addr_bits(self.config), vector_addr_bits(self.config))
        number, written = self.word.reg, Signal(isa.ADDR_REGS)
        attrs = {"ram_style": "block"}
        m.submodules.store = store = memory.Memory(shape=unsigned(bits), depth=isa.ADDR_REGS, init=[], attrs=attrs)
        read, write = store.read_port(), store.write_port()
        m.d.comb += [
            read.addr.eq(Mux(written.bit_select(number, 1), number, 0)),
            write.addr.eq(number),
            write.data.eq(read.data + self._view(Op.INC_ADDR)["step"]),
        ]
        with m.If(opcode == Op.SET_ADDR):
            m.d.comb += write.data.eq(self._view(Op.SET_ADDR)["value"])
        changes = self.execute & ((opcode == Op.SET_ADDR) | (opcode == Op.INC_ADDR)) & (number != 0)
        m.d.comb += write.en.eq(changes)
        with m.If(changes):
            m.d.sync += written.bit_select(number, 1).eq(1)
        with m.If(self.clear):
            m.d.sync += written.eq(0)
        return read.data


class ElementSerialSequencer(SequencerPorts):
    """Runs a program: an instruction every 3 cycles, none while a chain is walked.

    Behaves as :class:`concord_rtl.sequencer.sequencer.Sequencer` otherwise.

    Parameters
    ----------
    config : NpuConfig
    """

    enter = Output(lambda self: book_port(self.config), "Addresses of the chain that is being assembled.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.decoder = decoder = Decoder(self.config, registered=False)
        m.submodules.loops = loops = LoopStack(self.config)
        m.submodules.builder = builder = ElementSerialBuilder(self.config)
        wiring.connect(m, wiring.flipped(self.chains), builder.chains)
        wiring.connect(m, wiring.flipped(self.enter), builder.enter)
        pc, age = Signal(16), Signal(range(FETCH + 1))
        word = decoder.o
        step, stopped = Signal(), Signal()
        cause = connect_units(m, word, builder, loops, start=self.run.start, step=step, held=True)
        ready = self.run.busy & (age == FETCH) & ~stopped & ~builder.chains.valid
        halted = step & word.halt & (cause == Trap.NONE)
        finish = Mux(stopped, self.drained & ~builder.chains.valid, halted)
        m.d.comb += [
            step.eq(ready & (~word.waits | self.drained)),
            self.addr.eq(pc),
            decoder.word.eq(self.data),
            decoder.pc.eq(pc),
            self.run.trap_pc.eq(Mux(self.run.trap == Trap.NONE, 0, pc)),
        ]
        self._state(m, step, stopped, finish, cause)

        with m.If(age != FETCH):
            m.d.sync += age.eq(age + 1)
        with m.If(self.run.start):
            m.d.sync += [pc.eq(self.run.pc), age.eq(0)]
        with m.Elif(step & (cause == Trap.NONE)):
            m.d.sync += [pc.eq(Mux(word.end & loops.again, loops.target, pc + 1)), age.eq(0)]
        return m

    def _state(self, m, step, stopped, finish, cause):
        with m.If(self.run.start):
            m.d.sync += [
                self.run.busy.eq(1),
                self.run.done.eq(0),
                self.run.trapped.eq(0),
                self.run.trap.eq(Trap.NONE),
                stopped.eq(0),
            ]
        with m.Elif(finish):
            m.d.sync += [self.run.busy.eq(0), self.run.done.eq(~stopped), self.run.trapped.eq(stopped)]
        with m.Elif(step & (cause != Trap.NONE)):
            m.d.sync += [stopped.eq(1), self.run.trap.eq(cause)]
