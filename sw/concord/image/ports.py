"""Inputs and outputs of an image: where their tensors lie in the vector memories, and the conversion both ways."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from concord.golden import binary16
from concord.golden.blocks import quantize, to_binary16
from concord.image.packing import from_vectors, to_vectors
from concord.image.words import pack_words, to_bytes, to_integers, unpack_words
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.utils.arrays import Array


@dataclass(frozen=True)
class Port:
    """An input or output tensor in a vector memory.

    The last dimension of ``shape`` is padded to native vectors, which follow each other in the order of the other
    dimensions.

    Parameters
    ----------
    name : str
        Name of the tensor.
    region : RegionId
        ``WIDE`` or ``NARROW``.
    address : int
        Address of the first vector; in an image in phases, every part has an address of its own.
    shape : tuple of int
        Shape of the tensor.
    dtype : str
        numpy type of the tensor on the host's side.
    """

    name: str
    region: RegionId
    address: int
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.region not in (RegionId.WIDE, RegionId.NARROW):
            raise ValueError(f"region of {self.name} must be WIDE or NARROW, not {self.region!r}")
        if any(size < 1 for size in self.shape):
            raise ValueError(f"shape of {self.name} must have positive dimensions, not {self.shape}")
        np.dtype(self.dtype)

    @property
    def elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)

    def vectors(self, config: NpuConfig) -> int:
        """Native vectors in memory."""
        last = self.shape[-1] if self.shape else 1
        return self.elements // last * -(-last // config.native)

    def encode(self, values: ArrayLike, config: NpuConfig) -> list[int]:
        """Words to write for a tensor; a narrow port converts with dynamic exponents, nearest even."""
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.shape != self.shape:
            raise ValueError(f"{self.name} must have shape {self.shape}, not {numbers.shape}")
        vectors = to_vectors(binary16.encode(numbers), config)
        if self.region == RegionId.WIDE:
            return to_integers(pack_words(config.wide_word, elem=vectors))
        blocks = quantize(vectors, config.act)
        return to_integers(pack_words(config.narrow_word, mant=blocks.mant, exp=blocks.exp))

    def decode(self, words: list[int], config: NpuConfig) -> Array:
        """The tensor held by words that were read."""
        layout = config.wide_word if self.region == RegionId.WIDE else config.narrow_word
        values = unpack_words(layout, to_bytes(words, layout.nbytes))
        bits = values["elem"].astype(np.uint16) if "elem" in values else to_binary16(values["mant"], values["exp"])
        return binary16.decode(from_vectors(bits, self.shape, config)).astype(self.dtype)


@dataclass(frozen=True)
class State:
    """A tensor that stays in a vector memory between runs: what a run leaves there is what the next one reads.

    Parameters
    ----------
    port : Port
        Where it lies; its name is that of the input that it would be if the host carried it.
    result : str
        Name of the output that it would be then.
    """

    port: Port
    result: str

    @property
    def output(self) -> Port:
        """Port of the state as an output, in the same place."""
        return replace(self.port, name=self.result)

    def first_words(self, config: NpuConfig) -> list[int]:
        """Words with which the state begins: zeros."""
        return self.port.encode(np.zeros(self.port.shape), config)
