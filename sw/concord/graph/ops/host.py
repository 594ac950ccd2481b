"""Operators that no instruction of the NPU computes: the host does, in front of the NPU or after it.

Whole numbers and truth values are numbers in double precision: exact up to 2**53, true is 1 and false is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Annotated

import numpy as np

from concord.golden.host_math import host_look_up, host_places
from concord.graph.ops.attributes import ARRAY, AXIS, COUNT, FLAG, NUMBER, Attribute, NoAttributes, optional
from concord.graph.ops.base import (
    Arrays,
    Operation,
    Operator,
    OperatorKind,
    Shape,
    Shapes,
    aligned,
    broadcast,
    present,
)
from concord.graph.ops.elementwise import SubAttributes, broadcast_shape, evaluate_binary
from concord.utils.arrays import FloatArray


class WrapAttributes(NoAttributes):
    """Attributes of a Wrap."""

    low: Annotated[float, Attribute("the least number of the type", NUMBER)]
    modulus: Annotated[float, Attribute("how many numbers the type has, a power of two", NUMBER)]


class SelectAttributes(NoAttributes):
    """Attributes of a Select, whose inputs are those of condition, value and other value that are computed."""

    condition: Annotated[FloatArray | None, Attribute("the condition, if it is constant", optional(ARRAY))] = None
    chosen: Annotated[FloatArray | None, Attribute("the value where it holds, if constant", optional(ARRAY))] = None
    other: Annotated[FloatArray | None, Attribute("the value elsewhere, if it is constant", optional(ARRAY))] = None


class LookupAttributes(NoAttributes):
    """Attributes of a Lookup."""

    table: Annotated[FloatArray, Attribute("its entries, along the axis", ARRAY)]
    axis: Annotated[int, Attribute("of the table, which the indices take the place of", AXIS)]


class TakeAttributes(NoAttributes):
    """Attributes of a Take."""

    axis: Annotated[int, Attribute("of the first input, which the indices take the place of", AXIS)]


class ArgumentAttributes(NoAttributes):
    """Attributes of an ArgMax."""

    axis: Annotated[int, Attribute("along which the place of the greatest element is searched", AXIS)]
    keepdims: Annotated[bool, Attribute("whether the axis stays, with length 1", FLAG)]
    least: Annotated[bool, Attribute("whether it is the place of the least element", FLAG)]
    last: Annotated[bool, Attribute("whether it is the last one of several equal ones, else the first", FLAG)]


class TopKAttributes(NoAttributes):
    """Attributes of a TopK."""

    axis: Annotated[int, Attribute("along which elements are taken", AXIS)]
    size: Annotated[int, Attribute("how many", COUNT)]
    largest: Annotated[bool, Attribute("whether those are the greatest, in falling order, else the least", FLAG)]


class TreesAttributes(NoAttributes):
    """Attributes of a Trees: trees of comparisons, whose nodes are numbered all together."""

    features: Annotated[FloatArray, Attribute("by node, the feature that it compares", ARRAY)]
    thresholds: Annotated[FloatArray, Attribute("by node, what it compares with", ARRAY)]
    low: Annotated[
        FloatArray, Attribute("by node, where features that are not above lead; leaves lead to themselves", ARRAY)
    ]
    high: Annotated[FloatArray, Attribute("by node, where the others lead", ARRAY)]
    roots: Annotated[FloatArray, Attribute("by tree, its first node", ARRAY)]
    values: Annotated[FloatArray, Attribute("[nodes, outputs] what leaves add to the outputs", ARRAY)]
    strict: Annotated[bool, Attribute("whether a feature that equals the threshold is above", FLAG)]
    depth: Annotated[int, Attribute("comparisons from a root to a leaf, at most", COUNT)]


def tree_depth(low: FloatArray, high: FloatArray, roots: FloatArray) -> int:
    """Comparisons from a root to a leaf, at most; at least 1. ``ValueError`` if nodes lead in a circle."""
    depth, level = 0, {int(root) for root in roots}
    while level := {int(end[k]) for k in level for end in (low, high) if end[k] != k}:
        depth += 1
        if depth > len(low):
            raise ValueError("nodes of trees must not lead in a circle")
    return max(depth, 1)


class ImputeAttributes(NoAttributes):
    """Attributes of an Impute."""

    values: Annotated[FloatArray, Attribute("what takes the place of NaN, which broadcasts", ARRAY)]


class CategoriesAttributes(NoAttributes):
    """Attributes of a Categories, whose result has an axis for them after those of the input."""

    categories: Annotated[FloatArray, Attribute("numbers, one for each index of the new axis", ARRAY)]
    complete: Annotated[bool, Attribute("whether other numbers are none that it is defined for", FLAG)]


class CouplingAttributes(NoAttributes):
    """Attributes of a Coupling: shares of classes from a score for every pair of them: 01, 02, ..., 12, ..."""

    classes: Annotated[int, Attribute("how many classes there are", COUNT)]
    slopes: Annotated[FloatArray, Attribute("by pair, what its score is multiplied with", ARRAY)]
    offsets: Annotated[
        FloatArray, Attribute("by pair, what is added; the first class has the sigmoid of the negative sum", ARRAY)
    ]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The classes of every score."""
        return [*combinations(range(self.classes), 2)]

    @property
    def tolerance(self) -> float:
        """Up to which error the shares are those that go best with all pairs."""
        return 0.005 / self.classes


#: Shares of pairs are at least this, and at most 1 less this.
LEAST_SHARE = 1e-7
#: Rounds in which shares of classes come to those of their pairs, twice as many as random ones take at most.
COUPLING_ROUNDS = 8


class FillAttributes(NoAttributes):
    """Attributes of a Fill."""

    value: Annotated[FloatArray, Attribute("the result of every sample", ARRAY)]


def _same_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    return [present(inputs[0])]


def _of_one(function: Callable[[FloatArray], FloatArray]) -> Operator:
    def evaluate(node: Operation, inputs: Arrays) -> list[FloatArray]:
        return [np.asarray(function(present(inputs[0])), dtype=np.float64)]

    return _host(NoAttributes, _same_shape, evaluate)


def _of_two(function: Callable[[FloatArray, FloatArray], FloatArray]) -> Operator:
    def evaluate(node: Operation, inputs: Arrays) -> list[FloatArray]:
        return [np.asarray(y, dtype=np.float64) for y in evaluate_binary(function, node, inputs)]

    return _host(SubAttributes, broadcast_shape, evaluate)


#: Up to this number all whole numbers are exact.
WHOLE = 2.0**53


def wrapped(x: FloatArray, low: float, count: float) -> FloatArray:
    """The numbers of a type of integers that these become when they overflow: ``x`` modulo ``count``, from ``low``.

    Types of 64 bits have more numbers than are exact: of these, results must be below ``WHOLE`` in magnitude.

    Raises
    ------
    ValueError
        If a result of such a type is not.
    """
    if count <= WHOLE:
        return x - np.floor((x - low) / count) * count
    within: FloatArray = x - host_look_up(np.zeros(1), (np.abs(x) >= WHOLE).astype(np.float64))
    return within


def _modulo(x: FloatArray, y: FloatArray) -> FloatArray:
    """The rest that has the sign of the divisor."""
    return x - np.floor(x / y) * y


def _wrap(node: Operation, inputs: Arrays) -> list[FloatArray]:
    attributes = node.attributes(WrapAttributes)
    return [wrapped(present(inputs[0]), attributes.low, attributes.modulus)]


def _select_operands(node: Operation) -> tuple[FloatArray | None, ...]:
    attributes = node.attributes(SelectAttributes)
    return attributes.condition, attributes.chosen, attributes.other


def _select_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    constants, computed = _select_operands(node), iter(inputs)
    return [broadcast(*(present(next(computed)) if c is None else c.shape for c in constants))]


def _select(node: Operation, inputs: Arrays) -> list[FloatArray]:
    constants, computed = _select_operands(node), iter(inputs)
    operands = [present(next(computed)) if c is None else c[np.newaxis] for c in constants]
    rank = max(x.ndim for x in operands) - 1
    condition, chosen, other = (aligned(x, rank) for x in operands)
    return [np.where(condition != 0, chosen, other)]


def _lookup_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    attributes = node.attributes(LookupAttributes)
    table, axis = attributes.table.shape, attributes.axis
    return [(*table[:axis], *present(inputs[0]), *table[axis + 1 :])]


def _lookup(node: Operation, inputs: Arrays) -> list[FloatArray]:
    attributes, indices = node.attributes(LookupAttributes), present(inputs[0])
    table, axis = attributes.table, attributes.axis
    taken = np.take(table, host_places(indices, table.shape[axis]), axis=axis)
    return [np.moveaxis(taken, axis, 0)]


def _take_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, indices, axis = present(inputs[0]), present(inputs[1]), node.attributes(TakeAttributes).axis
    return [(*shape[:axis], *indices, *shape[axis + 1 :])]


def _take(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, indices, axis = present(inputs[0]), present(inputs[1]), node.attributes(TakeAttributes).axis
    places = host_places(indices, x.shape[axis + 1])
    return [np.stack([np.take(sample, at, axis=axis) for sample, at in zip(x, places, strict=True)])]


def _argument_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = list(present(inputs[0])), node.attributes(ArgumentAttributes)
    shape[attributes.axis : attributes.axis + 1] = [1] if attributes.keepdims else []
    return [tuple(shape)]


def _argument(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, attributes = present(inputs[0]), node.attributes(ArgumentAttributes)
    axis = attributes.axis + 1
    x = -x if attributes.least else x
    x = np.where(np.isnan(x), -np.inf, x)
    if attributes.last:
        places = x.shape[axis] - 1 - np.argmax(np.flip(x, axis), axis=axis)
    else:
        places = np.argmax(x, axis=axis)
    return [(np.expand_dims(places, axis) if attributes.keepdims else places).astype(np.float64)]


def _top_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = list(present(inputs[0])), node.attributes(TopKAttributes)
    if attributes.size > shape[attributes.axis]:
        raise ValueError(f"size must be at most the {shape[attributes.axis]} of the axis, not {attributes.size}")
    shape[attributes.axis] = attributes.size
    return [tuple(shape)] * 2


def _top(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, attributes = present(inputs[0]), node.attributes(TopKAttributes)
    axis = attributes.axis + 1
    keys = np.where(np.isnan(x), np.inf, -x if attributes.largest else x)
    places = np.take(np.argsort(keys, axis=axis, kind="stable"), np.arange(attributes.size), axis=axis)
    return [np.take_along_axis(x, places, axis), places.astype(np.float64)]


def _trees_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(TreesAttributes)
    if len(shape) != 2 or shape[1] <= attributes.features.max():
        most = attributes.features.max()
        raise ValueError(f"operand must have rows of more than {most:g} features, not the shape {list(shape)}")
    return [(shape[0], attributes.values.shape[1])]


def _trees(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, attributes = present(inputs[0]), node.attributes(TreesAttributes)
    places = np.broadcast_to(attributes.roots.astype(int), (*x.shape[:2], len(attributes.roots)))
    for _ in range(attributes.depth):
        features = np.take_along_axis(x, attributes.features[places].astype(int), -1)
        thresholds = attributes.thresholds[places]
        below = features < thresholds if attributes.strict else features <= thresholds
        places = np.where(below, attributes.low[places], attributes.high[places]).astype(int)
    return [attributes.values[places].sum(axis=-2)]


def _impute(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, values = present(inputs[0]), node.attributes(ImputeAttributes).values
    return [np.where(np.isnan(x), aligned(values[np.newaxis], x.ndim - 1), x)]


def _categories_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    return [(*present(inputs[0]), len(node.attributes(CategoriesAttributes).categories))]


def _categories(node: Operation, inputs: Arrays) -> list[FloatArray]:
    equal = present(inputs[0])[..., np.newaxis] == node.attributes(CategoriesAttributes).categories
    return [equal.astype(np.float64)]


def _coupling_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(CouplingAttributes)
    if len(shape) != 2 or shape[1] != len(attributes.pairs):
        raise ValueError(f"operand must have rows of {len(attributes.pairs)} scores, not the shape {list(shape)}")
    return [(shape[0], attributes.classes)]


def _coupling(node: Operation, inputs: Arrays) -> list[FloatArray]:
    """The shares whose products with those of the pairs differ least: sum of (r_ji p_i - r_ij p_j)^2 [wu-coupling]."""
    x, attributes = present(inputs[0]), node.attributes(CouplingAttributes)
    classes = attributes.classes
    total = np.clip(x * attributes.slopes + attributes.offsets, -700, 700)
    shares = np.clip(1 / (1 + np.exp(total)), LEAST_SHARE, 1 - LEAST_SHARE)
    of_pairs = np.zeros((*x.shape[:-1], classes, classes))
    for k, (i, j) in enumerate(attributes.pairs):
        of_pairs[..., i, j], of_pairs[..., j, i] = shares[..., k], 1 - shares[..., k]
    square = -of_pairs * np.swapaxes(of_pairs, -1, -2)
    square[..., np.arange(classes), np.arange(classes)] = (of_pairs**2).sum(axis=-2)
    p = np.full((*x.shape[:-1], classes), 1 / classes)
    for _ in range(COUPLING_ROUNDS):
        before, slope = p, (square * p[..., np.newaxis]).sum(axis=-2)
        value = (p * slope).sum(axis=-1)
        stays = np.abs(slope - value[..., np.newaxis]).max(axis=-1) < attributes.tolerance
        for t in range(classes):
            step = (value - slope[..., t]) / square[..., t, t]
            value = (value + step * (step * square[..., t, t] + 2 * slope[..., t])) / (1 + step) ** 2
            slope = (slope + step[..., np.newaxis] * square[..., t, :]) / (1 + step[..., np.newaxis])
            p = (p + step[..., np.newaxis] * np.eye(classes)[t]) / (1 + step[..., np.newaxis])
        p = np.where(stays[..., np.newaxis], before, p)
    return [p]


def _fill_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    return [node.attributes(FillAttributes).value.shape]


def _fill(node: Operation, inputs: Arrays) -> list[FloatArray]:
    value = node.attributes(FillAttributes).value
    return [np.broadcast_to(value, (len(present(inputs[0])), *value.shape)).copy()]


_host = partial(Operator, OperatorKind.HOST, layout_sensitive=False, host_partition=True)

HOST_OPS = {
    "Truncate": _of_one(np.trunc),
    "Not": _of_one(lambda x: 1.0 - x),
    "Less": _of_two(np.less),
    "Equal": _of_two(np.equal),
    "Divide": _of_two(np.divide),
    "Modulo": _of_two(_modulo),
    "Wrap": _host(WrapAttributes, _same_shape, _wrap),
    "Select": _host(SelectAttributes, _select_shape, _select),
    "Lookup": _host(LookupAttributes, _lookup_shape, _lookup),
    "Take": _host(TakeAttributes, _take_shape, _take),
    "ArgMax": _host(ArgumentAttributes, _argument_shape, _argument),
    "Fill": _host(FillAttributes, _fill_shape, _fill),
    "Trees": _host(TreesAttributes, _trees_shape, _trees),
    "Impute": _host(ImputeAttributes, _same_shape, _impute),
    "Categories": _host(CategoriesAttributes, _categories_shape, _categories),
    "Coupling": _host(CouplingAttributes, _coupling_shape, _coupling),
    "TopK": _host(TopKAttributes, _top_shape, _top),
}
