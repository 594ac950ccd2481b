"""Chains of an operation as they are written: once forward, once backward."""

from __future__ import annotations

from typing import Generic, TypeVar

from concord.spec.integers import WIDE_BITS
from concord.spec.isa import Op
from concord.train.npu.batch import TrainingBatch
from concord.train.npu.operations import TrainedOperation
from concord.train.npu.tensors import Gradient
from concord.train.npu.update import UpdateSteps

Kind = TypeVar("Kind", bound=TrainedOperation)


class OperationSteps(Generic[Kind]):
    """Chains of an operation; keeps from the forward to the backward pass where tensors lie.

    Parameters
    ----------
    batch : TrainingBatch
        On its way.
    step : TrainedOperation
        What is computed.
    updates : UpdateSteps
        Of parameters.
    """

    def __init__(self, batch: TrainingBatch, step: Kind, updates: UpdateSteps):
        self.batch, self.step, self.updates = batch, step, updates
        self.writer, self.config, self.memory = batch.writer, batch.config, batch.memory

    def forward(self) -> None:
        """Write the forward pass, which makes the result."""
        raise NotImplementedError

    def backward(self, gradient: Gradient) -> None:
        """Write the backward pass: the gradient of the result is released, those of inputs and parameters are made."""
        raise NotImplementedError

    def forget(self) -> None:
        """Release what was kept, where nobody asks for the gradient."""

    def _in_range(self, register: int) -> None:
        """See to it that the exponent of an intermediate that has 32 bits already is one of training."""
        self.writer.step(Op.T_FIT, register, register, bits=WIDE_BITS, place=1)
