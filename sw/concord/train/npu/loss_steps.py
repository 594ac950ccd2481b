"""Chains of a loss as they are written, between the forward and the backward pass of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from concord.program.chains import Address
from concord.spec.config import NpuConfig
from concord.spec.integers import WIDE_BITS, judged_per_word
from concord.spec.isa import Mem, Op
from concord.spec.softmax import PROBABILITY_POINT
from concord.train.data import Samples
from concord.train.losses import squared_error_factor
from concord.train.npu.batch import TrainingBatch
from concord.train.npu.chains import VectorPlace
from concord.train.npu.features import Features
from concord.train.npu.plan import WIDE_TOP
from concord.train.npu.resident_loss import ResidentCrossEntropy, ResidentLoss, ResidentSquaredError
from concord.train.npu.tensors import Gradient, Held

#: Greatest magnitude of the gradient of a cross-entropy.
CROSS_ENTROPY_TOP = 1 << PROBABILITY_POINT


class LossSteps(ABC):
    """Chains of a loss; takes words for what samples are judged by before the forward pass.

    Parameters
    ----------
    batch : TrainingBatch
        On its way.
    features : Features
        Of the output.
    """

    def __init__(self, batch: TrainingBatch, features: Features):
        self.batch, self.features = batch, features

    @abstractmethod
    def gradient(self, output: Held) -> Gradient:
        """Write the loss: from the output, which is released, to its gradient."""

    @abstractmethod
    def release(self) -> ResidentLoss:
        """Places where the host writes and reads, after the backward pass; nothing else of the step needs the words."""


class CrossEntropySteps(LossSteps):
    """Softmax and cross-entropy, by one instruction; the gradient takes the place of the output."""

    def __init__(self, batch: TrainingBatch, features: Features):
        super().__init__(batch, features)
        space, native = batch.memory.workspace, batch.config.native
        self._labels = space.narrow.take(batch.size * features.tiles(native))
        self._judged = space.wide.take(-(-batch.size // judged_per_word(native)))

    def gradient(self, output: Held) -> Gradient:
        loops = self.batch.loops(output)
        place, labels = output.every(loops.rows), VectorPlace(Mem.NARROW, Address(self._labels, 1, loops.rows))
        self.batch.writer.loss(
            loops, place, labels, place, tensor=output.register, valid=self.features.channels % output.native,
            judged=self._judged,
        )  # fmt: skip
        self.batch.memory.workspace.narrow.give_back(self._labels)
        return Gradient(output, CROSS_ENTROPY_TOP)

    def release(self) -> ResidentLoss:
        self.batch.memory.workspace.wide.give_back(self._judged)
        return ResidentCrossEntropy(self.features, self._labels, self._judged)


class SquaredErrorSteps(LossSteps):
    """A sum with the targets, which have the opposite sign, times a factor."""

    def __init__(self, batch: TrainingBatch, features: Features):
        super().__init__(batch, features)
        self._target = batch.new(features, Mem.WIDE)

    def gradient(self, output: Held) -> Gradient:
        batch, writer = self.batch, self.batch.writer
        self._difference = difference = batch.total(output, self._target)
        result, loops = batch.new(self.features, Mem.WIDE), batch.loops(difference)
        factor = batch.memory.averages[squared_error_factor(self.features.elements)]
        writer.step(Op.T_SCALE, result.register, difference.register, factor=factor)
        writer.step(Op.T_FIT, result.register, result.register, bits=WIDE_BITS, place=1)
        writer.chain(
            loops, difference.every(loops.rows), vectors=result.every(loops.rows), scale=1, factor=factor, round1=1
        )  # fmt: skip
        return Gradient(result, WIDE_TOP)

    def release(self) -> ResidentLoss:
        self.batch.release(self._difference)
        return ResidentSquaredError(self._target, self._difference)


#: Of losses by their names.
LOSS_STEPS: dict[str, type[LossSteps]] = {"cross_entropy": CrossEntropySteps, "mse": SquaredErrorSteps}


def loss_in_the_way(loss: str, output: Features, samples: Samples, config: NpuConfig) -> str | None:
    """Reason for which the NPU does not compute a loss; ``None`` if it does.

    Parameters
    ----------
    loss : str
        Its name.
    output : Features
        Of the output of the network.
    samples : Samples
        With labels.
    config : NpuConfig
        With integer chains.
    """
    if loss == "mse":
        return None
    if not config.integer_loss:
        return f"{config.name} has no integer_loss"
    if output.positions > 1 or np.size(samples.y) > len(samples):
        return "the output has several positions"
    return None
