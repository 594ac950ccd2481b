"""Folding of what follows from the shapes of a TensorFlow Lite file: an open batch is that of one sample.

A converter that leaves the batch open computes shapes in the network: SHAPE, STRIDED_SLICE, PACK in front of RESHAPE,
FILL or TRANSPOSE_CONV. Shapes are known here, so these operators have constant results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from concord.frontend.limits import LARGEST_TENSOR
from concord.frontend.tflite_file import DAMAGED, DTYPES, FlatModel, FlatOperator, FlatTensor, Values
from concord.frontend.tflite_rewriting import POINT_WISE

Fold = Callable[..., Any]


def folded(model: FlatModel) -> FlatModel:
    """The network without the operators whose results are constant.

    Integers that are no codes are computed; other constants, codes among them, are only moved.

    Raises
    ------
    ValueError
        If an operator does not fit its constants.
    """
    tensors = list(model.tensors)
    operators = [operator for operator in model.operators if not fold_operator(tensors, operator)]
    return replace(model, tensors=tuple(tensors), operators=tuple(operators))


def fold_operator(tensors: list[FlatTensor], operator: FlatOperator) -> bool:
    """Give the results of an operator their shapes and, if they are constant, their elements.

    Parameters
    ----------
    tensors : list of FlatTensor
        Of the network; those that the operator makes are replaced.

    Returns
    -------
    bool
        Whether the results are constant, so that the operator is not needed.
    """
    try:
        _correct_shape(tensors, operator)
        values = _constant_results(tensors, operator)
    except DAMAGED as error:
        place = f"{operator.name} {tensors[operator.outputs[0]].name!r}"
        raise ValueError(f"the model must be whole: {place} does not fit its constants; export it again") from error
    if values is None:
        return False
    for index, value in zip(operator.outputs, values, strict=True):
        data = np.asarray(value).astype(DTYPES[tensors[index].kind])
        tensors[index] = replace(tensors[index], data=data, shape=data.shape)
    return True


def _correct_shape(tensors: list[FlatTensor], operator: FlatOperator) -> None:
    """Give the result of an operator the shape that follows from what it reads.

    A converter writes 1 for each size of a shape that is computed in the network, and for sizes that follow from it.
    """
    if len(operator.outputs) != 1:
        return
    (output,) = operator.outputs
    inputs = [tensors[index] for index in operator.inputs if index >= 0]
    shape = tensors[output].shape
    if operator.name == "RESHAPE" and len(inputs) > 1 and inputs[1].data is not None:
        sizes, whole = [int(size) for size in inputs[1].data.ravel()], prod(inputs[0].shape)
        known = prod(size for size in sizes if size != -1)
        shape = tuple(whole // max(known, 1) if size == -1 else size for size in sizes)
    elif operator.name == "FULLY_CONNECTED" and prod(inputs[0].shape) != prod(shape[:-1]) * inputs[1].shape[-1]:
        rows = prod(inputs[0].shape) // max(inputs[1].shape[-1], 1)
        kept = operator.options.KeepNumDims()
        shape = (*(inputs[0].shape[:-1] if kept else [rows]), inputs[1].shape[0])
    elif operator.name in _ALIKE:
        shape = np.broadcast_shapes(*(tensor.shape for tensor in inputs[: _ALIKE[operator.name]]))
    elif operator.name == "SLICE" and inputs[1].data is not None and inputs[2].data is not None:
        begin, size = inputs[1].data.ravel(), inputs[2].data.ravel()
        shape = tuple(map(int, np.where(size < 0, inputs[0].shape - begin, size)))
    elif operator.name == "CONCATENATION" and len({len(tensor.shape) for tensor in inputs}) == 1:
        axis = operator.options.Axis() % len(inputs[0].shape)
        whole = sum(tensor.shape[axis] for tensor in inputs)
        shape = (*inputs[0].shape[:axis], whole, *inputs[0].shape[axis + 1 :])
    elif operator.name == "TRANSPOSE_CONV" and inputs[0].data is not None:
        shape = tuple(int(size) for size in inputs[0].data.ravel())
    if min(shape, default=0) < 0 or prod(shape) > LARGEST_TENSOR:
        raise ValueError(f"shape must have sizes from 0 on, not be {list(shape)}")
    tensors[output] = replace(tensors[output], shape=tuple(shape))


def slice_ranges(options: Any, shape: Sequence[int], begin: Values, end: Values, steps: Values) -> list[range]:
    """The places that STRIDED_SLICE takes along each axis of what it reads; axes that it adds have one element."""
    ranges: list[range] = []
    count = len(shape) - sum(not (_bit(options.NewAxisMask(), k) or _bit(options.EllipsisMask(), k))
                             for k in range(len(begin)))  # fmt: skip
    for k, (first, last, step) in enumerate(zip(*(map(int, v.ravel()) for v in (begin, end, steps)), strict=True)):
        if _bit(options.EllipsisMask(), k):
            ranges += [range(size) for size in shape[len(ranges) : len(ranges) + count]]
        elif not _bit(options.NewAxisMask(), k):
            size = shape[len(ranges)]
            if _bit(options.ShrinkAxisMask(), k):
                place = int(range(size)[first])
                ranges.append(range(place, place + 1))
            else:
                start = None if _bit(options.BeginMask(), k) else first
                stop = None if _bit(options.EndMask(), k) else last
                ranges.append(range(size)[slice(start, stop, step)])
    return [*ranges, *(range(size) for size in shape[len(ranges) :])]


def _bit(mask: int, k: int) -> bool:
    return bool(mask >> k & 1)


def _constant_results(tensors: Sequence[FlatTensor], operator: FlatOperator) -> list[Any] | None:
    """The results of an operator; ``None`` if they are not constant, or computed with codes or floats."""
    if operator.name == "SLICE" and 0 in tensors[operator.outputs[0]].shape:
        return [np.zeros(tensors[operator.outputs[0]].shape)]
    if operator.name == "SHAPE":
        return [np.array(tensors[operator.inputs[0]].shape)]
    if operator.name not in _MOVES and operator.name not in _ARITHMETIC:
        return None
    inputs = [tensors[index] for index in operator.inputs if index >= 0]
    outputs = [tensors[index] for index in operator.outputs]
    if not inputs or any(tensor.data is None for tensor in inputs):
        return None
    if operator.name in _ARITHMETIC:
        computed = any(tensor.coded or tensor.kind.startswith("FLOAT") for tensor in (*inputs, *outputs))
        fused = hasattr(operator.options, "FusedActivationFunction") and operator.options.FusedActivationFunction()
        if computed or fused:
            return None
        return [_ARITHMETIC[operator.name](operator.options, *(tensor.data for tensor in inputs))]
    if len({tensor.scheme for tensor in (*inputs, *outputs) if tensor.coded}) > 1:
        return None
    if any(tensor.scales.size > 1 for tensor in inputs):  # whose axis might move
        return None
    made = _MOVES[operator.name](outputs[0].shape, operator.options, *(tensor.data for tensor in inputs))
    return made if isinstance(made, list) else [made]


def _sized(shape: Sequence[int] | Values) -> tuple[int, ...]:
    """A shape of a tensor that is not too large."""
    sizes = tuple(map(int, np.ravel(shape)))
    if min(sizes, default=0) < 0 or int(np.prod(sizes, dtype=object)) > LARGEST_TENSOR:
        raise ValueError(f"shape must have at most {LARGEST_TENSOR} elements, not {list(sizes)}")
    return sizes


def _strided_slice(shape: Any, options: Any, x: Values, begin: Values, end: Values, steps: Values) -> Values:
    return np.asarray(x[np.ix_(*slice_ranges(options, x.shape, begin, end, steps))]).reshape(shape)


def _tile(shape: Any, options: Any, x: Values, counts: Values) -> Values:
    _sized(np.array(x.shape) * counts)
    return np.tile(x, tuple(counts))


def _range(options: Any, start: Values, limit: Values, step: Values) -> Values:
    _sized([len(range(int(start), int(limit), int(step)))])
    return np.arange(int(start), int(limit), int(step))


def _reduced(function: Callable[..., Any]) -> Fold:
    def fold(options: Any, x: Values, axes: Values) -> Any:
        return function(x, axis=tuple(map(int, np.ravel(axes))), keepdims=bool(options.KeepDims()))

    return fold


def _of(function: Callable[..., Any]) -> Fold:
    return lambda options, *operands: function(*operands)


#: Operators whose result has the shape of what they read, broadcast; the number of operands that count.
_ALIKE = (
    dict.fromkeys(POINT_WISE, 1)
    | dict.fromkeys("ADD SUB MUL DIV MAXIMUM MINIMUM SQUARED_DIFFERENCE PRELU".split(), 2)
    | dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX"), 1)
)
#: What only moves elements, with the shape of the first result, the options and the operands.
_MOVES: dict[str, Fold] = {
    "STRIDED_SLICE": _strided_slice,
    "SLICE": lambda shape, options, x, begin, size: x[
        tuple(slice(b, b + n) for b, n in zip(begin, shape, strict=True))
    ],
    "PACK": lambda shape, options, *parts: np.stack(parts, options.Axis()),
    "UNPACK": lambda shape, options, x: list(np.moveaxis(x, options.Axis(), 0)),
    "SPLIT": lambda shape, options, axis, x: np.split(x, options.NumSplits(), int(axis)),
    "CONCATENATION": lambda shape, options, *parts: np.concatenate(parts, options.Axis()),
    "GATHER": lambda shape, options, x, places: np.take(x, places, options.Axis()).reshape(shape),
    "FILL": lambda shape, options, sizes, value: np.full(_sized(sizes), value),
    "BROADCAST_TO": lambda shape, options, x, sizes: np.broadcast_to(x, _sized(sizes)),
    "RESHAPE": lambda shape, options, x, *sizes: x.reshape(tuple(sizes[0]) if sizes else shape),
    "EXPAND_DIMS": lambda shape, options, x, axis: x.reshape(shape),
    "SQUEEZE": lambda shape, options, x: x.reshape(shape),
    "TRANSPOSE": lambda shape, options, x, order: np.transpose(x, tuple(order)),
    "TILE": _tile,
}
#: What is computed of integers.
_ARITHMETIC: dict[str, Fold] = {
    "ADD": _of(np.add), "SUB": _of(np.subtract), "MUL": _of(np.multiply), "FLOOR_DIV": _of(np.floor_divide),
    "MAXIMUM": _of(np.maximum), "MINIMUM": _of(np.minimum), "CAST": _of(np.asarray), "RANGE": _range,
    "REDUCE_PROD": _reduced(np.prod), "SUM": _reduced(np.sum), "REDUCE_MAX": _reduced(np.max),
    "LESS": _of(np.less), "GREATER": _of(np.greater), "EQUAL": _of(np.equal),
    "LOGICAL_AND": _of(np.logical_and), "SELECT_V2": _of(np.where),
    "BROADCAST_ARGS": _of(lambda a, b: np.array(np.broadcast_shapes(tuple(a), tuple(b)))),
}  # fmt: skip
