"""From the gradient of a parameter to its new weights: SGD with momentum and decay, as
:class:`concord.train.optimiser.Optimiser` has it."""

from __future__ import annotations

from typing import Any, NamedTuple

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.program.integers import wide_strides
from concord.spec.isa import ACCUMULATOR_POINT, VECTOR_ADDR_BITS, Mem, Op
from concord.train.npu.chains import ChainWriter
from concord.train.npu.plan import ParameterMemory, ProductMemory, TrainingFactor, TrainingMemory


class _Numbers(NamedTuple):
    """Vectors in the order of a parameter, and their tensor register."""

    place: VectorPlace
    register: int


class UpdateSteps:
    """Writes updates. Gradients are wide integers in the order of the words of their parameters.

    Parameters
    ----------
    writer : ChainWriter
        Where to.
    memory : TrainingMemory
        Of the network.
    decay : bool
        Whether there is any.
    point : int
        Bits by which the point of accumulators lies below that of weights.
    """

    def __init__(self, writer: ChainWriter, memory: TrainingMemory, decay: bool, point: int):
        self.writer, self.memory, self.decay = writer, memory, decay
        self._coarser = ACCUMULATOR_POINT - point

    def weight(self, own: ProductMemory, changes: int, change: int) -> None:
        """Update the weights of a product with the gradient from a word on, and write them as tiles."""
        tiles = {"columns": own.columns, "tile_rows": own.tile_rows}
        if own.step.depthwise or any(wide_strides(name, place) for name, place in tiles.items() if place is not None):
            self._write(own.weight, changes, change, self.decay)
            write_weight_tiles(self.writer, self.memory, own)
        else:
            self._write(own.weight, changes, change, self.decay, **tiles)

    def bias(self, own: ProductMemory, changes: int, change: int) -> None:
        """Update the bias of a product."""
        self._write(own.bias, changes, change)

    def _write(self, own: ParameterMemory, changes: int, change: int, decays: bool = False, **tiles: Any) -> None:
        """Write the chain that changes weights and accumulators, and those in front of it."""
        writer, memory, place = self.writer, self.memory, own.wide(changes)
        with memory.registers.lent() as scaled, memory.registers.lent() as spare:
            source = _Numbers(place, change)
            scale: dict[str, Any] = {"scale": 1, "factor": TrainingFactor.CHANGE}
            if memory.momentum:
                mean = _Numbers(place, own.registers.mean)
                self._scaled(own, source, mean, TrainingFactor.MEAN)
                source = _Numbers(own.wide(memory.velocity(own)), own.registers.velocity)
                self._sum(own, source, TrainingFactor.MOMENTUM, mean, source, scaled)
            if decays:
                update = _Numbers(place, scaled)
                self._scaled(own, source, update, TrainingFactor.CHANGE)
                weights = _Numbers(own.vectors, own.registers.value)
                self._sum(own, weights, TrainingFactor.DECAY, update, update, spare)
                source, scale = update, {}
            else:
                writer.step(Op.T_SCALE, scaled, source.register, factor=TrainingFactor.CHANGE)
            writer.fit(scaled, scaled)
            distance = memory["accumulators"] % (1 << VECTOR_ADDR_BITS)
            writer.step(Op.T_UPD, own.registers.value, scaled, accumulators=distance, coarser=self._coarser)
            writer.chain(own.loops, source.place, operand=own.vectors, **tiles, **scale, round1=1, update=1)

    def _scaled(self, own: ParameterMemory, source: _Numbers, result: _Numbers, factor: int) -> None:
        """Numbers times a factor, an intermediate."""
        self.writer.step(Op.T_SCALE, result.register, source.register, factor=factor)
        self.writer.fit(result.register, result.register)
        self.writer.chain(own.loops, source.place, vectors=result.place, scale=1, factor=factor, round1=1)

    def _sum(
        self, own: ParameterMemory, source: _Numbers, factor: int, term: _Numbers, result: _Numbers, spare: int
    ) -> None:
        """Numbers times a factor, plus others: once for the greatest magnitude, and once more to be rounded."""
        self.writer.step(Op.T_SCALE, spare, source.register, factor=factor)
        self.writer.fit(spare, spare, place=0)
        self.writer.step(Op.T_ADD, result.register, spare, term.register)
        steps = {"operand": term.place, "scale": 1, "factor": factor, "round0": 1, "add": 1}
        self.writer.rounded(own.loops, source.place, result.register, result.place, **steps)


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
    if not own.step.depthwise:
        writer.chain(own.weight.loops, own.weight.vectors, columns=own.columns, tile_rows=own.tile_rows)
        return
    native = own.step.inputs.native
    writer.chain(
        ChainLoops(own.step.inputs.lanes, own.weight.layout.vectors),
        VectorPlace(Mem.NARROW, Address(own.weight.first, 0, 1)),
        operand=VectorPlace(Mem.NARROW, Address(memory["units"], 1)),
        columns=Address(own.tiles * native, 1, native),
        mask=1,
    )
