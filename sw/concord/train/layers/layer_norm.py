"""Layer normalisation: of every position by itself, with its own mean and spread.

Nothing is shared by samples and nothing follows them, so evaluation computes what training does. Sums are integers and
roots are exact (:mod:`concord.train.quotients`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from concord.golden.rounding import round_shift
from concord.graph.ir import Node
from concord.graph.ops.elementwise import NormaliseAttributes
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.layers.normalised import CENTRED, FINE, narrow_columns, normal_columns
from concord.train.norm import ROOT_BITS
from concord.train.parameters import Parameter
from concord.train.products import exact, total
from concord.train.quotients import nearest_quotients, reciprocal_roots, rounded_quotients, together_on_one_grid
from concord.train.tensor import Array, Dyadic, Tensor, to_format, top_of
from concord.utils.arrays import Ints


@dataclass
class _Kept:
    """Memory for backward: normal elements ``[elements, groups]``, and the root of every group."""

    normal: Tensor
    roots: tuple[Ints, Ints]
    shape: tuple[int, ...]


class LayerNorm(TrainableLayer):
    """``y = gamma (x - mean) / sqrt(variance + epsilon)`` over some axes, or without the mean.

    A group are the elements that are normalised together. What is added after it is a layer of its own
    (:class:`concord.train.layers.bias.Bias`).

    Parameters
    ----------
    node : Node
        ``Normalise``.
    scale : Parameter
        Gamma, in the shape that the node has it.
    rank : int
        Number of axes of a sample.

    Raises
    ------
    ValueError
        If epsilon is not above 0.
    """

    def __init__(self, node: Node, scale: Parameter, rank: int):
        super().__init__(node)
        attributes = node.attributes(NormaliseAttributes)
        if not 0 < attributes.epsilon < 1 << 30:
            raise ValueError(f"{node.name} must have an epsilon above 0, not {attributes.epsilon!r}")
        self.weight, self.centred = scale, attributes.centred
        self.epsilon = Dyadic.nearest(attributes.epsilon)
        self.axes = tuple(axis + 1 for axis in attributes.axes)
        shape = scale.blocks.shape
        self.shape = (1,) * (rank + 1 - len(shape)) + shape

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {"scale": self.weight}

    def _columns(self, mant: Array) -> Array:
        """``[elements of a group, groups]``."""
        first = np.moveaxis(mant, self.axes, range(len(self.axes)))
        return first.reshape(int(np.prod(first.shape[: len(self.axes)])), -1)

    def _whole(self, columns: Array, shape: Sequence[int]) -> Array:
        """Inverse of :meth:`_columns`."""
        sizes = np.moveaxis(np.empty(shape, np.bool_), self.axes, range(len(self.axes))).shape
        return np.moveaxis(columns.reshape(sizes), range(len(self.axes)), self.axes)

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        (x,) = xs
        columns = self._columns(x.mant)
        count, fine = len(columns), max(0, FINE - top_of(columns).bit_length())
        moved = np.ldexp(columns.astype(np.float64), fine)
        if self.centred:
            sums = total(columns, x.peak, (0,))[0].astype(np.int64)
            moved -= rounded_quotients(sums << fine, count)
        short, drop = narrow_columns(moved)
        exps = x.exp - fine + drop
        squares = total(np.square(short), CENTRED.q_max**2, (0,))[0].astype(np.int64)
        roots = reciprocal_roots(squares, count, 2 * exps, self.epsilon, ROOT_BITS)
        normal = normal_columns(short, exps, *roots)
        scale, shape = self.weight.tensor.reshaped(*self.shape), x.mant.shape
        mant, peak = exact(np.multiply, self._whole(normal.mant, shape), normal.peak, scale.mant, scale.peak, 1)
        y = to_format(mant, normal.exp + scale.exp, peak, context.formats.intermediate)
        return [y], _Kept(normal, roots, shape)

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        kept: _Kept = memory
        normal, fmt, last = kept.normal, context.formats.intermediate, self.axes[-1]
        g = context.gradient(only(grads), last)
        spread = g.mant.astype(np.float64) * self._whole(normal.mant, kept.shape)
        axes = (0, *(axis for axis, size in enumerate(self.shape) if axis and size < kept.shape[axis]))
        mant, peak = total(spread, g.peak * normal.peak, axes)
        shape = self.weight.blocks.shape
        changes = {"scale": to_format(mant.reshape(shape), g.exp + normal.exp, peak, fmt)}
        if self.first:
            return [None], changes
        scale = self.weight.tensor.reshaped(*self.shape)
        mant, peak = exact(np.multiply, g.mant, g.peak, scale.mant, scale.peak, 1)
        scaled = context.gradient(Tensor(mant, g.exp + scale.exp, peak), last)
        inner = context.gradient(self._centred(scaled, kept), last)
        factors = together_on_one_grid(*kept.roots, FINE)
        mant, peak = exact(np.multiply, self._columns(inner.mant), inner.peak, factors.mant, factors.peak, 1)
        return [to_format(self._whole(mant, kept.shape), inner.exp + factors.exp, peak, fmt)], changes

    def _centred(self, g: Tensor, kept: _Kept) -> Tensor:
        """``g - mean(g) - x mean(g x)`` of every group, on a grid where g has at least 30 bits; x is normal."""
        normal, columns = kept.normal, self._columns(g.mant).astype(np.float64)
        count, fine = len(columns), max(0, FINE - top_of(columns).bit_length())
        left = np.ldexp(columns, fine)
        if self.centred:
            sums = total(columns, g.peak, (0,))[0].astype(np.int64)
            left -= rounded_quotients(sums << fine, count)
        crossed = total(columns * normal.mant, g.peak * normal.peak, (0,))[0].astype(np.int64)
        mants, exps = nearest_quotients(crossed, count, ROOT_BITS)
        at = np.where(mants == 0, 0, exps + 2 * normal.exp + fine)
        left -= round_shift(normal.mant.astype(np.int64) * mants, -at)
        return Tensor(self._whole(left, kept.shape), g.exp - fine, top_of(left))
