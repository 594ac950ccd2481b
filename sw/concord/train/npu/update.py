"""From the gradient of a parameter to its new weights: SGD with momentum and decay, as
:class:`concord.train.optimiser.Optimiser` has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.program.integers import wide_strides
from concord.spec.isa import ACCUMULATOR_POINT, VECTOR_ADDR_BITS, Mem, Op
from concord.train.npu.chains import ChainWriter
from concord.train.npu.plan import ParameterMemory, ProductMemory, TrainingFactor, TrainingMemory
from concord.train.npu.tensors import Held


class UpdateSteps:
    """Writes updates. Gradients are wide integers with the layouts of their parameters, which updates replace.

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

    def weight(self, own: ProductMemory, change: Held) -> None:
        """Update the weights of a product with their gradient, and write them as tiles."""
        tiles = {"columns": own.columns, "tile_rows": own.tile_rows}
        if own.step.depthwise or any(wide_strides(name, place) for name, place in tiles.items() if place is not None):
            self._write(own.weight, change, self.decay)
            write_weight_tiles(self.writer, self.memory, own)
        else:
            self._write(own.weight, change, self.decay, **tiles)

    def bias(self, own: ProductMemory, change: Held) -> None:
        """Update the bias of a product with its gradient."""
        self._write(own.bias, change)

    def _write(self, own: ParameterMemory, change: Held, decays: bool = False, **tiles: Any) -> None:
        """Write the chain that changes weights and accumulators, and those in front of it."""
        writer, memory, value, source = self.writer, self.memory, own.value, change
        with memory.registers.lent() as scaled, memory.registers.lent() as spare:
            scale: dict[str, Any] = {"scale": 1, "factor": TrainingFactor.CHANGE}
            if own.velocity is not None:
                mean, source = replace(change, register=own.mean), own.velocity
                self._scaled(change, mean, TrainingFactor.MEAN)
                self._sum(source, TrainingFactor.MOMENTUM, mean, source, scaled)
            if decays:
                update = replace(change, register=scaled)
                self._scaled(source, update, TrainingFactor.CHANGE)
                self._sum(value, TrainingFactor.DECAY, update, update, spare)
                source, scale = update, {}
            else:
                writer.step(Op.T_SCALE, scaled, source.register, factor=TrainingFactor.CHANGE)
            writer.fit(scaled, scaled)
            distance = (own.accumulators.first - value.first) % (1 << VECTOR_ADDR_BITS)
            writer.step(Op.T_UPD, value.register, scaled, accumulators=distance, coarser=self._coarser)
            loops, chain = value.features.loops, {**tiles, **scale, "round1": 1, "update": 1}
            writer.chain(loops, source.vectors, operand=value.vectors, **chain)

    def _scaled(self, source: Held, result: Held, factor: int) -> None:
        """Numbers times a factor, an intermediate."""
        self.writer.step(Op.T_SCALE, result.register, source.register, factor=factor)
        self.writer.fit(result.register, result.register)
        loops = source.features.loops
        self.writer.chain(loops, source.vectors, vectors=result.vectors, scale=1, factor=factor, round1=1)

    def _sum(self, source: Held, factor: int, term: Held, result: Held, spare: int) -> None:
        """Numbers times a factor, plus others: once for the greatest magnitude, and once more to be rounded."""
        self.writer.step(Op.T_SCALE, spare, source.register, factor=factor)
        self.writer.fit(spare, spare, place=0)
        self.writer.step(Op.T_ADD, result.register, spare, term.register)
        steps = {"operand": term.vectors, "scale": 1, "factor": factor, "round0": 1, "add": 1}
        self.writer.rounded(source.features.loops, source.vectors, result.register, result.vectors, **steps)


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
    value, native = own.weight.value, own.step.inputs.native
    if not own.step.depthwise:
        writer.chain(value.features.loops, value.vectors, columns=own.columns, tile_rows=own.tile_rows)
        return
    writer.chain(
        ChainLoops(own.step.inputs.lanes, value.features.vectors),
        VectorPlace(Mem.NARROW, Address(value.first, 0, 1)),
        operand=VectorPlace(Mem.NARROW, Address(memory["units"], 1)),
        columns=Address(own.tiles * native, 1, native),
        mask=1,
    )
