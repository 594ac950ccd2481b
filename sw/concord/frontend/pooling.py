"""Pooling, and how the padding of windows is written in ONNX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.pointwise import absolute_of, apply, times
from concord.frontend.volumes import pool_volume, window_of
from concord.graph.ops import window_counts

#: Power of the L2 norm, the default.
_SQUARES = 2


def window_attrs(node: OnnxNode, kernel: Sequence[int], spatial: Sequence[int]) -> dict[str, Any]:
    """``strides``, ``pads`` and ``dilations``, with ``auto_pad`` resolved."""
    rank, attrs = len(kernel), node.attrs
    if len(spatial) != rank or list(attrs.get("kernel_shape", kernel)) != list(kernel):
        raise Refusal(f"kernel {list(kernel)} must go with the input {list(spatial)}")
    strides = tuple(attrs.get("strides", [1] * rank))
    dilations = tuple(attrs.get("dilations", [1] * rank))
    pads = tuple(attrs.get("pads", [0] * 2 * rank))
    if not len(strides) == len(dilations) == len(pads) / 2 == rank or min(strides + dilations) < 1:
        raise Refusal(f"strides, dilations and pads must go with {rank} axes")
    mode = attrs.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
            for size, stride, k, dilation in zip(spatial, strides, kernel, dilations, strict=True)
        ]
        small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        pads = small + large if mode == "SAME_UPPER" else large + small
    if min(pads, default=0) < 0:
        raise Refusal(f"pads must not be negative, {list(pads)}", "use Slice")
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _pool_attrs(ctx: Context, node: OnnxNode, x: str) -> dict[str, Any]:
    """Attributes of a window; ``all_pads`` also covers what ``ceil_mode`` lets reach beyond the end."""
    spatial = ctx.shape(x)[2:]
    if len(spatial) not in (1, 2, 3):
        raise Refusal(f"must have 1 to 3 spatial axes, not {len(spatial)}", "use pooling over fewer axes")
    kernel = tuple(node.attrs["kernel_shape"])
    attrs = window_attrs(node, kernel, spatial)
    return {"kernel": kernel, **attrs, "all_pads": pads_of_pool(node, kernel, spatial, attrs)}


def pads_of_pool(
    node: OnnxNode, kernel: Sequence[int], spatial: Sequence[int], attrs: Mapping[str, Any]
) -> tuple[int, ...]:
    """Padding of a pool with these attributes of its windows, and what ``ceil_mode`` lets reach beyond the end."""
    rank, pads = len(kernel), list(attrs["pads"])
    for axis, size in enumerate(spatial):
        span, stride = (kernel[axis] - 1) * attrs["dilations"][axis] + 1, attrs["strides"][axis]
        if max(pads[axis], pads[rank + axis]) >= span:
            raise Refusal("has windows that lie in the padding", "make the padding smaller than the window")
        if node.attrs.get("ceil_mode", 0):
            count = -(-(size + pads[axis] + pads[rank + axis] - span) // stride) + 1
            count -= (count - 1) * stride >= size + pads[axis]
            pads[rank + axis] = max(pads[rank + axis], (count - 1) * stride + span - size - pads[axis])
    return tuple(pads)


def one_image(ctx: Context, node: OnnxNode, x: str) -> str:
    """A batch ``[images, channels, *spatial]`` of fixed size as ``[1, images * channels, *spatial]``."""
    images, channels, *spatial = ctx.graph.shapes[x]
    return x if images == 1 else ctx.emit(node, "Reshape", [x], shape=(1, images * channels, *spatial))


def _pool(ctx: Context, node: OnnxNode, op: str, x: str, attrs: dict[str, Any]) -> str:
    """Pool one image as it is, a batch as more channels; the first of three axes by a product, unless trained."""
    images, channels, *spatial = ctx.shape(x)
    if len(spatial) == 3 and not ctx.volumes:
        y = pool_volume(ctx, node, op, x, attrs)
    elif images == 1:
        return ctx.emit(node, op, [x], **attrs)
    else:
        y = ctx.emit(node, op, [one_image(ctx, node, x)], **attrs)
    return ctx.emit(
        node, "Reshape", [y], shape=(images, channels, *window_counts(window_of(op, attrs), attrs["kernel"], spatial))
    )


def max_pool(ctx: Context, node: OnnxNode) -> str:
    """Maximum over windows."""
    x = ctx.tensor(node.input(0))
    attrs = _pool_attrs(ctx, node, x)
    return _pool(ctx, node, "MaxPool", x, attrs | {"pads": attrs.pop("all_pads")})


def average_pool(ctx: Context, node: OnnxNode) -> str:
    """Average over windows; ``counted`` says which padding is part of it."""
    x = ctx.tensor(node.input(0))
    attrs = _pool_attrs(ctx, node, x)
    pads = attrs["pads"]
    counted = pads if node.attrs.get("count_include_pad", 0) else (0,) * len(pads)
    return _pool(ctx, node, "AveragePool", x, attrs | {"pads": attrs.pop("all_pads"), "counted": counted})


def lp_pool(ctx: Context, node: OnnxNode) -> str:
    """The root of the sum of powers in a window: of 1 or 2."""
    x, p = ctx.tensor(node.input(0)), _power(node)
    attrs = _pool_attrs(ctx, node, x)
    sizes = {"pads": attrs["pads"], "counted": attrs.pop("all_pads")}
    mean = _pool(ctx, node, "AveragePool", _terms(ctx, node, x, p), attrs | {"pads": sizes["counted"]} | sizes)
    total = times(ctx, node, mean, math.prod(attrs["kernel"]))
    return apply(ctx, node, total, "sqrt") if p == _SQUARES else total


def global_lp_pool(ctx: Context, node: OnnxNode) -> str:
    """The L1 or L2 norm over all spatial axes."""
    x, p = ctx.tensor(node.input(0)), _power(node)
    axes = tuple(range(2, len(ctx.shape(x))))
    total = ctx.emit(node, "ReduceSum", [_terms(ctx, node, x, p)], axes=axes, keepdims=True)
    return apply(ctx, node, total, "sqrt") if p == _SQUARES else total


def _power(node: OnnxNode) -> int:
    p = int(node.attrs.get("p", _SQUARES))
    if p not in (1, _SQUARES):
        reason = f"p must be 1 or 2, not {p}: other powers in a window span more than its operand of few bits holds"
        raise Refusal(reason, "use p of 1 or 2")
    return p


def _terms(ctx: Context, node: OnnxNode, x: str, p: int) -> str:
    return absolute_of(ctx, node, x) if p == 1 else ctx.emit(node, "Mul", [x, x])


def global_average_pool(ctx: Context, node: OnnxNode) -> str:
    """The mean over all spatial axes."""
    x = ctx.tensor(node.input(0))
    return ctx.emit(node, "ReduceMean", [x], axes=tuple(range(2, len(ctx.shape(x)))), keepdims=True)


def global_max_pool(ctx: Context, node: OnnxNode) -> str:
    """A window of the size of the input."""
    x = ctx.tensor(node.input(0))
    kernel = ctx.shape(x)[2:]
    ones = (1,) * len(kernel)
    attrs = {"kernel": kernel, "strides": ones, "dilations": ones, "pads": (0,) * 2 * len(kernel)}
    return _pool(ctx, node, "MaxPool", x, attrs)


HANDLERS: dict[str, Handler] = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
    "LpPool": lp_pool,
    "GlobalLpPool": global_lp_pool,
}
