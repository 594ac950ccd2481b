"""Convolution: dense, grouped and depthwise, over one to three axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from concord.graph.ir import Node
from concord.graph.ops.linear import ConvAttributes
from concord.sums.exact import exact_type
from concord.sums.register import ProductOperands
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.layers.columns import columns, few_images, turned
from concord.train.layers.dense import with_bias
from concord.train.layers.windows import Geometry, behind_images
from concord.train.parameters import Parameter
from concord.train.products import Outer, exact, total
from concord.train.tensor import Array, Tensor, to_format


def _at(tap: Sequence[int]) -> Any:
    """An index of the weights of a tap of all channels."""
    return (slice(None), 0, *tap)


class Conv(TrainableLayer):
    """``[..., C, *spatial]`` to ``[..., O, *counts]``; W is ``[O, C / group, *kernel]``.

    Arrays have the channels of a pixel side by side in memory, whatever the order of their axes says.
    """

    def __init__(self, node: Node, weight: Parameter, bias: Parameter | None):
        super().__init__(node)
        self.weight, self.bias, self.group = weight, bias, node.attributes(ConvAttributes).group
        self.geometry = Geometry.of(node, weight.blocks.shape[2:])
        #: Axis of the channels.
        self.axis = -1 - self.geometry.rank

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})

    @property
    def depthwise(self) -> bool:
        """True if every channel has a kernel and an output of its own."""
        return self.weight.blocks.shape[:2] == (self.group, 1)

    def _last(self, x: Tensor) -> Array:
        """``[images, *spatial, C]``, a view where memory is in that order."""
        return np.moveaxis(x.mant.reshape(-1, *x.mant.shape[self.axis :]), 1, -1)

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        x, w = context.operand(xs[0], self.name, self.axis), self.weight.tensor
        first = np.moveaxis(self._last(x), -1, 1)
        grid = np.moveaxis(self.geometry.padded(first), 1, -1)
        counts = self.geometry.counts(first.shape[2:])
        mant, peak, kept = (self._taps if self.depthwise else self._windows)(grid, x, w, counts)
        if context.monitor is not None:
            rows = np.concatenate([part.copy() for _, part in columns(grid, self.geometry, self.group)], axis=1)
            of = ProductOperands(rows.swapaxes(0, 1), self._matrix(w).reshape(*rows.shape[::2], -1), w.mant.shape[1])
            mant = context.monitor.sums(self.name, mant.reshape(rows.shape[1], self.group, -1), of).reshape(mant.shape)
        mant = np.moveaxis(mant, -1, 1)
        mant = mant.reshape(*x.mant.shape[: self.axis], *mant.shape[1:])
        fmt, exp = context.formats.intermediate, x.exp + w.exp
        bias = None if self.bias is None else self.bias.tensor.reshaped(-1, *[1] * self.geometry.rank)
        if context.monitor is not None:
            return [context.monitor.binary16(mant, exp, bias)], (x, kept)
        if bias is None:
            return [to_format(mant, exp, peak, fmt)], (x, kept)
        return [with_bias(mant, exp, peak, bias, fmt)], (x, kept)

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g, w, (x, kept) = only(grads), self.weight.tensor, memory
        fmt, last = context.formats.intermediate, self._last(g)
        mant, peak = (self._tap_changes if self.depthwise else self._window_changes)(last, g, x, kept)
        changes = {"weight": to_format(mant, g.exp + x.exp, peak, fmt)}
        if self.bias is not None:
            mant, peak = total(last.reshape(-1, last.shape[-1]), g.peak, (0,))
            changes["bias"] = to_format(mant, g.exp, peak, fmt)
        if self.first:
            return [None], changes
        short = context.gradient(g, self.axis)
        spatial = x.mant.shape[self.axis + 1 :]
        back, peak = (self._tap_back if self.depthwise else self._window_back)(self._last(short), short, w, spatial)
        inside = back if back.shape[1:-1] == tuple(spatial) else back[behind_images(self.geometry.inside(spatial))]
        inner = np.moveaxis(inside, -1, 1)
        return [to_format(inner.reshape(x.mant.shape), short.exp + w.exp, peak, fmt)], changes

    # Dense and grouped: one matrix product per group, with the windows as rows ---------------------------

    def _matrix(self, w: Tensor) -> Array:
        """``[group, *kernel, C / group, O / group]``."""
        o, c, *kernel = w.mant.shape
        return np.moveaxis(w.mant.reshape(self.group, o // self.group, c, *kernel), (1, 2), (-1, -2))

    def _products(
        self, grid: Array, peak: int, geometry: Geometry, counts: Sequence[int], matrix: Array, w_peak: int
    ) -> tuple[Array, int]:
        """Products of every window of ``[images, *spatial, C]`` with ``[group, *kernel, C / group, O / group]``."""
        depth, outputs = prod(matrix.shape[1:-1]), matrix.shape[-1]
        bound = depth * peak * w_peak
        dtype = exact_type(bound)
        flat = matrix.reshape(self.group, depth, outputs).astype(dtype)
        out = np.empty((len(grid), *counts, self.group, outputs), dtype)
        for images, rows in columns(grid.astype(dtype, copy=False), geometry, self.group):
            into = out[images].reshape(rows.shape[1], self.group, outputs)
            into[...] = exact(np.matmul, rows, peak, flat, w_peak, depth)[0].swapaxes(0, 1)
        return out.reshape(*out.shape[:-2], -1), bound

    def _windows(self, grid: Array, x: Tensor, w: Tensor, counts: Sequence[int]) -> tuple[Array, int, Memory]:
        return (*self._products(grid, x.peak, self.geometry, counts, self._matrix(w), w.peak), grid)

    def _window_changes(self, g: Array, whole: Tensor, x: Tensor, grid: Array) -> tuple[Array, int]:
        count = prod(g.shape[:-1])
        sums = Outer(g.reshape(count, self.group, -1).swapaxes(0, 1), whole.peak, x.peak)
        begun = 0
        for _, rows in columns(grid, self.geometry, self.group):
            sums.add(begun, rows)
            begun += rows.shape[1]
        change, peak = sums.total()
        o, c, *kernel = self.weight.blocks.shape
        return np.ascontiguousarray(np.moveaxis(change.reshape(o, *kernel, c), -1, 1)), peak

    def _window_back(self, g: Array, short: Tensor, w: Tensor, spatial: Sequence[int]) -> tuple[Array, int]:
        """The gradient of the input, or of the padded input where strides leave gaps."""
        matrix, geometry = self._matrix(w).swapaxes(-1, -2), turned(self.geometry)
        if geometry is None:
            return self._scattered(g, short, matrix, w, spatial)
        from_behind = matrix[(slice(None), *[slice(None, None, -1)] * geometry.rank)]
        first = geometry.padded(np.moveaxis(g, -1, 1))
        return self._products(np.moveaxis(first, 1, -1), short.peak, geometry, spatial, from_behind, w.peak)

    def _scattered(
        self, g: Array, short: Tensor, matrix: Array, w: Tensor, spatial: Sequence[int]
    ) -> tuple[Array, int]:
        """Every tap adds what it has met to where it was."""
        counts, taps, outputs = g.shape[1:-1], prod(self.geometry.kernel), matrix.shape[-2]
        bound = short.peak * w.peak * outputs * taps
        dtype = exact_type(bound)
        flat = np.moveaxis(matrix, -2, 1).reshape(self.group, outputs, -1).astype(dtype)
        back = np.zeros((len(g), *self.geometry.sizes(spatial), self.group, matrix.shape[-1]), dtype)
        for image, part in zip(back, g, strict=True):
            rows = part.reshape(-1, self.group, outputs).swapaxes(0, 1).astype(dtype)
            met = exact(np.matmul, rows, short.peak, flat, w.peak, outputs)[0].swapaxes(0, 1)
            met = met.reshape(*counts, self.group, taps, -1)
            for t, (_, slices) in enumerate(self.geometry.taps(counts)):
                image[slices] += met[..., t, :].astype(dtype, copy=False)
        return back.reshape(*back.shape[:-2], -1), bound

    # Depthwise: tap by tap, a few images at a time -----------------------------------------------------

    def _taps(self, grid: Array, x: Tensor, w: Tensor, counts: Sequence[int]) -> tuple[Array, int, Memory]:
        peak = x.peak * w.peak * prod(self.geometry.kernel)
        dtype = exact_type(peak)
        kernel, taps = w.mant.astype(dtype), list(self.geometry.taps(counts))
        out = np.zeros((len(grid), *counts, grid.shape[-1]), dtype)
        for images in few_images(out):
            part, into = grid[images].astype(dtype, copy=False), out[images]
            product = np.empty_like(into)
            for tap, slices in taps:
                into += np.multiply(part[behind_images(slices)], kernel[_at(tap)], out=product)
        return out, peak, grid

    def _tap_changes(self, g: Array, whole: Tensor, x: Tensor, grid: Array) -> tuple[Array, int]:
        bound, taps = whole.peak * x.peak, list(self.geometry.taps(g.shape[1:-1]))
        dtype = exact_type(bound * max(prod(g.shape[:-1]), 1))
        change = np.zeros(self.weight.blocks.shape, dtype)
        for images in few_images(g):
            last, part = g[images].astype(dtype), grid[images].astype(dtype)
            product, ones = np.empty_like(last), np.ones(prod(last.shape[:-1]), dtype)
            for tap, slices in taps:
                np.multiply(last, part[behind_images(slices)], out=product)
                change[_at(tap)] += ones @ product.reshape(len(ones), -1)
        return change, bound * max(prod(g.shape[:-1]), 1)

    def _tap_back(self, g: Array, short: Tensor, w: Tensor, spatial: Sequence[int]) -> tuple[Array, int]:
        peak = short.peak * w.peak * prod(self.geometry.kernel)
        dtype = exact_type(peak)
        kernel, taps = w.mant.astype(dtype), list(self.geometry.taps(g.shape[1:-1]))
        back = np.zeros((len(g), *self.geometry.sizes(spatial), g.shape[-1]), dtype)
        for images in few_images(back):
            last, into = g[images].astype(dtype), back[images]
            product = np.empty_like(last)
            for tap, slices in taps:
                into[behind_images(slices)] += np.multiply(last, kernel[_at(tap)], out=product)
        return back, peak
