"""Pooling: the greatest and the average of a window, and averages along axes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np

from concord.graph.ir import Node
from concord.graph.ops import divisors
from concord.graph.ops.elementwise import ReductionAttributes
from concord.graph.ops.windows import AveragePoolAttributes, PoolAttributes
from concord.sums.exact import exact_type
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.layers.windows import Geometry, at_last_axes, padded_like
from concord.train.tensor import Array, Dyadic, Tensor, multiplied, to_format


class MaxPool(TrainableLayer):
    """The greatest element of every window; the gradient goes to the first tap that has met it."""

    def __init__(self, node: Node):
        super().__init__(node)
        self.geometry = Geometry.of(node, node.attributes(PoolAttributes).kernel)

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        x = context.activation(xs[0], -1 - self.geometry.rank)
        spatial = x.mant.shape[x.mant.ndim - self.geometry.rank :]
        counts, taps = self.geometry.counts(spatial), prod(self.geometry.kernel)
        # Beside an element stands its tap, the first one highest: the greatest is the first of the greatest.
        places = 1 << (taps - 1).bit_length()
        dtype = exact_type((x.peak + 2) * places)
        lowest = -float((x.peak + 1) * places)
        grid = self.geometry.padded(np.multiply(x.mant, places, dtype=dtype), lowest)
        best: Array | None = None
        for t, (_, slices) in enumerate(self.geometry.taps(counts)):
            met = grid[at_last_axes(slices)] + dtype(places - 1 - t)
            best = met if best is None else np.maximum(best, met, out=best)
        assert best is not None
        greatest = np.floor(best * (1 / places))
        chosen = best - greatest * places
        return [x.with_mant(greatest.astype(x.mant.dtype, copy=False))], (places - 1 - chosen, spatial)

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g, (chosen, spatial) = only(grads), memory
        apart = self.geometry.apart
        peak = g.peak if apart else g.peak * prod(self.geometry.kernel)
        met = g.mant.astype(exact_type(peak), copy=False)
        back = padded_like(self.geometry, met, spatial)
        zero = met.dtype.type(0)
        for t, (_, slices) in enumerate(self.geometry.taps(met.shape[met.ndim - self.geometry.rank :])):
            place = back[at_last_axes(slices)]
            if apart:
                place[...] = np.where(chosen == t, met, zero)
            else:
                place += np.where(chosen == t, met, zero)
        inner = back[at_last_axes(self.geometry.inside(spatial))]
        return [to_format(inner, g.exp, peak, context.formats.intermediate)], {}


class AveragePool(TrainableLayer):
    """The sum of every window times the reciprocal of what it is divided by, a number of 16 bits."""

    def __init__(self, node: Node):
        super().__init__(node)
        self.node, self.geometry = node, Geometry.of(node, node.attributes(PoolAttributes).kernel)

    def _factors(self, spatial: Sequence[int]) -> Tensor:
        """Reciprocals on one grid, ``[*counts]``."""
        counts = divisors(self.node.attributes(AveragePoolAttributes), spatial)
        numbers = {int(n): Dyadic.nearest(Fraction(1, int(n))) for n in np.unique(counts)}
        least = min(number.exp for number in numbers.values())
        mants = {n: number.mant << number.exp - least for n, number in numbers.items()}
        factors = np.vectorize(lambda n: mants[int(n)], otypes=[np.float64])(counts)
        return Tensor(factors, least, max(mants.values()))

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        x = context.activation(xs[0], -1 - self.geometry.rank)
        spatial = x.mant.shape[x.mant.ndim - self.geometry.rank :]
        counts, factors = self.geometry.counts(spatial), self._factors(spatial)
        grid, peak = self.geometry.padded(x.mant), x.peak * prod(self.geometry.kernel)
        met: list[Array] = [grid[at_last_axes(slices)] for _, slices in self.geometry.taps(counts)]
        sums = met[0].astype(exact_type(peak))
        for values in met[1:]:
            sums += values
        bound = peak * factors.peak
        mant = sums.astype(exact_type(bound)) * factors.mant.astype(exact_type(bound))
        return [to_format(mant, x.exp + factors.exp, bound, context.formats.intermediate)], spatial

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g, factors = only(grads), self._factors(memory)
        peak = g.peak * factors.peak * prod(self.geometry.kernel)
        met = g.mant.astype(exact_type(peak)) * factors.mant.astype(exact_type(peak))
        back = padded_like(self.geometry, met, memory)
        for _, slices in self.geometry.taps(met.shape[met.ndim - self.geometry.rank :]):
            back[at_last_axes(slices)] += met
        inner = back[at_last_axes(self.geometry.inside(memory))]
        return [to_format(inner, g.exp + factors.exp, peak, context.formats.intermediate)], {}


class Mean(TrainableLayer):
    """The average along axes (of a tensor of the graph): the sum times the reciprocal, a number of 16 bits."""

    def __init__(self, node: Node):
        super().__init__(node)
        how = node.attributes(ReductionAttributes)
        self.axes, self.keepdims = tuple(axis + 1 for axis in how.axes), how.keepdims

    def _factor(self, shape: Sequence[int]) -> Dyadic:
        return Dyadic.nearest(Fraction(1, prod(shape[axis] for axis in self.axes)))

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        x = context.activation(xs[0], self.axes[0] - 1 if self.axes[0] > 2 else -1)
        shape, peak = x.mant.shape, x.peak * prod(x.mant.shape[axis] for axis in self.axes)
        sums = np.asarray(np.sum(x.mant, axis=self.axes, keepdims=self.keepdims, dtype=np.float64))
        return [multiplied(Tensor(sums, x.exp, peak), self._factor(shape), context.formats.intermediate)], shape

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g = multiplied(only(grads), self._factor(memory), context.formats.intermediate)
        kept = [1 if axis in self.axes else size for axis, size in enumerate(memory)]
        return [g.with_mant(np.broadcast_to(g.mant.reshape(kept), memory).copy())], {}
