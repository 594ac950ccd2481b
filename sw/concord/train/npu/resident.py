"""Image and parameters that stay on the NPU while it trains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.host import Device
from concord.image import Image, MemorySegment
from concord.spec.integers import UPDATE_COUNTERS
from concord.spec.memmap import RegionId
from concord.train.npu.plan import ParameterMemory, TrainingMemory
from concord.train.npu.program import TrainingProgram
from concord.train.npu.words import (
    read_integers,
    read_register,
    read_tensor,
    write_integers,
    write_register,
    write_tensor,
)
from concord.train.parameters import UpdateCounts

_COUNT_MASK = (1 << 32) - 1


def training_image(memory: TrainingMemory, program: TrainingProgram) -> Image:
    """Program, constants, and zeros in the place of everything else that is used."""
    used, config, image = memory.allocator.used, memory.config, memory.allocator.linked(list(program.words))
    words = {region: used(region) for region in (RegionId.NARROW, RegionId.WIDE)}
    words[RegionId.MATRIX] = used(RegionId.MATRIX) * config.rows
    zeros = (MemorySegment.from_words(region, 0, [0] * count, config) for region, count in words.items())
    return replace(image, segments=(*zeros, *image.segments))


class ResidentParameters:
    """Writes parameters to the NPU and reads them back.

    Parameters
    ----------
    device : Device
        With the image of the training.
    memory : TrainingMemory
        Of the network.
    """

    def __init__(self, device: Device, memory: TrainingMemory):
        self.device, self.memory = device, memory
        self._counted = [0] * len(UPDATE_COUNTERS)
        #: Registers of mean gradients and of momentums that begin with the next step.
        self._without_momentum: list[tuple[int, int]] = []

    def write(self) -> None:
        """Write all parameters as they are on the host."""
        for own in self.memory.parameters:
            self._write(own)
        self._counted = self.device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        self._without_momentum = [
            (own.mean, own.velocity.register)
            for own in self.memory.parameters
            if own.velocity is not None and own.parameter.velocity is None
        ]

    def _write(self, own: ParameterMemory) -> None:
        device, parameter = self.device, own.parameter
        write_tensor(device, own.value, own.images(parameter.weight), int(parameter.exp[0]))
        write_integers(device, own.accumulators, own.images(parameter.acc))
        if own.velocity is not None:
            velocity = np.zeros_like(parameter.weight) if parameter.velocity is None else parameter.velocity
            write_tensor(device, own.velocity, own.images(velocity), parameter.velocity_exp)

    def after_step(self) -> None:
        """Set the exponent of a momentum after its first step: of gradients that are zero their exponent."""
        for gradient, velocity in self._without_momentum:
            mean = read_register(self.device, gradient)
            if not mean["top"]:
                write_register(self.device, velocity, mean["exp"], np.zeros(1))
        self._without_momentum = []

    def read(self) -> UpdateCounts:
        """Read everything back; what updates have come to since the last time, without the number of elements."""
        device = self.device
        for own in self.memory.parameters:
            weight, acc = (own.numbers(read_integers(device, held)) for held in (own.value, own.accumulators))
            exp = np.array([read_register(device, own.value.register)["exp"]])
            own.parameter.replace(weight.reshape(1, -1), acc.reshape(1, -1), exp)
            if own.velocity is not None:
                velocity = read_tensor(device, own.velocity)
                own.parameter.velocity = own.numbers(velocity.mant).astype(np.int32)
                own.parameter.velocity_exp = velocity.exp
        counted = device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        more = [now - before & _COUNT_MASK for now, before in zip(counted, self._counted, strict=True)]
        self._counted = counted
        return UpdateCounts(**dict(zip(UPDATE_COUNTERS, more, strict=True)))
