"""Images in another size: nearest elements, linear and cubic interpolation.

Along every axis a resized image is a matrix times the image. Where its rows repeat, shifted by an element, every
residue of a position is a sum over the same neighbours (:mod:`concord.frontend.upsampling`); the nearest neighbour is
the image itself. Otherwise it is a product with the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.pooling import one_image
from concord.frontend.upsampling import between, windowed
from concord.utils.arrays import FloatArray

_Position = Callable[[int, int, int, float], float]
#: Results lie in a region of the image, or outside of it.
_CROP = "tf_crop_and_resize"
#: Coefficient of a cubic where the model does not say it.
_CUBIC = -0.75


def resize(ctx: Context, node: OnnxNode) -> str:
    """An image in another size: nearest elements, or linear or cubic interpolation."""
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    matrices = _matrices(ctx, node, shape)
    outside = [~matrix.any(axis=1) for matrix in matrices]
    if [matrix.shape[0] for matrix in matrices[:2]] != list(shape[:2]) or any(
        (m != np.eye(len(m))).any() for m in matrices[:2]
    ):
        raise Refusal("must leave the batch and the channels as they are", "resize spatial axes only")
    spatial = matrices[2:]
    periods = [_period(matrix) for matrix in spatial]
    if all(period is not None for period in periods):
        return _interpolated(ctx, node, x, [period for period in periods if period is not None])
    for axis, matrix in enumerate(spatial, 2):
        if not _is_identity(matrix):
            x = _along(ctx, node, x, axis, matrix)
    value = float(node.attrs.get("extrapolation_value", 0.0))
    if not value or not any(rows.any() for rows in outside):
        return x
    beyond = np.any(np.meshgrid(*outside, indexing="ij"), axis=0)
    return ctx.emit(node, "Add", [x], constant=value * beyond)


def _is_identity(matrix: FloatArray) -> bool:
    return np.array_equal(matrix, np.eye(*matrix.shape)) and matrix.shape[0] == matrix.shape[1]


def _along(ctx: Context, node: OnnxNode, x: str, axis: int, matrix: FloatArray) -> str:
    """A product with a matrix along an axis."""
    rank = len(ctx.shape(x))
    order = (*(k for k in range(rank) if k != axis), axis)
    last = x if axis == rank - 1 else ctx.emit(node, "Transpose", [x], perm=order)
    y = ctx.emit(node, "Dense", [last], weight=matrix, bias=np.zeros(len(matrix)), fixed=True)
    return y if axis == rank - 1 else ctx.emit(node, "Transpose", [y], perm=tuple(np.argsort(order).tolist()))


@dataclass(frozen=True)
class _Period:
    """A matrix ``[factor * size, size]`` whose rows ``factor * t + r`` read the neighbours ``t + first`` of ``t``.

    ``taps`` has a row for each residue; what lies outside is the nearest element.
    """

    first: int
    taps: FloatArray


def _period(matrix: FloatArray) -> _Period | None:
    """The period of a matrix, ``None`` if it has none."""
    results, size = matrix.shape
    if results % size:
        return None
    factor, reach = results // size, min(size - 1, 3)
    middle = min(max(size // 2, 0), size - 1)
    low, high = max(middle - reach, 0) - middle, min(middle + reach, size - 1) - middle
    taps = np.stack([matrix[factor * middle + r, middle + low : middle + high + 1] for r in range(factor)])
    used = np.flatnonzero(taps.any(axis=0))
    if not used.size:
        return None
    first, taps = low + int(used[0]), taps[:, used[0] : used[-1] + 1]
    built = np.zeros_like(matrix)
    for t, r, j in product(range(size), range(factor), range(taps.shape[1])):
        built[factor * t + r, min(max(t + first + j, 0), size - 1)] += taps[r, j]
    return _Period(first, taps) if np.allclose(built, matrix, rtol=0, atol=1e-12) else None


def _interpolated(ctx: Context, node: OnnxNode, x: str, periods: list[_Period]) -> str:
    """Every residue is a sum over neighbours; those beyond an end are the last ones there are."""
    images, channels, *spatial = ctx.shape(x)
    factors = [len(period.taps) for period in periods]
    flat = one_image(ctx, node, x)
    kernel = [period.taps.shape[1] for period in periods]
    if any(size > 1 for size in kernel):
        begin = [max(-period.first, 0) for period in periods]
        end = [max(period.first + size - 1, 0) for period, size in zip(periods, kernel, strict=True)]
        padded = ctx.emit(node, "Pad", [flat], pads=(0, 0, *begin, 0, 0, *end), mode="edge", value=0.0)
        first = [period.first + before for period, before in zip(periods, begin, strict=True)]
    parts = {}
    for residues in product(*map(range, factors)):
        if all(size == 1 for size in kernel):
            parts[residues] = flat
            continue
        taps = np.ones(())
        for period, r in zip(periods, residues, strict=True):
            taps = np.multiply.outer(taps, period.taps[r])
        weight = np.tile(taps, (images * channels, 1, *[1] * len(kernel)))
        zeros = np.zeros(images * channels)
        parts[residues] = windowed(ctx, node, padded, weight, first, spatial, zeros, images * channels)
    y = between(ctx, node, parts, factors)
    sizes = [size * factor for size, factor in zip(spatial, factors, strict=True)]
    return y if images == 1 else ctx.emit(node, "Reshape", [y], shape=(images, channels, *sizes))


def _matrices(ctx: Context, node: OnnxNode, shape: tuple[int, ...]) -> list[FloatArray]:
    """For every axis the matrix ``[results, elements]`` that makes results of elements."""
    attrs, rank = node.attrs, len(shape)
    mode, where = attrs.get("mode", "nearest"), attrs.get("coordinate_transformation_mode", "half_pixel")
    if node.op == "Upsample" or ctx.opset < 11:
        where, attrs = "asymmetric", {**attrs, "nearest_mode": "floor"}
    if attrs.get("antialias", 0):
        raise Refusal("antialias must be 0, as runtimes differ in it", "export without it")
    if mode not in ("nearest", "linear", "cubic") or where not in (*COORDINATES, _CROP):
        raise Refusal(f"must be nearest, linear or cubic, and not {where}", "export with half_pixel or asymmetric")
    axes = ctx.axes(attrs.get("axes", range(rank)), rank)
    at = 1 if node.op == "Upsample" or ctx.opset < 11 else 2
    scales = [float(s) for s in attrs.get("scales", ())] or (
        ctx.floats(node.input(at), "scales").reshape(-1).tolist() if node.input(at) else []
    )
    sizes = ctx.integers(node, 3, "sizes") if not scales else None
    if len(scales or sizes or ()) != len(axes):
        raise Refusal(f"must have a scale or a size for each of {len(axes)} axes")
    if not scales:
        scales = [count / shape[axis] for count, axis in zip(sizes or [], axes, strict=True)]
        if (policy := attrs.get("keep_aspect_ratio_policy", "stretch")) != "stretch":
            scales = [(min if policy == "not_larger" else max)(scales)] * len(axes)
            sizes = [math.floor(scale * shape[axis] + 0.5) for scale, axis in zip(scales, axes, strict=True)]
    matrices = [np.eye(size) for size in shape]
    regions = ctx.floats(node.input(1), "roi").reshape(2, -1) if where == _CROP else np.zeros((2, len(axes)))
    if regions.shape[1] != len(axes):
        raise Refusal(f"roi must have two numbers for each of {len(axes)} axes, not {regions.size}")
    for k, axis in enumerate(axes):
        count = sizes[k] if sizes else math.floor(shape[axis] * scales[k])
        if count < 1:
            raise Refusal(f"axis {axis} must keep at least one element")
        begin, end = (float(value) for value in regions[:, k])
        position = COORDINATES.get(where) or partial(_in_region, begin, end)
        matrices[axis] = _matrix(shape[axis], count, scales[k], mode, position, attrs, where == _CROP)
    return matrices


def _in_region(begin: float, end: float, i: int, size: int, count: int, scale: float) -> float:
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


def _matrix(
    size: int, count: int, scale: float, mode: str, position: _Position, attrs: dict[str, Any], cut: bool
) -> FloatArray:
    """The matrix of one axis; with ``cut`` results outside of the elements have rows of zeros."""
    matrix = np.zeros((count, size))
    for i in range(count):
        at = position(i, size, count, scale)
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
        for k, w in taps.items():
            matrix[i, min(max(k, 0), size - 1)] += w
    return matrix


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
