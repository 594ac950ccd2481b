"""Pooling over three spatial axes: windows of planes, then products along the first axis.

A plane ``[height, width]`` is a channel of an image, so pooling over the last two axes is that of images. The first
axis then lies in lanes, where windows are products with ones (averages), or with a single one per tap (maxima).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from concord.frontend.context import Context, OnnxNode
from concord.graph.ops.windows import AveragePoolAttributes, PoolAttributes, divisors, windows
from concord.utils.arrays import FloatArray


def pool_volume(ctx: Context, node: OnnxNode, op: str, x: str, attrs: dict[str, Any]) -> str:
    """Pooling ``op`` of ``[images, channels, depth, height, width]``, with the axes before ``height`` as channels."""
    images, channels, depth, *plane = ctx.shape(x)
    maps = images * channels
    flat = ctx.emit(node, "Reshape", [x], shape=(1, maps * depth, *plane))
    planes = ctx.emit(node, op, [flat], **_along(attrs, (1, 2)))
    along = window_of(op, _along(attrs, (0,)))
    taps = windows(along, along.kernel, np.arange(depth, dtype=np.float64), -1.0).astype(np.int64)
    if not isinstance(along, AveragePoolAttributes):
        taps = np.where(taps < 0, taps.max(axis=1, keepdims=True), taps)  # padding counts for nothing
        y, *others = (_product(ctx, node, planes, np.eye(depth)[tap], maps) for tap in taps.T)
        for other in others:
            y = ctx.emit(node, "Max", [y, other])
        return y
    members = (taps[..., None] == np.arange(depth)).any(axis=1).astype(np.float64)
    shares = 1 / divisors(along, [depth])
    sums = _product(ctx, node, planes, members, maps)
    return ctx.emit(node, "Mul", [sums], constant=np.tile(shares, maps).reshape(-1, 1, 1))


def window_of(op: str, attrs: dict[str, Any]) -> PoolAttributes:
    """The attributes of a pooling as the record of its operator."""
    return (AveragePoolAttributes if op == "AveragePool" else PoolAttributes)(**attrs)


def _along(attrs: dict[str, Any], axes: tuple[int, ...]) -> dict[str, Any]:
    """Attributes of a window over some of its three axes."""
    return {name: tuple(v for k, v in enumerate(values) if k % 3 in axes) for name, values in attrs.items()}


def _product(ctx: Context, node: OnnxNode, x: str, matrix: FloatArray, maps: int) -> str:
    """The same ``[results, depth]`` matrix for the ``depth`` channels of each of ``maps``."""
    weight = np.tile(matrix[..., None, None], (maps, 1, 1, 1))
    ones = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    return ctx.emit(node, "Conv", [x], weight=weight, bias=np.zeros(len(weight)), group=maps, **ones)
