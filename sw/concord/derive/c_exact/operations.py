"""Operations of a graph as functions of C."""

from __future__ import annotations

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.nests import store
from concord.derive.c_exact.tensors import ExactPlan
from concord.derive.c_exact.values import Expression, element_of
from concord.derive.c_exact.writer import CWriter
from concord.derive.exact.arrays import Array
from concord.derive.exact.lowering import ArrayLowering
from concord.integer.graph import IntegerGraph


def check_operations(graph: IntegerGraph) -> None:
    """``ValueError`` with all kinds of operations that have no form in C, and the first of each."""
    refused: dict[str, list[str]] = {}
    for operation in graph.operations:
        if not ArrayLowering.has(operation):
            refused.setdefault(type(operation).__name__, []).append(operation.name)
    if refused:
        kinds = [
            f"{kind} {first!r}" + f" and {len(more)} more" * bool(more) for kind, (first, *more) in refused.items()
        ]
        raise ValueError(f"{graph.name} must have operations with a form in C, not {', '.join(kinds)}")


def write_operation(function: ExactFunction, plan: ExactPlan) -> None:
    """Write the statements of a function: the loops of its operation on arrays."""
    operation = function.operation
    shapes = {name: tensor.shape for name, tensor in plan.tensors.items()}
    sources: list[Array] = []
    for k, (name, tensor) in enumerate(zip(operation.inputs, function.sources, strict=True)):
        ends = tensor.scheme.low, tensor.scheme.high
        sources.append(element_of(f"x{k}", tensor.shape, tensor.places, *ends, real=plan.graph.is_wide(name)))
    made = ArrayLowering(CWriter(function), plan.graph, shapes).write(operation, sources)
    assert isinstance(made, Expression)
    store(function, made)
