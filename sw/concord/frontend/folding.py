"""Results that follow from constants and from shapes alone, as the evaluator of onnx has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.graph.ir import Shape
from concord.utils.arrays import Array
from concord.utils.matrices import zeros

#: Elements of a constant that a few bytes of the file may ask for.
LARGEST_CONSTANT = 1 << 26
#: Elements of a constant that may be needed to tell the shape of another one.
_SIZES = 1 << 10


def _diagonal(shape: Shape, k: int) -> Array:
    """Ones on a diagonal of a matrix."""
    ones = zeros("ones on a diagonal", *shape).astype(np.float32)
    np.fill_diagonal(ones[max(-k, 0) :, max(k, 0) :], 1)
    return ones


#: Results of operators that read the shape of a tensor.
OF_SHAPES: dict[str, Callable[[OnnxNode, Shape], Array]] = {
    "Shape": lambda node, shape: np.array(shape[node.attrs.get("start", 0) : node.attrs.get("end")], dtype=np.int64),
    "Size": lambda node, shape: np.array(math.prod(shape), dtype=np.int64),
    "EyeLike": lambda node, shape: _diagonal(shape, node.attrs.get("k", 0)),
}


def evaluated(
    node: OnnxNode, constants: Mapping[str, Array], opset: int, remedy: str = "correct the model"
) -> list[Array]:
    """Results of a node that reads constants alone.

    ``Refusal`` if they do not fit each other, or if a result is large; ``remedy`` is what helps then.
    """
    for sizes in _constant_shapes(node, constants, opset):
        if math.prod(sizes) > LARGEST_CONSTANT:
            raise Refusal(f"makes a constant of the shape {sizes}", remedy)
    unfit = Refusal(
        "cannot be computed from its constants, as they do not fit",
        "correct the model, or export it with constants folded",
    )
    return reference_results(node.proto, constants, opset, unfit)


def reference_results(proto: Any, operands: Mapping[str, Array], opset: int, unfit: Refusal) -> list[Array]:
    """Results of a node of the file, by the evaluator of onnx, or ``unfit`` for operands that it cannot have."""
    from onnx.reference import ReferenceEvaluator

    try:
        results: Any = ReferenceEvaluator(proto, opsets={"": opset}).run(None, dict(operands))
    except Exception as error:  # whatever the evaluator of another project raises
        raise unfit from error
    return [np.asarray(result) for result in results]


def _constant_shapes(node: OnnxNode, constants: Mapping[str, Array], opset: int) -> list[list[int]]:
    """Shapes of the results of a node that reads constants, those that onnx infers without computing the results."""
    import onnx
    from onnx import helper, numpy_helper

    known = [numpy_helper.from_array(value, name) for name, value in constants.items() if value.size <= _SIZES]
    operands = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in constants.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    graph = helper.make_graph([node.proto], "constant", operands, results, known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    except Exception:  # what onnx says about operands that do not fit, the evaluator says, too
        return []
    return [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in inferred]
