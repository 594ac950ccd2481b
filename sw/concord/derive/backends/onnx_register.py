"""Sums of a register that does not hold all of them, in an ONNX graph."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from concord.derive import ir
from concord.derive.backends.onnx_writer import Writer
from concord.derive.backends.products import ProductPlan


def ended(writer: Writer, node: ir.MatMul | ir.Depthwise, x: str, how: ProductPlan) -> str:
    """The sums of a product of ``x``, in float64, infinite where they end.

    All steps are added up one after the other: as many sums as there are steps for every result. A sum that never
    leaves the register is exact in this order, and in another one it need not be.
    """
    w = writer
    assert how.register is not None
    terms, axis = _terms(w, node, x)
    sums = w.node("CumSum", [terms, w.ints(np.array(axis))])
    least, end = (w.constant(limit, np.float64) for limit in (-how.register, how.register))
    bounds = (("Less", least), ("GreaterOrEqual", end))
    some = [w.node("Or", [w.node(test, [values, limit]) for test, limit in bounds]) for values in (terms, sums)]
    leaves = w.node("Cast", [w.node("Or", some)], to=11)
    before = w.node("CumSum", [leaves, w.ints(np.array(axis))], exclusive=1)
    first = w.node("Mul", [leaves, w.node("Cast", [w.node("Not", [w.node("Cast", [before], to=9)])], to=11)])
    sides = w.node("Mul", [w.node("Sign", [terms]), first])
    side = w.node("ReduceSum", [sides, w.ints([axis])], keepdims=0)
    total = w.node("Gather", [sums, w.ints(np.array(-1))], axis=axis)
    if axis == -3:
        side, total = (w.node("Squeeze", [part, w.ints([-2])]) for part in (side, total))
    zero, infinity = (w.constant(value, np.float64) for value in (0.0, np.inf))
    below = w.node("Where", [w.node("Less", [side, zero]), w.node("Neg", [infinity]), total])
    return w.node("Where", [w.node("Greater", [side, zero]), infinity, below])


def _terms(w: Writer, node: ir.MatMul | ir.Depthwise, x: str) -> tuple[str, int]:
    """Terms of the steps, and the axis of the steps: ``[..., steps, 1, outputs]``, or ``[..., steps, channels]``."""
    if isinstance(node, ir.Depthwise):
        return w.node("Mul", [x, w.constant(node.weight, np.float64)]), -2
    spans = list(pairwise([*node.starts, node.weight.shape[1]]))
    most = max(last - first for first, last in spans)
    index = np.zeros((len(spans), most), np.int64)  # a step with fewer products has others with weights of zero
    weight = np.zeros((len(spans), most, len(node.weight)))
    for step, (first, last) in enumerate(spans):
        index[step, : last - first] = np.arange(first, last)
        weight[step, : last - first] = node.weight[:, first:last].T
    picked = w.node("Gather", [x, w.ints(index)], axis=-1)
    apart = w.node("Unsqueeze", [picked, w.ints([-2])])
    return w.node("MatMul", [apart, w.constant(weight, np.float64)]), -3
