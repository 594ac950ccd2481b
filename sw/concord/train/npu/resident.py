"""Parameters that live on the NPU while they are trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from concord.host import Device
from concord.image import Image, MemorySegment
from concord.spec.config import NpuConfig
from concord.spec.integers import TENSOR_WORD, UPDATE_COUNTERS, WIDE_BITS
from concord.spec.memmap import RegionId
from concord.train.npu.plan import TrainingMemory
from concord.train.npu.program import TrainingProgram
from concord.train.npu.registers import ParameterRegisters
from concord.train.npu.words import (
    Ints,
    narrow_vectors,
    narrow_words,
    rows_of,
    tensor_word,
    tiled,
    wide_vectors,
    wide_words,
)
from concord.train.parameters import Parameter, UpdateCounts

_COUNT_MASK = (1 << 32) - 1


def training_image(memory: TrainingMemory, program: TrainingProgram, config: NpuConfig) -> Image:
    """Program, constants, and zeros in the place of everything else that is used."""
    native, allocator = config.native, memory.allocator
    units = narrow_words(np.eye(native, dtype=np.int64), config)
    ones = [
        (RegionId.NARROW, place, narrow_words(tiled(np.ones((1, count)), native), config))
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
        return tiled(shaped.transpose(2, 1, 0).reshape(-1, len(shaped)), self.device.config.native)

    def _elements(self, parameter: Parameter, vectors: Ints, channels: int) -> Ints:
        """Inverse of :meth:`_vectors`."""
        rows = rows_of(vectors, parameter.blocks.shape[0])
        return np.ascontiguousarray(rows.reshape(-1, channels, rows.shape[1]).transpose(2, 1, 0)).reshape(
            parameter.blocks.shape
        )

    def _count(self, parameter: Parameter) -> int:
        outputs, *inputs = parameter.blocks.shape
        return int(np.prod(inputs)) * -(-outputs // self.device.config.native)
