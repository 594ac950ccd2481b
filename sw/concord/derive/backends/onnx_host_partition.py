"""Operations of the host after the NPU, in ONNX: standard operators on DOUBLE, with the bits of the driver."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from concord.derive import ir
from concord.derive.backends.onnx_host import POWERS
from concord.derive.backends.onnx_writer import BEFORE_FIRST, Writer
from concord.graph.host_operations import Action, HostOperation, Operand
from concord.graph.host_rules import operations
from concord.graph.ir import Graph

_OPS = {
    Action.ADD: "Add",
    Action.SUB: "Sub",
    Action.MUL: "Mul",
    Action.DIV: "Div",
    Action.MAX: "Max",
    Action.MIN: "Min",
    Action.ROOT: "Sqrt",
    Action.FLOOR: "Floor",
    Action.ROUND: "Round",
}


def write_host_partition(writer: Writer, partition: Graph, sources: dict[str, str]) -> dict[str, ir.Shape]:
    """Write the operations of a host partition; returns its outputs with their shapes.

    Parameters
    ----------
    sources : dict
        Tensors of the inputs of the partition ``[samples, ...]`` by name.
    """
    names = {name: _reshape(writer, sources[name], tuple(partition.shapes[name])) for name in partition.inputs}
    for operation in operations(partition):
        names[operation.output] = _write(writer, operation, [_operand(writer, x, names) for x in operation.operands])
    computed = {name for node in partition.nodes for name in node.outputs}
    made = [name for name in partition.outputs if name in computed]  # others are outputs of the NPU
    for name in made:
        result = _reshape(writer, names[name], tuple(partition.sample_shape(name)))
        # Not result + 0, which ONNX Runtime may leave out.
        writer.node("Sub", [writer.constant(0.0, np.float64), writer.node("Neg", [result])], name)
    return {name: tuple(partition.sample_shape(name)) for name in made}


def _reshape(writer: Writer, x: str, shape: ir.Shape) -> str:
    return writer.node("Reshape", [x, writer.ints([-1, *shape])])


def _operand(writer: Writer, operand: Operand, names: dict[str, str]) -> str:
    return names[operand] if isinstance(operand, str) else writer.constant(operand, np.float64)


def _write(writer: Writer, operation: HostOperation, x: list[str]) -> str:
    match operation.action:
        case Action.RESHAPE:
            return _reshape(writer, x[0], operation.shape)
        case Action.TRANSPOSE:
            return writer.node("Transpose", x, perm=[0, *(axis + 1 for axis in operation.numbers)])
        case Action.CONCAT:
            return writer.node("Concat", x, axis=operation.numbers[0] + 1)
        case Action.SLICE:
            axis, start, stop, by = operation.numbers
            ends = [start, stop if stop >= 0 else BEFORE_FIRST, axis + 1, by]
            return writer.node("Slice", [x[0], *(writer.ints([end]) for end in ends)])
        case Action.SOFTMAX:
            _, powers, total = _powers(writer, x[0], operation)
            return writer.node("Div", [powers, total])
        case Action.LOG_SOFTMAX:
            below, _, total = _powers(writer, x[0], operation)
            return writer.node("Sub", [below, writer.call("HostLog", [total])])
        case Action.SUM:
            return _sum(writer, x[0], operation.numbers[0] + 1, operation.numbers[1])
        case Action.EXP:
            return writer.call("HostExp", [x[0], writer.constant(POWERS, np.float64)])
        case Action.LOG:
            return writer.call("HostLog", x)
        case Action.LESS | Action.EQUAL:
            return _number(writer, writer.node("Less" if operation.action is Action.LESS else "Equal", x))
        case Action.SELECT:
            return writer.node("Where", [writer.node("Cast", x[:1], to=TensorProto.BOOL), *x[1:]])
        case Action.LOOK_UP:
            return writer.node("Gather", [x[0], _whole(writer, x[1])], axis=0)
        case Action.ALONG:
            return writer.node("GatherElements", [x[0], _whole(writer, x[1])], axis=operation.numbers[0] + 1)
        case Action.GREATEST:
            return _number(writer, writer.node("ArgMax", x, axis=operation.numbers[0] + 1, keepdims=1))
        case Action.ORDER:
            axis = operation.numbers[0]
            count = writer.ints([operation.shape[axis]])
            _, places = writer.several("TopK", [x[0], count], 2, axis=axis + 1, largest=0, sorted=1)
            return _number(writer, places)
        case Action.FILL:
            samples = writer.samples(x[0])
            return writer.node(
                "Expand", [x[1], writer.node("Concat", [samples, writer.ints([*operation.shape])], axis=0)]
            )
    return writer.node(_OPS[operation.action], x)


def _whole(writer: Writer, x: str) -> str:
    return writer.node("Cast", [x], to=TensorProto.INT64)


def _number(writer: Writer, x: str) -> str:
    return writer.node("Cast", [x], to=TensorProto.DOUBLE)


def _powers(writer: Writer, x: str, operation: HostOperation) -> tuple[str, str, str]:
    """Differences from the greatest element along the axis of an operation, their powers, and the sum of these."""
    axis = operation.numbers[0] + 1
    below = writer.node("Sub", [x, writer.node("ReduceMax", [x, writer.ints([axis])], keepdims=1)])
    powers = writer.call("HostExp", [below, writer.constant(POWERS, np.float64)])
    return below, powers, _sum(writer, powers, axis, operation.shape[axis - 1])


def _sum(writer: Writer, total: str, axis: int, count: int) -> str:
    """Adds the nodes of a sum in the order of :func:`concord.golden.host_math.host_sum`."""
    while count > 1:
        size = count // 2
        parts = [writer.part(total, start, start + size, axis) for start in (0, size)]
        sums = writer.node("Add", parts)
        rest = [writer.part(total, 2 * size, count, axis)] if count % 2 else []
        total = writer.node("Concat", [sums, *rest], axis=axis) if rest else sums
        count = size + count % 2
    return total
