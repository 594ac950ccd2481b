"""The NPU core: memories, sequencer and chain pipe behind the host bus."""

from dataclasses import dataclass, field

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import HALF_WIDTH
from concord.spec.isa import WORD_BITS
from concord.spec.memmap import CORE_REGIONS, RegionId

from .bus import HostBus
from .flags import FlagMemory
from .host_port import HostPort
from .memories.column_memory import ColumnMemory
from .memories.matrix_memory import MatrixMemory
from .memories.row_memory import RowMemory
from .memories.vector_memory import VectorMemory
from .pipe.pipe import ChainPipe
from .registers import Registers
from .sequencer.sequencer import Sequencer
from .serial.pipe import SerialPipe
from .serial.sequencer import SerialSequencer
from .table import TableBank


@dataclass(frozen=True)
class Contents:
    """Initial contents of the memories, as words; empty means zeros.

    ``matrix`` and ``slots`` are indexed by host address, see :mod:`concord.spec.memmap`.
    """

    program: list[int] = field(default_factory=list)
    matrix: list[int] = field(default_factory=list)
    narrow: list[int] = field(default_factory=list)
    wide: list[int] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)


class NpuCore(wiring.Component):
    """Executes programs on the memories that the host fills and reads.

    Parameters
    ----------
    config : NpuConfig
    contents : Contents
        Initial contents of the memories.

    Members
    -------
    bus : In(HostBus)
        Accesses of the host, checked by the message processor.
    busy : Out(1)
        A program runs, or flags are being cleared.
    status : Out(32)
        Register STATUS.
    done, trapped : Out(1)
        Outcome of the last run.
    link_errors : In(32)
        Shown in the register LINK_ERRORS.
    """

    def __init__(self, config: NpuConfig, contents: Contents | None = None):
        self.config = config
        self.contents = contents or Contents()
        super().__init__(
            {
                "bus": In(HostBus(config)),
                "busy": Out(1),
                "status": Out(32),
                "done": Out(1),
                "trapped": Out(1),
                "link_errors": In(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, contents = self.config, self.contents
        m.submodules.registers = registers = Registers(config)
        m.submodules.flags = flags = FlagMemory(config)
        tables = {"table_init": contents.table, "slot_init": contents.slots}
        if config.serial:
            m.submodules.sequencer = sequencer = SerialSequencer(config)
            m.submodules.pipe = pipe = SerialPipe(config, **tables)
            m.submodules.matrix = matrix = RowMemory(config, contents.matrix)
            program = ColumnMemory([WORD_BITS], config.program_depth, contents.program)
            mantissas = [config.act_mant] * config.native
            narrow = ColumnMemory([*mantissas, config.act_exp_width], config.narrow_depth, contents.narrow)
            wide = ColumnMemory([HALF_WIDTH] * config.native, config.wide_depth, contents.wide)
            wiring.connect(m, sequencer.enter, pipe.enter)
        else:
            m.submodules.sequencer = sequencer = Sequencer(config)
            m.submodules.pipe = pipe = ChainPipe(config, **tables)
            m.submodules.matrix = matrix = MatrixMemory(config, contents.matrix)
            program = VectorMemory(WORD_BITS, config.program_depth, contents.program)
            narrow = VectorMemory(config.narrow_word.width, config.narrow_depth, contents.narrow)
            wide = VectorMemory(config.wide_word.width, config.wide_depth, contents.wide)
            m.d.comb += pipe.reset_noise.eq(registers.start)
        m.submodules.program, m.submodules.narrow, m.submodules.wide = program, narrow, wide
        waits = (matrix.HOST_LATENCY, registers.HOST_LATENCY, TableBank.HOST_LATENCY, FlagMemory.HOST_LATENCY)
        m.submodules.host = host = HostPort(config, latency=narrow.LATENCY, settle=max(*waits, program.LATENCY))
        wiring.connect(m, wiring.flipped(self.bus), host.bus)
        wiring.connect(m, sequencer.chains, pipe.chains)
        self._control(m, registers, sequencer, pipe, flags)
        self._vector_memories(m, host, pipe, narrow, wide)
        self._other_memories(m, host, registers, sequencer, pipe, flags, program, matrix)
        self._answer(m, host, registers, pipe, flags, program, matrix, narrow, wide)
        return m

    def _control(self, m, registers, sequencer, pipe, flags):
        m.d.comb += [
            sequencer.start.eq(registers.start),
            sequencer.pc.eq(registers.pc),
            sequencer.drained.eq(pipe.drained),
            flags.clear.eq(registers.clear_flags),
            flags.retired.eq(pipe.retired),
            flags.pc.eq(pipe.retired_pc),
            flags.flags.eq(pipe.retired_flags),
            registers.busy.eq(sequencer.busy),
            registers.done.eq(sequencer.done),
            registers.trapped.eq(sequencer.trapped),
            registers.trap.eq(sequencer.trap),
            registers.trap_pc.eq(sequencer.trap_pc),
            registers.clearing.eq(flags.clearing),
            registers.flags.eq(flags.union),
            registers.link_errors.eq(self.link_errors),
            registers.dense_step.eq(pipe.dense_step),
            registers.depthwise_step.eq(pipe.depthwise_step),
            registers.chain.eq(pipe.chains.valid & pipe.chains.ready),
            registers.vector.eq(pipe.retired),
            registers.stalled.eq(pipe.stalled),
            self.status.eq(registers.status),
            self.busy.eq(registers.status[0]),
            self.done.eq(sequencer.done),
            self.trapped.eq(sequencer.trapped),
        ]

    def _vector_memories(self, m, host, pipe, narrow, wide):
        """The pipe goes first; the host takes the cycles it leaves.

        Block RAMs of the fast configurations are all over the device: writes to them pass through a register. The
        reads that have waited for a write come two cycles after its end at the earliest.
        """
        domain = m.d.comb if self.config.serial else m.d.sync
        for memory, region, port in ((narrow, RegionId.NARROW, pipe.narrow), (wide, RegionId.WIDE, pipe.wide)):
            m.d.comb += [
                memory.read.addr.eq(Mux(port.read, port.read_addr, host.addr)),
                port.read_data.eq(memory.read.data),
                host.read_free[region].eq(~port.read),
                host.write_free[region].eq(~port.write.any()),
            ]
            domain += [
                memory.write.en.eq(port.write | host.write[region].replicate(len(port.write))),
                memory.write.addr.eq(Mux(port.write.any(), port.write_addr, host.addr)),
                memory.write.data.eq(Mux(port.write.any(), port.write_data, host.data)),
            ]

    def _other_memories(self, m, host, registers, sequencer, pipe, flags, program, matrix):
        for region in CORE_REGIONS:
            if region not in (RegionId.NARROW, RegionId.WIDE):
                m.d.comb += [host.read_free[region].eq(1), host.write_free[region].eq(1)]
        rows = self.config.rows
        row_bits = (rows - 1).bit_length()
        m.d.comb += [
            registers.write.eq(host.write[RegionId.REGS]),
            registers.addr.eq(host.addr),
            registers.w_data.eq(host.data),
            program.read.addr.eq(Mux(sequencer.busy, sequencer.addr, host.addr)),
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
            pipe.table_write.en.eq(host.write[RegionId.TABLE]),
            pipe.table_write.addr.eq(host.addr),
            pipe.table_write.data.eq(host.data),
            pipe.table_slot_write.en.eq(host.write[RegionId.SLOTS]),
            pipe.table_slot_write.addr.eq(host.addr),
            pipe.table_slot_write.data.eq(host.data),
            pipe.table_host_sel.eq(host.chosen[RegionId.TABLE]),
            pipe.table_host_addr.eq(host.addr),
        ]

    def _answer(self, m, host, registers, pipe, flags, program, matrix, narrow, wide):
        answers = {
            RegionId.REGS: registers.r_data,
            RegionId.PROGRAM: program.read.data,
            RegionId.MATRIX: matrix.host.data,
            RegionId.NARROW: narrow.read.data,
            RegionId.WIDE: wide.read.data,
            RegionId.TABLE: pipe.table_host_data,
            RegionId.FLAGS: flags.host_data,
        }
        with m.Switch(host.region):
            for region, answer in answers.items():
                with m.Case(region):
                    m.d.comb += host.answer.eq(answer)
