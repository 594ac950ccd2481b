"""Image and parameters that stay on the NPU while it trains, and tensors of a batch on their way there and back."""

from __future__ import annotations

import numpy as np

from concord.host import Device
from concord.image import Image, MemorySegment
from concord.image.packing import to_vectors
from concord.spec.config import NpuConfig
from concord.spec.integers import TENSOR_WORD, UPDATE_COUNTERS, WIDE_BITS
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.train.npu.plan import ParameterMemory, TrainingMemory
from concord.train.npu.program import TrainingProgram
from concord.train.npu.tensors import Held
from concord.train.npu.words import (
    Ints,
    narrow_vectors,
    narrow_words,
    tensor_of,
    tensor_word,
    wide_vectors,
    wide_words,
)
from concord.train.parameters import UpdateCounts
from concord.train.tensor import Tensor

_COUNT_MASK = (1 << 32) - 1


def training_image(memory: TrainingMemory, program: TrainingProgram, config: NpuConfig) -> Image:
    """Program, constants, and zeros in the place of everything else that is used."""
    used = memory.allocator.used
    contents = [
        (RegionId.MATRIX, 0, [0] * (used(RegionId.MATRIX) * config.rows)),
        (RegionId.NARROW, 0, [0] * used(RegionId.NARROW)),
        (RegionId.WIDE, 0, [0] * used(RegionId.WIDE)),
        (RegionId.NARROW, memory["units"], narrow_words(np.eye(config.native, dtype=np.int64), config)),
    ]
    for name, place in memory.allocator.allocations.items():
        if name.startswith("ones."):
            ones = np.ones((1, int(name.removeprefix("ones."))), np.int64)
            contents.append((RegionId.NARROW, place.addr, narrow_words(to_vectors(ones, config), config)))
    segments = tuple(MemorySegment.from_words(region, start, words, config) for region, start, words in contents)
    return Image(config, program.words, segments)


class ResidentParameters:
    """Writes parameters to the NPU and reads them back.

    Parameters
    ----------
    device : Device
        With the image of the training.
    memory : TrainingMemory
        Of the network.
    momentum : bool
        Whether there is any.
    """

    def __init__(self, device: Device, memory: TrainingMemory, momentum: bool):
        self.device, self.memory, self.momentum = device, memory, momentum
        self._counted = [0] * len(UPDATE_COUNTERS)
        self._without_momentum: list[ParameterMemory] = []

    def write(self) -> None:
        """Write all parameters as they are on the host."""
        for own in self.memory.parameters:
            self._write(own)
        self._counted = self.device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        self._without_momentum = [
            own for own in self.memory.parameters if self.momentum and own.parameter.velocity is None
        ]

    def _write(self, own: ParameterMemory) -> None:
        device, parameter, memory = self.device, own.parameter, self.memory
        config, registers = device.config, own.registers
        weight, acc = own.pack(parameter.weight, config), own.pack(parameter.acc, config)
        device.write(RegionId.NARROW, own.first, narrow_words(weight, config))
        words = wide_words(acc, config, parameter.accumulator.bits)
        device.write(RegionId.WIDE, memory.accumulators(own), words)
        device.write(RegionId.TENSORS, registers.value, [tensor_word(int(parameter.exp[0]), weight)])
        if self.momentum:
            velocity = np.zeros_like(weight) if parameter.velocity is None else own.pack(parameter.velocity, config)
            device.write(RegionId.WIDE, memory.velocity(own), wide_words(velocity, config, WIDE_BITS))
            device.write(RegionId.TENSORS, registers.velocity, [tensor_word(parameter.velocity_exp, velocity)])

    def after_step(self) -> None:
        """Set the exponent of a momentum after its first step: of gradients that are zero their exponent."""
        for own in self._without_momentum:
            word = TENSOR_WORD.unpack(self.device.read(RegionId.TENSORS, own.registers.mean)[0])
            if not word["top"]:
                self.device.write(RegionId.TENSORS, own.registers.velocity, [TENSOR_WORD.pack(**word)])
        self._without_momentum = []

    def read(self) -> UpdateCounts:
        """Read everything back; what updates have come to since the last time, without the number of elements."""
        device, config = self.device, self.device.config
        for own in self.memory.parameters:
            parameter, words = own.parameter, own.layout.vectors
            weight = own.unpack(narrow_vectors(device.read(RegionId.NARROW, own.first, words), config), config)
            acc = self._wide(own, self.memory.accumulators(own), parameter.accumulator.bits)
            exp = np.array([self._exp(own.registers.value)])
            parameter.replace(weight.reshape(1, -1), acc.reshape(1, -1), exp)
            if self.momentum:
                parameter.velocity = self._wide(own, self.memory.velocity(own), WIDE_BITS).astype(np.int32)
                parameter.velocity_exp = self._exp(own.registers.velocity)
        counted = device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        more = [now - before & _COUNT_MASK for now, before in zip(counted, self._counted, strict=True)]
        self._counted = counted
        return UpdateCounts(**dict(zip(UPDATE_COUNTERS, more, strict=True)))

    def _wide(self, own: ParameterMemory, first: int, bits: int) -> Ints:
        """Integers of so many bits that belong to a parameter, in its shape."""
        config, count = self.device.config, own.layout.vectors * (bits * 2 // WIDE_BITS)
        return own.unpack(wide_vectors(self.device.read(RegionId.WIDE, first, count), config, bits), config)

    def _exp(self, register: int) -> int:
        return int(TENSOR_WORD.unpack(self.device.read(RegionId.TENSORS, register)[0])["exp"])


def write_tensor(device: Device, held: Held, tensor: Tensor) -> None:
    """Write the integers of samples ``[samples, ...]`` and their register."""
    config, vectors = device.config, held.features.pack(tensor.mant, device.config)
    if held.mem is Mem.NARROW:
        device.write(RegionId.NARROW, held.first, narrow_words(vectors, config))
    else:
        device.write(RegionId.WIDE, held.first, wide_words(vectors, config, WIDE_BITS))
    device.write(RegionId.TENSORS, held.register, [tensor_word(tensor.exp, vectors)])


def read_tensor(device: Device, held: Held, samples: int) -> Tensor:
    """Read the wide integers of so many samples ``[samples, elements]``, and their register."""
    words = device.read(RegionId.WIDE, held.first, held.word * samples * held.features.vectors)
    mant = held.features.unpack(wide_vectors(words, device.config, WIDE_BITS), device.config)
    return tensor_of(device.read(RegionId.TENSORS, held.register)[0], mant)
