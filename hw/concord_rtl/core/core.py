"""The NPU core: memories, sequencer and chain pipe behind the host bus."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId, core_span
from concord.spec.operations import Op
from concord_rtl.core.flags import FlagMemory
from concord_rtl.core.implementation import Contents, implementation_of
from concord_rtl.dram.external_memory import ExternalMemory
from concord_rtl.dram.pins import PHASES, sdram_port
from concord_rtl.host.bus import HostBus
from concord_rtl.host.bus_register import BusRegister
from concord_rtl.host.host_answer import HostAnswer
from concord_rtl.host.host_port import HostPort
from concord_rtl.host.registers import Registers
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.vector.table import TableBank


class NpuCore(Component):
    """Executes programs on the memories that the host fills and reads.

    Parameters
    ----------
    config : NpuConfig
    contents : Contents
        Initial contents of the memories.
    phases : int
        Steps of the clock of the external memory, if there is one, that are a period or more.
    """

    bus = Input(lambda self: HostBus(self.config), "Accesses of the host, checked by the message processor.")
    busy = Output(1, "A program runs, or flags are being cleared.")
    status = Output(32, "Register STATUS.")
    done = Output(1, "The last run came to its end.")
    trapped = Output(1, "The last run ended with a trap.")
    link_errors = Input(32, "Shown in the register LINK_ERRORS.")
    sdram = sdram_port()

    def __init__(self, config: NpuConfig, contents: Contents | None = None, *, phases: int = PHASES):
        self.config = config
        self.contents = contents or Contents()
        self.phases = phases
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, implementation = self.config, implementation_of(self.config)
        m.submodules.registers = registers = Registers(config, banked=implementation.held)
        m.submodules.flags = flags = FlagMemory(config, held=implementation.held)
        units = implementation.units(m, config, self.contents, registers.run.start)
        waits = (units.matrix.HOST_LATENCY, registers.HOST_LATENCY, TableBank.HOST_LATENCY, FlagMemory.HOST_LATENCY)
        settle = max(*waits, units.program.LATENCY) + (0 if implementation.held else HostAnswer.LATENCY)
        m.submodules.host = host = HostPort(config, latency=units.narrow.LATENCY, settle=settle)
        self._bus(m, host, implementation.held)
        wiring.connect(m, units.sequencer.chains, units.pipe.chains)
        self._control(m, registers, flags, units)
        self._vector_memories(m, host, units, implementation.written(m))
        self._other_memories(m, host, registers, flags, units)
        if not implementation.held:
            m.d.comb += host.write_free[RegionId.MATRIX].eq(units.matrix.host.ready)
        answers = _answers(registers, flags, units)
        if config.has(Op.COPY):
            answers[RegionId.DRAM] = self._dram(m, host, registers, units)
        self._answer(m, host, implementation.held, answers)
        return m

    def _bus(self, m, host, held):
        """Connects the bus; where memories are all over the device a register of their own keeps the request."""
        if held:
            wiring.connect(m, wiring.flipped(self.bus), host.bus)
        else:
            m.submodules.request = request = BusRegister(self.config)
            wiring.connect(m, wiring.flipped(self.bus), request.i)
            wiring.connect(m, request.o, host.bus)

    def _control(self, m, registers, flags, units):
        sequencer, pipe = units.sequencer, units.pipe
        wiring.connect(m, registers.run, sequencer.run)
        wiring.connect(m, pipe.retired, flags.retired)
        wiring.connect(m, pipe.events, registers.events)
        m.d.comb += [
            sequencer.drained.eq(pipe.drained),
            flags.clear.eq(registers.clear_flags),
            registers.clearing.eq(flags.clearing),
            registers.flags.eq(flags.union),
            registers.link_errors.eq(self.link_errors),
            self.status.eq(registers.status),
            self.busy.eq(registers.status[0]),
            self.done.eq(sequencer.run.done),
            self.trapped.eq(sequencer.run.trapped),
        ]

    def _vector_memories(self, m, host, units, written):
        """The pipe goes first; the host takes the cycles it leaves.

        Writes take place in the domain ``written``. The reads that have waited for a write come two cycles after its
        end at the earliest.
        """
        for memory, region, port in (
            (units.narrow, RegionId.NARROW, units.pipe.narrow),
            (units.wide, RegionId.WIDE, units.pipe.wide),
        ):
            m.d.comb += [
                memory.read.addr.eq(Mux(port.read.en, port.read.addr, host.addr)),
                port.read.data.eq(memory.read.data),
                host.read_free[region].eq(~port.read.en),
                host.write_free[region].eq(~port.write.en.any()),
            ]
            written += [
                memory.write.en.eq(port.write.en | host.write[region].replicate(len(port.write.en))),
                memory.write.addr.eq(Mux(port.write.en.any(), port.write.addr, host.addr)),
                memory.write.data.eq(Mux(port.write.en.any(), port.write.data, host.data)),
            ]

    def _other_memories(self, m, host, registers, flags, units):
        sequencer, pipe, program, matrix = units.sequencer, units.pipe, units.program, units.matrix
        if self.config.has(Op.M_WR):
            wiring.connect(m, pipe.row, matrix.row)
        if self.config.has(Op.I_RUN):
            self._integers(m, host, units)
        for region in range(core_span(self.config)):
            if region not in (RegionId.NARROW, RegionId.WIDE, RegionId.DRAM):
                m.d.comb += [host.read_free[region].eq(1), host.write_free[region].eq(1)]
        rows = self.config.rows
        row_bits = (rows - 1).bit_length()
        m.d.comb += [
            registers.write.eq(host.write[RegionId.REGS]),
            registers.addr.eq(host.addr),
            registers.w_data.eq(host.data),
            program.read.addr.eq(Mux(sequencer.run.busy, sequencer.addr, host.addr)),
            sequencer.data.eq(program.read.data),
            program.write.en.eq(host.write[RegionId.PROGRAM]),
            program.write.addr.eq(host.addr),
            program.write.data.eq(host.data),
            matrix.read.addr.eq(pipe.matrix_addr),
            pipe.matrix_data.eq(matrix.read.data),
            matrix.host.sel.eq(host.chosen[RegionId.MATRIX]),
            matrix.host.addr.eq(host.addr[row_bits:]),
            matrix.host.row.eq(host.addr[:row_bits]),
            matrix.host.en.eq(host.write[RegionId.MATRIX]),
            matrix.host.w_data.eq(host.data),
            flags.host_en.eq(host.write[RegionId.FLAGS]),
            flags.host_addr.eq(host.addr),
            flags.host_w_data.eq(host.data),
            pipe.tables.write.en.eq(host.write[RegionId.TABLE]),
            pipe.tables.write.addr.eq(host.addr),
            pipe.tables.write.data.eq(host.data),
            pipe.tables.slot_write.en.eq(host.write[RegionId.SLOTS]),
            pipe.tables.slot_write.addr.eq(host.addr),
            pipe.tables.slot_write.data.eq(host.data),
            pipe.tables.sel.eq(host.chosen[RegionId.TABLE]),
            pipe.tables.addr.eq(host.addr),
        ]

    def _integers(self, m, host, units):
        """Integer chains: words from the sequencer, tiles for the matrix memory, registers for the host."""
        pipe, registers = units.pipe, units.pipe.integer_host
        wiring.connect(m, units.sequencer.integers, pipe.integers)
        wiring.connect(m, pipe.tiles, units.matrix.tiles)
        m.d.comb += [
            registers.addr.eq(host.addr),
            registers.data.eq(host.data),
            registers.write_tensor.eq(host.write[RegionId.TENSORS]),
            registers.write_factor.eq(host.write[RegionId.FACTORS]),
            registers.write_count.eq(host.write[RegionId.UPDATES]),
        ]

    def _dram(self, m, host, registers, units) -> Value:
        """The external memory; returns the word that the host has read."""
        m.submodules.dram = dram = ExternalMemory(self.config, self.phases)
        wiring.connect(m, units.sequencer.copies, dram.copies)
        wiring.connect(m, dram.write, units.matrix.copied)
        wiring.connect(m, dram.access, host.vectors)
        wiring.connect(m, dram.status, registers.dram)
        wiring.connect(m, dram.sdram, wiring.flipped(self.sdram))
        m.d.comb += [
            dram.chosen.eq(host.chosen[RegionId.DRAM]),
            dram.we.eq(host.bus.req.p.write),
            dram.addr.eq(host.addr),
            dram.w_data.eq(host.data),
            host.read_free[RegionId.DRAM].eq(dram.done),
            host.write_free[RegionId.DRAM].eq(dram.done),
        ]
        return dram.r_data

    def _answer(self, m, host, held, answers):
        """The word of the region that the host reads."""
        if not held:
            m.submodules.answer = chosen = HostAnswer(self.config)
            m.d.comb += [chosen.region.eq(host.region), host.answer.eq(chosen.o)]
            m.d.comb += [getattr(chosen, chosen.name_of(region)).eq(answer) for region, answer in answers.items()]
            return
        with m.Switch(host.region):
            for region, answer in answers.items():
                with m.Case(region):
                    m.d.comb += host.answer.eq(answer)


def _answers(registers, flags, units) -> dict[RegionId, Any]:
    """Words for the host by region."""
    integers = {}
    if units.pipe.config.has(Op.I_RUN):
        words = units.pipe.integer_host
        integers = {RegionId.TENSORS: words.tensor, RegionId.UPDATES: words.count}
    return {
        RegionId.REGS: registers.r_data,
        RegionId.PROGRAM: units.program.read.data,
        RegionId.MATRIX: units.matrix.host.data,
        RegionId.NARROW: units.narrow.read.data,
        RegionId.WIDE: units.wide.read.data,
        RegionId.TABLE: units.pipe.tables.data,
        RegionId.FLAGS: flags.host_data,
        **integers,
    }
