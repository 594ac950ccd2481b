"""Integers of training in the memories of the NPU: vectors ``[count, N]``, and tensors in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from concord.host import Device
from concord.image.packing import pack_narrow
from concord.image.words import to_bytes, to_integers, unpack_words
from concord.program.access import REGIONS
from concord.spec.integers import TENSOR_WORD, WIDE_BITS
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.train.tensor import top_of

Ints = npt.NDArray[np.int64]


def write_vectors(device: Device, mem: Mem, first: int, vectors: Ints, bits: int = WIDE_BITS) -> None:
    """Write vectors from a word on; of wide integers of 32 bits two words each, of accumulators of 16 bits one."""
    if mem is Mem.NARROW:
        words = pack_narrow(vectors, device.config)
    else:
        data = np.ascontiguousarray(vectors, dtype=f"<i{bits // 8}").view(np.uint8)
        words = to_integers(data.reshape(-1, device.config.wide_word.nbytes))
    device.write(REGIONS[mem], first, words)


def read_vectors(device: Device, mem: Mem, first: int, count: int, bits: int = WIDE_BITS) -> Ints:
    """Inverse of :func:`write_vectors`."""
    config = device.config
    if mem is Mem.NARROW:
        words = device.read(RegionId.NARROW, first, count)
        return unpack_words(config.narrow_word, to_bytes(words, config.narrow_word.nbytes))["mant"]
    words = device.read(RegionId.WIDE, first, count * 2 * bits // WIDE_BITS)
    data = np.ascontiguousarray(to_bytes(words, config.wide_word.nbytes)).reshape(-1)
    return data.view(f"<i{bits // 8}").reshape(-1, config.native).astype(np.int64)


def write_register(device: Device, number: int, exp: int, mant: npt.NDArray[Any]) -> None:
    """Write the exponent of a tensor and its greatest magnitude."""
    device.write(RegionId.TENSORS, number, [TENSOR_WORD.pack(exp=exp, top=top_of(mant))])


def read_register(device: Device, number: int) -> dict[str, Any]:
    """Exponent ``exp`` and greatest magnitude ``top`` of a tensor."""
    return TENSOR_WORD.unpack(device.read(RegionId.TENSORS, number)[0])
