"""Convolution and matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from concord.graph.ops.attributes import ARRAY, AXIS, COUNT, FLAG, INTEGER, INTEGERS, Attribute, NoAttributes
from concord.graph.ops.base import (
    Arrays,
    Operation,
    Operator,
    OperatorKind,
    OperatorWeights,
    Shape,
    Shapes,
    aligned,
    broadcast,
    keeps_sign,
    no_macs,
    present,
)
from concord.graph.ops.windows import WindowAttributes, window_counts, windows
from concord.utils.arrays import FloatArray
from concord.utils.matrices import LARGEST_SPREAD, check_size

#: Elements of windows that are taken at once: large products, and taps that find the output in the cache.
_PRODUCT_BLOCK, _DEPTHWISE_BLOCK = 1 << 22, 1 << 19


def _check_bias(node: Operation) -> None:
    attributes = node.attributes(AffineAttributes)
    outputs, shape = len(attributes.weight), attributes.bias.shape
    if shape != (outputs,):
        raise ValueError(f"bias must have the shape [{outputs}], not {list(shape)}")


def _conv_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(ConvAttributes)
    weight, group = attributes.weight, attributes.group
    _check_bias(node)
    channels = weight.shape[1] * group
    if len(shape) != weight.ndim or shape[1] != channels or weight.shape[0] % group:
        raise ValueError(
            f"input must have {weight.ndim} axes and {channels} channels for weights {list(weight.shape)} in "
            f"{group} groups, not the shape {list(shape)}"
        )
    return [(shape[0], weight.shape[0], *window_counts(attributes, weight.shape[2:], shape[2:]))]


def _products(attributes: ConvAttributes, view: FloatArray) -> FloatArray:
    """One matrix product per group with the windows ``[images, C, *counts, *kernel]`` as columns."""
    weight, group = attributes.weight, attributes.group
    rank = weight.ndim - 2
    counts = view.shape[2 : 2 + rank]
    order = (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank))
    columns = view.transpose(order).reshape(group, -1, len(view) * math.prod(counts))
    out = weight.reshape(group, len(weight) // group, -1) @ columns
    return np.asarray(out.reshape(len(weight), len(view), *counts).swapaxes(0, 1))


def _depthwise(attributes: ConvAttributes, view: FloatArray) -> FloatArray:
    """Each channel by itself: tap by tap over the windows ``[images, C, *counts, *kernel]``."""
    weight = attributes.weight
    rank = weight.ndim - 2
    out = np.zeros(view.shape[: 2 + rank])
    for tap in np.ndindex(*weight.shape[2:]):
        out += view[(..., *tap)] * weight[(slice(None), 0, *tap)].reshape(-1, *[1] * rank)
    return out


def _conv(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, attributes = present(inputs[0]), node.attributes(ConvAttributes)
    weight, group = attributes.weight, attributes.group
    depthwise = len(weight) == group == x.shape[2]
    convolve, elements = (_depthwise, _DEPTHWISE_BLOCK) if depthwise else (_products, _PRODUCT_BLOCK)
    images = x.reshape(-1, *x.shape[2:])
    out = np.empty((*x.shape[:2], *_conv_shape(node, [x.shape[1:]])[0][1:]))
    flat = out.reshape(-1, *out.shape[2:])
    size = max(1, elements // (math.prod(weight.shape[1:]) * group * math.prod(out.shape[3:])))
    for start in range(0, len(images), size):
        block = slice(start, start + size)
        flat[block] = convolve(attributes, windows(attributes, weight.shape[2:], images[block], 0.0))
    out += attributes.bias.reshape(-1, *[1] * (weight.ndim - 2))
    return [out]


def _dense_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, weight = present(inputs[0]), node.attributes(DenseAttributes).weight
    if weight.ndim != 2:
        raise ValueError(f"weight must have two axes, not the shape {list(weight.shape)}")
    _check_bias(node)
    if not shape or shape[-1] != weight.shape[1]:
        raise ValueError(f"last axis must have {weight.shape[1]} elements, not the shape {list(shape)}")
    return [(*shape[:-1], weight.shape[0])]


def _dense(node: Operation, inputs: Arrays) -> list[FloatArray]:
    attributes = node.attributes(DenseAttributes)
    return [present(inputs[0]) @ attributes.weight.T + attributes.bias]


def _matmul_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    first, second = present(inputs[0]), present(inputs[1])
    if min(len(first), len(second)) < 2 or first[-1] != second[-2]:
        raise ValueError(f"factors must be [..., I, K] and [..., K, J], not {list(first)} and {list(second)}")
    return [(*broadcast(first[:-2], second[:-2]), first[-2], second[-1])]


def _matmul(node: Operation, inputs: Arrays) -> list[FloatArray]:
    factors = [present(x) for x in inputs]
    rank = max(x.ndim for x in factors) - 1
    first, second = (aligned(x, rank) for x in factors)
    return [np.asarray(first @ second)]


def _weight_macs(node: Operation, inputs: Shapes, outputs: Shapes) -> int:
    """Every element of the result meets one row of the weight."""
    return math.prod(present(outputs[0])) * int(node.attributes(AffineAttributes).weight[0].size)


def _matmul_macs(node: Operation, inputs: Shapes, outputs: Shapes) -> int:
    return math.prod(present(outputs[0])) * present(inputs[0])[-1]


def _weighted_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    first, second = (present(shape) for shape in inputs)
    axis = node.attributes(WeightedSumAttributes).axis
    if first != second or axis not in range(1, len(first)) or len(first) > 4:
        raise ValueError(f"operands must have one shape with the axis {axis}, not {list(first)} and {list(second)}")
    return [first]


def _weighted_sum(node: Operation, inputs: Arrays) -> list[FloatArray]:
    attributes = node.attributes(WeightedSumAttributes)
    first, second = (present(x) * weight for x, weight in zip(inputs, attributes.weights, strict=True))
    return [np.ldexp(first + second, attributes.unit)]


def _fixed_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    """A matrix without negative elements that training leaves as it is keeps the sign."""
    attributes = node.attributes(DenseAttributes)
    positive = attributes.weight.min(initial=0) >= 0 and not attributes.bias.any()
    return attributes.fixed and bool(positive) and all(inputs)


class AffineAttributes(NoAttributes):
    """Attributes of all products with constants."""

    weight: Annotated[FloatArray, Attribute("[O, ...]", ARRAY)]
    bias: Annotated[FloatArray, Attribute("[O]", ARRAY)]


class ConvAttributes(AffineAttributes, WindowAttributes):
    """Attributes of a Conv."""

    weight: Annotated[FloatArray, Attribute("[O, C / group, *kernel], one to three spatial axes", ARRAY)]
    group: Annotated[int, Attribute("number of groups of channels that do not mix", COUNT)]


class WeightedSumAttributes(NoAttributes):
    """Attributes of a WeightedSum: two tensors, each times a whole number of units."""

    weights: Annotated[tuple[int, ...], Attribute("of the first and the second tensor", INTEGERS)]
    unit: Annotated[int, Attribute("log2 of the unit of weights", INTEGER)]
    axis: Annotated[int, Attribute("that of the channels", AXIS)]


class DenseAttributes(AffineAttributes):
    """Attributes of a Dense."""

    weight: Annotated[FloatArray, Attribute("[O, K]: x[..., K] becomes [..., O]", ARRAY)]
    fixed: Annotated[bool, Attribute("training leaves the weight as it is, such as an adjacency", FLAG)] = False


def ungrouped(weight: FloatArray, group: int) -> FloatArray:
    """Weights of a convolution in groups as ``[O, C, kh, kw]`` of one without.

    :class:`concord.utils.matrices.MatrixTooLarge` if these are too many.
    """
    if group == 1:
        return weight
    outputs, inputs = len(weight) // group, weight.shape[1]
    shape = len(weight), inputs * group, *weight.shape[2:]
    check_size("weights in groups", *shape, most=LARGEST_SPREAD)
    full = np.zeros(shape)
    for g in range(group):
        rows = slice(g * outputs, (g + 1) * outputs)
        full[rows, g * inputs : (g + 1) * inputs] = weight[rows]
    return full


def is_fixed(node: Operation) -> bool:
    """True if a node is a product with a matrix that training leaves as it is."""
    return node.op == "Dense" and node.attributes(DenseAttributes).fixed


LINEAR_OPS = {
    "Conv": Operator(
        OperatorKind.QUANTISED,
        ConvAttributes,
        _conv_shape,
        _conv,
        macs=_weight_macs,
        weights=OperatorWeights(("weight",), "bias", inputs=1, outputs=1),
        windowed=True,
    ),
    "Dense": Operator(
        OperatorKind.QUANTISED,
        DenseAttributes,
        _dense_shape,
        _dense,
        macs=_weight_macs,
        weights=OperatorWeights(("weight",), "bias", inputs=-1, outputs=-1),
        batchable=True,
        never_negative=_fixed_sign,
    ),
    "WeightedSum": Operator(
        OperatorKind.QUANTISED, WeightedSumAttributes, _weighted_shape, _weighted_sum, macs=no_macs
    ),
    "MatMul": Operator(
        OperatorKind.QUANTISED,
        NoAttributes,
        _matmul_shape,
        _matmul,
        macs=_matmul_macs,
        wide_inputs=frozenset({1}),  # that factor stays where it is
        never_negative=keeps_sign,
    ),
}
