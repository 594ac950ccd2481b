"""Several samples at a time: the batch axis grows, where every operator leaves it alone."""

from __future__ import annotations

from functools import partial

from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import constant_of
from concord.graph.rewriting import Emit, rewrite


class BatchError(ValueError):
    """A network whose samples cannot be computed side by side."""


def with_batch(graph: Graph, size: int) -> Graph:
    """A copy of a graph for ``size`` samples at a time, whose tensors have that many rows.

    Raises
    ------
    BatchError
        If an operator or a tensor has no axis for them.
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size!r}")
    other = sorted({node.op for node in graph.nodes if not operator_of(node).batchable})
    if other:
        raise BatchError(f"batch must be 1 for a network with {', '.join(other)}, not {size}")
    used = {name for node in graph.nodes for name in (*node.inputs, *node.outputs) if name}
    flat = sorted(name for name in used if len(graph.shapes[name]) < 2 or graph.shapes[name][0] != 1)
    if flat:
        raise BatchError(f"batch must be 1: {flat[0]} has the shape {graph.shapes[flat[0]]} without an axis for it")
    constants = (constant_of(node, "Add", "Sub", "Mul", "Max", "Min") for node in graph.nodes)
    if any(size != 1 for constant in constants if constant is not None for size in constant.shape[:-1]):
        raise BatchError("batch must be 1: a constant has rows")
    shapes = {name: (size, *shape[1:]) if name in used else shape for name, shape in graph.shapes.items()}
    made = Graph(graph.name, list(graph.nodes), list(graph.inputs), list(graph.outputs), shapes, set())
    for node in graph.nodes:
        rank = len(shapes[node.outputs[0]])
        if any(len(shapes[name]) < rank for name in node.inputs):
            rewrite(made, node, partial(_aligned, graph=made, node=node, rank=rank))
    return made


def _aligned(emit: Emit, graph: Graph, node: Node, rank: int) -> None:
    """Operands of so many axes: axes of length 1 are behind that of the samples, not in front of it."""
    operands = list(node.inputs)
    for k, name in enumerate(operands):
        size, *rest = graph.shapes[name]
        if len(rest) + 1 < rank:
            operands[k] = emit("Reshape", name, shape=(size, *[1] * (rank - 1 - len(rest)), *rest))
    emit(node.op, *operands, **node.attrs)
