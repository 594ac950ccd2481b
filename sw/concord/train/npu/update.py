"""From the gradient of a parameter to its new weights: SGD with momentum and decay, as
:class:`concord.train.optimiser.Optimiser` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.program.integers import wide_strides
from concord.spec.integers import WIDE_BITS
from concord.spec.isa import ACCUMULATOR_POINT, VECTOR_ADDR_BITS, Mem, Op
from concord.train.npu.chains import ChainWriter
from concord.train.npu.plan import ProductMemory, TrainingMemory
from concord.train.npu.registers import ParameterRegisters, TrainingFactor


@dataclass(frozen=True)
class UpdatedParameter:
    """A parameter whose gradient lies at the changes, as wide integers in the order of its words.

    Parameters
    ----------
    loops : ChainLoops
        Turns over its words.
    place : int
        Address of the first narrow word.
    changes, change : int
        Address of the first wide word of the gradient, and its tensor register.
    registers : ParameterRegisters
        Its own.
    columns, tile_rows : Address or None
        Where new weights go in the matrix memory.
    decays : bool
        Whether it decays.
    """

    loops: ChainLoops
    place: int
    changes: int
    change: int
    registers: ParameterRegisters
    columns: Address | None = None
    tile_rows: Address | None = None
    decays: bool = False

    def at(self, first: int, words: int) -> Address:
        """Address of the vectors from a word on, so many words each."""
        rows, inner = self.loops.rows, self.loops.inner
        return Address(first, words, words * rows, words * rows * inner if self.loops.outer > 1 else 0)


class UpdateSteps:
    """Writes updates.

    Parameters
    ----------
    writer : ChainWriter
        Where to.
    memory : TrainingMemory
        Of the network.
    momentum, decay : bool
        Whether there are any.
    point : int
        Bits by which the point of accumulators lies below that of weights.
    """

    def __init__(self, writer: ChainWriter, memory: TrainingMemory, momentum: bool, decay: bool, point: int):
        self.writer, self.memory, self.momentum, self.decay = writer, memory, momentum, decay
        self._coarser = ACCUMULATOR_POINT - point
        self._scaled_register = self._decay_register = 0

    def weight(self, own: ProductMemory, changes: int, change: int) -> None:
        """Update the weights of a product, and write them as tiles."""
        numbers: dict[str, Any] = {"columns": own.columns, "tile_rows": own.tile_rows}
        places = [place for place in numbers.values() if place is not None]
        reached = not own.diagonal and not any(wide_strides("columns", place) for place in places)
        parameter = UpdatedParameter(
            own.loops, own.weight, changes, change, own.weight_registers, decays=self.decay,
            **(numbers if reached else {}),
        )  # fmt: skip
        self._write(parameter)
        if not reached:
            write_weight_tiles(self.writer, self.memory, own)

    def bias(self, own: ProductMemory, changes: int, change: int) -> None:
        """Update the bias of a product."""
        loops = ChainLoops(rows=own.output_tiles)
        self._write(UpdatedParameter(loops, own.bias, changes, change, own.bias_registers))

    def _write(self, parameter: UpdatedParameter) -> None:
        registers = self.memory.registers
        self._scaled_register, self._decay_register = registers.take(), registers.take()
        self._write_steps(parameter)
        registers.give_back(self._scaled_register)
        registers.give_back(self._decay_register)

    def _write_steps(self, parameter: UpdatedParameter) -> None:
        source, register = self._changes(parameter), parameter.change
        if self.momentum:
            source, register = self._with_momentum(parameter)
        if parameter.decays:
            self._with_decay(parameter, source, register)
            self._update(parameter, self._changes(parameter), self._scaled_register, scale=False)
        else:
            self._update(parameter, source, register, scale=True)

    def _update(self, parameter: UpdatedParameter, source: VectorPlace, register: int, scale: bool) -> None:
        """The chain that changes weights and accumulators."""
        writer, scaled = self.writer, self._scaled_register
        if scale:
            writer.step(Op.T_SCALE, scaled, register, factor=TrainingFactor.CHANGE)
            register = scaled
        writer.step(Op.T_FIT, scaled, register, bits=WIDE_BITS, place=1)
        distance = self.memory.accumulators % (1 << VECTOR_ADDR_BITS)
        writer.step(Op.T_UPD, parameter.registers.value, scaled, accumulators=distance, coarser=self._coarser)
        writer.chain(
            parameter.loops, source, operand=self._weights(parameter), columns=parameter.columns,
            tile_rows=parameter.tile_rows, scale=int(scale), factor=TrainingFactor.CHANGE if scale else 0, round1=1,
            update=1,
        )  # fmt: skip

    def _with_momentum(self, parameter: UpdatedParameter) -> tuple[VectorPlace, int]:
        """The new momentum: where it lies, and its register."""
        changes = self._changes(parameter)
        velocity = VectorPlace(Mem.WIDE, parameter.at(self.memory.velocity(parameter.place), 2))
        writer, mean = self.writer, parameter.registers.mean
        writer.scaled(parameter.loops, changes, parameter.change, mean, TrainingFactor.MEAN, changes)
        register, old = parameter.registers.velocity, self._scaled_register
        writer.step(Op.T_SCALE, old, register, factor=TrainingFactor.MOMENTUM)
        writer.step(Op.T_FIT, old, old, bits=WIDE_BITS, place=0)
        writer.step(Op.T_ADD, register, old, y=mean)
        self._sum(parameter, velocity, TrainingFactor.MOMENTUM, changes, register, velocity)
        return velocity, register

    def _with_decay(self, parameter: UpdatedParameter, source: VectorPlace, register: int) -> None:
        """The update and what decay adds to it, at the changes."""
        changes, scaled, decay = self._changes(parameter), self._scaled_register, self._decay_register
        writer = self.writer
        writer.scaled(parameter.loops, source, register, scaled, TrainingFactor.CHANGE, changes)
        writer.step(Op.T_SCALE, decay, parameter.registers.value, factor=TrainingFactor.DECAY)
        writer.step(Op.T_FIT, decay, decay, bits=WIDE_BITS, place=0)
        writer.step(Op.T_ADD, scaled, decay, y=scaled)
        self._sum(parameter, self._weights(parameter), TrainingFactor.DECAY, changes, scaled, changes)

    def _sum(
        self, parameter: UpdatedParameter, source: VectorPlace, factor: int, operand: VectorPlace, register: int,
        place: VectorPlace,
    ) -> None:  # fmt: skip
        """A source times a factor, plus an operand: once for the greatest magnitude, and once more to be rounded."""
        steps = {"scale": 1, "factor": factor, "round0": 1, "add": 1}
        self.writer.rounded(parameter.loops, source, register, place, operand=operand, **steps)

    def _changes(self, parameter: UpdatedParameter) -> VectorPlace:
        return VectorPlace(Mem.WIDE, parameter.at(parameter.changes, 2))

    def _weights(self, parameter: UpdatedParameter) -> VectorPlace:
        return VectorPlace(Mem.NARROW, parameter.at(parameter.place, 1))


def write_weight_tiles(writer: ChainWriter, memory: TrainingMemory, own: ProductMemory) -> None:
    """Write all tiles of a product; of a diagonal tile column n is the vector of its weights, where only n is left.

    Parameters
    ----------
    writer : ChainWriter
        Where to.
    memory : TrainingMemory
        Of the network.
    own : ProductMemory
        Of the product.
    """
    if not own.diagonal:
        weights = VectorPlace(Mem.NARROW, own.words(own.weight, 1))
        writer.chain(own.loops, weights, columns=own.columns, tile_rows=own.tile_rows)
        return
    writer.chain(
        ChainLoops(own.lanes, own.weight_words),
        VectorPlace(Mem.NARROW, Address(own.weight, 0, 1)),
        operand=VectorPlace(Mem.NARROW, Address(memory.units, 1)),
        columns=Address(own.tiles * own.native, 1, own.native),
        mask=1,
    )
