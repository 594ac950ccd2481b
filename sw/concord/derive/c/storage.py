"""Values that have a place of their own, and views of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.evaluate import move
from concord.utils.arrays import Ids


class Place(Enum):
    """Place of a value."""

    INPUT = "input"
    CONSTANT = "constant"
    ARENA = "arena"
    OUTPUT = "output"


class NumberForm(Enum):
    """Form in which a value is stored."""

    HALF = "half"
    CODES = "codes"


@dataclass(frozen=True)
class StoredBlocks:
    """Mantissas with exponents.

    Parameters
    ----------
    mant : int
        Bits of a mantissa.
    sizes : tuple of int
        Elements of each block along the last axis.
    least, greatest : int
        Range of exponents.
    """

    mant: int
    sizes: tuple[int, ...]
    least: int
    greatest: int

    @property
    def kind(self) -> str:
        """Type of a mantissa."""
        return "int8" if self.mant <= 8 else "int16"


class ArrayPart(NamedTuple):
    """An array of a value: a word for its name, the type of elements without ``_t``, and their number."""

    word: str
    kind: str
    elements: int


@dataclass(eq=False)
class CArray:
    """A value with a place of its own.

    Parameters
    ----------
    name : str
        In C.
    shape : tuple of int
    place : Place
    block : StoredBlocks or None
        If it is numbers of blocks.
    data : array or None
        Of a constant.
    forms : set of NumberForm
        What somebody reads it as.
    """

    name: str
    shape: ir.Shape
    place: Place = Place.ARENA
    block: StoredBlocks | None = None
    data: ir.Bits | None = None
    forms: set[NumberForm] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def exponents(self) -> Ids:
        """Numbers of the exponents of all elements."""
        assert self.block is not None
        own = np.repeat(np.arange(len(self.block.sizes)), self.block.sizes)
        return np.asarray((np.arange(self.rows)[:, None] * len(self.block.sizes) + own).reshape(-1))

    @property
    def rows(self) -> int:
        """Number of rows along the last axis."""
        return self.size // max(1, self.shape[-1])

    @property
    def sorted_forms(self) -> list[NumberForm]:
        """Forms that somebody reads, halves first."""
        return [form for form in NumberForm if form in self.forms]

    def parts(self, form: NumberForm) -> list[ArrayPart]:
        """Arrays of which the value consists in a form."""
        if form is NumberForm.HALF:
            return [ArrayPart("", "uint16", self.size)]
        assert self.block is not None
        blocks = self.rows * len(self.block.sizes)
        return [ArrayPart("codes", self.block.kind, self.size), ArrayPart("exponents", "int8", blocks)]


@dataclass(frozen=True, eq=False)
class View:
    """Elements of stored values in another arrangement.

    Parameters
    ----------
    sources : tuple of CArray
        Their elements are numbered one source after the other.
    index : Ids
        The element at every place; ``-1 - k`` for ``fill[k]``.
    fill : array of int
        binary16 patterns, or codes.
    window : MapWindows or None
        If it is, but for its shape, windows of the view ``inner``.
    """

    sources: tuple[CArray, ...]
    index: Ids
    fill: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.uint16))
    window: ir.MapWindows | None = None
    inner: View | None = None

    @property
    def identity(self) -> bool:
        """True if the view has all elements of a source in order."""
        return (
            len(self.sources) == 1
            and self.index.size == self.sources[0].size
            and np.array_equal(self.index.reshape(-1), np.arange(self.index.size))
        )


def whole(storage: CArray) -> View:
    """All elements."""
    return View((storage,), np.arange(storage.size).reshape(storage.shape))


def moved(node: ir.ModelNode, views: list[View]) -> View:
    """The view that data movement makes of others."""
    sources = tuple(dict.fromkeys(source for view in views for source in view.sources))
    starts = dict(zip(sources, np.cumsum([0, *(source.size for source in sources)]), strict=False))
    fills, arrays = [np.zeros(0, np.uint16)], []
    for view in views:
        fills.append(view.fill)
        arrays.append(_numbered(view, starts, sum(map(len, fills[:-1]))))
    fill = np.concatenate(fills)
    match node:
        case ir.Gather():
            flat = np.concatenate([array.reshape(-1) for array in arrays])
            picked = flat[np.maximum(node.index, 0)] if len(flat) else np.zeros(node.index.shape, np.int64)
            index = np.where(node.index < 0, node.index - len(fill), picked)
            return _used(View(sources, index, np.concatenate([fill, node.fill])))
        case ir.MapWindows():
            numbers = np.arange(1, arrays[0].size + 1).reshape(arrays[0].shape)
            taken = move(replace(node, fill=ir.ZERO), [numbers[None]])[0]
            index = np.where(taken == 0, -1 - len(fill), arrays[0].reshape(-1)[np.maximum(taken, 1) - 1])
            return replace(
                _used(View(sources, index, np.append(fill, np.uint16(node.fill)))), window=node, inner=views[0]
            )
    index = move(node, [array[None] for array in arrays])[0]
    if isinstance(node, ir.Reshape):
        return replace(views[0], index=index)
    return _used(View(sources, index, fill))


def _numbered(view: View, starts: dict[CArray, int], filled: int) -> Ids:
    """The elements of a view by numbers of more sources and constants."""
    ends = np.cumsum([source.size for source in view.sources])
    shifts = np.array([starts[source] for source in view.sources]) - np.concatenate([[0], ends[:-1]])
    which = np.searchsorted(ends, np.maximum(view.index, 0), side="right")
    return np.where(view.index < 0, view.index - filled, view.index + shifts[np.minimum(which, len(ends) - 1)])


def _used(view: View) -> View:
    """A view without sources that nothing is read of."""
    ends = np.cumsum([source.size for source in view.sources])
    which = np.searchsorted(ends, view.index[view.index >= 0], side="right")
    kept = sorted({*which.tolist()}) or [0]
    if len(kept) == len(view.sources):
        return view
    sources = tuple(view.sources[k] for k in kept)
    starts = np.concatenate([[0], ends[:-1]])
    moved_to = np.zeros(len(ends), np.int64)
    moved_to[kept] = np.cumsum([0, *(source.size for source in sources)])[:-1]
    own = np.searchsorted(ends, np.maximum(view.index, 0), side="right")
    own = np.minimum(own, len(ends) - 1)
    index = np.where(view.index < 0, view.index, view.index - starts[own] + moved_to[own])
    return View(sources, index, view.fill)
