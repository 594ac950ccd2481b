"""A gradient in tiles, whose lanes are points, and sums over these."""

from __future__ import annotations

from dataclasses import dataclass, replace

from concord.program.chains import Address
from concord.program.integers import ProductTaps
from concord.train.npu.chains import ProductSource


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
