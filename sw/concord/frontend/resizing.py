"""Images in another size: nearest elements, linear and cubic interpolation.

Along every axis every result is a sum of few elements. Where they repeat after some results, shifted by whole elements,
every residue of a position is a convolution (:mod:`concord.frontend.upsampling`), or elements that are moved. Otherwise
an axis is a product with a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from concord.frontend.context import Context, Handler, NodeReader, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.limits import LARGEST_TENSOR
from concord.frontend.moving import along
from concord.frontend.pooling import one_image
from concord.frontend.upsampling import between, strided
from concord.frontend.volumes import Filters
from concord.utils.arrays import FloatArray
from concord.utils.matrices import zeros

_Position = Callable[[float, float, float, float], float]
#: Results lie in a region of the image, or outside of it.
CROP = "tf_crop_and_resize"
#: Coordinates that ONNX Runtime rounds to binary32 in the end only.
_IN_BINARY64 = "half_pixel_symmetric"
#: Coefficient of a cubic where the model does not say it.
_CUBIC = -0.75
#: Numbers of a matrix up to which a product is made of an axis whose period is not that of an element.
_SMALL_MATRIX = 1 << 16
#: Results in a period, each of which is a layer.
_MOST_RESIDUES = 64
#: Weights that differ by no more are equal: positions are computed in double precision.
_SAME = 1e-12


def resize(ctx: Context, node: OnnxNode) -> str:
    """An image in another size: nearest elements, or linear or cubic interpolation."""
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    axes = resized_axes(ctx, node, shape)
    if not all(axis.identity for axis in axes[:2]):
        raise Refusal("must leave the batch and the channels as they are", "resize spatial axes only")
    outside = [np.array([not row for row in axis.rows]) for axis in axes]
    spatial = axes[2:]
    periods = [_period(axis) for axis in spatial]
    if all(period is not None and period.step == 1 for period in periods):
        return _interpolated(ctx, node, x, [period for period in periods if period is not None])
    for k, (axis, period) in enumerate(zip(spatial, periods, strict=True)):
        if axis.identity:
            continue
        if period is None or len(axis.rows) * axis.size <= _SMALL_MATRIX:
            x = along(ctx, node, x, k + 2, axis.matrix)
        else:
            x = _interpolated(ctx, node, x, [period if j == k else _NO_CHANGE for j in range(len(spatial))])
    value = float(node.attrs.get("extrapolation_value", 0.0))
    if not value or not any(rows.any() for rows in outside):
        return x
    beyond = np.any(np.meshgrid(*outside, indexing="ij"), axis=0)
    return ctx.emit(node, "Add", [x], constant=value * beyond)


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of a resized image.

    Parameters
    ----------
    size : int
        Elements of the image along the axis.
    rows : list of dict of int to float
        For every result the elements that it is a sum of, with their weights; none where it lies outside.
    """

    size: int
    rows: list[dict[int, float]]

    @property
    def identity(self) -> bool:
        """True if every result is the element in its place."""
        return len(self.rows) == self.size and all(row == {k: 1.0} for k, row in enumerate(self.rows))

    @property
    def matrix(self) -> FloatArray:
        """The axis as a matrix ``[results, elements]``; :class:`concord.utils.matrices.MatrixTooLarge`."""
        matrix = zeros("a resized axis", len(self.rows), self.size)
        for k, row in enumerate(self.rows):
            matrix[k, list(row)] = list(row.values())
        return matrix


@dataclass(frozen=True)
class _Tap:
    """Results of one residue: they read elements from ``first`` on, times ``weights``."""

    first: int
    weights: tuple[float, ...]

    @property
    def moves(self) -> bool:
        """True if every result is an element."""
        return self.weights == (1.0,)


@dataclass(frozen=True)
class _Period:
    """Results ``len(taps) * t + r`` read elements ``step * t + taps[r].first`` and following ones.

    Elements outside of the axis are the nearest one in it.
    """

    step: int
    taps: tuple[_Tap, ...]


#: An axis that stays.
_NO_CHANGE = _Period(1, (_Tap(0, (1.0,)),))


def _period(axis: ResizedAxis) -> _Period | None:
    """The period of an axis, ``None`` if it has none, or a long one."""
    results, size = len(axis.rows), axis.size
    count = math.gcd(results, size)
    factor, step = results // count, size // count
    if factor > _MOST_RESIDUES or (step > 1 and count == 1):
        return None
    middle, taps = count // 2, []
    for row in axis.rows[factor * middle : factor * (middle + 1)]:
        if not row:
            return None
        first = min(row)
        taps.append(_Tap(first - step * middle, tuple(row.get(k, 0.0) for k in range(first, max(row) + 1))))
    for k, row in enumerate(axis.rows):
        t, tap = k // factor, taps[k % factor]
        wanted: dict[int, float] = {}
        for j, weight in enumerate(tap.weights, step * t + tap.first):
            place = min(max(j, 0), size - 1)
            wanted[place] = wanted.get(place, 0.0) + weight
        if any(abs(wanted.get(j, 0.0) - row.get(j, 0.0)) > _SAME for j in {*wanted, *row}):
            return None
    return _Period(step, tuple(taps))


def _interpolated(ctx: Context, node: OnnxNode, x: str, periods: list[_Period]) -> str:
    """Every residue is a sum over neighbours; those beyond an end are the last ones there are."""
    images, channels, *spatial = ctx.shape(x)
    counts = [size // period.step for size, period in zip(spatial, periods, strict=True)]
    flat = one_image(ctx, node, x)
    begin = [max(0, *(-tap.first for tap in period.taps)) for period in periods]
    end = [
        max(0, *(period.step * (count - 1) + tap.first + len(tap.weights) - size for tap in period.taps))
        for period, count, size in zip(periods, counts, spatial, strict=True)
    ]
    if any((*begin, *end)):
        flat = ctx.emit(node, "Pad", [flat], pads=(0, 0, *begin, 0, 0, *end), mode="edge", value=0.0)
    steps = tuple(period.step for period in periods)
    parts = {}
    for residues in product(*(range(len(period.taps)) for period in periods)):
        taps = [period.taps[r] for period, r in zip(periods, residues, strict=True)]
        first = [tap.first + before for tap, before in zip(taps, begin, strict=True)]
        parts[residues] = _residue(ctx, node, flat, taps, first, counts, steps)
    y = between(ctx, node, parts, [len(period.taps) for period in periods])
    sizes = [count * len(period.taps) for count, period in zip(counts, periods, strict=True)]
    return y if images == 1 else ctx.emit(node, "Reshape", [y], shape=(images, channels, *sizes))


def _residue(
    ctx: Context, node: OnnxNode, x: str, taps: list[_Tap], first: list[int], counts: list[int], steps: tuple[int, ...]
) -> str:
    """The results of one residue along every axis, of a padded image: elements that are moved, or a convolution."""
    _, maps, *spatial = ctx.shape(x)
    stops = [start + step * (count - 1) for start, step, count in zip(first, steps, counts, strict=True)]
    if all(tap.moves for tap in taps):
        taken = [range(*bounds) for bounds in zip(first, (stop + 1 for stop in stops), steps, strict=True)]
        if taken == [range(size) for size in spatial]:
            return x
        columns = {f"{key}s": tuple(getattr(part, key) for part in taken) for key in ("start", "stop", "step")}
        return ctx.emit(node, "Slice", [x], axes=tuple(range(2, 2 + len(taken))), **columns)
    weight = np.ones(())
    for tap in taps:
        weight = np.multiply.outer(weight, np.array(tap.weights))
    ends = [stop + len(tap.weights) for stop, tap in zip(stops, taps, strict=True)]
    used = [range(*bounds) for bounds in zip(first, ends, strict=True)]
    if used != [range(size) for size in spatial]:
        columns = {f"{key}s": tuple(getattr(part, key) for part in used) for key in ("start", "stop", "step")}
        x = ctx.emit(node, "Slice", [x], axes=tuple(range(2, 2 + len(used))), **columns)
    weight = np.tile(weight, (maps, 1, *[1] * len(taps)))
    return strided(ctx, node, x, Filters(weight, np.zeros(maps), maps), steps)


def resized_axes(
    ctx: NodeReader, node: OnnxNode, shape: Sequence[int], number: Callable[[float], Any] = float
) -> list[ResizedAxis]:
    """The axes of the resized image, whose positions are computed in numbers of a type."""
    attrs, rank, old = node.attrs, len(shape), node.op == "Upsample" or ctx.opset < 11
    mode, where = attrs.get("mode", "nearest"), attrs.get("coordinate_transformation_mode", "half_pixel")
    if old:
        where, attrs = "asymmetric", {**attrs, "nearest_mode": "floor"}
    if attrs.get("antialias", 0):
        raise Refusal("antialias must be 0, as runtimes differ in it", "export without it")
    if mode not in ("nearest", "linear", "cubic") or where not in (*COORDINATES, CROP):
        raise Refusal(f"must be nearest, linear or cubic, and not {where}", "export with half_pixel or asymmetric")
    axes, scales = ctx.axes(attrs.get("axes", range(rank)), rank), [float(s) for s in attrs.get("scales", ())]
    if name := node.input(1 if old else 2):
        scales = scales or ctx.finite_numbers(name, "scales").reshape(-1).tolist()
    sizes = ctx.integers(node, 3, "sizes") if not scales else None
    if len(scales or sizes or ()) != len(axes):
        raise Refusal(f"must have a scale or a size for each of {len(axes)} axes")
    if not scales:
        scales = [count / shape[axis] for count, axis in zip(sizes or [], axes, strict=True)]
        if (policy := attrs.get("keep_aspect_ratio_policy", "stretch")) != "stretch":
            scales = [(min if policy == "not_larger" else max)(scales)] * len(axes)
            sizes = [math.floor(scale * shape[axis] + 0.5) for scale, axis in zip(scales, axes, strict=True)]
    resized = [ResizedAxis(size, [{k: 1.0} for k in range(size)]) for size in shape]
    regions = ctx.finite_numbers(node.input(1), "roi").reshape(2, -1) if where == CROP else np.zeros((2, len(axes)))
    if regions.shape[1] != len(axes):
        raise Refusal(f"roi must have two numbers for each of {len(axes)} axes, not {regions.size}")
    for k, axis in enumerate(axes):
        size, scale = number(shape[axis]), number(scales[k])
        count = sizes[k] if sizes else math.floor(size * scale)
        if count < 1:
            raise Refusal(f"axis {axis} must keep at least one element")
        begin, end = (float(value) for value in regions[:, k])
        position = COORDINATES.get(where) or partial(_in_region, begin, end)
        if count > LARGEST_TENSOR:
            raise Refusal(f"axis {axis} must have at most {LARGEST_TENSOR} elements, not {count}", "make it smaller")
        index = np.float64 if where == _IN_BINARY64 else number
        places = [number(position(index(i), size, number(count), scale)) for i in range(count)]
        resized[axis] = ResizedAxis(shape[axis], _rows(shape[axis], places, mode, attrs, where == CROP))
    return resized


def _in_region(begin: float, end: float, i: float, size: float, count: float, scale: float) -> float:
    """Position of result ``i``, of those from one share of the elements to another."""
    if count == 1:
        return (begin + end) * (size - 1) / 2
    return (begin + i * (end - begin) / (count - 1)) * (size - 1)


#: Positions of result ``i`` of ``count`` among ``size`` elements.
COORDINATES: dict[str, _Position] = {
    "half_pixel": lambda i, size, count, scale: (i + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda i, size, count, scale: (i + 0.5) / scale - 0.5 if count > 1 else 0.0,
    "half_pixel_symmetric": lambda i, size, count, scale: (
        size / 2 * (1 - count / (scale * size)) + (i + 0.5) / scale - 0.5
    ),
    "align_corners": lambda i, size, count, scale: i * (size - 1) / (count - 1) if count > 1 else 0.0,
    "asymmetric": lambda i, size, count, scale: i / scale,
}
#: Nearest element of a position, by mode.
NEAREST = {
    "round_prefer_floor": lambda at: math.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: math.floor(at + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _rows(size: int, places: Sequence[float], mode: str, attrs: dict[str, Any], cut: bool) -> list[dict[int, float]]:
    """Elements and their weights for every result; none, with ``cut``, where it lies outside of the elements."""
    rows: list[dict[int, float]] = []
    for at in places:
        rows.append({})
        if cut and not 0 <= at <= size - 1:
            continue
        if mode == "nearest":
            taps = {NEAREST[attrs.get("nearest_mode", "round_prefer_floor")](at): 1.0}
        else:
            low = math.floor(at)
            taps = {low + k: w for k, w in (_linear(at - low) if mode == "linear" else _cubic(at - low, attrs)).items()}
        if attrs.get("exclude_outside", 0):
            taps = {k: w for k, w in taps.items() if 0 <= k < size}
            taps = {k: w / sum(taps.values()) for k, w in taps.items()}
        sums: dict[int, float] = {}
        for k, w in taps.items():
            place = min(max(k, 0), size - 1)
            sums[place] = sums.get(place, 0.0) + w
        rows[-1] |= {place: 1.0 if abs(w - 1) <= _SAME else w for place, w in sums.items() if abs(w) > _SAME}
    return rows


def _linear(rest: float) -> dict[int, float]:
    return {0: 1 - rest, 1: rest}


def _cubic(rest: float, attrs: dict[str, Any]) -> dict[int, float]:
    """Weights of four neighbours, by the coefficient ``a`` of the cubic."""
    a = float(attrs.get("cubic_coeff_a", _CUBIC))

    def near(x: float) -> float:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: float) -> float:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return {-1: far(rest + 1), 0: near(rest), 1: near(1 - rest), 2: far(2 - rest)}


HANDLERS: dict[str, Handler] = dict.fromkeys(("Resize", "Upsample"), resize)
