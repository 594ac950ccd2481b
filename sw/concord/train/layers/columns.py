"""Windows of images as rows of matrices, a few images at a time, so that a matrix is in the cache when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from concord.train.layers.windows import Geometry
from concord.train.tensor import Array

#: Bytes of a matrix: what the cache of a core holds beside its operands.
_BYTES = 1 << 19


def columns(grid: Array, geometry: Geometry, group: int) -> Iterator[tuple[slice, Array]]:
    """Elements that the windows of some images meet.

    Parameters
    ----------
    grid : array
        ``[images, *spatial, C]``, padded.
    geometry : Geometry
        Of the windows.
    group : int
        Number of groups that the channels have.

    Yields
    ------
    images : slice
        Of these images.
    rows : array ``[group, windows, taps * C / group]``
        Valid until the next one is asked for.
    """
    whole = _windows(grid, geometry, group)
    count, inner = whole.shape[1], whole.shape[2:]
    windows = prod(inner[: geometry.rank])
    if prod(geometry.kernel) == 1 and group == 1 and whole[0].flags.c_contiguous:
        yield slice(None), whole.reshape(1, count * windows, -1)
        return
    some = max(1, min(count, _BYTES // max(prod(inner) * group * grid.itemsize, 1)))
    buffer = np.empty((group, some, *inner), grid.dtype)
    for start in range(0, count, some):
        images = slice(start, min(start + some, count))
        part = buffer[:, : images.stop - start]
        np.copyto(part, whole[:, images])
        rows = (images.stop - start) * windows
        yield images, part.reshape(group, rows, prod(inner) // max(windows, 1))


def _windows(grid: Array, geometry: Geometry, group: int) -> Array:
    """A view ``[group, images, *counts, *kernel, C / group]``."""
    rank, how = geometry.rank, geometry.attributes
    spans = geometry.spans
    axes = tuple(range(1, rank + 1))
    met = np.lib.stride_tricks.sliding_window_view(grid, spans, axes)
    steps = (slice(None), *(slice(None, None, s) for s in how.strides), slice(None))
    met = met[(*steps, *(slice(None, None, d) for d in how.dilations))]
    split = met.reshape(*met.shape[: rank + 1], group, -1, *met.shape[rank + 2 :])
    return np.moveaxis(split, (rank + 1, rank + 2), (0, -1))


def few_images(x: Array) -> Iterator[slice]:
    """Slices of the images of an array that the cache holds together with a few of their size."""
    some = max(1, _BYTES // 4 // max(x[:1].nbytes, 1))
    return (slice(start, start + some) for start in range(0, len(x), some))


def turned(geometry: Geometry) -> Geometry | None:
    """Windows over the gradient of what a layer gives, with which the taps are met from behind; ``None`` if strides
    leave gaps, or padding is wider than a window."""
    how, rank = geometry.attributes, geometry.rank
    reach = [span - 1 for span in geometry.spans]
    pads = [r - p for r, p in zip([*reach, *reach], how.pads, strict=True)]
    if any(step != 1 for step in how.strides) or min(pads) < 0:
        return None
    return Geometry(geometry.kernel, replace(how, strides=(1,) * rank, pads=tuple(pads)))
