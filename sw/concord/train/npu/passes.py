"""The passes of a batch: chains of all operations, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.spec.softmax import PROBABILITY_POINT
from concord.train.layers.pointwise import Add, ReluLayer
from concord.train.layers.pooling import AveragePool, MaxPool, Mean
from concord.train.npu.batch import OperationSteps, TrainingBatch
from concord.train.npu.chains import ChainWriter
from concord.train.npu.depthwise import DepthwiseSteps
from concord.train.npu.flat_steps import FlatSteps, PackedSteps
from concord.train.npu.operations import TrainedOperation
from concord.train.npu.plan import WIDE_TOP, TrainingMemory, has_samples_as_lanes
from concord.train.npu.pointwise import ReluSteps, SumSteps
from concord.train.npu.pooling import AverageSteps, MaximumSteps
from concord.train.npu.tensors import Gradient, Held
from concord.train.npu.update import UpdateSteps
from concord.train.npu.window_steps import PointWindowSteps, SampleWindowSteps

#: Bounds of the gradients of losses.
_TOPS = {"cross_entropy": 1 << PROBABILITY_POINT, "mse": WIDE_TOP}


def _steps(batch: TrainingBatch, step: TrainedOperation, updates: UpdateSteps) -> OperationSteps:
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
        case _ if has_samples_as_lanes(step, batch.size, batch.config):
            kind = SampleWindowSteps
    return kind(batch, step, updates)


@dataclass(frozen=True)
class BatchProgram:
    """The passes of batches of some size.

    Parameters
    ----------
    size : int
        Samples of the batch.
    forward, backward : int
        Addresses at which the passes begin.
    source, output : Held
        Where the samples lie before the forward pass, and the output of the network after it. In the place of the
        latter the host writes the gradient of the loss, as wide integers, before the backward pass.
    """

    size: int
    forward: int
    backward: int
    source: Held
    output: Held

    @property
    def starts(self) -> tuple[int, int]:
        """All entries of a step, in order."""
        return self.forward, self.backward


def written_passes(
    writer: ChainWriter,
    memory: TrainingMemory,
    config: NpuConfig,
    size: int,
    loss: str,
    updates: UpdateSteps,
) -> BatchProgram:
    """Write both passes.

    Parameters
    ----------
    writer : ChainWriter
        Where to.
    memory, config
        Of the network.
    size : int
        Samples of the batch.
    loss : str
        Name of the loss.
    updates : UpdateSteps
        Of the parameters.
    """
    network = memory.operations
    batch = TrainingBatch(writer, memory, config, size)
    forward = writer.begin()
    source = batch.new(memory.source, Mem.NARROW)
    batch.made(network.source, source)
    steps = [_steps(batch, step, updates) for step in network.steps]
    for written in steps:
        written.forward()
        for name in written.step.reads:
            batch.done(name)
    batch.transpose_waiting()
    output = batch.share(batch.as_made(network.output))
    batch.done(network.output)
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
    return BatchProgram(size, forward, backward, source, output)
