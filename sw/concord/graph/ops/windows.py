"""Windows that slide over the spatial axes of ``[..., channels, *spatial]``: geometry of convolution and pooling.

Windows that do not fit entirely into the padded input are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from concord.graph.ops.attributes import COUNTS, SIZES, Attribute, NoAttributes
from concord.graph.ops.base import (
    Arrays,
    Operation,
    Operator,
    OperatorKind,
    Shape,
    Shapes,
    keeps_sign,
    no_macs,
    present,
)
from concord.utils.arrays import FloatArray


class WindowAttributes(NoAttributes):
    """Attributes of windows that slide."""

    strides: Annotated[tuple[int, ...], Attribute("step of the window along every spatial axis", COUNTS)]
    pads: Annotated[
        tuple[int, ...],
        Attribute("elements of padding: at the begin of every spatial axis, then at the end of every one", SIZES),
    ]
    dilations: Annotated[tuple[int, ...], Attribute("distance of the taps along every spatial axis", COUNTS)]


def window_counts(attributes: WindowAttributes, kernel: Sequence[int], spatial: Sequence[int]) -> Shape:
    """Number of windows along every spatial axis; ``ValueError`` if there is none."""
    pads, rank = attributes.pads, len(kernel)
    if len(spatial) != rank:
        raise ValueError(f"window of {rank} axes must slide over as many, not {len(spatial)}")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, attributes.dilations, strict=True)]
    padded = [size + pads[axis] + pads[rank + axis] for axis, size in enumerate(spatial)]
    if any(span > size for span, size in zip(spans, padded, strict=True)):
        raise ValueError(f"window of {spans} elements must fit into the padded input of {padded}")
    return tuple((p - s) // stride + 1 for p, s, stride in zip(padded, spans, attributes.strides, strict=True))


def windows(attributes: WindowAttributes, kernel: Sequence[int], x: FloatArray, padding: float) -> FloatArray:
    """Read-only view ``[..., *counts, *kernel]`` of ``x[..., *spatial]``."""
    rank = len(kernel)
    pads, axes = attributes.pads, tuple(range(x.ndim - rank, x.ndim))
    if any(pads):
        widths = [(0, 0)] * (x.ndim - rank) + [(pads[axis], pads[rank + axis]) for axis in range(rank)]
        x = np.pad(x, widths, constant_values=padding)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, attributes.dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    steps = tuple(slice(None, None, step) for step in (*attributes.strides, *attributes.dilations))
    return view[(slice(None),) * (view.ndim - 2 * rank) + steps]


def _pool_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(PoolAttributes)
    kept = shape[: len(shape) - len(attributes.kernel)]
    return [kept + window_counts(attributes, attributes.kernel, shape[len(kept) :])]


def _kernel_axes(attributes: PoolAttributes) -> tuple[int, ...]:
    return tuple(range(-len(attributes.kernel), 0))


def _max_pool(node: Operation, inputs: Arrays) -> list[FloatArray]:
    attributes = node.attributes(PoolAttributes)
    return [windows(attributes, attributes.kernel, present(inputs[0]), -np.inf).max(axis=_kernel_axes(attributes))]


def divisors(attributes: AveragePoolAttributes, spatial: Sequence[int]) -> FloatArray:
    """Divisors by which an AveragePool divides the sum of every window: ``[*counts]``."""
    pads, counted, rank = attributes.pads, attributes.counted, len(spatial)
    grid = np.zeros([pads[axis] + size + pads[rank + axis] for axis, size in enumerate(spatial)])
    inside = [slice(pads[k] - counted[k], pads[k] + n + counted[rank + k]) for k, n in enumerate(spatial)]
    grid[tuple(inside)] = 1.0
    unpadded = replace(attributes, pads=(0,) * len(pads))
    return np.asarray(windows(unpadded, attributes.kernel, grid, 0.0).sum(axis=_kernel_axes(attributes)))


def _average_pool(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, attributes = present(inputs[0]), node.attributes(AveragePoolAttributes)
    sums = windows(attributes, attributes.kernel, x, 0.0).sum(axis=_kernel_axes(attributes))
    return [sums / divisors(attributes, x.shape[x.ndim - len(attributes.kernel) :])]


class PoolAttributes(WindowAttributes):
    """Attributes of all poolings."""

    kernel: Annotated[tuple[int, ...], Attribute("size of the window along every spatial axis", COUNTS)]


class AveragePoolAttributes(PoolAttributes):
    """Attributes of an AveragePool."""

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
