"""The passes of a batch: chains of all operations, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.train.npu.batch import TrainingBatch
from concord.train.npu.chains import ChainWriter
from concord.train.npu.depthwise import DepthwiseSteps
from concord.train.npu.loss_steps import CROSS_ENTROPY_TOP, LossSteps
from concord.train.npu.operations import (
    TrainedAverage,
    TrainedDepthwise,
    TrainedLookup,
    TrainedMaximum,
    TrainedOperation,
    TrainedProduct,
    TrainedRelu,
    TrainedSum,
)
from concord.train.npu.plan import TrainingMemory, has_samples_as_lanes
from concord.train.npu.pointwise import LookupSteps, ReluSteps, SumSteps
from concord.train.npu.pooling import AverageSteps, MaximumSteps
from concord.train.npu.products import DenseSteps
from concord.train.npu.resident_loss import ResidentLoss
from concord.train.npu.steps import OperationSteps
from concord.train.npu.tensors import Gradient, Held
from concord.train.npu.update import UpdateSteps
from concord.train.npu.window_steps import WindowSteps

_STEPS: dict[type[TrainedOperation], type[OperationSteps[Any]]] = {
    TrainedDepthwise: DepthwiseSteps,
    TrainedRelu: ReluSteps,
    TrainedLookup: LookupSteps,
    TrainedMaximum: MaximumSteps,
    TrainedAverage: AverageSteps,
    TrainedSum: SumSteps,
}


def _steps(batch: TrainingBatch, step: TrainedOperation, updates: UpdateSteps) -> OperationSteps[Any]:
    """Writer of the chains of an operation."""
    if type(step) is TrainedProduct:
        samples = has_samples_as_lanes(step, batch.size, batch.config)
        return (WindowSteps if samples else DenseSteps)(batch, step, updates)
    return _STEPS[type(step)](batch, step, updates)


@dataclass(frozen=True)
class BatchProgram:
    """The passes of batches of some size.

    Parameters
    ----------
    size : int
        Samples of the batch.
    forward : int
        Address at which the forward pass begins.
    backward : int or None
        Where the backward pass begins; ``None`` if it goes on after the loss.
    source, output : Held
        Where the samples lie before the forward pass, and the output of the network after it. Where the host computes
        the loss, it writes the gradient in the place of the latter, as wide integers.
    loss : ResidentLoss or None
        Of the loss that is part of the program; ``None`` if the host computes it between the passes.
    """

    size: int
    forward: int
    backward: int | None
    source: Held
    output: Held
    loss: ResidentLoss | None

    @property
    def starts(self) -> tuple[int, ...]:
        """All entries of a step, in order."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)


def written_passes(
    writer: ChainWriter,
    memory: TrainingMemory,
    config: NpuConfig,
    size: int,
    loss: type[LossSteps] | None,
    updates: UpdateSteps,
) -> BatchProgram:
    """Write both passes, and the loss in between.

    Parameters
    ----------
    writer : ChainWriter
        Where to.
    memory, config
        Of the network.
    size : int
        Samples of the batch.
    loss : type of LossSteps, or None
        Chains of the loss; ``None``: the host computes a cross-entropy, and each pass is an entry of its own.
    updates : UpdateSteps
        Of the parameters.
    """
    network = memory.operations
    batch = TrainingBatch(writer, memory, config, size)
    forward = batch.begin()
    source = batch.new(memory.source, Mem.NARROW)
    batch.made(network.source, source)
    judgement = None if loss is None else loss(batch, network.features[network.output])
    steps = [_steps(batch, step, updates) for step in network.steps]
    for written in steps:
        written.forward()
        for name in written.step.reads:
            batch.done(name)
    output = batch.share(batch.as_made(network.output))
    batch.done(network.output)
    backward = None
    if judgement is None:
        writer.end()
        backward = batch.begin()
        batch.send(network.output, Gradient(output, CROSS_ENTROPY_TOP))
    else:
        batch.send(network.output, judgement.gradient(output))
    for written in reversed(steps):
        gradient = batch.arrived(written.step.makes)
        if gradient is None:
            written.forget()
        else:
            written.backward(gradient)
    resident = None if judgement is None else judgement.release()
    writer.end()
    return BatchProgram(size, forward, backward, source, output, resident)
