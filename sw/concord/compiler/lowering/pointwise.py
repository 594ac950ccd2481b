"""Operations on every element: activations, tables, sums and products of two tensors."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from concord.compiler.ir.activations import domain_of
from concord.compiler.ir.layers import MfuStep
from concord.compiler.ir.layout import LayoutError, Storage
from concord.compiler.ir.table_specs import Domain, InputSpan, Proven, TableSpec, WholeEntries
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering import operands
from concord.compiler.lowering.contractions import outer
from concord.compiler.lowering.layout_copies import lanes_of
from concord.compiler.lowering.lower import Lowering, NodeBuilder
from concord.functions.segmented import TableSegment
from concord.graph.ir import Node
from concord.graph.ops.elementwise import BinaryAttributes, ClipAttributes, FunctionAttributes, ScaleAttributes
from concord.operations import OPERATIONS
from concord.spec.formats import BINARY16_MAX
from concord.spec.isa import Op
from concord.spec.operations import NEEDS
from concord.utils.arrays import FloatArray, Ids

#: Operations by the operator of the graph, of one tensor and of two.
UNARY = {operation.node: op for op, operation in OPERATIONS.items() if operation.node and not operation.combines}
BINARY = {operation.node: op for op, operation in OPERATIONS.items() if operation.node and operation.combines}
#: Operations with their operands exchanged.
_SWAPPED = {operation.exchanged: op for op, operation in OPERATIONS.items() if operation.exchanged is not None}


def unary(lowering: Lowering, node: Node) -> None:
    """An operation on every element alone."""
    op = UNARY[node.op]
    lowering.elementwise(node, lambda ids, target: [MfuStep(op)], node.inputs[0])


def clip(lowering: Lowering, node: Node) -> None:
    """The larger of an element and a bound, the smaller of it and another one; no bound is beyond all numbers."""
    attributes = node.attributes(ClipAttributes)
    low, high = attributes.min, attributes.max

    def make(ids: Ids, target: Storage) -> list[MfuStep]:
        steps = []
        if low > -BINARY16_MAX and low != 0:
            steps.append(MfuStep(Op.VV_MAX, operands.constant(np.array(low), ids, target)))
        if high < BINARY16_MAX:
            steps.append(MfuStep(Op.VV_MIN, operands.constant(np.array(high), ids, target)))
        return [*steps, MfuStep(Op.V_RELU)] if low == 0 else steps

    lowering.elementwise(node, make, node.inputs[0])


def function(lowering: Lowering, node: Node) -> None:
    """Functions of one variable, all by one table [transfer-lut], or by a segment of one."""
    spec = table_of(node, lowering.formats)
    lowering.elementwise(node, lambda ids, target: [MfuStep(Op.V_TBL, spec=spec)], node.inputs[0])


def table_of(node: Node, formats: Formats) -> TableSpec:
    """Specification of the table in which a Function is looked up."""
    attributes = node.attributes(FunctionAttributes)
    functions = attributes.spec
    domain: Domain | TableSegment | InputSpan | WholeEntries | None = attributes.segment
    domain = domain or domain_of(functions, formats.domain(node.inputs[0]))
    if attributes.domain is not None:
        own = isinstance(attributes.domain, InputSpan | WholeEntries)
        domain = attributes.domain if own else Proven(attributes.domain)
    return functions, domain


def in_segments(lowering: Lowering, node: Node) -> list[Node] | None:
    """Functions with several tables: each of them, and the maximum of all."""
    attributes = node.attributes(FunctionAttributes)
    if node.name not in lowering.formats.table_segments or attributes.segment is not None:
        return None
    build, joined = NodeBuilder(lowering, node), ""
    for k, segment in enumerate(lowering.formats.table_segments[node.name]):
        part = build.add("Function", f"part {k}", *node.inputs, functions=attributes.functions, segment=segment)
        joined = build.add("Max", f"up to {k}", joined, part) if joined else part
    return build.renamed()


def scale_accumulators(lowering: Lowering, node: Node) -> None:
    """Codes of accumulators: a step of the product that makes them, which must be its first one."""
    attributes = node.attributes(ScaleAttributes)
    layer = lowering.open_layer(node.inputs[0])
    if layer is None or layer.weight is None or layer.mfu_ops or not lowering.config.has(Op.VV_SCALE):
        raise LayoutError(f"accumulators must be those of one product, on an NPU with {NEEDS[Op.VV_SCALE]}")
    ids = lowering.view(node.inputs[0])
    operand = operands.pair(attributes.factor, attributes.fraction, ids, layer.target)
    layer.ids = ids
    lowering.extend(layer, node, [MfuStep(Op.VV_SCALE, operand, shift=attributes.shift)])


def binary(lowering: Lowering, node: Node) -> None:
    """A sum, difference, product, maximum or minimum of two tensors or of a tensor and a constant."""
    op = BINARY[node.op]
    attributes = node.attributes(BinaryAttributes)
    if attributes.constant is not None:
        op = Op.VV_RSUB if attributes.constant_first else op
        values, beyond = _within(node, attributes.constant), attributes.beyond
        lowering.elementwise(
            node, lambda ids, target: [MfuStep(op, operands.constant(values, ids, target, beyond))], node.inputs[0]
        )
        return
    first, second = node.inputs
    refused, result = [], lowering.graph.shapes[node.outputs[0]]
    for a, b, chosen in sorted(((first, second, op), (second, first, _SWAPPED.get(op, op))), key=_latest(lowering)):
        if lowering.graph.shapes[a] != result:
            refused.append(f"{a} must be broadcast")
            continue
        other = lowering.view(b)
        try:
            lowering.elementwise(
                node,
                lambda ids, target, b=b, other=other, chosen=chosen: [  # type: ignore[misc]
                    MfuStep(chosen, operands.tensor(b, other, ids, lowering.done.storages, target))
                ],
                a,
            )
            return
        except LayoutError as error:
            refused.append(str(error))
    try:
        outer(lowering, node, op)
    except LayoutError as error:
        raise LayoutError("; ".join(dict.fromkeys([*refused, str(error)]))) from error


def _within(node: Node, values: FloatArray) -> FloatArray:
    """The constant of a node, where it is beyond binary16 the greatest number that has the same effect."""
    if node.op == "Max":
        return np.maximum(values, -BINARY16_MAX)
    if node.op == "Min":
        return np.minimum(values, BINARY16_MAX)
    return values


def same_axes(lowering: Lowering, node: Node) -> list[Node] | None:
    """A constant with more axes than the tensor: the tensor gets axes of length 1, or is copied where it grows."""
    shape, result = (lowering.graph.shapes[name] for name in (node.inputs[0], node.outputs[0]))
    if node.attributes(BinaryAttributes).constant is None or shape == result:
        return None
    if prod(shape) != prod(result):
        part = lowering.new_node(
            node, "Copy", "grown", node.inputs, shape=result, lanes=lanes_of(lowering, node.inputs[0], result)
        )
        return [part, node.replace(inputs=part.outputs)]
    part = lowering.new_node(node, "Reshape", "aligned", node.inputs, shape=result)
    return [part, node.replace(inputs=part.outputs)]


def _latest(lowering: Lowering) -> Callable[[tuple[str, str, Op]], int]:
    """Sort key: operands that are computed last come first, as theirs is the chain to fuse with."""

    def key(choice: tuple[str, str, Op]) -> int:
        layer = lowering.open_layer(choice[0])
        return -lowering.done.layers.index(layer) if layer is not None else 1

    return key
