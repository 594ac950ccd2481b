"""Contents of block RAMs in the text that is packed, as a family writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Geometry:
    """Block RAMs in the text that nextpnr writes.

    Parameters
    ----------
    pattern : str
        Regular expression of one block RAM; ``name`` is where it is, ``bits`` its contents in hexadecimal.
    unit : int
        Bits of one number of the contents.
    run : int
        Words of a slice, which is one bit of so many consecutive words.
    shapes : tuple of (int, int)
        Data width, and bits of a number that such a shape uses.
    places : callable
        Positions of the bits in one block RAM, by word and bit, of a shape.
    """

    pattern: str
    unit: int
    run: int
    shapes: tuple[tuple[int, int], ...]
    places: Callable[[int, int], np.ndarray]

    def slices(self) -> Iterator[np.ndarray]:
        """Yield, for every slice of every shape, the positions of its bits in one block RAM."""
        for width, used in self.shapes:
            positions = self.places(width, used)
            for base in range(0, len(positions), self.run):
                yield from positions[base : base + self.run].T
