"""Operations of two tensors as tables with two indices, where codes have few bits [transfer-lut].

A table pays if it has at most ``PAIR_BYTES`` bytes more than the tables that it takes the place of: then a look-up does
what an operation in binary32 did, and the tables before its operands and after it. Results are the same.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from concord.integer.composing import table_after
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation, readers
from concord.integer.operations import CodeFloats, CodePairTable, CodeSum, CodeTable, IntegerProduct
from concord.transfer import CodeRange, Codes, TransferTable
from concord.transfer.operators import PointwiseOperator
from concord.transfer.targets import MAX_BITS

#: Bytes of a table of codes of 8 bits: what a table of two operands of 4 bits takes, too.
PAIR_BYTES = 256
#: Operations on each pair of codes by itself; operands may be broadcast.
OF_PAIRS = (CodeSum, IntegerProduct, CodeFloats)


def with_pair_tables(graph: IntegerGraph, limit: int = PAIR_BYTES) -> IntegerGraph:
    """The graph with tables in the place of operations of two tensors where they pay.

    Parameters
    ----------
    limit : int
        Bytes that a table may have beyond those of the tables that it takes the place of.
    """
    operations = list(graph.operations)
    for operation in graph.operations:
        if isinstance(operation, OF_PAIRS):
            _replace_pair(operation, operations, graph, limit)
    return graph.with_operations(operations)


def _replace_pair(
    operation: IntegerOperation, operations: list[IntegerOperation], graph: IntegerGraph, limit: int
) -> None:
    """Put a table in the place of an operation, with tables before it and after it in it, if that pays."""
    users, makers = readers(operations), {part.output: part for part in operations}
    kept = {*graph.outputs.values()}
    front: dict[str, CodeTable] = {}
    for name in operation.inputs:
        maker = makers.get(name)
        if isinstance(maker, CodeTable) and users[name] == [operation] and name not in kept:
            front[name] = maker
    following = users.get(operation.output, [])
    follower = following[0] if len(following) == 1 and operation.output not in kept else None
    follower = follower if isinstance(follower, CodeTable) else None
    for fronts in (front, {}) if front else ({},):
        inputs = tuple(fronts[name].inputs[0] if name in fronts else name for name in operation.inputs)
        sources = [graph.scheme(name) for name in inputs]
        parts = [*fronts.values(), *([follower] if follower else [])]
        last = follower.table.target if follower else graph.scheme(operation.output)
        count = sources[0].count if operation.inputs[0] == operation.inputs[1] else sources[0].count * sources[1].count
        if count * last.dtype.itemsize > limit + sum(part.table.entries.nbytes for part in parts):
            continue
        tables = [fronts[name] if name in fronts else None for name in operation.inputs]
        table = pair_table(operation, sources, tables, graph.scheme(operation.output))
        if table is None:
            continue
        table = table_after(table, follower.table) if follower else table
        made = _looked_up(operation.name, inputs, (follower or operation).output, table, sources)
        operations[operations.index(follower or operation)] = made
        for part in (operation, *parts):
            if part in operations:
                operations.remove(part)
        return


def _looked_up(
    name: str, inputs: tuple[str, ...], output: str, table: TransferTable, sources: list[Codes]
) -> IntegerOperation:
    """The operation that looks up in a table."""
    if len(set(inputs)) == 1 and table.source == sources[0]:
        return CodeTable(name=name, inputs=inputs[:1], output=output, table=table)
    lows = sources[0].low, sources[1].low
    return CodePairTable(name=name, inputs=inputs, output=output, table=table, lows=lows, count=sources[1].count)


def pair_table(
    operation: IntegerOperation, sources: list[Codes], tables: list[CodeTable | None], target: Codes
) -> TransferTable | None:
    """The table of an operation of two tensors, by the index of a pair of codes; of one tensor twice, by its code.

    Parameters
    ----------
    sources : pair of Codes
        Of the codes that the table is read with.
    tables : pair of CodeTable or None
        What stands between these and the operands.

    Returns
    -------
    TransferTable or None
        ``None`` if there would be more than 2**16 entries, or if results depend on which operand is broadcast.
    """
    single = operation.inputs[0] == operation.inputs[1]
    bits = [source.bits for source in sources]
    if (sum(bits) > MAX_BITS and not single) or any(source.count != 1 << source.bits for source in sources):
        return None
    first, second = (np.arange(source.low, source.high + 1) for source in sources)
    pairs = (first, first) if single else (np.repeat(first, len(second)), np.tile(second, len(first)))

    def entries(a: Integers, b: Integers) -> Integers:
        operands = [
            codes if table is None else table.table.apply(codes).astype(np.int64)
            for codes, table in zip((a, b), tables, strict=True)
        ]
        return operation.run(*operands)

    # A sum takes its operands in the order of their sizes.
    values = entries(*pairs)
    column, row = pairs[0][:, None], np.repeat(pairs[1][:, None], 2, axis=1)
    if not np.array_equal(values, entries(column, row)[:, 0]):
        return None

    source = sources[0] if single else Codes(sum(bits), 1, 0, CodeRange.UNSIGNED)

    def one_entry(number: Fraction) -> Fraction:
        place = source.quantize(number) - source.low
        made = entries(*(codes[place : place + 1] for codes in pairs))
        return target.dequantize(int(made[0]))

    name = f"{type(operation).__name__} of two"
    return TransferTable(source, (PointwiseOperator(name, custom=True, custom_function=one_entry),), target, values)
