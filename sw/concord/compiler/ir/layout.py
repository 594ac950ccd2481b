"""Places of the elements of tensors: storage in native vectors, views of it, and the loops that walk them.

A *storage* is a map of ``height * width`` positions with some native vectors each. A *view* is what a tensor of the
graph is in terms of storage: an array in the tensor's shape that names, for every element, vector and lane, or ``PAD``
where the element is a zero that is stored nowhere. Reshaping, transposing, slicing, padding and concatenating a tensor
is the same operation on its view and costs nothing; what a chain can walk is found out from the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, count
from typing import TypeVar

import numpy as np

from concord.utils.arrays import Bools, FloatArray, Ids
from concord.utils.matrices import LARGEST_SPREAD, check_size

#: Element that is stored nowhere and is zero.
PAD = -1
#: Element of an input that is zero for the network: what is taken off the input is taken off it, too.
BORDER = -2
#: Identifiers of storages are this far apart: no storage is larger.
_SPACING = 1 << 32
_NUMBERS = count(1)
_Index = TypeVar("_Index", int, Ids)


#: Turns and strides of loops over vectors, from the outermost one on.
Loops = tuple[tuple[int, int], ...]
#: A vector, or several.
Index = TypeVar("Index", int, Ids)


class LayoutError(ValueError):
    """A tensor does not lie as a chain needs it; the message says how."""


@dataclass(eq=False)
class Storage:
    """Vectors of one tensor in one or both vector memories.

    Parameters
    ----------
    name : str
        Of the tensor that it was made for.
    height, width, tiles : int
        Positions, and native vectors per position.
    native : int
        Elements of a native vector.
    parent : Storage or None
        The larger storage that this one is part of; then ``offset``, ``row_stride`` and ``stride`` place it there.
    offset : int
        Vector of the first position in ``parent``.
    row_stride, stride : int
        Vectors of ``parent`` from a row to the next and from a position to the next.
    """

    name: str
    height: int
    width: int
    tiles: int
    native: int
    parent: Storage | None = None
    offset: int = 0
    row_stride: int = 0
    stride: int = 0
    #: Cannot become part of a larger storage: the host writes it as one piece.
    fixed: bool = False
    #: Every lane of a vector has the same value, so that it meets elements in any lane.
    uniform: bool = False

    def __post_init__(self) -> None:
        self.base = next(_NUMBERS) * _SPACING
        self.stride = self.stride or self.tiles
        self.row_stride = self.row_stride or self.width * self.stride

    @property
    def vectors(self) -> int:
        """Native vectors in all."""
        return self.height * self.width * self.tiles

    def place(self, parent: Storage, offset: int, row_stride: int, stride: int) -> None:
        """Make this storage part of a larger one."""
        if self.parent is not None:
            raise LayoutError(f"{self.name} is already part of {self.parent.name}")
        self.parent, self.offset, self.row_stride, self.stride = parent, offset, row_stride, stride

    @property
    def root(self) -> Storage:
        """The storage that has addresses of its own."""
        return self if self.parent is None else self.parent.root

    def in_parent(self, index: Index) -> Index:
        """Places of vectors in the storage that this one is part of."""
        position, tile = divmod(index, self.tiles)
        y, x = divmod(position, self.width)
        return self.offset + y * self.row_stride + x * self.stride + tile

    def vector(self, index: Index) -> Index:
        """Places of vectors in the root."""
        return index if self.parent is None else self.parent.vector(self.in_parent(index))

    @property
    def rows_above(self) -> int:
        """Rows of the root in front of the first one, where rows of both lie at the same distances."""
        return 0 if self.parent is None else self.vector(0) // (self.root.width * self.root.tiles)

    @property
    def span(self) -> range:
        """Vectors of the root from the first one of this storage to its last one; between them may lie others."""
        return range(self.vector(0), self.vector(self.vectors - 1) + 1)

    def in_span(self, ids: Ids) -> Ids:
        """Places of elements of this storage in :attr:`span`, counted from its first element."""
        vector, lane = np.divmod(ids - self.base, self.native)
        return np.asarray((self.vector(vector) - self.span.start) * self.native + lane)

    def in_root(self, start: int, loops: Loops) -> tuple[int, list[int]]:
        """First vector and strides, in the root, of loops over vectors of this storage from ``start`` on.

        Raises
        ------
        LayoutError
            If the vectors are not at equal distances there, as a loop goes on from a position to the next.
        """
        if self.parent is None:
            return start, [stride for _, stride in loops]
        first = self.vector(start)
        strides = [self.vector(start + stride) - first if stride else 0 for _, stride in loops]
        vectors, wanted = np.array([start]), np.array([first])
        for (size, stride), there in zip(loops, strides, strict=True):
            vectors = np.add.outer(vectors, np.arange(size) * stride).reshape(-1)
            wanted = np.add.outer(wanted, np.arange(size) * there).reshape(-1)
        if (self.vector(vectors) != wanted).any():
            raise LayoutError(f"vectors of {self.name} that are read must be at equal distances in {self.root.name}")
        return first, strides

    def in_positions(self, start: int, loops: Loops) -> bool:
        """True if all loops but the last go from position to position, and the last one stays within each."""
        *positions, (vectors, row) = loops
        last = start % self.tiles + (vectors - 1) * row
        return 0 <= last < self.tiles and not any(stride % self.tiles for size, stride in positions if size > 1)

    def view(self, channels: int) -> Ids:
        """Elements as ``[height, width, channel]``, the first ``channels`` of every position."""
        if not 1 <= channels <= self.tiles * self.native:
            raise ValueError(f"channels must be in 1..{self.tiles * self.native}, not {channels!r}")
        positions = np.arange(self.height * self.width).reshape(self.height, self.width, 1)
        return np.asarray(self.base + positions * (self.tiles * self.native) + np.arange(channels))


@dataclass(frozen=True)
class Walk:
    """Vectors of a view in terms of loops: vector ``start + y * row_stride + x * stride + v`` of ``storage``.

    Parameters
    ----------
    storage : Storage
        The storage, not yet placed in another one: vectors are counted as if it stood alone.
    start : int
        Number of the first vector in the storage.
    height, width, tiles : int
        Turns of the three loops.
    row_stride, stride : int
        Vectors per row and per position.
    lanes : Ids
        ``[channels]``: element of the ``tiles`` vectors of a position that holds a channel, ``PAD`` for zeros.
    row : int
        Vectors from one of a position to the next; 0 if all are one vector.
    """

    storage: Storage
    start: int
    height: int
    width: int
    tiles: int
    row_stride: int
    stride: int
    lanes: Ids
    row: int = 1

    @property
    def loops(self) -> Loops:
        """Turns and strides."""
        return (self.height, self.row_stride), (self.width, self.stride), (self.tiles, self.row)

    def in_root(self) -> Walk:
        """The walk in terms of the root; :class:`LayoutError` if no loops lead through its vectors there."""
        if self.storage.parent is None:
            return self
        start, (row_stride, stride, row) = self.storage.in_root(self.start, self.loops)
        return replace(
            self,
            storage=self.storage.root,
            start=start,
            row=row,
            row_stride=row_stride if self.height > 1 else 0,
            stride=stride if self.width > 1 else 0,
        )

    @property
    def full(self) -> bool:
        """True if every lane of the vectors of a position is a channel."""
        return len(np.unique(self.lanes[self.lanes != PAD])) == self.tiles * self.storage.native

    @property
    def gaps(self) -> bool:
        """True if vectors that hold no channel lie between those of a position."""
        return len(np.unique(self.lanes[self.lanes != PAD] // self.storage.native)) < self.tiles

    @property
    def distinct(self) -> bool:
        """True if all channels are different elements."""
        there = self.lanes[self.lanes != PAD]
        return len(np.unique(there)) == len(there)


class Storages:
    """All storages of a program, found again from the identifiers of elements."""

    def __init__(self, native: int):
        self.native = native
        self._by_number: dict[int, Storage] = {}

    def new(self, name: str, height: int, width: int, channels: int) -> Storage:
        """A storage for ``channels`` elements per position."""
        storage = Storage(name, height, width, -(-channels // self.native), self.native)
        self._by_number[storage.base // _SPACING] = storage
        return storage

    @property
    def roots(self) -> list[Storage]:
        """Storages that are no part of another one, in the order in which they were made."""
        return [storage for storage in self._by_number.values() if storage.parent is None]

    def of(self, ids: Ids) -> list[Storage]:
        """The storages a view has elements in."""
        there = ids[ids != PAD]
        if there.size and there.min() // _SPACING == there.max() // _SPACING:
            return [self._by_number[int(there.flat[0] // _SPACING)]]
        numbers = np.unique(there // _SPACING)
        return [self._by_number[int(number)] for number in numbers]

    @staticmethod
    def within(ids: Ids, storage: Storage) -> Bools:
        """Mask of the elements of a view that lie in a storage."""
        return np.asarray(ids // _SPACING == storage.base // _SPACING)

    def gather(self, ids: Ids, what: str, readable: Callable[[], None] = lambda: None, image: Ids | None = None) -> Ids:
        """Make the storages of a view parts of one new storage, in whatever order; return the view of that.

        ``image`` is this view as ``[height, width, channels]``: the storage has that order, if it can. ``readable``
        is as for :meth:`join`.

        Raises
        ------
        LayoutError
            As for :meth:`join`.
        """
        views: list[Ids] = []
        self._join(ids, what, views.append, readable, image=image)
        return views[-1]

    def stack(self, ids: Ids, what: str, readable: Callable[[], None] = lambda: None) -> Ids:
        """Make the storages of a view parts of one new storage, each as it is and one after the other.

        The view has no more order there than before: it is good for those who look up every element by itself.
        ``readable`` is as for :meth:`join`.

        Raises
        ------
        LayoutError
            As for :meth:`join`.
        """
        views: list[Ids] = []
        self._join(ids, what, views.append, readable, stacked=True)
        return views[-1]

    def join(self, ids: Ids, what: str, readable: Callable[[], None] = lambda: None) -> Walk:
        """Make the storages of a view parts of one new storage in which it can be walked.

        ``readable`` raises :class:`LayoutError` where those that read the parts already cannot do so any more.

        Raises
        ------
        LayoutError
            If there is no such arrangement, or a part belongs to another storage already.
        """
        walks: list[Walk] = []
        self._join(ids, what, lambda joined: walks.append(self.walk(joined, what)), readable, image=ids)
        return walks[-1]

    def _join(
        self,
        ids: Ids,
        what: str,
        accept: Callable[[Ids], None],
        readable: Callable[[], None],
        stacked: bool = False,
        image: Ids | None = None,
    ) -> None:
        """Place the parts of a view in the first arrangement that nothing refuses with a :class:`LayoutError`."""
        parts = self.of(ids)
        if any(part.parent is not None or part.fixed for part in parts):
            raise LayoutError(f"{what} must be made of tensors that can still be placed")
        name, alone = "+".join(part.name for part in parts), [(part.row_stride, part.stride) for part in parts]
        for size, places in _stacked(parts) if stacked else _arrangements(self, image, parts):
            parent = self.new(name, size[0], size[1], size[2] * self.native)
            try:
                accept(self._moved(ids, parts, places, parent))
            except LayoutError:
                continue
            for part, place in zip(parts, places, strict=True):
                part.place(parent, *place)
            try:
                readable()
            except LayoutError:
                for part, (row_stride, stride) in zip(parts, alone, strict=True):
                    part.parent, part.offset, part.row_stride, part.stride = None, 0, row_stride, stride
                continue
            return
        raise LayoutError(f"{what} must be made of tensors that can lie side by side")

    def _moved(self, ids: Ids, parts: list[Storage], places: list[_Place], parent: Storage) -> Ids:
        """A view of parts as one of the storage that they are to be placed in."""
        moved = ids.copy()
        for part, (offset, row_stride, stride) in zip(parts, places, strict=True):
            inside = (ids != PAD) & self.within(ids, part)
            vector, lane = np.divmod(ids[inside] - part.base, self.native)
            position, tile = np.divmod(vector, part.tiles)
            y, x = np.divmod(position, part.width)
            moved[inside] = parent.base + (offset + y * row_stride + x * stride + tile) * self.native + lane
        return moved

    def walk(self, ids: Ids, what: str) -> Walk:
        """Find the loops for a view ``[height, width, channels]``.

        Raises
        ------
        LayoutError
            If the elements are not in one storage, or a channel is not in the same place of every position.
        """
        storages = self.of(ids)
        if len(storages) != 1:
            names = ", ".join(storage.name for storage in storages) or "nowhere"
            raise LayoutError(f"{what} must lie in one storage, not in {names}")
        (storage,) = storages
        height, width, channels = ids.shape
        there = ids != PAD
        if (there != there[:1, :1]).any():
            raise LayoutError(f"{what} must be padded with whole channels only")
        used = there[0, 0]
        local = ids[..., used] - storage.base
        vector, lane = local // self.native, local % self.native
        row_stride = int(vector[1, 0, 0] - vector[0, 0, 0]) if height > 1 else 0
        stride = int(vector[0, 1, 0] - vector[0, 0, 0]) if width > 1 else 0
        y, x = np.arange(height)[:, None, None], np.arange(width)[:, None]
        if (vector != vector[0, 0] + y * row_stride + x * stride).any() or (lane != lane[0, 0]).any():
            raise LayoutError(f"{what} must have every channel in the same place of every position")
        first = int(vector[0, 0].min())
        tiles = int(vector[0, 0].max()) - first + 1
        lanes = np.full(channels, PAD)
        lanes[used] = (vector[0, 0] - first) * self.native + lane[0, 0]
        return Walk(storage, first, height, width, tiles, row_stride, stride, lanes)


#: First vector of a part in a larger storage, and vectors from a row to the next and from a position to the next.
_Place = tuple[int, int, int]
#: Rows, positions and vectors of a position of a larger storage, and the places of its parts.
_Arrangement = tuple[tuple[int, int, int], list[_Place]]


def _in_row(sizes: Iterable[int], row_stride: int, stride: int) -> list[_Place]:
    """Places of parts of these sizes one after the other."""
    return [(start, row_stride, stride) for start in list(accumulate(sizes, initial=0))[:-1]]


def _arrangements(storages: Storages, image: Ids | None, parts: list[Storage]) -> Iterator[_Arrangement]:
    """Positions of the parts between each other, or side by side, or after one another as positions of equal size."""
    first, vectors = parts[0], [part.vectors for part in parts]
    if image is not None and (between := _between(storages, image, parts)) is not None:
        yield (image.shape[0], image.shape[1], first.tiles), between
    if len({(part.height, part.width) for part in parts}) == 1:
        tiles = sum(part.tiles for part in parts)
        beside = _in_row((part.tiles for part in parts), first.width * tiles, tiles)
        yield (first.height, first.width, tiles), beside
    line = first.width * first.tiles
    if len({(part.width, part.tiles) for part in parts}) == 1:
        yield (sum(part.height for part in parts), first.width, first.tiles), _in_row(vectors, line, first.tiles)
    if len({part.tiles for part in parts}) == 1:
        if all(part.height == 1 for part in parts):
            width = sum(part.width for part in parts)
            yield (1, width, first.tiles), _in_row(vectors, width * first.tiles, first.tiles)


def _between(storages: Storages, ids: Ids, parts: list[Storage]) -> list[_Place] | None:
    """Places of parts each of which has the positions of some rows and columns of a view, at equal distances."""
    (height, width, _), tiles = ids.shape, parts[0].tiles
    if len({part.tiles for part in parts}) > 1:
        return None
    places: list[_Place] = []
    for part in parts:
        rows, columns = np.nonzero(storages.within(ids, part).any(axis=2))
        ys, xs = (even(np.unique(indices)) for indices in (rows, columns))
        if (
            ys is None
            or xs is None
            or (len(ys), len(xs)) != (part.height, part.width)
            or len(rows) != len(ys) * len(xs)
        ):
            return None
        places.append(((ys.start * width + xs.start) * tiles, ys.step * width * tiles, xs.step * tiles))
    return places if height * width == sum(part.height * part.width for part in parts) else None


def even(numbers: Ids) -> range | None:
    """Sorted numbers as a range; ``None`` if they are not at equal distances."""
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    run = range(int(numbers[0]), int(numbers[-1]) + 1, step)
    return run if len(run) == len(numbers) and (np.array(run) == numbers).all() else None


def _stacked(parts: list[Storage]) -> Iterator[_Arrangement]:
    """The parts one after the other, whatever their sizes."""
    size = 1, sum(part.vectors for part in parts), 1
    starts = _in_row((part.vectors for part in parts), 0, 0)
    places = zip(starts, parts, strict=True)
    yield size, [(start, part.row_stride, part.stride) for (start, _, _), part in places]


def placed(values: FloatArray, walk: Walk) -> FloatArray:
    """Values of channels in the lanes of a walk; channels that are one element have one value."""
    result = np.zeros((*values.shape[:-1], walk.tiles * walk.storage.native))
    there = walk.lanes != PAD
    result[..., walk.lanes[there]] = values[..., there]
    return result


def spread(values: FloatArray, walk: Walk) -> FloatArray:
    """Add up the last axis of ``values``, one entry per channel, by the elements of a position; the others are zero.

    :class:`concord.utils.matrices.MatrixTooLarge` if these are too many.
    """
    shape = *values.shape[:-1], walk.tiles * walk.storage.native
    check_size("weights between zeros", *shape, most=LARGEST_SPREAD)
    result = np.zeros(shape)
    for channel in np.flatnonzero(walk.lanes != PAD):
        result[..., walk.lanes[channel]] += values[..., channel]  # an element may be several channels
    return result
