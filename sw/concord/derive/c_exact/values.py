"""Values that statements of C compute: expressions of elements of arrays, with the range of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive.exact.arrays import Array
from concord.integer.float32 import Integers
from concord.integer.requantise import ACCUMULATOR

#: Python's integers, which no bound overflows.
Bounds = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ElementSource:
    """Elements that values are computed of, in an order of their own.

    Parameters
    ----------
    name : str
        Of an array; empty for others.
    constant : array or None
        Elements, of a constant.
    """

    name: str = ""
    constant: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Expression(Array):
    """An expression, of which each element is computed as it is needed.

    Parameters
    ----------
    shape : tuple of int
    low, high : array of int
        Bounds of integers, broadcast to the shape.
    head : str
        The operator between two parts, or the function that is called with them; empty for an element of a source.
    parts : tuple of Expression
        They are broadcast to the shape.
    extra : tuple of str
        Arguments of the function after the parts.
    wide : bool
        Whether C computes it in 64 bits.
    source : ElementSource or None
    places : array of int or None
        Number of the element in the source, in the shape.
    """

    shape: tuple[int, ...] = ()
    low: Bounds | int = 0
    high: Bounds | int = 0
    head: str = ""
    parts: tuple[Expression, ...] = ()
    extra: tuple[str, ...] = ()
    wide: bool = False
    source: ElementSource | None = None
    places: Integers | None = None

    @property
    def literal(self) -> int | float | None:
        """The number that all elements are, of a constant that has one alone."""
        constant = self.source.constant if self.source is not None else None
        return constant.item() if constant is not None and constant.size == 1 else None

    @property
    def magnitude(self) -> int:
        """Largest magnitude of an integer."""
        return int(max(abs(np.min(self.low)), abs(np.max(self.high))))

    @property
    def fits(self) -> bool:
        """True if all integers have 32 bits."""
        return bool(ACCUMULATOR[0] <= np.min(self.low) and np.max(self.high) <= ACCUMULATOR[1])

    def leaves(self) -> list[Expression]:
        """Elements of sources that it is computed of, each once."""
        if self.source is not None:
            return [self]
        return list(dict.fromkeys(leaf for part in self.parts for leaf in part.leaves()))

    def moved(self, index: Integers) -> Expression:
        """The value whose elements are those of this one by their numbers."""
        return self._moved(index, {})

    def _moved(self, index: Integers, made: dict[Expression, Expression]) -> Expression:
        if self.literal is not None:
            return self
        if self not in made:
            parts = tuple(
                part._moved(np.broadcast_to(_numbers(part.shape), self.shape).reshape(-1)[index], made)
                for part in self.parts
            )
            low, high = int(np.min(self.low)), int(np.max(self.high))
            places = None if self.places is None else self.places.reshape(-1)[index]
            made[self] = replace(self, shape=index.shape, low=low, high=high, parts=parts, places=places)
        return made[self]

    def mapped(self, change: Callable[[Expression], Expression | None]) -> Expression:
        """The value with other ones for some of the values that it is computed of."""
        whole = replace(self, parts=tuple(part.mapped(change) for part in self.parts)) if self.parts else self
        return change(self) or whole


def _numbers(shape: tuple[int, ...]) -> Integers:
    return np.arange(prod(shape)).reshape(shape)


def element_of(
    name: str, shape: tuple[int, ...], places: Integers, low: int, high: int, *, real: bool = False
) -> Expression:
    """Elements of an array."""
    return Expression("", real, shape, low, high, source=ElementSource(name), places=places)


def constant_of(values: NDArray[Any], hint: str, *, real: bool = False) -> Expression:
    """A constant; ``hint`` is a word for its name. One whose elements are alike is a number, without a shape."""
    flat = values.reshape(-1)
    if flat.size and (flat == flat[0]).all():
        end = 0 if real else int(flat[0])
        return Expression(
            hint, real, (), end, end, source=ElementSource(constant=flat[:1]), places=np.zeros((), np.int64)
        )
    for axis in range(values.ndim):  # what does not vary along an axis is there once
        first = values.take([0], axis)
        values = first if (values == first).all() else values
    flat, bounds = values.reshape(-1), 0 if real else values.astype(object)
    return Expression(
        hint, real, values.shape, bounds, bounds, source=ElementSource(constant=flat), places=_numbers(values.shape)
    )
