"""Transposed convolutions: every residue of a position has a layer of its own.

A result ``factor * t + r`` along an axis depends on few neighbours of ``t``, and on the same ones for every ``t``. So
all results of one residue ``r`` are a convolution of the image as it is, and the results of all residues are put
together position by position. No element is multiplied with zeros that were put between others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.pooling import one_image
from concord.frontend.volumes import Filters, conv_volume
from concord.utils.arrays import FloatArray

#: Spatial axes of a volume.
_VOLUME = 3


@dataclass(frozen=True)
class _Taps:
    """Results of one residue along an axis: result ``t`` reads elements ``t + first``, ``t + first + 1``, ...

    ``weights`` has a row for each tap and a column for what it multiplies with: an index of a kernel, or -1.
    """

    first: int
    weights: tuple[int, ...]


def between(ctx: Context, node: OnnxNode, parts: dict[tuple[int, ...], str], factors: Sequence[int]) -> str:
    """Images ``[1, channels, *spatial]`` by residue along every axis, put together position by position."""
    first = next(iter(parts.values()))
    batch, channels, *spatial = ctx.shape(first)
    split = [size for length in spatial for size in (length, 1)]
    pieces = {key: ctx.emit(node, "Reshape", [x], shape=(batch, channels, *split)) for key, x in parts.items()}
    for axis in reversed(range(len(factors))):
        keys = list(dict.fromkeys(key[:axis] for key in pieces))
        pieces = {
            key: ctx.joined(node, [pieces[(*key, r)] for r in range(factors[axis])], 2 + 2 * axis + 1) for key in keys
        }
    full = [length * factor for length, factor in zip(spatial, factors, strict=True)]
    return ctx.emit(node, "Reshape", [pieces[()]], shape=(batch, channels, *full))


def _cut(ctx: Context, node: OnnxNode, x: str, sizes: Sequence[int]) -> str:
    """The first elements along the spatial axes."""
    axes = [axis for axis, size in enumerate(sizes, 2) if ctx.shape(x)[axis] != size]
    if not axes:
        return x
    stops = tuple(sizes[axis - 2] for axis in axes)
    ones = (1,) * len(axes)
    return ctx.emit(node, "Slice", [x], axes=tuple(axes), starts=(0,) * len(axes), stops=stops, steps=ones)


def windowed(
    ctx: Context, node: OnnxNode, x: str, filters: Filters, first: Sequence[int], counts: Sequence[int]
) -> str:
    """Results ``t`` in ``counts``: weights times the elements from ``t + first`` on; those outside are zero."""
    spatial, kernel = ctx.shape(x)[2:], filters.weight.shape[2:]
    begin = [-start for start in first]
    end = [count - 1 + start + k - size for count, start, k, size in zip(counts, first, kernel, spatial, strict=True)]
    inside = [range(max(-b, 0), size - max(-e, 0)) for b, e, size in zip(begin, end, spatial, strict=True)]
    if any(len(part) != size for part, size in zip(inside, spatial, strict=True)):
        if not all(inside):  # no element has a part in any result
            nothing = np.zeros((*filters.weight.shape[:2], *[1] * len(kernel)))
            return windowed(ctx, node, x, replace(filters, weight=nothing), [0] * len(kernel), counts)
        columns = {f"{key}s": tuple(getattr(part, key) for part in inside) for key in ("start", "stop", "step")}
        x = ctx.emit(node, "Slice", [x], axes=tuple(range(2, 2 + len(inside))), **columns)
    pads = tuple(max(pad, 0) for pad in (*begin, *end))
    return strided(ctx, node, x, filters, (1,) * len(kernel), pads)


def strided(
    ctx: Context, node: OnnxNode, x: str, filters: Filters, strides: tuple[int, ...], pads: tuple[int, ...] = ()
) -> str:
    """A convolution over one to three spatial axes, padded with zeros."""
    rank = len(strides)
    attrs = {"strides": strides, "dilations": (1,) * rank, "pads": pads or (0,) * 2 * rank}
    if rank == _VOLUME:
        return conv_volume(ctx, node, x, filters, attrs)
    return ctx.emit(node, "Conv", [x], **vars(filters), **attrs)


def conv_transpose(ctx: Context, node: OnnxNode) -> str:
    """A transposed convolution over one to three spatial axes."""
    x, weight = ctx.tensor(node.input(0)), ctx.floats(node.input(1), "weight")
    images, inputs, *spatial = ctx.shape(x)
    rank, kernel, group = weight.ndim - 2, weight.shape[2:], int(node.attrs.get("group", 1))
    if not 1 <= rank <= _VOLUME:
        raise Refusal(f"must have 1 to 3 spatial axes, not {rank}", "use ConvTranspose over fewer axes")
    if len(spatial) != rank or len(weight) != inputs or inputs % group:
        raise Refusal(f"weight {list(weight.shape)} must go with the input {list(ctx.shape(x))}")
    each = weight.shape[1]
    strides, dilations = (tuple(node.attrs.get(name, [1] * rank)) for name in ("strides", "dilations"))
    begin, sizes = _extent(node, spatial, kernel, strides, dilations)
    # [inputs, outputs of a group, ...] as [outputs, inputs of a group, ...]
    turned = weight.reshape(group, inputs // group, each, *kernel).swapaxes(1, 2)
    turned = np.concatenate([turned.reshape(group * each, inputs // group, *kernel)] * images)
    bias = ctx.floats(node.input(2), "bias") if node.input(2) else np.zeros(group * each)
    bias = np.tile(bias, images)
    counts = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    flat, parts = one_image(ctx, node, x), {}
    for residues in product(*map(range, strides)):
        taps = [
            _transposed_taps(r + pad, k, stride, dilation)
            for r, pad, k, stride, dilation in zip(residues, begin, kernel, strides, dilations, strict=True)
        ]
        first = [tap.first for tap in taps]
        filters = Filters(_picked(turned, taps), bias, images * group)
        parts[residues] = windowed(ctx, node, flat, filters, first, counts)
    y = _cut(ctx, node, between(ctx, node, parts, strides), sizes)
    return y if images == 1 else ctx.emit(node, "Reshape", [y], shape=(images, group * each, *sizes))


def _extent(
    node: OnnxNode, spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Padding at the begin of every axis, and sizes of the result."""
    rank, attrs = len(kernel), node.attrs
    more, mode = attrs.get("output_padding", [0] * rank), attrs.get("auto_pad", "NOTSET")
    pads = list(attrs.get("pads", [0] * 2 * rank))
    columns = zip(spatial, kernel, strides, dilations, more, strict=True)
    full = [stride * (size - 1) + extra + (k - 1) * dilation + 1 for size, k, stride, dilation, extra in columns]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(spatial, strides, strict=True)]
        if any(want > size for want, size in zip(wanted, full, strict=True)):  # onnxruntime and the definition differ
            raise Refusal(f"result must be at most {full}, what the kernel reaches, not {wanted}", "use output_padding")
    elif "output_shape" in attrs:
        wanted = list(attrs["output_shape"][-rank:])
    else:
        pads = [0] * 2 * rank if mode == "VALID" else pads
        return pads[:rank], [size - pads[k] - pads[rank + k] for k, size in enumerate(full)]
    totals = [max(size - want, 0) for size, want in zip(full, wanted, strict=True)]
    return [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals], wanted


def _transposed_taps(shifted: int, kernel: int, stride: int, dilation: int) -> _Taps:
    """Elements of the input that reach result ``shifted - padding``, and with which index of the kernel."""
    offset, rest = divmod(shifted, stride)
    reached = {(k * dilation - rest) // stride: k for k in range(kernel) if (k * dilation - rest) % stride == 0}
    if not reached:
        return _Taps(0, (-1,))
    last, first = max(reached), min(reached)
    return _Taps(offset - last, tuple(reached.get(last - j, -1) for j in range(last - first + 1)))


def _picked(weight: FloatArray, taps: Sequence[_Taps]) -> FloatArray:
    """The weights of the taps along every spatial axis; zeros where none of the kernel belongs."""
    for axis, tap in enumerate(taps, 2):
        indices = np.array(tap.weights)
        shape = [1] * weight.ndim
        shape[axis] = -1
        weight = weight.take(np.maximum(indices, 0), axis) * (indices >= 0).reshape(shape)
    return weight


HANDLERS: dict[str, Handler] = {"ConvTranspose": conv_transpose}
