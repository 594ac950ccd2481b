"""Which function writes an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.pointwise import (
    write_difference,
    write_movement,
    write_pair_table,
    write_product,
    write_sum,
    write_table,
)
from concord.derive.c_exact.pools import write_average, write_maximum, write_mean, write_softmax
from concord.derive.c_exact.products import write_convolution, write_matmul
from concord.integer.graph import IntegerGraph
from concord.integer.operations import (
    CodeAverage,
    CodeConstant,
    CodeDifference,
    CodeMaximum,
    CodeMean,
    CodeMovement,
    CodePairTable,
    CodeProduct,
    CodeSoftmax,
    CodeSum,
    CodeTable,
    IntegerConvolution,
    IntegerMatMul,
)

#: By the class of an operation.
_WRITERS: dict[type, Callable[[ExactFunction, Any], None]] = {
    CodeAverage: write_average,
    CodeDifference: write_difference,
    CodeMaximum: write_maximum,
    CodeMean: write_mean,
    CodeMovement: write_movement,
    CodePairTable: write_pair_table,
    CodeProduct: write_product,
    CodeSoftmax: write_softmax,
    CodeSum: write_sum,
    CodeTable: write_table,
    IntegerConvolution: write_convolution,
    IntegerMatMul: write_matmul,
}


def check_operations(graph: IntegerGraph) -> None:
    """``ValueError`` with all kinds of operations that have no form in C, and the first of each."""
    refused: dict[str, list[str]] = {}
    for operation in graph.operations:
        if type(operation) not in {*_WRITERS, CodeConstant}:
            refused.setdefault(type(operation).__name__, []).append(operation.name)
    if refused:
        kinds = [
            f"{kind} {first!r}" + f" and {len(more)} more" * bool(more) for kind, (first, *more) in refused.items()
        ]
        raise ValueError(f"{graph.name} must have operations with a form in C, not {', '.join(kinds)}")


def write_operation(function: ExactFunction) -> None:
    """Write the statements of a function."""
    _WRITERS[type(function.operation)](function, function.operation)
