"""Rows of a trained table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from concord.graph.ir import Node
from concord.sums.exact import exact_type
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.parameters import Parameter
from concord.train.tensor import Array, Tensor, to_format


class Embedding(TrainableLayer):
    """``y = W[x]``: the row of a table for every index, as it is.

    The gradient of a row is the sum of those of all positions that have read it.

    Parameters
    ----------
    node : Node
        ``Lookup`` along the first axis of its table, of indices that are the input of the network.
    weight : Parameter
        W, ``[rows, *shape]``.
    """

    def __init__(self, node: Node, weight: Parameter):
        super().__init__(node)
        self.weight = weight

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {"table": self.weight}

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        places = xs[0].mant.astype(np.intp)
        table = self.weight.tensor
        return [table.with_mant(table.mant[places])], places

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g, (rows, *shape) = only(grads), self.weight.blocks.shape
        mant, peak = row_sums(g.mant.reshape(memory.size, -1), g.peak, memory.reshape(-1) % rows, rows)
        change = to_format(mant.reshape(rows, *shape), g.exp, peak, context.formats.intermediate)
        return [None], {"table": change}


def row_sums(values: Array, peak: int, places: Array, rows: int) -> tuple[Array, int]:
    """Exact sums of the values that have the same place, and a bound of their magnitudes.

    Parameters
    ----------
    values : array ``[n, size]``
        Integers.
    peak : int
        A bound of their magnitudes.
    places : array of int ``[n]``
        From 0 to ``rows - 1``.
    rows : int
        Number of sums ``[rows, size]``; those of no values are zero.
    """
    bound = peak * len(values)
    dtype = exact_type(bound)
    sums = np.zeros((rows, values.shape[1]), dtype)
    if len(values):
        order = np.argsort(places, kind="stable")
        used, first = np.unique(places[order], return_index=True)
        sums[used] = np.add.reduceat(values[order].astype(dtype, copy=False), first, axis=0)
    return sums, bound
