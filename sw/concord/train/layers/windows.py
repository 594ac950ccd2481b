"""The elements that taps of a window meet, for convolution and pooling over one to three axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from concord.graph.ir import Node, Shape
from concord.graph.ops import window_counts
from concord.graph.ops.windows import WindowAttributes
from concord.train.tensor import Array

Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Geometry:
    """A window over the last axes.

    Parameters
    ----------
    kernel : tuple of int
        Its size.
    attributes : WindowAttributes
        How it slides.
    """

    kernel: Shape
    attributes: WindowAttributes

    @classmethod
    def of(cls, node: Node, kernel: Shape) -> Geometry:
        """Window of a node; weights of the node, if there are some, are not kept."""
        how = node.attributes(WindowAttributes)
        return cls(kernel, WindowAttributes(strides=how.strides, pads=how.pads, dilations=how.dilations))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.kernel)

    def counts(self, spatial: Sequence[int]) -> Shape:
        """Number of windows along every axis."""
        return window_counts(self.attributes, self.kernel, spatial)

    @property
    def apart(self) -> bool:
        """True if no element is in two windows."""
        return all(step >= span for step, span in zip(self.attributes.strides, self.spans, strict=True))

    @property
    def spans(self) -> Shape:
        """Elements from the first to the last one of a window, by axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.attributes.dilations, strict=True))

    def sizes(self, spatial: Sequence[int]) -> Shape:
        """Sizes of a padded array."""
        pads = self.attributes.pads
        return tuple(pads[k] + n + pads[self.rank + k] for k, n in enumerate(spatial))

    def inside(self, spatial: Sequence[int]) -> Slices:
        """Place of the elements in a padded array."""
        return tuple(slice(self.attributes.pads[k], self.attributes.pads[k] + n) for k, n in enumerate(spatial))

    def padded(self, x: Array, value: float = 0.0) -> Array:
        """An array with padding."""
        if not any(self.attributes.pads):
            return x
        spatial = x.shape[x.ndim - self.rank :]
        grown = padded_like(self, x, spatial, value)
        grown[at_last_axes(self.inside(spatial))] = x
        return grown

    def met(self, x: Array) -> Array:
        """Elements that windows meet of ``[..., C, *spatial]``, as channels ``[..., taps * C, *counts]``."""
        counts, axis = self.counts(x.shape[x.ndim - self.rank :]), -1 - self.rank
        grid = self.padded(x)
        return np.concatenate([grid[at_last_axes(slices)] for _, slices in self.taps(counts)], axis)

    def taps(self, counts: Sequence[int]) -> Iterator[tuple[Shape, Slices]]:
        """Every tap with what it meets in a padded array."""
        steps, apart = self.attributes.strides, self.attributes.dilations
        for tap in product(*(range(size) for size in self.kernel)):
            starts = [t * d for t, d in zip(tap, apart, strict=True)]
            stops = [s + (n - 1) * step + 1 for s, n, step in zip(starts, counts, steps, strict=True)]
            yield tap, tuple(slice(*three) for three in zip(starts, stops, steps, strict=True))


def at_last_axes(slices: Slices) -> Any:
    """An index of the last axes."""
    return (..., *slices)


def behind_images(slices: Slices) -> Any:
    """An index of the axes after that of the images."""
    return (slice(None), *slices)


def padded_like(geometry: Geometry, like: Array, spatial: Sequence[int], value: float = 0.0) -> Array:
    """A padded array of one value, with its axes in memory in the order of those of ``like``."""
    shape = (*like.shape[: like.ndim - geometry.rank], *geometry.sizes(spatial))
    order = np.argsort([-abs(stride) for stride in like.strides], kind="stable")
    sizes = [shape[axis] for axis in order]
    grown = np.full(sizes, value, like.dtype) if value else np.zeros(sizes, like.dtype)
    return grown.transpose(np.argsort(order))
