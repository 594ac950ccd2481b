"""Tensors of training on their way to the memories and registers of the NPU, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from concord.host import Device
from concord.image.packing import pack_narrow
from concord.image.words import to_bytes, to_integers, unpack_words
from concord.program.access import REGIONS
from concord.spec.integers import TENSOR_WORD
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.train.npu.tensors import Held
from concord.train.tensor import Tensor, top_of
from concord.utils.arrays import Ints


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
