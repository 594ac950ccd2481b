"""Convolution: dense, grouped and depthwise, over one or two axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from concord.train.layers.base import Gradients, Layer, Memory, Pass, only
from concord.train.layers.dense import with_bias
from concord.train.layers.windows import Geometry, head
from concord.train.parameters import Parameter
from concord.train.products import exact, total
from concord.train.tensor import Array, Tensor, carrier, settled


def _at(tap: Sequence[int]) -> Any:
    """An index of the weights of a tap of all channels."""
    return (slice(None), 0, *tap)


class Conv(Layer):
    """``[..., C, *spatial]`` to ``[..., O, *counts]``; W is ``[O, C / group, *kernel]``.

    Arrays have the channels of a pixel side by side in memory, whatever the order of their axes says.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        weight: Parameter,
        bias: Parameter | None,
        attrs: dict[str, Any],
    ):
        super().__init__(name, inputs, outputs)
        self.weight, self.bias, self.group = weight, bias, attrs["group"]
        self.geometry = Geometry(weight.blocks.shape[2:], attrs)
        #: Axis of the channels.
        self.axis = -1 - self.geometry.rank

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})

    @property
    def _depthwise(self) -> bool:
        return self.weight.blocks.shape[:2] == (self.group, 1)

    def _last(self, x: Tensor) -> Array:
        """``[images, *spatial, C]``, a view where memory is in that order."""
        return np.moveaxis(x.mant.reshape(-1, *x.mant.shape[self.axis :]), 1, -1)

    def forward(self, xs: Sequence[Tensor], way: Pass) -> tuple[list[Tensor], Memory]:
        x, w = way.activation(xs[0], self.axis), self.weight.tensor
        first = np.moveaxis(self._last(x), -1, 1)
        grid = np.moveaxis(self.geometry.padded(first), 1, -1)
        counts = self.geometry.counts(first.shape[2:])
        mant, peak, kept = (self._taps if self._depthwise else self._windows)(grid, x, w, counts)
        mant = np.moveaxis(mant, -1, 1)
        mant = mant.reshape(*x.mant.shape[: self.axis], *mant.shape[1:])
        fmt, exp = way.formats.intermediate, x.exp + w.exp
        if self.bias is None:
            return [settled(mant, exp, peak, fmt)], (x, kept)
        bias = self.bias.tensor.reshaped(-1, *[1] * self.geometry.rank)
        return [with_bias(mant, exp, peak, bias, fmt)], (x, kept)

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, way: Pass) -> Gradients:
        g, w, (x, kept) = only(grads), self.weight.tensor, memory
        fmt, last = way.formats.intermediate, self._last(g)
        mant, peak = (self._tap_changes if self._depthwise else self._window_changes)(last, g, x, kept)
        changes = {"weight": settled(mant, g.exp + x.exp, peak, fmt)}
        if self.bias is not None:
            mant, peak = total(last.reshape(-1, last.shape[-1]), g.peak, (0,))
            changes["bias"] = settled(mant, g.exp, peak, fmt)
        if self.first:
            return [None], changes
        short = way.gradient(g, self.axis)
        spatial = x.mant.shape[self.axis + 1 :]
        back, peak = (self._tap_back if self._depthwise else self._window_back)(self._last(short), short, w, spatial)
        inner = np.moveaxis(back[head(self.geometry.inside(spatial))], -1, 1)
        return [settled(inner.reshape(x.mant.shape), short.exp + w.exp, peak, fmt)], changes

    # Dense and grouped: one matrix product per group, with the windows as rows ---------------------------

    def _matrix(self, w: Tensor) -> Array:
        """``[group, taps * C / group, O / group]``."""
        o, c, *kernel = w.mant.shape
        apart = w.mant.reshape(self.group, o // self.group, c, *kernel)
        return np.moveaxis(apart, (1, 2), (-1, -2)).reshape(self.group, -1, o // self.group)

    def _by_group(self, rows: Array, rows_peak: int, matrix: Array, peak: int) -> tuple[Array, int]:
        """``[N, group, K]`` times ``[group, K, O]``: ``[N, group * O]``."""
        if self.group == 1:
            return exact(np.matmul, rows[:, 0], rows_peak, matrix[0], peak, matrix.shape[1])
        out, bound = exact(np.matmul, rows.swapaxes(0, 1), rows_peak, matrix, peak, matrix.shape[1])
        return out.swapaxes(0, 1).reshape(len(rows), -1), bound

    def _windows(self, grid: Array, x: Tensor, w: Tensor, counts: Sequence[int]) -> tuple[Array, int, Memory]:
        split = grid.reshape(*grid.shape[:-1], self.group, -1)
        taps = prod(self.geometry.kernel)
        found = np.empty((len(grid), *counts, self.group, taps, split.shape[-1]), dtype=grid.dtype)
        for t, (_, slices) in enumerate(self.geometry.taps(counts)):
            found[..., t, :] = split[head(slices)]
        columns = found.reshape(-1, self.group, taps * split.shape[-1])
        out, peak = self._by_group(columns, x.peak, self._matrix(w), w.peak)
        return out.reshape(len(grid), *counts, -1), peak, columns

    def _window_changes(self, g: Array, whole: Tensor, x: Tensor, columns: Array) -> tuple[Array, int]:
        rows = g.reshape(len(columns), self.group, -1)
        left, right = rows.transpose(1, 2, 0), columns.swapaxes(0, 1)
        if self.group == 1:
            left, right = rows[:, 0].T, columns[:, 0]
        found, peak = exact(np.matmul, left, whole.peak, right, x.peak, len(columns))
        o, c, *kernel = self.weight.blocks.shape
        return np.ascontiguousarray(np.moveaxis(found.reshape(o, *kernel, c), -1, 1)), peak

    def _window_back(self, g: Array, short: Tensor, w: Tensor, spatial: Sequence[int]) -> tuple[Array, int]:
        """The gradient of the input: every tap adds what it has met to where it was."""
        matrix, taps, counts = self._matrix(w).swapaxes(1, 2), prod(self.geometry.kernel), g.shape[1:-1]
        met, peak = self._by_group(g.reshape(-1, self.group, matrix.shape[1]), short.peak, matrix, w.peak)
        met = met.reshape(len(g), *counts, self.group, taps, -1)
        peak *= taps
        dtype = np.result_type(met.dtype, carrier(peak))
        back = np.zeros((len(g), *self.geometry.sizes(spatial), self.group, met.shape[-1]), dtype)
        for t, (_, slices) in enumerate(self.geometry.taps(counts)):
            back[head(slices)] += met[..., t, :]
        return back.reshape(*back.shape[:-2], -1), peak

    # Depthwise: tap by tap ------------------------------------------------------------------------------

    def _taps(self, grid: Array, x: Tensor, w: Tensor, counts: Sequence[int]) -> tuple[Array, int, Memory]:
        peak = x.peak * w.peak * prod(self.geometry.kernel)
        grid, kernel = grid.astype(carrier(peak), copy=False), w.mant.astype(carrier(peak))
        out = np.zeros((len(grid), *counts, grid.shape[-1]), grid.dtype)
        for tap, slices in self.geometry.taps(counts):
            out += grid[head(slices)] * kernel[_at(tap)]
        return out, peak, grid

    def _tap_changes(self, g: Array, whole: Tensor, x: Tensor, grid: Array) -> tuple[Array, int]:
        bound, sums = whole.peak * x.peak, {}
        last, axes, peak = g.astype(carrier(bound)), tuple(range(g.ndim - 1)), 0
        for tap, slices in self.geometry.taps(g.shape[1:-1]):
            sums[tap], peak = total(last * grid[head(slices)].astype(last.dtype), bound, axes)
        found = np.zeros(self.weight.blocks.shape, next(iter(sums.values())).dtype)
        for tap, values in sums.items():
            found[_at(tap)] = values
        return found, peak

    def _tap_back(self, g: Array, short: Tensor, w: Tensor, spatial: Sequence[int]) -> tuple[Array, int]:
        peak = short.peak * w.peak * prod(self.geometry.kernel)
        last, kernel = g.astype(carrier(peak)), w.mant.astype(carrier(peak))
        back = np.zeros((len(g), *self.geometry.sizes(spatial), g.shape[-1]), last.dtype)
        for tap, slices in self.geometry.taps(g.shape[1:-1]):
            back[head(slices)] += last * kernel[_at(tap)]
        return back, peak
