"""Windows of convolutions and pools, as a node of ONNX describes them."""

from __future__ import annotations

from typing import Any

from concord.frontend.codes.reading import Reading
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.pooling import pads_of_pool, window_attrs


def window_settings(ctx: Reading, node: OnnxNode, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Strides, dilations and pads of what slides over the first operand, by ``auto_pad`` and ``ceil_mode``, too."""
    rank, kind, ceil = len(kernel), node.attrs.get("auto_pad", "NOTSET"), node.attrs.get("ceil_mode", 0)
    strides, dilations = (node.attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    same, sizes = kind in ("SAME_UPPER", "SAME_LOWER"), [1] * rank
    if not same and kind not in ("NOTSET", "VALID"):
        raise Refusal(f"auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, not {kind!r}")
    if same and max(dilations) > 1:
        raise Refusal(f"dilations must be 1 with auto_pad {kind}, not {list(dilations)}", "export with pads")
    if ceil or (same and max(strides) > 1):  # with strides of 1 the sizes of the tensor do not count
        whole = ctx.sizes_of(node.input(0))
        sizes = [whole[axis] for axis in ctx.spatial_axes(rank)]
    extents = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    sides = zip(sizes, strides, extents, strict=True)
    if same and any((size - 1) // stride * stride + extent < size for size, stride, extent in sides):
        remedy = "export with strides of at most kernel_shape"
        raise Refusal(f"pads must not be negative, as auto_pad {kind} makes them here", remedy)
    windows = window_attrs(node, kernel, sizes)
    if node.op.endswith("Pool"):
        windows["pads"] = pads_of_pool(node, kernel, sizes, windows)
    return {**windows, "last": ctx.last}


def convolution_settings(ctx: Reading, node: OnnxNode, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Fields of a convolution, all but its weight and what goes with that."""
    return {"groups": int(node.attrs.get("group", 1)), **window_settings(ctx, node, kernel)}
