"""Tensors of a batch on their way to the NPU and back."""

from __future__ import annotations

from concord.host import Device
from concord.spec.integers import WIDE_BITS
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.train.npu.tensors import Held
from concord.train.npu.words import narrow_words, tensor_of, tensor_word, wide_vectors, wide_words
from concord.train.tensor import Tensor


def write_tensor(device: Device, held: Held, tensor: Tensor) -> None:
    """Write the integers of samples ``[samples, ...]`` and their register."""
    config, vectors = device.config, held.features.pack(tensor.mant, held.native)
    if held.mem is Mem.NARROW:
        device.write(RegionId.NARROW, held.first, narrow_words(vectors, config))
    else:
        device.write(RegionId.WIDE, held.first, wide_words(vectors, config, WIDE_BITS))
    device.write(RegionId.TENSORS, held.register, [tensor_word(tensor.exp, vectors)])


def read_tensor(device: Device, held: Held, samples: int) -> Tensor:
    """Read the wide integers of so many samples ``[samples, elements]``, and their register."""
    words = device.read(RegionId.WIDE, held.first, held.word * samples * held.features.vectors(held.native))
    mant = held.features.unpack(wide_vectors(words, device.config, WIDE_BITS))
    return tensor_of(device.read(RegionId.TENSORS, held.register)[0], mant)
