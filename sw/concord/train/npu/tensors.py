"""Layouts of samples and of parameters, tensors of a batch in the memories, and gradients that reach them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from concord.compiler.ir.layers import LayerWindow
from concord.graph.ir import Shape
from concord.image.packing import from_vectors, to_vectors
from concord.program.chains import Address, ChainLoops, VectorPlace, Window
from concord.program.integers import ProductTaps
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.train.npu.chains import ProductSource
from concord.utils.arrays import Ints

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


_TAP = ProductTaps()


@dataclass(eq=False)
class Held:
    """A tensor in a vector memory: ``[sample][y][x][tile of channels]`` of a batch, or what belongs to a parameter.

    Parameters
    ----------
    features : Features
        Layout of a sample, or of the parameter.
    mem : Mem
        Narrow for activations and digits, wide for wide integers.
    word : int
        Words of a vector.
    first : int
        Address of the first word.
    register : int
        Number of the tensor register.
    samples : int
        Number of samples.
    exact : bool
        Whether the greatest magnitude there is that of its integers, not only a bound.
    users : int
        Number of users; without any the words are given back.
    rows : (int, int) or None
        Number of the first tile whose rows are its vectors, if there are some, and how many of them a point has.
    activation : Held or None
        The same as products and poolings read it, if it is wide and they do; given back with it.
    """

    features: Features
    mem: Mem
    word: int
    first: int
    register: int
    samples: int = 1
    exact: bool = True
    users: int = 1
    rows: tuple[int, int] | None = None
    activation: Held | None = None

    @property
    def tiles(self) -> int:
        """Vectors of a position."""
        return self.features.tiles

    def loops(self, rows: int = 0) -> ChainLoops:
        """Turns over all vectors: tiles, or so many rows, and positions of all samples."""
        rows = rows or self.tiles
        return ChainLoops(rows, self.samples * self.features.vectors // rows)

    def every(self, rows: int = 0) -> VectorPlace:
        """All vectors in order, for those loops."""
        return VectorPlace(self.mem, Address(self.first, self.word, self.word * (rows or self.tiles)))

    @property
    def vectors(self) -> VectorPlace:
        """Vectors of one image, for the loops of its features."""
        return VectorPlace(self.mem, self.features.every(self.first, self.word))

    def image(self, tile: int, window: LayerWindow = WHOLE) -> VectorPlace:
        """Vectors of a tile of channels that the first tap of windows meets, over samples, columns and rows."""
        return VectorPlace(self.mem, self.features.image(self.first + self.word * tile, self.word, window))

    def windows(
        self, window: LayerWindow, out: tuple[int, int], tile: int, words: int, cols: int = 1, taps: ProductTaps = _TAP
    ) -> ProductSource:
        """So many rows and columns of windows over images, from a tile of channels on, times tiles from a word of the
        matrix memory on.
        """
        source, chain_window = self.image(tile, window).address, self.features.over(window, self.word)
        return ProductSource(source, Address(words), cols, taps, chain_window, window.pad(out))


class Met(NamedTuple):
    """Vectors of a tensor that the first tap of windows meets."""

    held: Held
    window: LayerWindow = WHOLE

    def image(self, tile: int) -> VectorPlace:
        """A tile of channels, for loops over samples, columns and rows of windows."""
        return self.held.image(tile, self.window)


@dataclass(frozen=True)
class Gradient:
    """The gradient of a tensor.

    Parameters
    ----------
    whole : Held
        Wide integers.
    top : int
        A bound of the magnitudes as they are read.
    mask : Held or None
        It is rounded to the bits of gradients, and zero where this is not above zero. ``None``: it is read as it is.
    """

    whole: Held
    top: int
    mask: Held | None = None

    @property
    def parts(self) -> list[Held]:
        """Tensors that it is made of."""
        return [self.whole] if self.mask is None else [self.whole, self.mask]


@dataclass(frozen=True)
class GradientTiles:
    """A gradient in tiles whose lanes are points: ``[tile of outputs][digit][tile of points]``.

    Parameters
    ----------
    first : int
        Number of the first tile.
    digits : int
        Number of digits: words of the gradient.
    top : int
        Bound of the magnitudes of the gradient.
    register : int
        Number of the tensor register, which is taken.
    point_tiles : int
        Number of tiles of points.
    apart : int
        Tiles from a tile of outputs to the next one.
    steps : int
        Words of a tile.
    """

    first: int
    digits: int
    top: int
    register: int
    point_tiles: int
    apart: int
    steps: int

    def part(self, digits: range) -> GradientTiles:
        """Some of the digits."""
        return replace(self, first=self.first + digits.start * self.point_tiles, digits=len(digits))

    def word(self, outputs: int) -> int:
        """The first word of a tile of outputs."""
        return (self.first + outputs * self.apart) * self.steps

    @property
    def words(self) -> Address:
        """Words of the tiles, with outputs as rows of a chain."""
        return Address(self.word(0), self.apart * self.steps)

    @property
    def taps(self) -> ProductTaps:
        """Columns and digits of products with vectors of points."""
        digit = self.point_tiles * self.steps
        return ProductTaps(vector=1, matrix=self.steps, matrix_digit=digit, digits=self.digits, of=1)

    def over_points(self, vectors: Address) -> ProductSource:
        """The tiles, with outputs as rows of a chain, times vectors of points."""
        return ProductSource(vectors, self.words, self.point_tiles, self.taps)
