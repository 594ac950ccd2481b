"""Inputs and outputs of an ONNX model as its file has them: names, shapes and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from concord.utils.arrays import FloatArray


def inputs_of(proto: Any) -> list[Any]:
    """Inputs that must be given to run a model: those that are no initialisers."""
    constant = {item.name for item in proto.graph.initializer}
    return [item for item in proto.graph.input if item.name not in constant]


def dims_of(value: Any) -> list[int | str | None]:
    """Sizes of the axes of an input or output; the names of those that are open, ``None`` without a name."""
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in value.type.tensor_type.shape.dim
    ]


def named(names: Sequence[str], values: Any) -> dict[str, Any]:
    """Values by name, of a mapping, a sequence in the order of the names, or the only value.

    Raises
    ------
    ValueError
        If there is not a value for each name.
    """
    if isinstance(values, Mapping):
        by_name = dict(values)
    elif isinstance(values, list | tuple):
        by_name = dict(zip(names, values, strict=False)) if len(values) == len(names) else {}
    else:
        by_name = {names[0]: values} if len(names) == 1 else {}
    if set(by_name) != set(names):
        have = list(by_name) or (len(values) if isinstance(values, list | tuple) else type(values).__name__)
        raise ValueError(f"inputs must be {list(names)}, by name or in this order, not {have}")
    return by_name


def as_written(value: Any, results: FloatArray) -> Any:
    """Results with the type that the file has for an output, and its shape if that is fixed and the results fit."""
    kind = value.type.tensor_type.elem_type
    sizes = [size for size in dims_of(value) if isinstance(size, int)]
    fixed = value.type.tensor_type.HasField("shape") and len(sizes) == len(dims_of(value))
    if fixed and prod(sizes) == results.size:
        results = results.reshape(sizes)
    dtype = helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(np.float32)
    return (np.rint(results) if dtype.kind in "iu" else results).astype(dtype)


def labels_of_maps(proto: Any) -> dict[str, list[Any]]:
    """Labels of the outputs that ZipMap makes, in the order of the scores, by the name of the output."""
    labels: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        if node.op_type == "ZipMap":
            values = [
                helper.get_attribute_value(item) for item in node.attribute if item.name.startswith("classlabels")
            ]
            labels[node.output[0]] = [x.decode() if isinstance(x, bytes) else x for group in values for x in group]
    return labels


def with_shapes(proto: Any) -> Any:
    """A model whose outputs have the shapes that follow from those of its inputs, unless types in it contradict."""
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except onnx.shape_inference.InferenceError:  # operands of bfloat16 are float32, which numpy has
        return proto
