"""The two ways to carry out programs: everything that distinguishes an element-serial configuration is chosen here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.isa import WORD_BITS
from concord_rtl.element_serial.pipe import ElementSerialPipe
from concord_rtl.element_serial.sequencer import ElementSerialSequencer
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.memories.matrix_memory import MatrixMemory
from concord_rtl.memories.row_memory import RowMemory
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.pipe.pipe import ChainPipe
from concord_rtl.sequencer.sequencer import Sequencer


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


@dataclass(frozen=True)
class Units:
    """Units of a core that each implementation has its own of; their connections are the same.

    Parameters
    ----------
    sequencer : Sequencer or ElementSerialSequencer
        Members ``run``, ``addr``, ``data``, ``chains`` and ``drained``.
    pipe : ChainPipe or ElementSerialPipe
        Members of :class:`concord_rtl.pipe.ports.PipePorts`, ``narrow``, ``wide``, ``matrix_addr``, ``matrix_data``.
    matrix : MatrixMemory or RowMemory
        Members ``read`` and ``host``.
    program, narrow, wide : VectorMemory or ColumnMemory
        Members ``read`` and ``write``.
    """

    sequencer: Sequencer | ElementSerialSequencer
    pipe: ChainPipe | ElementSerialPipe
    matrix: MatrixMemory | RowMemory
    program: VectorMemory | ColumnMemory
    narrow: VectorMemory | ColumnMemory
    wide: VectorMemory | ColumnMemory


class Implementation(ABC):
    """Way in which a core, and what is around it, carries out programs.

    Attributes
    ----------
    held : bool
        Units keep their inputs until they are done, instead of taking new ones every cycle. Then nothing between
        memories, link and registers needs a register of its own, and event counters share a block RAM.
    """

    held: bool

    @abstractmethod
    def units(self, m: Module, config: NpuConfig, contents: Contents, start: Value) -> Units:
        """Add the units to ``m``, connected where only this implementation does; ``start`` begins a run."""

    def written(self, m: Module) -> Any:
        """The domain of ``m`` in which writes go to the vector memories."""
        return m.d.comb if self.held else m.d.sync


class Pipelined(Implementation):
    """One beat per cycle; vectors overlap. Block RAMs are all over the device, so writes pass through a register."""

    held = False

    def units(self, m: Module, config: NpuConfig, contents: Contents, start: Value) -> Units:
        m.submodules.sequencer = sequencer = Sequencer(config)
        m.submodules.pipe = pipe = ChainPipe(config, table_init=contents.table, slot_init=contents.slots)
        m.submodules.matrix = matrix = MatrixMemory(config, contents.matrix)
        program = VectorMemory(WORD_BITS, config.program_depth, contents.program)
        narrow = VectorMemory(config.narrow_word.width, config.narrow_depth, contents.narrow)
        wide = VectorMemory(config.wide_word.width, config.wide_depth, contents.wide)
        m.d.comb += pipe.reset_noise.eq(start)
        m.submodules.program, m.submodules.narrow, m.submodules.wide = program, narrow, wide
        return Units(sequencer, pipe, matrix, program, narrow, wide)


class ElementSerial(Implementation):
    """One element after the other, for small devices."""

    held = True

    def units(self, m: Module, config: NpuConfig, contents: Contents, start: Value) -> Units:
        m.submodules.sequencer = sequencer = ElementSerialSequencer(config)
        m.submodules.pipe = pipe = ElementSerialPipe(config, table_init=contents.table, slot_init=contents.slots)
        m.submodules.matrix = matrix = RowMemory(config, contents.matrix)
        program = ColumnMemory([WORD_BITS], config.program_depth, contents.program)
        mantissas = [config.act_mant] * config.native
        narrow = ColumnMemory([*mantissas, config.act_exp_width], config.narrow_depth, contents.narrow)
        wide = ColumnMemory([BINARY16_WIDTH] * config.native, config.wide_depth, contents.wide)
        wiring.connect(m, sequencer.enter, pipe.enter)
        m.submodules.program, m.submodules.narrow, m.submodules.wide = program, narrow, wide
        return Units(sequencer, pipe, matrix, program, narrow, wide)


def implementation_of(config: NpuConfig) -> Implementation:
    """The implementation of a configuration."""
    return ElementSerial() if config.serial else Pipelined()
