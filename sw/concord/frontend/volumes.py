"""Convolutions and pooling over three spatial axes.

A convolution is one of planes, a group for every plane of the result; its channels are those of all planes in a window.
Pooling is windows of planes, then products along the first axis.

A plane ``[height, width]`` is a channel of an image, so pooling over the last two axes is that of images. The first
axis then lies in lanes, where windows are products with ones (averages), or with a single one per tap (maxima).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.frontend.context import Context, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.moving import picked
from concord.graph.ops.windows import AveragePoolAttributes, PoolAttributes, divisors, windows
from concord.utils.arrays import FloatArray
from concord.utils.matrices import check_size, eye


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
        planes_apart = eye("pooling along the first axis", depth)
        y, *others = (_product(ctx, node, planes, planes_apart[tap], maps) for tap in taps.T)
        for other in others:
            y = ctx.emit(node, "Max", [y, other])
        return y
    check_size("pooling along the first axis", *taps.shape, depth)
    members = (taps[..., None] == np.arange(depth)).any(axis=1).astype(np.float64)
    shares = 1 / divisors(along, [depth])
    sums = _product(ctx, node, planes, members, maps)
    return ctx.emit(node, "Mul", [sums], constant=np.tile(shares, maps).reshape(-1, 1, 1))


@dataclass(frozen=True)
class Filters:
    """Weights of a convolution ``[outputs, inputs of a group, *kernel]``, what is added, and the number of groups."""

    weight: FloatArray
    bias: FloatArray
    group: int


def conv_volume(ctx: Context, node: OnnxNode, x: str, filters: Filters, attrs: dict[str, Any]) -> str:
    """A convolution of ``[images, channels, depth, height, width]``."""
    weight, groups = filters.weight, filters.group
    images, channels, depth, *plane = ctx.shape(x)
    maps, each, taps, *kernel = weight.shape
    if groups < 1 or each * groups != channels or maps % groups:
        raise Refusal(f"weight {list(weight.shape)} must go with {channels} channels in {groups} groups")
    (stride,), (front, back), (step,) = (_along(attrs, (0,))[name] for name in ("strides", "pads", "dilations"))
    x = ctx.emit(node, "Reshape", [x], shape=(images, groups, channels // groups, depth, *plane))
    x = ctx.emit(node, "Transpose", [x], perm=(0, 3, 1, 2, 4, 5))
    if front or back:
        x = ctx.emit(node, "Pad", [x], pads=(0, front, *[0] * 5, back, *[0] * 4), mode="constant", value=0.0)
    count = (depth + front + back - (taps - 1) * step - 1) // stride + 1
    if count < 1:
        raise Refusal("must fit into the padded input", "make the kernel smaller")
    first = np.arange(count)[:, None] * stride
    x = picked(ctx, node, x, 1, (first + np.arange(taps) * step).reshape(-1).tolist())
    x = ctx.emit(node, "Reshape", [x], shape=(images, count, taps, groups, channels // groups, *plane))
    x = ctx.emit(node, "Transpose", [x], perm=(0, 1, 3, 2, 4, 5, 6))
    x = ctx.emit(node, "Reshape", [x], shape=(1, images * count * taps * channels, *plane))
    planes = weight.transpose(0, 2, 1, 3, 4).reshape(maps, taps * each, *kernel)
    flat = {name: values for name, values in _along(attrs, (1, 2)).items() if name in ("strides", "pads", "dilations")}
    bias, weight = np.tile(filters.bias, images * count), np.concatenate([planes] * (images * count))
    y = ctx.emit(node, "Conv", [x], weight=weight, bias=bias, group=images * count * groups, **flat)
    result = ctx.shape(y)[2:]
    y = ctx.emit(node, "Reshape", [y], shape=(images, count, maps, *result))
    return ctx.emit(node, "Transpose", [y], perm=(0, 2, 1, 3, 4))


def window_of(op: str, attrs: dict[str, Any]) -> PoolAttributes:
    """The attributes of a pooling as the record of its operator."""
    return (AveragePoolAttributes if op == "AveragePool" else PoolAttributes)(**attrs)


def _along(attrs: dict[str, Any], axes: tuple[int, ...]) -> dict[str, Any]:
    """Attributes of a window over some of its three axes."""
    return {name: tuple(v for k, v in enumerate(values) if k % 3 in axes) for name, values in attrs.items()}


def _product(ctx: Context, node: OnnxNode, x: str, matrix: FloatArray, maps: int) -> str:
    """Multiply the ``depth`` channels of each of ``maps`` with one matrix ``[results, depth]``."""
    weight = np.tile(matrix[..., None, None], (maps, 1, 1, 1))
    ones = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    return ctx.emit(node, "Conv", [x], weight=weight, bias=np.zeros(len(weight)), group=maps, **ones)
