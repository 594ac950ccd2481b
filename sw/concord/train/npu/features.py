"""Layouts of samples and of parameters: vectors of images."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from concord.compiler.ir.layers import LayerWindow
from concord.graph.ir import Shape
from concord.image.packing import from_vectors, to_vectors
from concord.program.chains import Address, ChainLoops, Window
from concord.spec.config import NpuConfig
from concord.train.npu.words import Ints

#: Windows of one tap at every position.
WHOLE = LayerWindow()


@dataclass(frozen=True)
class Features:
    """An image in a vector memory, ``[y][x][tile of channels]``; a vector is an image of one position.

    A sample is one, and so are weights: their channels are the outputs, their rows the taps of a window, and their
    columns the inputs of a tap.

    Parameters
    ----------
    native : int
        Native dimension N: elements of a vector.
    channels, height, width : int
        Channels, and height and width in positions.
    """

    native: int
    channels: int
    height: int = 1
    width: int = 1

    @classmethod
    def of(cls, shape: Shape, native: int) -> Features:
        """Features of a sample ``[1, C]``, ``[1, C, W]`` or ``[1, C, H, W]``; other shapes are vectors as a whole."""
        if len(shape) in (3, 4) and shape[0] == 1:
            return cls(native, shape[1], *(1, *shape[2:])[-2:])
        return cls(native, prod(shape))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    @property
    def positions(self) -> int:
        """Pixels."""
        return self.height * self.width

    @property
    def tiles(self) -> int:
        """Vectors of a position."""
        return -(-self.channels // self.native)

    @property
    def vectors(self) -> int:
        """Vectors of all positions."""
        return self.positions * self.tiles

    @property
    def lanes(self) -> int:
        """Lanes of the first vector of a position that are used."""
        return min(self.channels, self.native)

    @property
    def loops(self) -> ChainLoops:
        """Turns over all vectors of an image: tiles, columns and rows."""
        return ChainLoops(self.tiles, self.width, self.height)

    def every(self, first: int, word: int) -> Address:
        """Address of the vectors in those loops, from a word on, of so many words each."""
        line = word * self.tiles * self.width
        return Address(first, word, word * self.tiles, line if self.height > 1 else 0)

    def image(self, first: int, word: int, window: LayerWindow = WHOLE) -> Address:
        """Address of what the first tap of windows meets, for loops over samples, columns and rows of windows."""
        (y, x), (down, right), column = window.place(0), window.stride, word * self.tiles
        base = first + (y * self.width + x) * column
        return Address(base, word * self.vectors, right * column, down * column * self.width)

    def over(self, window: LayerWindow, word: int) -> Window:
        """Window of a chain over images, of so many words a vector."""
        return window.over(word * self.tiles * self.width, word * self.tiles)

    def pack(self, values: Any, config: NpuConfig) -> Ints:
        """Vectors of images ``[images, ...]`` whose elements are ``[C, H, W]``."""
        images = np.asarray(values).reshape(-1, self.channels, self.positions)
        return to_vectors(images.swapaxes(1, 2).astype(np.int64), config)

    def unpack(self, vectors: Ints, config: NpuConfig) -> Ints:
        """Inverse of :meth:`pack`: ``[images, C * H * W]``."""
        images = from_vectors(vectors, (len(vectors) // self.vectors, self.positions, self.channels), config)
        return np.ascontiguousarray(images.swapaxes(1, 2)).reshape(len(images), -1)
