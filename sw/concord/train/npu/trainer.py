"""The driver of training on the NPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from concord.graph.ir import Graph
from concord.host import Device, TrapError
from concord.spec.config import NpuConfig
from concord.spec.integers import WIDE_BITS
from concord.spec.isa import Trap
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F_TRAIN
from concord.train.data import Samples
from concord.train.losses import LOSSES, Loss
from concord.train.network import batch
from concord.train.npu.operations import operations_of
from concord.train.npu.plan import planned
from concord.train.npu.program import training_program
from concord.train.npu.registers import TrainingFactor
from concord.train.npu.resident import ResidentParameters, training_image
from concord.train.npu.words import (
    factor_word,
    narrow_words,
    tensor_of,
    tensor_word,
    wide_vectors,
    wide_words,
)
from concord.train.settings import Settings
from concord.train.tensor import Dyadic, Tensor
from concord.train.trainer import Trainer


def training_config() -> NpuConfig:
    """The configuration for training where none is named."""
    return ECP5_85F_TRAIN


class NpuTrainer(Trainer):
    """Trains a network on an NPU, with the bits of :class:`concord.train.trainer.Trainer`.

    Parameters, accumulators and momentum stay on the device. Of a step, inputs and the gradient of the loss travel
    there, and the output of the network and its exponent back. Parameters are read back at the end of an epoch and
    when a checkpoint is written.

    Parameters
    ----------
    device : Device
        With integer chains; it is loaded here.
    graph, samples, settings, test, random
        As for :class:`concord.train.trainer.Trainer`.

    Raises
    ------
    CannotTrain
        With everything that cannot be trained on the NPU.
    ValueError
        As for :class:`concord.train.trainer.Trainer`, and if a memory is too small: how many words are needed.
    """

    def __init__(
        self,
        device: Device,
        graph: Graph,
        samples: Samples,
        settings: Settings | None = None,
        test: Samples | None = None,
        random: bool = False,
    ):
        super().__init__(graph, samples, settings, test, random)
        config, chosen = device.config, self.settings
        if not config.integer_chains:
            raise ValueError(f"training on the NPU needs a configuration with integer_chains, not {config.name}")
        network = operations_of(self.network, chosen)
        most = min(chosen.batch, len(samples))
        sizes = tuple(size for size in (most, len(samples) % most) if size)
        momentum, decay = bool(self.optimiser.momentum.mant), bool(self.optimiser.decay)
        self.device = device
        self.memory = planned(network, sizes, config, momentum)
        self.program = training_program(self.memory, config, chosen.loss, momentum, decay)
        self._image = training_image(self.memory, self.program, config)
        device.load(self._image)
        self._parameters = ResidentParameters(device, self.memory, momentum)
        self._factors: dict[int, int] = {}
        self._there = False  # whether the device has the parameters
        self._newer = False  # whether they are newer there
        self._broken = False  # whether a step was left half done

    # Steps --------------------------------------------------------------------------------------------

    def _learn(self, rows: Any, number: int) -> list[Loss]:
        samples, formats = self.samples.part(rows), self.settings.formats
        x = batch(samples.inputs(slice(None)), self.network.graph, formats)
        self._place_parameters()
        self._place_factors(len(rows))
        output = self._forward_there(x)
        loss = LOSSES[self.settings.loss](output, samples.y, formats)
        self._newer = self._broken = True  # until the whole step is done
        self._backward_there(loss.gradient)
        self._counts.elements += sum(parameter.count for parameter in self.network.parameters.values())
        self._parameters.after_step()
        self._broken = False
        return [loss]

    def _place_parameters(self) -> None:
        if self._broken:
            raise ValueError("training must go on from a checkpoint: a step was left half done")
        if self.device.image is not self._image:
            self._check_there()
            self.device.load(self._image)
            self._factors.clear()
            self._there = False
        if not self._there:
            self._parameters.write()
            self._run(self.program.load)
            self._there, self._newer = True, False

    def _check_there(self) -> None:
        """Refuse to go on if the device was loaded with something else while it had the latest parameters."""
        if self._newer and self.device.image is not self._image:
            raise ValueError(
                "a device that trains must not be loaded with another image before its parameters are read "
                "(synchronise); go on from a checkpoint"
            )

    def _place_factors(self, samples: int) -> None:
        """Write the factors that are others than before."""
        factors = self.optimiser.factors(samples, self.settings.rate_of(self.epoch))
        numbers: dict[int, Dyadic] = {
            **self.memory.factors,
            TrainingFactor.CHANGE: factors.change,
            TrainingFactor.MEAN: factors.mean,
            TrainingFactor.MOMENTUM: self.optimiser.momentum,
            TrainingFactor.DECAY: factors.decay,
        }
        for place, factor in numbers.items():
            word = factor_word(factor)
            if factor.mant and self._factors.get(place) != word:
                self.device.write(RegionId.FACTORS, place, [word])
                self._factors[place] = word

    def _forward_there(self, x: Tensor) -> Tensor:
        """The output of the network."""
        device, config = self.device, self.device.config
        batch = self.program.batches[len(x.mant)]
        source, output = batch.source, batch.output
        vectors = source.features.pack(x.mant, config.native)
        device.write(RegionId.NARROW, source.first, narrow_words(vectors, config))
        device.write(RegionId.TENSORS, source.register, [tensor_word(x.exp, vectors)])
        self._run(batch.forward)
        words = device.read(RegionId.WIDE, output.first, 2 * batch.size * output.features.vectors(config.native))
        mant = output.features.unpack(wide_vectors(words, config, WIDE_BITS))
        shape = self.network.graph.shapes[self.network.output]
        return tensor_of(device.read(RegionId.TENSORS, output.register)[0], mant.reshape(len(x.mant), *shape))

    def _backward_there(self, gradient: Tensor) -> None:
        """Learn from the gradient of the output."""
        device, config = self.device, self.device.config
        batch = self.program.batches[len(gradient.mant)]
        vectors = batch.output.features.pack(gradient.mant, config.native)
        device.write(RegionId.WIDE, batch.output.first, wide_words(vectors, config, WIDE_BITS))
        device.write(RegionId.TENSORS, batch.output.register, [tensor_word(gradient.exp, vectors)])
        self._run(batch.backward)

    def _run(self, pc: int) -> None:
        try:
            self.device.start(pc)
            self.device.wait()
        except TrapError as error:
            self._broken = True
            if error.trap is not Trap.INTEGER_RANGE:
                raise
            raise OverflowError(
                "training on the NPU must keep integers and exponents within its range, and they have left it "
                f"({error}); train this run on the host, without --on, from the last checkpoint if there is one"
            ) from error

    # Parameters ---------------------------------------------------------------------------------------

    def synchronise(self) -> None:
        """Read parameters and counts back, if they are newer on the device.

        Raises
        ------
        ValueError
            If a step was left half done.
        """
        if self._broken:
            raise ValueError("parameters must not be taken from a step that was left half done")
        self._check_there()
        if self._newer:
            self._counts.add(self._parameters.read())
            self._newer = False

    def _close(self, classes: bool) -> None:
        self.synchronise()
        super()._close(classes)

    def judge(self, samples: Samples, bits: int | None = None) -> tuple[float, float | None]:
        """As on the host, which does it, with the parameters as they are now."""
        self.synchronise()
        return super().judge(samples, bits)

    def save(self, path: Path) -> None:
        """Write a checkpoint, that of the host."""
        self.synchronise()
        super().save(path)

    def restore(self, path: Path) -> None:
        """Go on where a checkpoint was written, here or on the host."""
        super().restore(path)
        self._there = self._newer = self._broken = False

    def trained(self) -> Graph:
        """The network with the weights as they are now."""
        self.synchronise()
        return super().trained()
