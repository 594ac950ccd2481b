"""Products of two values of which one is a constant: products with weights, or elements that change places.

A program writes rows of constants, or multiplies constant vectors with rows that it has written: unit vectors, to make
lanes of positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from concord.derive import ir
from concord.derive.flags import accumulator_limit
from concord.derive.views import simplified
from concord.golden import binary16
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray, Ids


def with_weights(
    node: ir.ProductOf, x: ir.Bits | None, matrix: ir.Bits | None, name: Callable[[str], str]
) -> list[ir.ModelNode]:
    """Nodes in the place of a product, the last one with its output; the product if there is nothing better.

    Parameters
    ----------
    node : ProductOf
    x, matrix : array or None
        Patterns of a factor that is a constant; at most one is.
    name : callable
        A new name, of a word.
    """
    groups = len(node.groups)
    if groups > 1 or (x is None) == (matrix is None):
        return [node]
    make = _Maker(node, name)
    if matrix is not None:
        return make.weighted(node.x, binary16.decode(matrix), tuple(range(groups)))
    assert x is not None
    vectors = binary16.decode(x).reshape(*node.groups, -1, x.shape[-1])
    places = _unit_vectors(vectors)
    if places is not None and min(node.limits[1][0], float(BINARY16_MAX)) < accumulator_limit(node):
        return make.taken(places)
    return make.transposed(vectors)


def _unit_vectors(vectors: FloatArray) -> Ids | None:
    """Places of the ones in vectors ``[..., K]``; ``None`` if one is no unit vector."""
    ones = vectors == 1.0
    if not ((vectors != 0.0) == ones).all() or (ones.sum(axis=-1) != 1).any():
        return None
    return np.asarray(ones.argmax(axis=-1))


class _Maker:
    """Makes nodes in the place of a product."""

    def __init__(self, node: ir.ProductOf, name: Callable[[str], str]):
        self.node, self.name = node, name
        self.nodes: list[ir.ModelNode] = []

    def taken(self, places: Ids) -> list[ir.ModelNode]:
        """Elements ``[*g, P]`` of all rows of the matrix."""
        node, matrix = self.node, self.node.matrix
        index = np.arange(matrix.size).reshape(matrix.shape)
        picked = np.take_along_axis(index, np.expand_dims(places, -2), axis=-1)  # [*g, M, P]
        index = np.swapaxes(picked, -1, -2).reshape(node.output.shape)
        empty = np.zeros(0, np.uint16)
        nodes = simplified([matrix], index, empty, node.layer, lambda: self.name("transposed"))
        if not nodes:
            return [ir.Reshape(output=node.output, layer=node.layer, x=matrix)]
        return [*nodes[:-1], replace(nodes[-1], output=node.output)]

    def weighted(self, x: ir.Value, weight: FloatArray, axes: tuple[int, ...]) -> list[ir.ModelNode]:
        """The product of a value ``[*g, *positions, K]`` with weights ``[*g, outputs, K]``."""
        if not axes:
            return [self._product(x, weight, self.node.output)]
        rank = len(x.shape)
        inner = (*range(1, rank - 1), 0)
        first = self._moved(x, (*inner, rank - 1), "groups")
        second = self._value("dot", (*first.shape[:-1], weight.shape[-2]))
        self.nodes.append(self._product(first, weight, second))
        back = (rank - 2, *range(rank - 2), rank - 1)
        self.nodes.append(ir.Transpose(output=self.node.output, layer=self.node.layer, x=second, perm=back))
        return self.nodes

    def transposed(self, vectors: FloatArray) -> list[ir.ModelNode]:
        """The product of rows ``[*g, M, K]`` with weights ``[*g, P, K]``, its axes exchanged."""
        node, matrix, groups = self.node, self.node.matrix, len(self.node.groups)
        if groups:
            matrix = self._moved(matrix, (1, 0, 2), "groups")
        dot = self._value("dot", (*matrix.shape[:-1], vectors.shape[-2]))
        self.nodes.append(self._product(matrix, vectors, dot))
        transposed = self._moved(dot, (1, 2, 0) if groups else (1, 0), "transposed")
        self.nodes.append(ir.Reshape(output=node.output, layer=node.layer, x=transposed))
        return self.nodes

    def _value(self, word: str, shape: ir.Shape) -> ir.Value:
        return ir.Value(self.name(word), shape)

    def _moved(self, x: ir.Value, perm: tuple[int, ...], word: str) -> ir.Value:
        output = self._value(word, tuple(x.shape[axis] for axis in perm))
        self.nodes.append(ir.Transpose(output=output, layer=self.node.layer, x=x, perm=perm))
        return output

    def _product(self, x: ir.Value, weight: FloatArray, output: ir.Value) -> ir.MatMul:
        kept = ("layer", "pcs", "may", "where", "width", "frac", "unit", "bound")
        return ir.MatMul(output=output, x=x, weight=weight, **{name: getattr(self.node, name) for name in kept})
