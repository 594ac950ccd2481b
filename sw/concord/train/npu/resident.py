"""Image and parameters that stay on the NPU while it trains, and tensors on their way there and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.host import Device
from concord.image import Image, MemorySegment
from concord.image.packing import pack_narrow
from concord.image.words import to_bytes, to_integers, unpack_words
from concord.program.access import REGIONS
from concord.spec.integers import TENSOR_WORD, UPDATE_COUNTERS
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.train.npu.plan import ParameterMemory, TrainingMemory
from concord.train.npu.program import TrainingProgram
from concord.train.npu.tensors import Held
from concord.train.parameters import UpdateCounts
from concord.train.tensor import Tensor, top_of
from concord.utils.arrays import Ints

_COUNT_MASK = (1 << 32) - 1


def training_image(memory: TrainingMemory, program: TrainingProgram) -> Image:
    """Program, constants, and zeros in the place of everything else that is used."""
    config, image = memory.config, memory.linked(list(program.words))
    words = {region: memory.used(region) for region in (RegionId.NARROW, RegionId.WIDE)}
    words[RegionId.MATRIX] = memory.used(RegionId.MATRIX) * config.rows
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


def write_integers(device: Device, held: Held, images: npt.NDArray[Any]) -> None:
    """Write the integers of images ``[images, ...]`` of a tensor: mantissas, or wide ones of 16 bits for each word."""
    config, vectors = device.config, held.features.pack(images, device.config)
    if held.mem is Mem.NARROW:
        words = pack_narrow(vectors, config)
    else:
        data = np.ascontiguousarray(vectors, dtype=f"<i{2 * held.word}").view(np.uint8)
        words = to_integers(data.reshape(-1, config.wide_word.nbytes))
    device.write(REGIONS[held.mem], held.first, words)


def read_integers(device: Device, held: Held) -> Ints:
    """Integers ``[images, elements]`` of a tensor."""
    config, count = device.config, held.word * held.samples * held.features.vectors
    words = device.read(REGIONS[held.mem], held.first, count)
    if held.mem is Mem.NARROW:
        vectors = unpack_words(config.narrow_word, to_bytes(words, config.narrow_word.nbytes))["mant"]
    else:
        data = np.ascontiguousarray(to_bytes(words, config.wide_word.nbytes)).reshape(-1)
        vectors = data.view(f"<i{2 * held.word}").reshape(-1, config.native).astype(np.int64)
    return held.features.unpack(vectors, config)


def write_tensor(device: Device, held: Held, images: npt.NDArray[Any], exp: int) -> None:
    """Write the integers of images ``[images, ...]`` and their register."""
    write_integers(device, held, images)
    write_register(device, held.register, exp, images)


def read_tensor(device: Device, held: Held) -> Tensor:
    """Integers ``[images, elements]`` of a tensor, and its register."""
    images, register = read_integers(device, held), read_register(device, held.register)
    return Tensor(images, register["exp"], register["top"])


def write_register(device: Device, number: int, exp: int, mant: npt.NDArray[Any]) -> None:
    """Write the exponent of a tensor and its greatest magnitude."""
    device.write(RegionId.TENSORS, number, [TENSOR_WORD.pack(exp=exp, top=top_of(mant))])


def read_register(device: Device, number: int) -> dict[str, Any]:
    """Exponent ``exp`` and greatest magnitude ``top`` of a tensor."""
    return TENSOR_WORD.unpack(device.read(RegionId.TENSORS, number)[0])
