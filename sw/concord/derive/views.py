"""Gathers as what they are: reshapes, slices, transposed views, windows.

A gather names an element of its source for every element of its output. Whether that is regular is found out from the
numbers, and what is found is checked against all of them, so a wrong guess costs nothing but the simple form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.evaluate import move
from concord.utils.arrays import Ids

NewName = Callable[[], str]

#: Orders of the axes of a source that are tried, by their number: as it is, and channels last.
_ORDERS = {1: ((0,),), 2: ((0, 1), (1, 0)), 3: ((0, 1, 2), (1, 2, 0)), 4: ((0, 1, 2, 3), (0, 2, 3, 1))}


def simplified(sources: list[ir.Value], index: Ids, fill: ir.Bits, layer: str, name: NewName) -> list[ir.ModelNode]:
    """Nodes that give ``sources[..., index]``, the last one in the shape of the index; none if that is the source."""
    nodes: list[ir.ModelNode] = []
    source = sources[0]
    if len(sources) > 1 and len({(x.shape[1:], x.batched) for x in sources}) == 1 and source.shape:
        rows = sum(x.shape[0] for x in sources)
        joined = ir.Value(name(), (rows, *source.shape[1:]), source.type, source.batched)
        nodes.append(ir.Concat(output=joined, layer=layer, xs=tuple(sources)))
        source = joined
    elif len(sources) > 1:
        return [_gather(sources, index, fill, layer, name)]
    maker = _Maker(source, layer, name)
    if len(fill) == 0:
        movement = maker.strided(index)
    elif len(fill) == 1:
        movement = maker.windows(index, int(fill[0]))
    else:
        movement = None
    if movement is None and len(fill) == 0:
        movement = maker.windows(index, ir.ZERO)
    if movement is None or not _right(nodes + movement, sources, index, fill):
        return [_gather(sources, index, fill, layer, name)]
    return nodes + movement


def _right(nodes: list[ir.ModelNode], sources: list[ir.Value], index: Ids, fill: ir.Bits) -> bool:
    """True if nodes move every element to its place; elements are numbered after all patterns."""
    first = 1 << 16
    values: dict[ir.Value, Ids] = {}
    for source in sources:
        values[source] = (first + np.arange(source.size)).reshape(1, *source.shape)
        first += source.size
    for node in nodes:
        values[node.output] = move(node, [values[x] for x in node.inputs])
    result = values[nodes[-1].output if nodes else sources[0]][0]
    want = (1 << 16) + index
    if len(fill):
        want = np.where(index < 0, fill[np.clip(-1 - index, 0, len(fill) - 1)], want)
    return bool(result.shape == want.shape and (result == want).all())


def _gather(sources: Sequence[ir.Value], index: Ids, fill: ir.Bits, layer: str, name: NewName) -> ir.ModelNode:
    batched = any(source.batched for source in sources)
    output = ir.Value(name(), index.shape, sources[0].type, batched)
    return ir.Gather(output=output, layer=layer, xs=tuple(sources), index=index, fill=fill)


@dataclass
class _Maker:
    """Makes nodes for one source."""

    source: ir.Value
    layer: str
    name: NewName

    def _value(self, shape: ir.Shape) -> ir.Value:
        return ir.Value(self.name(), shape, self.source.type, self.source.batched)

    def _reshape(self, x: ir.Value, shape: ir.Shape) -> list[ir.ModelNode]:
        return [] if x.shape == shape else [ir.Reshape(output=self._value(shape), layer=self.layer, x=x)]

    def _transpose(self, x: ir.Value, perm: tuple[int, ...]) -> list[ir.ModelNode]:
        if perm == tuple(range(len(perm))):
            return []
        shape = tuple(x.shape[axis] for axis in perm)
        return [ir.Transpose(output=self._value(shape), layer=self.layer, x=x, perm=perm)]

    # Without anything from outside -------------------------------------------------------------

    def strided(self, index: Ids) -> list[ir.ModelNode] | None:
        """A reshape, or a slice with a step along every axis, axes in any order."""
        if index.size == self.source.size and (index.reshape(-1) == np.arange(index.size)).all():
            return self._reshape(self.source, index.shape)
        steps = _steps(index)
        pieces = None if steps is None else _pieces(index.shape, steps, self.source.shape)
        if pieces is None:
            return None
        starts = tuple(int(n) for n in np.unravel_index(int(index.flat[0]), self.source.shape))
        counts, along = [1] * len(starts), [1] * len(starts)
        for axis, count, step in pieces:
            counts[axis], along[axis] = count, step
        for start, count, step, size in zip(starts, counts, along, self.source.shape, strict=True):
            if not 0 <= start + (count - 1) * step < size:
                return None
        nodes: list[ir.ModelNode] = []
        x = self.source
        if tuple(counts) != x.shape or any(step != 1 for step in along):
            output = self._value(tuple(counts))
            nodes.append(ir.Slice(output=output, layer=self.layer, x=x, starts=starts, steps=tuple(along)))
            x = output
        mapped = [axis for axis, _, _ in pieces]
        perm = tuple([axis for axis in range(len(counts)) if axis not in mapped] + mapped)
        nodes += self._transpose(x, perm)
        x = nodes[-1].output if nodes else x
        return nodes + self._reshape(x, index.shape)

    # Windows -----------------------------------------------------------------------------------

    def windows(self, index: Ids, fill: int) -> list[ir.ModelNode] | None:
        """Windows of the source as a map, which may have channels first, or rows that follow each other."""
        for perm, shape in self._maps(index):
            moved = np.arange(self.source.size).reshape(self.source.shape).transpose(perm).reshape(-1)
            place = np.empty_like(moved)
            place[moved] = np.arange(len(moved))
            local = np.where(index < 0, -1, place[np.maximum(index, 0)])
            for split in _splits(index.shape, shape[2]):
                fitted = _fit(local.reshape(split), shape)
                if fitted is None:
                    continue
                nodes = self._transpose(self.source, perm)
                x = nodes[-1].output if nodes else self.source
                nodes += self._reshape(x, shape)
                return nodes + self._window_nodes(nodes[-1].output if nodes else x, fitted, index.shape, fill)
        return None

    def _maps(self, index: Ids) -> Iterator[tuple[tuple[int, ...], tuple[int, int, int]]]:
        """Orders of axes, and the source as height, width and channels."""
        shape = self.source.shape
        for perm in _ORDERS.get(len(shape), ()):
            turned = tuple(shape[axis] for axis in perm)
            *front, channels = turned
            positions = int(np.prod(front, dtype=np.int64))
            if len(front) >= 2:
                yield perm, (positions // front[-1], front[-1], channels)
            yield perm, (1, positions, channels)
            if len(front) == 1:
                yield perm, (positions, channels, 1)
            for width in _widths(index, channels, positions):
                yield perm, (positions // width, width, channels)

    def _window_nodes(self, x: ir.Value, fitted: _Windows, shape: ir.Shape, fill: int) -> list[ir.ModelNode]:
        nodes: list[ir.ModelNode] = []
        (oh, kh), (ow, kw) = fitted.counts
        trivial = (
            fitted.origin == (0, 0) and (kh, kw) == (1, 1) and (oh, ow) == x.shape[:2] and fitted.strides == (1, 1)
        )
        if trivial:
            x_shape = (oh, ow, 1, 1, x.shape[2])
            nodes += self._reshape(x, x_shape)
        else:
            output = self._value((oh, ow, kh, kw, x.shape[2]))
            nodes.append(
                ir.MapWindows(
                    output=output,
                    layer=self.layer,
                    x=x,
                    kernel=(kh, kw),
                    stride=fitted.strides,
                    origin=fitted.origin,
                    dilation=fitted.dilations,
                    fill=fill,
                )
            )
        x = nodes[-1].output
        if [axis for axis in fitted.perm if x.shape[axis] > 1] != [axis for axis in range(5) if x.shape[axis] > 1]:
            nodes += self._transpose(x, fitted.perm)
        return nodes + self._reshape(nodes[-1].output, shape)


def _splits(shape: ir.Shape, channels: int) -> Iterator[ir.Shape]:
    """The shape, or others in which the last axis is taps and channels: the host may have laid out windows along it."""
    *front, last = shape or (1,)
    taps = last // channels
    if taps < 2 or last % channels:
        yield shape
        return
    yield (*front, taps, channels)
    for first in range(2, taps):
        if taps % first == 0:
            yield (*front, first, taps // first, channels)


def _steps(index: Ids) -> tuple[int, ...] | None:
    """Steps along every axis, if each is an arithmetic progression."""
    steps = []
    expected = np.full(index.shape, int(index.flat[0]))
    for axis, size in enumerate(index.shape):
        origin = [0] * index.ndim
        origin[axis] = min(1, size - 1)
        steps.append(int(index[tuple(origin)]) - int(index.flat[0]))
        expected += steps[-1] * np.arange(size).reshape([-1 if k == axis else 1 for k in range(index.ndim)])
    return tuple(steps) if (expected == index).all() else None


def _pieces(shape: ir.Shape, steps: tuple[int, ...], source: ir.Shape) -> list[tuple[int, int, int]] | None:
    """Axes of the output as axes of the source, each once, split where that is needed: axis, count and step."""
    strides = [int(np.prod(source[axis + 1 :], dtype=np.int64)) for axis in range(len(source))]
    merged: list[tuple[int, int]] = []
    for count, step in zip(shape, steps, strict=True):
        if count == 1:
            continue
        if merged and merged[-1][1] == count * step:
            merged[-1] = merged[-1][0] * count, step
        else:
            merged.append((count, step))
    splits: list[tuple[int, int, int]] = []
    for count, step in merged:
        split: list[tuple[int, int, int]] = []
        while count > 1:
            axis = next((a for a, s in enumerate(strides) if source[a] > 1 and s <= abs(step)), None)
            if axis is None or step % strides[axis]:
                return None
            own = step // strides[axis]
            if count * abs(own) <= source[axis] + abs(own) - 1:
                split.insert(0, (axis, count, own))
                break
            inside, rest = divmod(source[axis], own)
            if own < 0 or rest or count % inside or inside == 1:
                return None
            split.insert(0, (axis, inside, own))
            count, step = count // inside, step * inside
        splits += split
    axes = [axis for axis, _, _ in splits]
    return splits if len(set(axes)) == len(axes) else None


@dataclass(frozen=True)
class _Windows:
    """Windows of a map: counts of outputs and taps by direction, and the order of axes that the output has."""

    counts: tuple[tuple[int, int], tuple[int, int]]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    origin: tuple[int, int]
    perm: tuple[int, ...]


def _widths(index: Ids, channels: int, positions: int) -> list[int]:
    """Lengths of rows that steps of the index hint at."""
    widths: set[int] = set()
    for axis in range(index.ndim):
        if index.shape[axis] < 2:
            continue
        following, here = np.delete(index, 0, axis), np.delete(index, -1, axis)
        there = (following >= 0) & (here >= 0)
        if there.any():
            step = int(np.abs(following[there][0] - here[there][0])) // channels
            widths.update(width for width in (step, step // 2, step // 3) if 1 < width < positions)
    return sorted(width for width in widths if positions % width == 0)


def _fit(index: Ids, shape: tuple[int, int, int]) -> _Windows | None:
    """Find every axis to go along one axis of the map, and check all elements."""
    there = index >= 0
    if not there.any():
        return None
    coordinates = [np.where(there, c, 0) for c in np.unravel_index(np.maximum(index, 0), shape)]
    slopes = [_slope(coordinates, there, axis) for axis in range(index.ndim)]
    if any(slope is None for slope in slopes):
        return None
    first = tuple(int(n) for n in np.argwhere(there)[0])
    predicted = []
    for number in range(3):
        base = int(coordinates[number][first]) - sum(s[number] * k for s, k in zip(slopes, first, strict=True) if s)
        grid: Ids = np.full(index.shape, base)
        for axis, slope in enumerate(slopes):
            assert slope is not None
            grid += slope[number] * np.arange(index.shape[axis]).reshape(
                [-1 if k == axis else 1 for k in range(index.ndim)]
            )
        predicted.append(grid)
    inside = np.logical_and.reduce([(p >= 0) & (p < size) for p, size in zip(predicted, shape, strict=True)])
    if (inside != there).any() or any(
        (p[there] != c[there]).any() for p, c in zip(predicted, coordinates, strict=True)
    ):
        return None
    return _arranged(index.shape, [s for s in slopes if s], [int(p.flat[0]) for p in predicted], shape)


def _slope(coordinates: list[Ids], there: npt.NDArray[np.bool_], axis: int) -> tuple[int, int, int] | None:
    """Steps of the coordinates along an axis, where two neighbours are inside."""
    if there.shape[axis] == 1:
        return 0, 0, 0
    both = np.delete(there, 0, axis) & np.delete(there, -1, axis)
    if not both.any():
        return None
    at = np.flatnonzero(both.ravel())[0]
    steps = [int((np.delete(c, 0, axis) - np.delete(c, -1, axis)).ravel()[at]) for c in coordinates]
    return steps[0], steps[1], steps[2]


def _arranged(
    shape: ir.Shape, slopes: list[tuple[int, int, int]], origin: list[int], size: tuple[int, int, int]
) -> _Windows | None:
    """Axes by what they go along: at most two for each direction, and channels in order."""
    along: tuple[list[int], list[int], list[int]] = ([], [], [])
    for axis, slope in enumerate(slopes):
        if shape[axis] > 1:
            used = [number for number in range(3) if slope[number]]
            if len(used) != 1:
                return None
            along[used[0]].append(axis)
    expected = 1
    for axis in reversed(along[2]):
        if slopes[axis][2] != expected:
            return None
        expected *= shape[axis]
    if expected != size[2] or origin[2] != 0 or len(along[0]) > 2 or len(along[1]) > 2:
        return None
    counts, strides, dilations, places = [], [], [], []
    for number in (0, 1):
        axes = along[number]
        outer = axes[0] if axes and (len(axes) == 2 or axes[0] < 2) else None
        tap = axes[-1] if axes and outer != axes[-1] else None
        counts.append((1 if outer is None else shape[outer], 1 if tap is None else shape[tap]))
        strides.append(1 if outer is None else slopes[outer][number])
        dilations.append(1 if tap is None else slopes[tap][number])
        places.append((outer, tap))
    if min(dilations) < 1 or min(strides) < 1:
        return None
    axes_of_places = [places[0][0], places[1][0], places[0][1], places[1][1]]
    last = along[2][0] if along[2] else None
    if along[2] and along[2] != list(range(along[2][0], along[2][0] + len(along[2]))):
        return None
    order = sorted((axis, number) for number, axis in enumerate([*axes_of_places, last]) if axis is not None)
    ones = [number for number, axis in enumerate([*axes_of_places, last]) if axis is None]
    return _Windows(
        (counts[0], counts[1]),
        (strides[0], strides[1]),
        (dilations[0], dilations[1]),
        (origin[0], origin[1]),
        (*ones, *(number for _, number in order)),
    )
