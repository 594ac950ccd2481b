"""All operations of the multifunction units by instruction.

Whoever executes or analyses programs looks operations up by their code. So a new one is a ``KeyError`` with its name
until it has a record, and never taken for another one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.golden import binary16
from concord.operations import float32, onnx_text
from concord.operations.record import ElementwiseOperation, Ends
from concord.spec.isa import Op


def _product_ends(x: Ends, y: Ends) -> Ends:
    corners = np.stack([a * b for a in x for b in y])
    return corners.min(axis=0), corners.max(axis=0)


_SUB = ElementwiseOperation(
    op=Op.VV_SUB,
    golden=binary16.sub,
    kernel=float32.sub,
    bounds=lambda x, y: (x[0] - y[1], x[1] - y[0]),
    rounds=True,
    node="Sub",
    word="difference",
    primitive="half_sub",
    onnx_body=onnx_text.SUB,
)

#: By instruction; the operand is the second argument.
OPERATIONS: dict[Op, ElementwiseOperation] = {
    operation.op: operation
    for operation in (
        ElementwiseOperation(
            op=Op.VV_ADD,
            golden=binary16.add,
            kernel=float32.add,
            bounds=lambda x, y: (x[0] + y[0], x[1] + y[1]),
            rounds=True,
            node="Add",
            word="sum",
            primitive="half_add",
            onnx_body=onnx_text.ADD,
        ),
        _SUB,
        replace(
            _SUB,
            op=Op.VV_RSUB,
            golden=binary16.rsub,
            kernel=float32.rsub,
            bounds=lambda x, y: (y[0] - x[1], y[1] - x[0]),
            node=None,
            exchanged=Op.VV_SUB,
        ),
        ElementwiseOperation(
            op=Op.VV_MUL,
            golden=binary16.mul,
            kernel=float32.mul,
            bounds=_product_ends,
            rounds=True,
            node="Mul",
            word="product",
            primitive="half_mul",
            onnx_body=onnx_text.MUL,
        ),
        ElementwiseOperation(
            op=Op.VV_MAX,
            golden=binary16.maximum,
            kernel=float32.maximum,
            bounds=lambda x, y: (np.maximum(x[0], y[0]), np.maximum(x[1], y[1])),
            rounds=False,
            node="Max",
            word="maximum",
            primitive="half_max",
            onnx_body=onnx_text.MAXIMUM,
        ),
        ElementwiseOperation(
            op=Op.VV_MIN,
            golden=binary16.minimum,
            kernel=float32.minimum,
            bounds=lambda x, y: (np.minimum(x[0], y[0]), np.minimum(x[1], y[1])),
            rounds=False,
            node="Min",
            word="minimum",
            primitive="half_min",
            onnx_body=onnx_text.MINIMUM,
        ),
        ElementwiseOperation(
            op=Op.V_RELU,
            golden=binary16.relu,
            kernel=float32.relu,
            bounds=lambda x: (np.maximum(x[0], 0.0), np.maximum(x[1], 0.0)),
            rounds=False,
            node="Relu",
            word="relu",
            primitive="half_relu",
            onnx_body=onnx_text.RELU,
        ),
    )
}
