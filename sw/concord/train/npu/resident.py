"""Image and parameters that stay on the NPU while it trains, and tensors of a batch on their way there and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.host import Device
from concord.image import Image, MemorySegment
from concord.spec.integers import UPDATE_COUNTERS, WIDE_BITS
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.train.npu.plan import ParameterMemory, TrainingMemory
from concord.train.npu.program import TrainingProgram
from concord.train.npu.tensors import Held
from concord.train.npu.words import Ints, read_register, read_vectors, write_register, write_vectors
from concord.train.parameters import UpdateCounts
from concord.train.tensor import Tensor

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
        self._without_momentum: list[ParameterMemory] = []

    def write(self) -> None:
        """Write all parameters as they are on the host."""
        for own in self.memory.parameters:
            self._write(own)
        self._counted = self.device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        self._without_momentum = [
            own for own in self.memory.parameters if self.memory.momentum and own.parameter.velocity is None
        ]

    def _write(self, own: ParameterMemory) -> None:
        device, memory, parameter, registers = self.device, self.memory, own.parameter, own.registers
        weight, acc = (own.pack(values, device.config) for values in (parameter.weight, parameter.acc))
        write_vectors(device, Mem.NARROW, own.first, weight)
        write_vectors(device, Mem.WIDE, memory.accumulators(own), acc, parameter.accumulator.bits)
        write_register(device, registers.value, int(parameter.exp[0]), weight)
        if memory.momentum:
            velocity = np.zeros_like(parameter.weight) if parameter.velocity is None else parameter.velocity
            vectors = own.pack(velocity, device.config)
            write_vectors(device, Mem.WIDE, memory.velocity(own), vectors)
            write_register(device, registers.velocity, parameter.velocity_exp, vectors)

    def after_step(self) -> None:
        """Set the exponent of a momentum after its first step: of gradients that are zero their exponent."""
        for own in self._without_momentum:
            mean = read_register(self.device, own.registers.mean)
            if not mean["top"]:
                write_register(self.device, own.registers.velocity, mean["exp"], np.zeros(1))
        self._without_momentum = []

    def read(self) -> UpdateCounts:
        """Read everything back; what updates have come to since the last time, without the number of elements."""
        device, memory = self.device, self.memory
        for own in memory.parameters:
            parameter, registers = own.parameter, own.registers
            weight = self._read(own, Mem.NARROW, own.first)
            acc = self._read(own, Mem.WIDE, memory.accumulators(own), parameter.accumulator.bits)
            exp = np.array([read_register(device, registers.value)["exp"]])
            parameter.replace(weight.reshape(1, -1), acc.reshape(1, -1), exp)
            if memory.momentum:
                parameter.velocity = self._read(own, Mem.WIDE, memory.velocity(own)).astype(np.int32)
                parameter.velocity_exp = read_register(device, registers.velocity)["exp"]
        counted = device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        more = [now - before & _COUNT_MASK for now, before in zip(counted, self._counted, strict=True)]
        self._counted = counted
        return UpdateCounts(**dict(zip(UPDATE_COUNTERS, more, strict=True)))

    def _read(self, own: ParameterMemory, mem: Mem, first: int, bits: int = WIDE_BITS) -> Ints:
        """Integers that belong to a parameter, in its shape."""
        return own.unpack(read_vectors(self.device, mem, first, own.layout.vectors, bits), self.device.config)


def write_tensor(device: Device, held: Held, tensor: Tensor) -> None:
    """Write the integers of samples ``[samples, ...]`` and their register."""
    vectors = held.features.pack(tensor.mant, device.config)
    write_vectors(device, held.mem, held.first, vectors)
    write_register(device, held.register, tensor.exp, vectors)


def read_tensor(device: Device, held: Held, samples: int) -> Tensor:
    """Read the integers of so many samples ``[samples, elements]``, and their register."""
    vectors = read_vectors(device, held.mem, held.first, samples * held.features.vectors)
    register = read_register(device, held.register)
    return Tensor(held.features.unpack(vectors, device.config), register["exp"], register["top"])
