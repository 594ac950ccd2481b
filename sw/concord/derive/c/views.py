"""Accesses of loops to the elements of a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from concord.derive.c.storage import CArray, View
from concord.utils.arrays import Ids

#: Pieces that a copy is divided into at most, before it becomes a table of places.
_PIECES = 48
#: Between the numbers of sources, so that no pattern goes across them.
_APART = 1 << 40


@dataclass(frozen=True)
class Affine:
    """``offset + i0 * strides[0] + i1 * strides[1] ...``."""

    offset: int
    strides: tuple[int, ...]

    def text(self, variables: Sequence[str]) -> str:
        """The affine function as an expression of C."""
        terms = [
            variable if stride == 1 else f"{variable} * {stride}"
            for variable, stride in zip(variables, self.strides, strict=True)
            if stride
        ]
        terms += [str(self.offset)] if self.offset or not terms else []
        return " + ".join(terms).replace("+ -", "- ")


def affine(values: Ids) -> Affine | None:
    """The pattern of an array, by its axes; ``None`` if it has none."""
    offset = int(values[(0,) * values.ndim])
    strides, want = [], np.full(values.shape, offset)
    for axis, size in enumerate(values.shape):
        at = [0] * values.ndim
        at[axis] = min(1, size - 1)
        strides.append(int(values[tuple(at)]) - offset)
        steps = np.arange(size).reshape([-1 if k == axis else 1 for k in range(values.ndim)])
        want = want + strides[-1] * steps
    return Affine(offset, tuple(strides)) if np.array_equal(want, values) else None


@dataclass(frozen=True)
class RowAccess:
    """Rows ``[*dims, length]`` of a storage.

    Parameters
    ----------
    storage : CArray
    base : Affine
        The first element, by the variables of the loops.
    step : int or None
        Between the elements of a row; ``None`` if they have no pattern.
    relative : Ids
        Elements of a row, counted from the first one.
    """

    storage: CArray
    base: Affine
    step: int | None
    relative: Ids


@dataclass(frozen=True)
class WindowAccess:
    """Rows that are windows of a map: ``[*dims, taps * inner]``; ``map`` has a step between the elements of a tap."""

    map: RowAccess
    view: View

    @property
    def storage(self) -> CArray:
        """Array that is read."""
        return self.map.storage


Access = RowAccess | WindowAccess


def reach(view: View, dims: tuple[int, ...]) -> Access | None:
    """Access of loops of these sizes to the rows of a view; ``None`` if the view has to be copied first."""
    rows = view.index.reshape(*dims, -1)
    if view.window is not None and view.inner is not None and (view.index < 0).any():
        if dims != view.window.output.shape[:2]:
            return None
        inner = reach(view.inner, view.inner.index.shape[:2])
        return WindowAccess(inner, view) if isinstance(inner, RowAccess) and inner.step is not None else None
    if not rows.size or rows.min() < 0 or len(view.sources) != 1:
        return None
    relative = rows[(0,) * len(dims)] - rows[(0,) * len(dims)][0]
    if not (rows - rows[..., :1] == relative).all():
        return None
    base = affine(rows[..., 0])
    if base is None:
        return None
    pattern = affine(relative)
    return RowAccess(view.sources[0], base, None if pattern is None else pattern.strides[0], relative)


@dataclass(frozen=True)
class AffineRun:
    """Elements ``[*shape]`` at ``to`` that come from ``origin`` of a source, or are all the constant ``fill``.

    ``fill`` is the number of the constant.
    """

    shape: tuple[int, ...]
    to: Affine
    source: int
    origin: Affine
    fill: int | None = None


def runs(view: View) -> list[AffineRun] | None:
    """The loops that copy a view; ``None`` if there are too many of them."""
    shape = tuple(size for size in view.index.shape if size > 1) or (1,)
    ends = np.cumsum([source.size for source in view.sources])
    which = np.minimum(np.searchsorted(ends, np.maximum(view.index, 0), side="right"), len(ends) - 1)
    starts = np.concatenate([[0], ends[:-1]])
    apart = np.where(view.index < 0, view.index * _APART, view.index - starts[which] + which * _APART)
    # Every constant is a source of its own.
    places = np.arange(view.index.size).reshape(shape)
    return _divided(apart.reshape(shape), places)


def _divided(values: Ids, places: Ids) -> list[AffineRun] | None:
    run = _run(values, places)
    if run is not None:
        return [run]
    best: list[AffineRun] | None = None
    for axis in range(values.ndim):
        parts = _cut(values, axis)
        if len(parts) > _PIECES or (best is not None and len(parts) >= len(best)):
            continue
        made = []
        for first, last in parts:
            at = tuple(slice(first, last) if k == axis else slice(None) for k in range(values.ndim))
            part = _run(values[at], places[at])
            if part is None:
                break
            made.append(part)
        else:
            best = made
    return best


def _cut(values: Ids, axis: int) -> list[tuple[int, int]]:
    """Ranges along an axis in which elements go on by equal steps."""
    steps = np.moveaxis(np.diff(values, axis=axis), axis, 0)
    size, start, parts = values.shape[axis], 0, []
    while start < size:
        stop = start + 1
        if stop < size:
            stop += 1
            while stop < size and np.array_equal(steps[stop - 1], steps[start]):
                stop += 1
            if stop - start == 2 and not (abs(steps[start]) < _APART // 2).all():
                stop = start + 1  # across sources
        parts.append((start, stop))
        start = stop
    return parts


def _run(values: Ids, places: Ids) -> AffineRun | None:
    pattern, to = affine(values), affine(places)
    if pattern is None or to is None:
        return None
    if any(abs(stride) >= _APART // 2 for stride in pattern.strides):
        return None
    source, offset = divmod(pattern.offset, _APART)
    if source < 0:
        return AffineRun(values.shape, to, -1, Affine(0, (0,) * values.ndim), -1 - source)
    return AffineRun(values.shape, to, source, Affine(offset, pattern.strides))
