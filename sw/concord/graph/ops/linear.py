"""Convolution and matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from concord.graph.operation import Operation, Shape
from concord.graph.ops.attributes import ARRAY, COUNT, FLAG, Attribute, NoAttributes
from concord.graph.ops.base import (
    Operator,
    OperatorKind,
    OperatorWeights,
    aligned,
    broadcast,
    keeps_sign,
    present,
    present_shape,
)
from concord.graph.ops.windows import WindowAttributes, window_counts, windows
from concord.utils.arrays import FloatArray

#: Elements of windows that are taken at once: large products, and taps that find the output in the cache.
_PRODUCT_BLOCK, _DEPTHWISE_BLOCK = 1 << 22, 1 << 19


def _check_bias(node: Operation) -> None:
    outputs, shape = len(node.attrs["weight"]), node.attrs["bias"].shape
    if shape != (outputs,):
        raise ValueError(f"bias must have the shape [{outputs}], not {list(shape)}")


def _conv_shape(node: Operation, inputs: Sequence[Shape | None]) -> list[Shape]:
    shape, weight = present_shape(inputs[0]), node.attrs["weight"]
    _check_bias(node)
    channels = weight.shape[1] * node.attrs["group"]
    if len(shape) != weight.ndim or shape[1] != channels or weight.shape[0] % node.attrs["group"]:
        raise ValueError(
            f"input must have {weight.ndim} axes and {channels} channels for weights {list(weight.shape)} in "
            f"{node.attrs['group']} groups, not the shape {list(shape)}"
        )
    return [(shape[0], weight.shape[0], *window_counts(node.attrs, weight.shape[2:], shape[2:]))]


def _products(node: Operation, view: FloatArray) -> FloatArray:
    """One matrix product per group with the windows ``[images, C, *counts, *kernel]`` as columns."""
    weight, group = node.attrs["weight"], node.attrs["group"]
    rank = weight.ndim - 2
    counts = view.shape[2 : 2 + rank]
    order = (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank))
    columns = view.transpose(order).reshape(group, -1, len(view) * math.prod(counts))
    out = weight.reshape(group, len(weight) // group, -1) @ columns
    return np.asarray(out.reshape(len(weight), len(view), *counts).swapaxes(0, 1))


def _depthwise(node: Operation, view: FloatArray) -> FloatArray:
    """Each channel by itself: tap by tap over the windows ``[images, C, *counts, *kernel]``."""
    weight = node.attrs["weight"]
    rank = weight.ndim - 2
    out = np.zeros(view.shape[: 2 + rank])
    for tap in np.ndindex(*weight.shape[2:]):
        out += view[(..., *tap)] * weight[(slice(None), 0, *tap)].reshape(-1, *[1] * rank)
    return out


def _conv(node: Operation, inputs: Sequence[FloatArray | None]) -> list[FloatArray]:
    x = present(inputs[0])
    weight, bias = node.attrs["weight"], node.attrs["bias"]
    depthwise = len(weight) == node.attrs["group"] == x.shape[2]
    convolve, elements = (_depthwise, _DEPTHWISE_BLOCK) if depthwise else (_products, _PRODUCT_BLOCK)
    images = x.reshape(-1, *x.shape[2:])
    out = np.empty((*x.shape[:2], *_conv_shape(node, [x.shape[1:]])[0][1:]))
    flat = out.reshape(-1, *out.shape[2:])
    size = max(1, elements // (math.prod(weight.shape[1:]) * node.attrs["group"] * math.prod(out.shape[3:])))
    for start in range(0, len(images), size):
        block = slice(start, start + size)
        flat[block] = convolve(node, windows(node.attrs, weight.shape[2:], images[block], 0.0))
    out += bias.reshape(-1, *[1] * (weight.ndim - 2))
    return [out]


def _dense_shape(node: Operation, inputs: Sequence[Shape | None]) -> list[Shape]:
    shape, weight = present_shape(inputs[0]), node.attrs["weight"]
    if weight.ndim != 2:
        raise ValueError(f"weight must have two axes, not the shape {list(weight.shape)}")
    _check_bias(node)
    if not shape or shape[-1] != weight.shape[1]:
        raise ValueError(f"last axis must have {weight.shape[1]} elements, not the shape {list(shape)}")
    return [(*shape[:-1], weight.shape[0])]


def _dense(node: Operation, inputs: Sequence[FloatArray | None]) -> list[FloatArray]:
    return [present(inputs[0]) @ node.attrs["weight"].T + node.attrs["bias"]]


def _matmul_shape(node: Operation, inputs: Sequence[Shape | None]) -> list[Shape]:
    first, second = present_shape(inputs[0]), present_shape(inputs[1])
    if min(len(first), len(second)) < 2 or first[-1] != second[-2]:
        raise ValueError(f"factors must be [..., I, K] and [..., K, J], not {list(first)} and {list(second)}")
    return [(*broadcast(first[:-2], second[:-2]), first[-2], second[-1])]


def _matmul(node: Operation, inputs: Sequence[FloatArray | None]) -> list[FloatArray]:
    factors = [present(x) for x in inputs]
    rank = max(x.ndim for x in factors) - 1
    first, second = (aligned(x, rank) for x in factors)
    return [np.asarray(first @ second)]


def _weight_macs(node: Operation, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> int:
    """Every element of the result meets one row of the weight."""
    return math.prod(present_shape(outputs[0])) * int(node.attrs["weight"][0].size)


def _matmul_macs(node: Operation, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> int:
    return math.prod(present_shape(outputs[0])) * present_shape(inputs[0])[-1]


def _fixed_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    """A matrix without negative elements that training leaves as it is keeps the sign."""
    weight, bias = node.attrs["weight"], node.attrs["bias"]
    return bool(node.attrs.get("fixed")) and weight.min(initial=0) >= 0 and not bias.any() and all(inputs)


@dataclass(frozen=True, kw_only=True)
class ConvAttributes(WindowAttributes):
    """Of a Conv."""

    weight: Annotated[FloatArray, Attribute("[O, C / group, *kernel], one or two spatial axes", ARRAY)]
    bias: Annotated[FloatArray, Attribute("[O]", ARRAY)]
    group: Annotated[int, Attribute("number of groups of channels that do not mix", COUNT)]


@dataclass(frozen=True, kw_only=True)
class DenseAttributes(NoAttributes):
    """Of a Dense."""

    weight: Annotated[FloatArray, Attribute("[O, K]: x[..., K] becomes [..., O]", ARRAY)]
    bias: Annotated[FloatArray, Attribute("[O]", ARRAY)]
    fixed: Annotated[bool, Attribute("training leaves the weight as it is, such as an adjacency", FLAG)] = False


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
