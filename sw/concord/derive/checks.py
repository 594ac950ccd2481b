"""Checks of a derived model: values are computed once and before they are read, and have the right shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from concord.derive import ir


def check(model: ir.Model) -> None:
    """Raise ``ValueError`` if a value is used before it is computed, computed twice, or of a wrong shape."""
    known = {*model.inputs}
    _check(model.body, known)
    for value in model.outputs:
        if value not in known:
            raise ValueError(f"output {value.name} must be computed, and is not")


def _check(body: ir.Body, known: set[ir.Value]) -> None:
    for node in body:
        if missing := [value.name for value in node.inputs if value not in known]:
            raise ValueError(f"inputs of {node.output.name} must be computed before it, and {missing} are not")
        if isinstance(node, ir.Loop):
            _check_loop(node, known)
        elif isinstance(node, ir.Products) and node.register and (node.offset is not None or node.weight.ndim != 2):
            raise ValueError(f"{node.output.name} must have no offset and a weight of two axes, with a register")
        elif node.output.shape != (want := shape_of(node)):
            raise ValueError(f"{node.output.name} must have shape {want}, not {node.output.shape}")
        if again := [value.name for value in node.outputs if value in known]:
            raise ValueError(f"values must be computed once, and {again} are computed again")
        known.update(node.outputs)


def _check_loop(loop: ir.Loop, known: set[ir.Value]) -> None:
    inside = known | set(loop.params)
    _check(loop.body, inside)
    pairs: list[tuple[ir.Value, ir.Shape]] = []
    for carried in loop.carried:
        pairs += [
            (value, carried.param.shape)
            for value in (carried.initial, carried.result, carried.final)
            if value is not None
        ]
        if carried.result not in inside:
            raise ValueError(f"result {carried.result.name} must be computed by the body, and is not")
    pairs += [(scan.source, (loop.count, *scan.param.shape)) for scan in loop.scanned]
    pairs += [(stack.output, (loop.count, *stack.result.shape)) for stack in loop.stacked]
    for value, shape in pairs:
        if value.shape != shape:
            raise ValueError(f"{value.name} must have shape {shape}, not {value.shape}")


def shape_of(node: ir.ModelNode) -> ir.Shape:
    """The shape that the output of a node must have: for data movement without one of its own, that of the output."""
    match node:
        case ir.Constant():
            return node.data.shape
        case ir.Gather():
            return node.index.shape
        case ir.Reshape():
            return node.output.shape if node.output.size == node.x.size else (-1,)
        case ir.Transpose():
            return tuple(node.x.shape[axis] for axis in node.perm)
        case ir.Slice():
            return node.output.shape if _slice_fits(node) else (-1,)
        case ir.Concat():
            return _concat_shape([x.shape for x in node.xs], node.axis)
        case ir.MapWindows():
            return (*node.output.shape[:2], *node.kernel, *node.x.shape[2:])
        case ir.MatMul():
            *front, rows, _ = node.weight.shape
            return (*node.x.shape[: len(node.x.shape) - node.weight.ndim + 1], *front, rows)
        case ir.ProductOf():
            same = node.x.shape[: len(node.groups)] == node.groups and node.x.shape[-1] == node.matrix.shape[-1]
            return (*node.x.shape[:-1], node.matrix.shape[-2]) if same else (-1,)
        case ir.Depthwise():
            return (*node.x.shape[:-2], node.weight.shape[1])
        case ir.Elementwise():
            return tuple(np.broadcast_shapes(*(x.shape for x in node.xs)))
        case ir.Maximum():
            shape = list(node.x.shape)
            shape.pop(node.axis)
            return tuple(shape)
    return node.inputs[0].shape


def _slice_fits(node: ir.Slice) -> bool:
    axes = zip(node.x.shape, node.starts, node.steps, node.output.shape, strict=True)
    return all(0 <= start < size and 0 <= start + (count - 1) * step < size for size, start, step, count in axes)


def _concat_shape(shapes: Sequence[ir.Shape], axis: int) -> ir.Shape:
    whole = list(shapes[0])
    whole[axis] = sum(shape[axis] for shape in shapes)
    return tuple(whole)
