"""Alignment of two broadcast operands: loops over pairs of vectors, and matrices that move elements to lanes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from concord.compiler.ir.layout import PAD, LayoutError, Storage, Storages
from concord.utils.arrays import FloatArray, Ids
from concord.utils.matrices import zeros


@dataclass(frozen=True)
class Strides:
    """Vectors ``start + r * row + i * inner + o * outer`` of a storage in the order of three loops."""

    start: int
    outer: int
    inner: int
    row: int


def _strides(vectors: Ids) -> Strides | None:
    """The strides of ``vectors[o, i, r]``; ``None`` if the vectors are not at equal distances."""
    start = int(vectors[0, 0, 0])
    outer = int(vectors[1, 0, 0]) - start if vectors.shape[0] > 1 else 0
    inner = int(vectors[0, 1, 0]) - start if vectors.shape[1] > 1 else 0
    row = int(vectors[0, 0, 1]) - start if vectors.shape[2] > 1 else 0
    o, i, r = np.ogrid[tuple(map(slice, vectors.shape))]
    return Strides(start, outer, inner, row) if (vectors == start + o * outer + i * inner + r * row).all() else None


def _loops(choices: list[int], *streams: Ids) -> tuple[tuple[int, int, int], tuple[Strides, ...]]:
    """Sizes of three loops in which sequences of vectors are evenly spaced, the innermost of them in ``choices``."""
    count = len(streams[0])
    for rows in choices:
        for outer in _divisors(count // rows):
            size = (outer, count // rows // outer, rows)
            strides = [_strides(stream.reshape(size)) for stream in streams]
            if all(stride is not None for stride in strides):
                return size, tuple(stride for stride in strides if stride is not None)
    raise LayoutError("vectors that meet must be at equal distances")


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _distinct(*columns: Ids) -> tuple[Ids, Ids]:
    """The rows that there are, sorted, as ``[rows, columns]``, and by row of the arguments the index of it there."""
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    if math.prod(sizes) >= 1 << 63:
        rows, where = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return rows, where.reshape(-1)
    keys, where = np.unique(np.ravel_multi_index(columns, sizes), return_inverse=True)
    return np.stack(np.unravel_index(keys, sizes), axis=1), where.reshape(-1)


def _rows(groups: Ids) -> int | None:
    """Number of rows of a sorted array in every group of equal rows; ``None`` if that differs."""
    _, counts = np.unique(groups, axis=0, return_counts=True)
    return int(counts[0]) if counts.min() == counts.max() else None


@dataclass(frozen=True)
class Broadcast:
    """A tensor broadcast to some shape: where it lies, and vector and lane of every element, flat."""

    storage: Storage
    vector: Ids
    lane: Ids

    @property
    def position(self) -> Ids:
        """Position of every element."""
        return self.vector // self.storage.tiles


def broadcast(storages: Storages, ids: Ids, shape: tuple[int, ...]) -> Broadcast:
    """A view broadcast to ``shape``; :class:`LayoutError` unless it lies in one storage."""
    of = storages.of(ids)
    if len(of) != 1 or (ids == PAD).any():
        raise LayoutError("factors must each lie in one storage, without padding")
    local = np.broadcast_to(ids, shape).reshape(-1) - of[0].base
    return Broadcast(of[0], *np.divmod(local, of[0].native))


@dataclass(frozen=True)
class Alignment:
    """Vectors of two tensors that an element-wise operation combines.

    Parameters
    ----------
    size : tuple of int
        Sizes of three loops over pairs of vectors.
    first, second : Strides
        The vectors of each tensor in these loops.
    places : array
        By element of the result, flat: vector and lane.
    """

    size: tuple[int, int, int]
    first: Strides
    second: Strides
    places: tuple[Ids, Ids]


def align(a: Broadcast, b: Broadcast) -> Alignment:
    """All pairs of vectors whose elements are combined; :class:`LayoutError` unless these are in the same lanes."""
    if not (a.storage.uniform or b.storage.uniform or np.array_equal(a.lane, b.lane)):
        raise LayoutError("elements that meet must be in the same lanes")
    lane = b.lane if a.storage.uniform else a.lane
    pairs, where = _distinct(a.position, b.position, a.vector, b.vector)
    rows = _rows(pairs[:, :2]) or 1
    choices = sorted(_divisors(len(pairs)), key=lambda n: (n != rows, n % rows > 0, n))  # whole positions, if possible
    size, (first, second) = _loops(choices, pairs[:, 2], pairs[:, 3])
    return Alignment(size, first, second, (where, lane))


@dataclass(frozen=True)
class LaneSelection:
    """A product with a matrix of zeros and ones, which moves elements to the lanes of another tensor.

    Parameters
    ----------
    size : tuple of int
        Sizes of three loops: rows of positions, positions, native vectors.
    source : Strides
        Positions that are read.
    weight : array
        ``[vectors * native, elements of a position]``.
    places : array
        By element of the result, flat: vector and lane.
    same_loops : bool
        Whether the vectors of the other tensor follow the same loops, so that the chain can go on with them.
    """

    size: tuple[int, int, int]
    source: Strides
    weight: FloatArray
    places: tuple[Ids, Ids]
    same_loops: bool


def select_lanes(a: Broadcast, like: Broadcast, own: Ids) -> LaneSelection:
    """Move the elements of ``a`` to the lanes of ``like``.

    ``own`` numbers the elements of ``a`` that belong to a single element of ``like``, as :func:`own_indices` does.

    Raises
    ------
    LayoutError
        If the elements are not in the same lanes of every position, or the positions are not evenly spaced.
    """
    native, tiles = a.storage.native, a.storage.tiles
    keys, where = _distinct(a.position, own, like.vector)
    rows = _rows(keys[:, :1])
    if rows is None:
        raise LayoutError("every position must meet as many vectors as the others")
    positions, others = keys[:, 0] * tiles, keys[:, 2]
    try:
        size, (source, _) = _loops([rows], positions, others)
        same_loops = True
    except LayoutError:
        size, (source,) = _loops([rows], positions)
        same_loops = False
    weight = zeros("elements that are moved to other lanes", rows * native, tiles * native)
    weight[where % rows * native + like.lane, a.vector % tiles * native + a.lane] = 1.0
    if weight.sum(axis=1).max() > 1:
        raise LayoutError("elements must be taken from the same places of every position")
    return LaneSelection(size, source, weight, (where, like.lane), same_loops)


def summable(shape: tuple[int, ...], lane: Ids, *positions: Ids) -> bool:
    """True if the last axis stays in one lane, or in one position of every tensor."""
    one_lane, *in_place = ((x := flat.reshape(shape)) == x[..., :1] for flat in (lane, *positions))
    return bool(one_lane.all() or all(same.all() for same in in_place))


def own_indices(shape: tuple[int, ...], like: tuple[int, ...]) -> Ids:
    """A number for every element of ``shape``, different where axes differ along which ``like`` is broadcast."""
    like = (1,) * (len(shape) - len(like)) + like
    axes = [size if other == 1 else 1 for size, other in zip(shape, like, strict=True)]
    return np.broadcast_to(np.arange(math.prod(axes)).reshape(axes), shape).reshape(-1)
