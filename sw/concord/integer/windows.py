"""Windows of convolutions and pools, as a node of ONNX describes them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.reading import Reading


def window_settings(ctx: Reading, node: OnnxNode, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Strides, dilations and pads of what slides over the first operand, by ``auto_pad`` and ``ceil_mode``, too."""
    rank = len(kernel)
    strides = tuple(node.attrs.get("strides", [1] * rank))
    dilations = tuple(node.attrs.get("dilations", [1] * rank))
    kind, pads = node.attrs.get("auto_pad", "NOTSET"), tuple(node.attrs.get("pads", [0] * 2 * rank))
    extents = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        if max(dilations) > 1:
            raise Refusal(f"dilations must be 1 with auto_pad {kind}, not {list(dilations)}", "export with pads")
        # With strides of 1 the sizes of the tensor do not count.
        sizes = [1] * rank if max(strides) == 1 else ctx.sizes_of(node.input(0))[2:]
        steps = zip(sizes, strides, extents, strict=True)
        pads = _same(
            (math.ceil(size / stride) * stride - stride + extent - size for size, stride, extent in steps), kind
        )
        if min(pads) < 0:
            remedy = "export with strides of at most kernel_shape"
            raise Refusal(f"pads must not be negative, as auto_pad {kind} makes them here: {list(pads)}", remedy)
    elif kind == "VALID":
        pads = (0,) * 2 * rank
    elif kind != "NOTSET":
        raise Refusal(f"auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, not {kind!r}")
    if node.attrs.get("ceil_mode", 0):
        begins = pads[:rank]
        ends = map(_up_to_the_last_window, ctx.sizes_of(node.input(0))[2:], strides, extents, begins, pads[rank:])
        pads = (*begins, *ends)
    return {"strides": strides, "dilations": dilations, "pads": pads, "last": ctx.last}


def convolution_settings(ctx: Reading, node: OnnxNode, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Fields of a convolution, all but its weight and what goes with that."""
    return {"groups": int(node.attrs.get("group", 1)), **window_settings(ctx, node, kernel)}


def _same(totals: Iterable[int], kind: str) -> tuple[int, ...]:
    """Pads of both sides; where their number is odd, there is one more at the end that the name says."""
    halves = [(total // 2, total - total // 2) for total in totals]
    begins, ends = zip(*(half if kind == "SAME_UPPER" else half[::-1] for half in halves), strict=True)
    return *begins, *ends


def _up_to_the_last_window(size: int, stride: int, extent: int, begin: int, end: int) -> int:
    """The pad at the end with which no element is left over; a window does not begin after the last element."""
    last = -(-(begin + size + end - extent) // stride) * stride
    if last >= begin + size:
        last -= stride
    return max(last + extent - begin - size, 0)
