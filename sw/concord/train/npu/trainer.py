"""The driver of training on the NPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.graph.ir import Graph
from concord.host import Device, TrapError
from concord.spec.config import NpuConfig
from concord.spec.integers import FACTOR_WORD
from concord.spec.isa import Trap
from concord.spec.memmap import RegionId
from concord.spec.operations import NEEDS, Op
from concord.spec.presets import ECP5_85F
from concord.train.data import Samples
from concord.train.layers.conv import Conv
from concord.train.losses import LOSSES, Loss
from concord.train.network import batch
from concord.train.npu.operations import operations_of
from concord.train.npu.plan import TrainingFactor, planned
from concord.train.npu.program import BatchProgram, training_program
from concord.train.npu.resident import ResidentParameters, read_tensor, training_image, write_tensor
from concord.train.settings import Settings
from concord.train.tensor import Dyadic, Tensor
from concord.train.trainer import Trainer


def training_config() -> NpuConfig:
    """The configuration for training where none is named."""
    return ECP5_85F


class NpuTrainer(Trainer):
    """Trains a network on an NPU, with the bits of :class:`concord.train.trainer.Trainer`.

    Parameters, accumulators and momentum stay on the device. Of a step, inputs travel there, the output of the network
    and its exponent back, and the gradient of the loss, which the host computes, there. Parameters are read back at the
    end of an epoch and when a checkpoint is written.

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
        if not config.has(Op.I_RUN):
            raise ValueError(f"training on the NPU needs a configuration with {NEEDS[Op.I_RUN]}, not {config.name}")
        if chosen.losses:
            raise ValueError(
                f"training on the NPU must have one output with the loss of [train], not [train.losses] of "
                f"{', '.join(chosen.losses)}; train this network on the host, without --on"
            )
        network = operations_of(self.network, chosen, config.native)
        most = min(chosen.batch, len(samples))
        sizes = tuple(size for size in (most, len(samples) % most) if size)
        self.device = device
        self.memory = planned(network, sizes, config, bool(self.optimiser.momentum.mant))
        point = chosen.formats.accumulator.shift
        self.program = training_program(self.memory, chosen.loss, bool(self.optimiser.decay), point)
        self._image = training_image(self.memory, self.program)
        device.load(self._image)
        self._parameters = ResidentParameters(device, self.memory)
        self._factors: dict[int, int] = {}
        self._there = False  # whether the device has the parameters
        self._newer = False  # whether they are newer there
        self._broken = False  # whether a step was left half done

    # Steps --------------------------------------------------------------------------------------------

    def _learn(self, rows: Any, number: int) -> list[Loss]:
        samples, program = self.samples.part(rows), self.program.batches[len(rows)]
        x = batch(samples.inputs(slice(None)), self.network.graph, self.settings.formats)
        self._place_parameters()
        self._place_factors(len(rows))
        write_tensor(self.device, program.source, self._as_read(x), x.exp)
        loss = self._pass_both_ways(program, np.asarray(samples.y))
        self._counts.elements += sum(parameter.count for parameter in self.network.parameters.values())
        self._parameters.after_step()
        self._broken = False
        return [loss]

    def _as_read(self, x: Tensor) -> npt.NDArray[Any]:
        """Integers of samples as the first product reads them: as they are, or windows of them."""
        packed = self.memory.operations.packed_samples
        if packed is None:
            return x.mant
        assert isinstance(packed.layer, Conv)
        return packed.layer.geometry.met(x.mant)

    def _pass_both_ways(self, program: BatchProgram, labels: npt.NDArray[Any]) -> Loss:
        """Learn from samples that are there, and leave the step half done."""
        device = self.device
        self._run(program.forward)
        shape = self.network.graph.shapes[self.network.output]
        output = read_tensor(device, program.output).reshaped(program.output.samples, *shape)
        loss = LOSSES[self.settings.loss](output, labels, self.settings.formats)
        self._newer = self._broken = True
        write_tensor(device, program.output, loss.gradient.mant, loss.gradient.exp)
        self._run(program.backward, adds=True)
        return loss

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
            TrainingFactor.NEGATION: Dyadic(-1, 0),
            **{place: factor for factor, place in self.memory.averages.items()},
            TrainingFactor.CHANGE: factors.change,
            TrainingFactor.MEAN: factors.mean,
            TrainingFactor.MOMENTUM: self.optimiser.momentum,
            TrainingFactor.DECAY: factors.decay,
        }
        for place, factor in numbers.items():
            word = FACTOR_WORD.pack(mant=factor.mant, exp=factor.exp)
            if factor.mant and self._factors.get(place) != word:
                self.device.write(RegionId.FACTORS, place, [word])
                self._factors[place] = word

    def _run(self, pc: int, adds: bool = False) -> None:
        """Execute an entry; counters of the device are those of both passes if the second one ``adds``."""
        try:
            self.device.start(pc, adds=adds)
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

    def _close(self) -> None:
        self.synchronise()
        super()._close()

    def judge_outputs(self, samples: Samples, bits: int | None = None) -> dict[str, tuple[float, float | None]]:
        """Loss and accuracy by output, which the host computes with the parameters as they are now."""
        self.synchronise()
        return super().judge_outputs(samples, bits)

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
