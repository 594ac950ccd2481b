"""ONNX models as expressions: tensors are values, and ``op.Gemm(x, weight, transB=1)`` is the result of an operator.

Operands that are arrays, numbers or lists of whole numbers are constants, ``None`` is one that is left out.
``model_of(y=op.Relu(given(1, 4)))`` is a model with the input ``x`` and the output ``y``; nodes are in the order in
which they were written.
"""

from __future__ import annotations

from itertools import count

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, UINT8, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL
_NUMBERS = count()


class Tensor:
    """A tensor of a model: an input, or one of the results of a node."""

    def __init__(self, made=None, name="", index=0, shape=(), kind=FLOAT):
        self.made, self.name, self.index, self.shape, self.kind = made, name, index, shape, kind
        self.number = next(_NUMBERS)


class _Made:
    """A node that is not named yet."""

    def __init__(self, op, operands, outputs, name, attrs):
        self.op, self.operands, self.name, self.attrs = op, operands, name, attrs
        self.results = [Tensor(self, name if outputs == 1 else "", index) for index in range(outputs)]
        self.number = next(_NUMBERS)


class _Operators:
    """Operators of ONNX by their names."""

    def __getattr__(self, op):
        def made(*operands, outputs=1, name="", **attrs):
            values = [x if x is None or isinstance(x, Tensor) else Constant(x) for x in operands]
            results = _Made(op, values, outputs, name, attrs).results
            return results[0] if outputs == 1 else results

        return made


op = _Operators()


class Constant(Tensor):
    """A constant: floats are of 32 bits, whole numbers of 64."""

    def __init__(self, value):
        super().__init__()
        value = np.asarray(value)
        self.value = value.astype(np.float32) if value.dtype == np.float64 else value


def given(*shape, name="x", kind=FLOAT):
    """An input."""
    return Tensor(None, name, 0, shape, kind)


def model_of(*end, opset=17, domains=(), **outputs):
    """The model of some tensors, by the names that they have as outputs; one without a name is ``y``."""
    outputs = dict(zip(("y",), end, strict=False)) | outputs
    names = {value: name for name, value in outputs.items()}
    found = _needed(outputs.values())
    inputs = [value for value in found if value.made is None and not isinstance(value, Constant)]
    names |= {value: value.name for value in inputs}
    constants = [value for value in found if isinstance(value, Constant)]
    for value in found:
        names.setdefault(value, value.name or f"t{len(names)}")
    nodes = []
    for made in sorted({value.made for value in found if value.made is not None}, key=lambda made: made.number):
        operands = ["" if value is None else names[value] for value in made.operands]
        results = [names.setdefault(value, f"t{len(names)}") for value in made.results]
        nodes.append(helper.make_node(made.op, operands, results, name=made.name, **made.attrs))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(names[value], value.kind, value.shape) for value in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value.value, names[value]) for value in constants],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return _with_types(helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset < 23 else 11))


def _with_types(proto):
    """The model with the element types of its outputs; those that nothing is known of are floats."""
    inferred = {
        item.name: item.type.tensor_type.elem_type for item in onnx.shape_inference.infer_shapes(proto).graph.output
    }
    for item in proto.graph.output:
        item.CopyFrom(helper.make_tensor_value_info(item.name, inferred[item.name] or FLOAT, None))
    return proto


def _needed(ends):
    """Tensors in the order in which they were made."""
    found, left = {}, list(ends)
    while left:
        value = left.pop()
        if value is not None and value not in found:
            found[value] = True
            left.extend(value.made.operands if value.made else [])
    return sorted(found, key=lambda value: value.number)
