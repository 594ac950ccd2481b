"""Shapes of tensors, and what a model computes of them and of other constants, as constants.

The number of samples is open in most models. It is a number of its own here, so large that no other size is a multiple
of it: products with it and lists that have it in front can be told when a Reshape reads them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.frontend.codes.reading import Reading
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal

#: Stands for the number of samples, where it is open.
SAMPLES = (1 << 40) + 15
#: Most elements of a constant that is computed.
_LARGEST = 1 << 22
#: Operators whose result has a size that an operand says, with the place of that.
_SIZED = {"ConstantOfShape": 0, "Expand": 1, "Tile": 1, "Range": 1}
#: Operators that read constants as no other part of the project does it.
_OTHERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Clip")


def is_folded(ctx: Reading, node: OnnxNode) -> bool:
    """Compute a node of shapes or constants alone; ``False`` if it is another one."""
    if not node.standard or node.op in _OTHERS:
        return False
    if node.op in ("Shape", "Size") and node.input(0) not in ctx.weights:
        shape = _shape(ctx, node.input(0))
        begin, end = node.attrs.get("start", 0), node.attrs.get("end")
        ctx.constants[node.outputs[0]] = np.array(shape[begin:end] if node.op == "Shape" else prod(shape), np.int64)
        return True
    names = [name for name in node.inputs if name]
    if not names or not all(name in ctx.constants for name in names):
        return False
    values = _evaluated(ctx, node, {name: ctx.constants[name] for name in names})
    ctx.constants.update((name, value) for name, value in zip(node.outputs, values, strict=False) if name)
    return True


def _shape(ctx: Reading, name: str) -> tuple[int, ...]:
    """The shape of a tensor; the number of samples may be open."""
    sizes = ctx.sizes_of(name)
    if name in ctx.constants or all(shape[:1] != (None,) for shape in ctx.graph.shapes.values()):
        return sizes
    return (sizes[0] * SAMPLES, *sizes[1:])


def _evaluated(ctx: Reading, node: OnnxNode, values: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    from onnx.reference import ReferenceEvaluator

    if node.op in _SIZED:
        said = values[node.input(_SIZED[node.op])]
        if int(np.prod(np.abs(said).astype(object))) > _LARGEST:
            raise Refusal("must make a constant of known size", "export it with a fixed number of samples")
    try:
        results = ReferenceEvaluator(node.proto, opsets={"": ctx.opset}).run(None, values)
    except Exception as error:  # whatever the evaluator of another project raises
        raise Refusal("cannot be computed from its constants", "export it with constants folded") from error
    return [np.asarray(result) for result in results]
