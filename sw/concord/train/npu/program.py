"""The program of training: entries for each pass of a batch, and for loaded weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.spec.isa import Mem, Op
from concord.spec.softmax import PROBABILITY_POINT
from concord.train.layers.pointwise import Add, ReluLayer
from concord.train.layers.pooling import AveragePool, MaxPool, Mean
from concord.train.npu.batch import OperationSteps, TrainingBatch
from concord.train.npu.chains import ChainWriter
from concord.train.npu.operations import TrainedOperation
from concord.train.npu.plan import WIDE_TOP, TrainingMemory, has_samples_as_lanes
from concord.train.npu.products import FlatSteps, PackedSteps
from concord.train.npu.tensors import Gradient, Held
from concord.train.npu.unweighted import AverageSteps, MaximumSteps, ReluSteps, SumSteps
from concord.train.npu.update import UpdateSteps, write_weight_tiles
from concord.train.npu.window_steps import DepthwiseSteps, PointWindowSteps, SampleWindowSteps

#: Bounds of the gradients of losses.
_TOPS = {"cross_entropy": 1 << PROBABILITY_POINT, "mse": WIDE_TOP}


def _steps(batch: TrainingBatch, step: TrainedOperation) -> OperationSteps:
    """Writer of the chains of an operation; of a product the one that takes the fewest cycles."""
    kind: type[OperationSteps] = PointWindowSteps
    match step.layer:
        case ReluLayer():
            kind = ReluSteps
        case Add():
            kind = SumSteps
        case MaxPool():
            kind = MaximumSteps
        case AveragePool() | Mean():
            kind = AverageSteps
        case _ if step.depthwise:
            kind = DepthwiseSteps
        case _ if step.packed:
            kind = PackedSteps
        case _ if step.flat:
            kind = FlatSteps
        case _ if has_samples_as_lanes(step, batch.size, batch.memory.config):
            kind = SampleWindowSteps
    return kind(batch, step)


@dataclass(frozen=True)
class BatchProgram:
    """The passes of batches of some size.

    Parameters
    ----------
    forward, backward : int
        Addresses at which the passes begin.
    source, output : Held
        Where the samples lie before the forward pass, and the output of the network after it. In the place of the
        latter the host writes the gradient of the loss, as wide integers, before the backward pass.
    """

    forward: int
    backward: int
    source: Held
    output: Held


def written_passes(batch: TrainingBatch, loss: str) -> BatchProgram:
    """Write both passes.

    Parameters
    ----------
    batch : TrainingBatch
        At its beginning.
    loss : str
        Name of the loss.
    """
    writer, memory = batch.writer, batch.memory
    network = memory.operations
    forward = writer.begin()
    source = batch.new(memory.source, Mem.NARROW)
    batch.made(network.source, source)
    steps = [_steps(batch, step) for step in network.steps]
    for written in steps:
        written.forward()
        for name in written.step.reads:
            batch.release(batch.tensors[name])
    batch.transpose_waiting()
    output = batch.tensors[network.output]
    writer.end()
    backward = writer.begin()
    batch.send(network.output, Gradient(output, _TOPS[loss]))
    for written in reversed(steps):
        gradient = batch.arrived(written.step.makes)
        if gradient is None:
            written.forget()
        else:
            written.backward(gradient)
    writer.end()
    return BatchProgram(forward, backward, source, output)


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
        return self.load, *(pc for batch in self.batches.values() for pc in (batch.forward, batch.backward))


def training_program(memory: TrainingMemory, loss: str, decay: bool, point: int) -> TrainingProgram:
    """The program for a plan of the memories and a loss, whose gradient the host writes between the passes.

    ``point`` of accumulators as in :class:`concord.spec.training.AccumulatorFormat`.

    Raises
    ------
    ValueError
        If it is too long, or a memory too small: how many words are needed.
    """
    writer, native = ChainWriter(), memory.config.native
    load = writer.begin()
    writer.step(Op.T_SET, memory.unscaled, exp=0)
    units = VectorPlace(Mem.NARROW, Address(memory["units"], 0, 1))
    for own in memory.products.values():
        write_weight_tiles(writer, memory, own)
        if own.selection is not None:
            channels = own.step.inputs.channels
            rows = Address(own.selection * native, 0, 1, native + channels)
            writer.chain(ChainLoops(1, channels, own.step.window.taps), units, tile_rows=rows)
    if "identity" in memory.allocations:
        rows = Address(memory["identity"] * native, 0, 1)
        writer.chain(ChainLoops(inner=native), units, tile_rows=rows)
    writer.end()
    updates, batches = UpdateSteps(writer, memory, decay, point), dict[int, BatchProgram]()
    for size in memory.sizes:
        batches[size] = written_passes(TrainingBatch(writer, memory, updates, size), loss)
    memory.check(len(writer))
    program = TrainingProgram((), load, batches)
    return replace(program, words=writer.words(memory.config, program.starts))
