"""Tensors of a batch in the memories, and gradients that reach them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from concord.program.chains import Address, VectorPlace
from concord.program.integers import ProductTaps
from concord.spec.isa import Mem
from concord.train.npu.chains import ProductSource
from concord.train.npu.features import Features, WindowShape

_ONE_TAP = ProductTaps()


@dataclass(eq=False)
class Held:
    """A tensor of a batch: ``[sample][y][x][tile of channels]`` in a vector memory.

    Parameters
    ----------
    features : Features
        Features of a sample.
    native : int
        Native dimension N: elements of a vector.
    mem : Mem
        Narrow for activations and digits, wide for wide integers.
    word : int
        Words of a vector.
    first : int
        Address of the first word.
    register : int
        Number of the tensor register.
    exact : bool
        Whether the greatest magnitude there is that of its integers, not only a bound.
    users : int
        Number of users; without any the words are given back.
    rows : (int, int) or None
        Number of the first tile whose rows are its vectors, if there are some, and how many of them a point has.
    """

    features: Features
    native: int
    mem: Mem
    word: int
    first: int
    register: int
    exact: bool = True
    users: int = 1
    rows: tuple[int, int] | None = None

    @property
    def tiles(self) -> int:
        """Vectors of a position."""
        return self.features.tiles(self.native)

    def every(self, rows: int) -> VectorPlace:
        """All vectors in order, for loops over so many rows and over ``inner``."""
        return VectorPlace(self.mem, Address(self.first, self.word, self.word * rows))

    def image(self, tile: int, place: tuple[int, int] = (0, 0), steps: tuple[int, int] = (1, 1)) -> VectorPlace:
        """A tile of channels, for loops over samples, columns and rows of an image.

        ``place`` is where they begin, ``steps`` how far it is to the next row and column.
        """
        line = self.word * self.tiles * self.features.width
        column = self.word * self.tiles
        base = self.first + self.word * tile + place[0] * line + place[1] * column
        sample = self.word * self.features.vectors(self.native)
        return VectorPlace(self.mem, Address(base, sample, steps[1] * column, steps[0] * line))

    def windows(
        self, window: WindowShape, outputs: Features, tile: int, words: int, cols: int = 1, taps: ProductTaps = _ONE_TAP
    ) -> ProductSource:
        """Windows over images, from a tile of channels on, times tiles from a word of the matrix memory on."""
        return ProductSource(
            self.image(tile, window.place(0), window.strides).address,
            Address(words),
            cols,
            taps,
            window.chain_window(self.word * self.tiles, self.features.width),
            window.chain_pad(self.features, outputs),
        )


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
    """

    first: int
    digits: int
    top: int
    register: int
    point_tiles: int
    apart: int

    def part(self, digits: range) -> GradientTiles:
        """Some of the digits."""
        return replace(self, first=self.first + digits.start * self.point_tiles, digits=len(digits))

    def taps(self, steps: int) -> ProductTaps:
        """Columns and digits of products with vectors of points; ``steps`` are words of a tile."""
        return ProductTaps(vector=1, matrix=steps, matrix_digit=self.point_tiles * steps, digits=self.digits, of=1)

    def over_points(self, vectors: Address, steps: int) -> ProductSource:
        """The tiles, with outputs as rows of a chain, times vectors of points; ``steps`` are words of a tile."""
        words = Address(self.first * steps, self.apart * steps)
        return ProductSource(vectors, words, self.point_tiles, self.taps(steps))
