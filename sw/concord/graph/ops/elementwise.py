"""Operators on every element, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from concord import floatfunctions
from concord.graph.ir import Floats, Node, Shape
from concord.graph.ops.base import Evaluation, Kind, Operator, present, present_shape


def _same_shape(node: Node, inputs: Sequence[Shape | None]) -> list[Shape]:
    return [present_shape(inputs[0])]


def _unary(function: Callable[[Node, Floats], Floats]) -> Evaluation:
    return lambda node, inputs: [function(node, present(inputs[0]))]


def _broadcast_shape(node: Node, inputs: Sequence[Shape | None]) -> list[Shape]:
    shapes = [present_shape(shape) for shape in inputs]
    if "constant" in node.attrs:
        shapes.append(node.attrs["constant"].shape)
    return [tuple(np.broadcast_shapes(*shapes))]


def _aligned(x: Floats, rank: int) -> Floats:
    """Axes of length 1 between the samples and a tensor of fewer axes, for broadcasting."""
    return x.reshape(len(x), *[1] * (rank - x.ndim + 1), *x.shape[1:])


def _binary(ufunc: Callable[[Floats, Floats], Floats], node: Node, inputs: Sequence[Floats | None]) -> list[Floats]:
    operands = [present(x) for x in inputs]
    constant = node.attrs.get("constant")
    rank = max([x.ndim - 1 for x in operands] + ([] if constant is None else [constant.ndim]))
    operands = [_aligned(x, rank) for x in operands]
    if constant is not None:
        operands = [constant, *operands] if node.attrs.get("reversed") else [*operands, constant]
    return [ufunc(operands[0], operands[1])]


def _softmax(node: Node, x: Floats) -> Floats:
    axis = node.attrs["axis"] + 1
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def _mean_shape(node: Node, inputs: Sequence[Shape | None]) -> list[Shape]:
    axes, keep = node.attrs["axes"], node.attrs["keepdims"]
    sizes = enumerate(present_shape(inputs[0]))
    return [tuple(1 if axis in axes else size for axis, size in sizes if keep or axis not in axes)]


def _mean(node: Node, x: Floats) -> Floats:
    axes = tuple(axis + 1 for axis in node.attrs["axes"])
    return np.asarray(x.mean(axis=axes, keepdims=node.attrs["keepdims"]))


def _clip(node: Node, x: Floats) -> Floats:
    return np.asarray(np.minimum(np.maximum(x, node.attrs["min"]), node.attrs["max"]))


_BINARY = {"constant": "float64 array, the operand that is no tensor; absent if there are two tensors"}
_REVERSED = {"reversed": "true: the constant is the first operand"}
_FUNCTIONS = "pairs (name of concord.functions, dict of its parameters), applied in this order"

ELEMENTWISE_OPS = {
    "Relu": Operator(Kind.MOVING, {}, _same_shape, _unary(lambda node, x: np.maximum(x, 0.0))),
    "Clip": Operator(
        Kind.PRECISE,
        {"min": "float or -infinity", "max": "float or infinity; where it is below min, it is the result"},
        _same_shape,
        _unary(_clip),
    ),
    "Function": Operator(
        Kind.PRECISE,
        {"functions": _FUNCTIONS},
        _same_shape,
        _unary(lambda node, x: floatfunctions.evaluate(node.attrs["functions"], x)),
    ),
    "Add": Operator(Kind.PRECISE, _BINARY, _broadcast_shape, partial(_binary, np.add)),
    "Sub": Operator(Kind.PRECISE, _BINARY | _REVERSED, _broadcast_shape, partial(_binary, np.subtract)),
    "Mul": Operator(Kind.PRECISE, _BINARY, _broadcast_shape, partial(_binary, np.multiply)),
    "Max": Operator(Kind.PRECISE, _BINARY, _broadcast_shape, partial(_binary, np.maximum)),
    "Min": Operator(Kind.PRECISE, _BINARY, _broadcast_shape, partial(_binary, np.minimum)),
    "Softmax": Operator(Kind.PRECISE, {"axis": "not negative"}, _same_shape, _unary(_softmax)),
    "ReduceMean": Operator(
        Kind.QUANTISED,  # a product with ones
        {"axes": "tuple, not negative", "keepdims": "bool: axes stay, with length 1"},
        _mean_shape,
        _unary(_mean),
    ),
}
