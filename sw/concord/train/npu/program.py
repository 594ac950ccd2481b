"""The program of training: entries for each pass of a batch, and for loaded weights."""

from __future__ import annotations

from dataclasses import dataclass

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem, Op
from concord.train.npu.chains import ChainWriter
from concord.train.npu.passes import BatchProgram, written_passes
from concord.train.npu.plan import TrainingMemory
from concord.train.npu.update import UpdateSteps, write_weight_tiles


@dataclass(frozen=True)
class TrainingProgram:
    """Instructions and where they begin.

    Parameters
    ----------
    words : tuple of int
        From address 0.
    load : int
        Entry that makes the tiles of the weights from their narrow words, and sets the register of the exponent 0.
    batches : dict
        Passes by samples of the batch.
    """

    words: tuple[int, ...]
    load: int
    batches: dict[int, BatchProgram]

    @property
    def starts(self) -> tuple[int, ...]:
        """All entries."""
        return self.load, *(pc for batch in self.batches.values() for pc in batch.starts)


def training_program(
    memory: TrainingMemory, config: NpuConfig, loss: str, momentum: bool, decay: bool, point: int
) -> TrainingProgram:
    """The program for a plan of the memories and a loss, whose gradient the host writes between the passes.

    ``point`` of accumulators as in :class:`concord.spec.training.AccumulatorFormat`.

    Raises
    ------
    ValueError
        If it is too long, or a memory too small: how many words are needed.
    """
    writer = ChainWriter()
    load = writer.begin()
    writer.step(Op.T_SET, memory.unscaled, exp=0)
    units = VectorPlace(Mem.NARROW, Address(memory["units"], 0, 1))
    for own in memory.products.values():
        write_weight_tiles(writer, memory, own)
        if own.selection is not None:
            channels = own.step.inputs.channels
            rows = Address(own.selection * config.native, 0, 1, config.native + channels)
            writer.chain(ChainLoops(1, channels, own.taps), units, tile_rows=rows)
    if "identity" in memory:
        rows = Address(memory["identity"] * config.native, 0, 1)
        writer.chain(ChainLoops(inner=config.native), units, tile_rows=rows)
    writer.end()
    updates = UpdateSteps(writer, memory, momentum, decay, point)
    batches = {size: written_passes(writer, memory, config, size, loss, updates) for size in memory.sizes}
    memory.allocator.check(len(writer))
    program = TrainingProgram((), load, batches)
    return TrainingProgram(writer.words(config, program.starts), load, batches)
