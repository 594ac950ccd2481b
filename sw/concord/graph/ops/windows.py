"""Windows that slide over the spatial axes of ``[..., channels, *spatial]``: geometry of convolution and pooling.

Windows that do not fit entirely into the padded input are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from concord.graph.operation import Operation, Shape
from concord.graph.ops.attributes import COUNTS, SIZES, Attribute, NoAttributes
from concord.graph.ops.base import Operator, OperatorKind, keeps_sign, no_macs, present, present_shape
from concord.utils.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class WindowAttributes(NoAttributes):
    """How windows slide."""

    strides: Annotated[tuple[int, ...], Attribute("step of the window along every spatial axis", COUNTS)]
    pads: Annotated[
        tuple[int, ...],
        Attribute("elements of padding: at the begin of every spatial axis, then at the end of every one", SIZES),
    ]
    dilations: Annotated[tuple[int, ...], Attribute("distance of the taps along every spatial axis", COUNTS)]


def window_counts(attrs: dict[str, Any], kernel: Sequence[int], spatial: Sequence[int]) -> Shape:
    """Number of windows along every spatial axis; ``ValueError`` if there is none."""
    pads, rank = attrs["pads"], len(kernel)
    if len(spatial) != rank:
        raise ValueError(f"window of {rank} axes must slide over as many, not {len(spatial)}")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilations"], strict=True)]
    padded = [size + pads[axis] + pads[rank + axis] for axis, size in enumerate(spatial)]
    if any(span > size for span, size in zip(spans, padded, strict=True)):
        raise ValueError(f"window of {spans} elements must fit into the padded input of {padded}")
    return tuple((p - s) // stride + 1 for p, s, stride in zip(padded, spans, attrs["strides"], strict=True))


def windows(attrs: dict[str, Any], kernel: Sequence[int], x: FloatArray, padding: float) -> FloatArray:
    """Read-only view ``[..., *counts, *kernel]`` of ``x[..., *spatial]``."""
    rank = len(kernel)
    pads, axes = attrs["pads"], tuple(range(x.ndim - rank, x.ndim))
    if any(pads):
        widths = [(0, 0)] * (x.ndim - rank) + [(pads[axis], pads[rank + axis]) for axis in range(rank)]
        x = np.pad(x, widths, constant_values=padding)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, attrs["dilations"], strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    steps = tuple(slice(None, None, step) for step in (*attrs["strides"], *attrs["dilations"]))
    return view[(slice(None),) * (view.ndim - 2 * rank) + steps]


def _pool_shape(node: Operation, inputs: Sequence[Shape | None]) -> list[Shape]:
    shape, kernel = present_shape(inputs[0]), node.attrs["kernel"]
    kept = shape[: len(shape) - len(kernel)]
    return [kept + window_counts(node.attrs, kernel, shape[len(kept) :])]


def _kernel_axes(node: Operation) -> tuple[int, ...]:
    return tuple(range(-len(node.attrs["kernel"]), 0))


def _max_pool(node: Operation, inputs: Sequence[FloatArray | None]) -> list[FloatArray]:
    view = windows(node.attrs, node.attrs["kernel"], present(inputs[0]), -np.inf)
    return [view.max(axis=_kernel_axes(node))]


def divisors(node: Operation, spatial: Sequence[int]) -> FloatArray:
    """What an AveragePool divides the sum of every window by: ``[*counts]``."""
    pads, counted, rank = node.attrs["pads"], node.attrs["counted"], len(spatial)
    grid = np.zeros([pads[axis] + size + pads[rank + axis] for axis, size in enumerate(spatial)])
    inside = [slice(pads[k] - counted[k], pads[k] + n + counted[rank + k]) for k, n in enumerate(spatial)]
    grid[tuple(inside)] = 1.0
    unpadded = node.attrs | {"pads": (0,) * len(pads)}
    return np.asarray(windows(unpadded, node.attrs["kernel"], grid, 0.0).sum(axis=_kernel_axes(node)))


def _average_pool(node: Operation, inputs: Sequence[FloatArray | None]) -> list[FloatArray]:
    x, kernel = present(inputs[0]), node.attrs["kernel"]
    sums = windows(node.attrs, kernel, x, 0.0).sum(axis=_kernel_axes(node))
    return [sums / divisors(node, x.shape[x.ndim - len(kernel) :])]


@dataclass(frozen=True, kw_only=True)
class PoolAttributes(WindowAttributes):
    """What all poolings have."""

    kernel: Annotated[tuple[int, ...], Attribute("size of the window along every spatial axis", COUNTS)]


@dataclass(frozen=True, kw_only=True)
class AveragePoolAttributes(PoolAttributes):
    """Of an AveragePool."""

    counted: Annotated[
        tuple[int, ...], Attribute("how many of the pads count as elements of the average; nothing beyond does", SIZES)
    ]


WINDOW_OPS = {
    "MaxPool": Operator(
        OperatorKind.MOVING,
        PoolAttributes,
        _pool_shape,
        _max_pool,
        windowed=True,
        rises=True,
        never_negative=keeps_sign,
    ),
    "AveragePool": Operator(
        OperatorKind.QUANTISED,  # a depthwise product with ones
        AveragePoolAttributes,
        _pool_shape,
        _average_pool,
        macs=no_macs,
        windowed=True,
        rises=True,
        never_negative=keeps_sign,
    ),
}
