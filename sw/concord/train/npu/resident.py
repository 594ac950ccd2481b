"""Image and parameters that stay on the NPU while it trains, and tensors of a batch on their way there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from concord.host import Device
from concord.image import Image, MemorySegment
from concord.image.packing import from_vectors, to_vectors
from concord.spec.config import NpuConfig
from concord.spec.integers import TENSOR_WORD, UPDATE_COUNTERS, WIDE_BITS
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.train.npu.plan import TrainingMemory
from concord.train.npu.program import TrainingProgram
from concord.train.npu.registers import ParameterRegisters
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
from concord.train.parameters import Parameter, UpdateCounts
from concord.train.tensor import Tensor

_COUNT_MASK = (1 << 32) - 1


def training_image(memory: TrainingMemory, program: TrainingProgram, config: NpuConfig) -> Image:
    """Program, constants, and zeros in the place of everything else that is used."""
    native, allocator = config.native, memory.allocator
    units = narrow_words(np.eye(native, dtype=np.int64), config)
    ones = [
        (RegionId.NARROW, place, narrow_words(to_vectors(np.ones((1, count), np.int64), config), config))
        for count, place in memory.ones.items()
    ]
    contents = (
        (RegionId.MATRIX, 0, [0] * (allocator.used(RegionId.MATRIX) * config.rows)),
        (RegionId.NARROW, 0, [0] * memory.narrow.used),
        (RegionId.WIDE, 0, [0] * memory.wide.used),
        (RegionId.NARROW, memory.units, units),
        *ones,
    )
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
        #: Parameters with their first narrow words, inputs of a tap, and registers.
        self.places: list[tuple[Parameter, int, int, ParameterRegisters]] = []
        for own in memory.products.values():
            self.places.append((own.step.weight, own.weight, own.channels, own.weight_registers))
            self.places.append((own.step.bias, own.bias, 1, own.bias_registers))
        self._counted = [0] * len(UPDATE_COUNTERS)
        self._without_momentum: list[tuple[int, int]] = []

    def write(self) -> None:
        """Write all parameters as they are on the host."""
        for place in self.places:
            self._write(*place)
        self._counted = self.device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        self._without_momentum = [
            (registers.velocity, registers.mean)
            for parameter, _, _, registers in self.places
            if self.momentum and parameter.velocity is None
        ]

    def _write(self, parameter: Parameter, place: int, channels: int, registers: ParameterRegisters) -> None:
        device, config, memory = self.device, self.device.config, self.memory
        weight = self._vectors(parameter, parameter.weight, channels)
        device.write(RegionId.NARROW, place, narrow_words(weight, config))
        acc = wide_words(self._vectors(parameter, parameter.acc, channels), config, parameter.accumulator.bits)
        device.write(RegionId.WIDE, memory.accumulators + place, acc)
        device.write(RegionId.TENSORS, registers.value, [tensor_word(int(parameter.exp[0]), weight)])
        if self.momentum:
            velocity = np.zeros_like(weight)
            if parameter.velocity is not None:
                velocity = self._vectors(parameter, parameter.velocity, channels)
            device.write(RegionId.WIDE, memory.velocity(place), wide_words(velocity, config, WIDE_BITS))
            device.write(RegionId.TENSORS, registers.velocity, [tensor_word(parameter.velocity_exp, velocity)])

    def after_step(self) -> None:
        """Set the exponent of a momentum after its first step: of gradients that are zero their exponent."""
        for velocity, mean in self._without_momentum:
            word = TENSOR_WORD.unpack(self.device.read(RegionId.TENSORS, mean)[0])
            if not word["top"]:
                self.device.write(RegionId.TENSORS, velocity, [TENSOR_WORD.pack(**word)])
        self._without_momentum = []

    def read(self) -> UpdateCounts:
        """Read everything back; what updates have come to since the last time, without the number of elements."""
        device, config, memory = self.device, self.device.config, self.memory
        for parameter, place, channels, registers in self.places:
            words = self._count(parameter)
            weight = narrow_vectors(device.read(RegionId.NARROW, place, words), config)
            address = memory.accumulators + place
            acc = wide_vectors(device.read(RegionId.WIDE, address, words), config, parameter.accumulator.bits)
            mantissas, accumulators = (
                self._elements(parameter, vectors, channels).reshape(1, -1) for vectors in (weight, acc)
            )
            parameter.replace(mantissas, accumulators, np.array([self._exp(registers.value)]))
            if self.momentum:
                vectors = wide_vectors(device.read(RegionId.WIDE, memory.velocity(place), 2 * words), config, WIDE_BITS)
                parameter.velocity = self._elements(parameter, vectors, channels).astype(np.int32)
                parameter.velocity_exp = self._exp(registers.velocity)
        counted = device.read(RegionId.UPDATES, 0, len(UPDATE_COUNTERS))
        more = [now - before & _COUNT_MASK for now, before in zip(counted, self._counted, strict=True)]
        self._counted = counted
        return UpdateCounts(**dict(zip(UPDATE_COUNTERS, more, strict=True)))

    def _exp(self, register: int) -> int:
        return int(TENSOR_WORD.unpack(self.device.read(RegionId.TENSORS, register)[0])["exp"])

    def _vectors(self, parameter: Parameter, values: npt.NDArray[Any], channels: int) -> Ints:
        """Vectors of outputs, ``[tap][input][tile]``, of values ``[O, inputs, taps]`` or ``[O]``."""
        shaped = values.reshape(parameter.blocks.shape[0], channels, -1).astype(np.int64)
        return to_vectors(shaped.transpose(2, 1, 0), self.device.config)

    def _elements(self, parameter: Parameter, vectors: Ints, channels: int) -> Ints:
        """Inverse of :meth:`_vectors`."""
        outputs, *inputs = parameter.blocks.shape
        shaped = from_vectors(vectors, (int(np.prod(inputs)) // channels, channels, outputs), self.device.config)
        return np.ascontiguousarray(shaped.transpose(2, 1, 0)).reshape(parameter.blocks.shape)

    def _count(self, parameter: Parameter) -> int:
        outputs, *inputs = parameter.blocks.shape
        return int(np.prod(inputs)) * -(-outputs // self.device.config.native)


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
    words = device.read(RegionId.WIDE, held.first, held.word * samples * held.features.vectors(held.native))
    mant = held.features.unpack(wide_vectors(words, device.config, WIDE_BITS), device.config)
    return tensor_of(device.read(RegionId.TENSORS, held.register)[0], mant)
