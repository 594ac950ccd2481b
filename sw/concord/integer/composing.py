"""One table for everything point-wise between two operations of another kind, and none for what changes no code."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from concord.integer.graph import IntegerGraph, IntegerOperation, readers
from concord.integer.operations import CodeTable
from concord.transfer import Codes, TransferTable
from concord.transfer.operators import PointwiseOperator


def composed(graph: IntegerGraph) -> IntegerGraph:
    """The graph with tables after tables made one, and without tables that leave every code as it is.

    A tensor between two tables is there no more, unless it is an output or something else reads it. Entries are looked
    up in each other, so results are those of the tables one after the other.
    """
    return _without_idle(_merged(_without_idle(graph)))


def _merged(graph: IntegerGraph) -> IntegerGraph:
    """A table takes the place of the one in front of it, if it is the only one that reads that."""
    operations: list[IntegerOperation] = []
    makers: dict[str, CodeTable] = {}
    users, outputs = readers(graph.operations), set(graph.outputs.values())
    for operation in graph.operations:
        if isinstance(operation, CodeTable):
            (source,) = operation.inputs
            before = makers.get(source)
            if before is not None and len(users[source]) == 1 and source not in outputs:
                operations.remove(before)
                operation = replace(operation, inputs=before.inputs, table=table_after(before.table, operation.table))
            makers[operation.output] = operation
        operations.append(operation)
    return graph.with_operations(operations)


def _without_idle(graph: IntegerGraph) -> IntegerGraph:
    """Leave out tables that change nothing: their readers read what they read."""
    operations: list[IntegerOperation] = []
    names: dict[str, str] = {}
    for operation in graph.operations:
        inputs = tuple(names.get(name, name) for name in operation.inputs)
        if isinstance(operation, CodeTable) and _changes_nothing(operation.table):
            names[operation.output] = inputs[0]
        else:
            operations.append(replace(operation, inputs=inputs))
    return graph.with_operations(operations, names)


def table_after(first: TransferTable, second: TransferTable) -> TransferTable:
    """One table for two; between their operators stands the rounding to the codes in the middle."""
    middle = second.source
    operators = (*first.operators, _rounding(middle), *second.operators)
    return TransferTable(first.source, operators, second.target, second.apply(first.entries))


def _rounding(scheme: Codes) -> PointwiseOperator:
    """Operator that quantises a number, and dequantises it again."""

    def rounded(x: Fraction) -> Fraction:
        return scheme.dequantize(scheme.quantize(x))

    return PointwiseOperator(f"codes of {scheme}", custom=True, custom_function=rounded)


def _changes_nothing(table: TransferTable) -> bool:
    """True if every code stays what it is, and stands for the same number."""
    if table.source != table.target:
        return False
    return bool(np.array_equal(table.entries, np.arange(table.source.low, table.source.high + 1)))
