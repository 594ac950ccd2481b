"""Accesses of loops to the elements of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.derive.c.views import Affine, affine
from concord.integer.float32 import Integers


@dataclass(frozen=True)
class CommonLoops:
    """Loops in which several arrays are gone through at once.

    Parameters
    ----------
    sizes : tuple of int
        Iterations of the loops, the outermost one first; none for one element.
    places : tuple of Affine
        For every array the element, by the variables of the loops.
    """

    sizes: tuple[int, ...]
    places: tuple[Affine, ...]

    @classmethod
    def of(cls, arrays: Sequence[Integers]) -> CommonLoops:
        """Loops over arrays of places ``[*shape]`` with a pattern along each axis; axes that go on are put together."""
        shape = arrays[0].shape
        patterns = [affine(array) for array in arrays]
        steps = [pattern for pattern in patterns if pattern is not None]
        assert len(steps) == len(patterns)
        sizes: list[int] = []
        strides: list[list[int]] = [[] for _ in steps]
        for axis, size in enumerate(shape):
            if size == 1:
                continue
            own = [pattern.strides[axis] for pattern in steps]
            if sizes and all(rows[-1] == size * step for rows, step in zip(strides, own, strict=True)):
                sizes[-1] *= size
                for rows, step in zip(strides, own, strict=True):
                    rows[-1] = step
            else:
                sizes.append(size)
                for rows, step in zip(strides, own, strict=True):
                    rows.append(step)
        places = [Affine(pattern.offset, tuple(rows)) for pattern, rows in zip(steps, strides, strict=True)]
        return cls(tuple(sizes), tuple(places))

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the loops."""
        return tuple(f"i{k}" for k in range(len(self.sizes)))


def minus(text: str, number: int) -> str:
    """A text less a constant."""
    if not number:
        return text
    return f"{text} - {number}" if number > 0 else f"{text} + {-number}"


def times(text: str, factor: int) -> str:
    """A text times a constant; empty for 0."""
    if factor == 0:
        return ""
    return text if factor == 1 else f"{text} * {factor}"
