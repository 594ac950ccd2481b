"""The graph that the passes get: codes less their origins are the numbers of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from concord.compiler.codes.factors import FactorRequantisation
from concord.compiler.codes.operations import WeightedPair, WindowSums
from concord.compiler.codes.rewriting import Split
from concord.compiler.ir.table_specs import InputSpan, WholeEntries
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.integer.graph import IntegerOperation, readers
from concord.integer.moves import ConcatMove, NoMove, PadMove, TakeMove, TransposeMove
from concord.integer.operations import CodeMaximum, CodeMovement, CodeTable
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul, WeightedSums
from concord.integer.wide_numbers import WideNumbers
from concord.spec.config import NpuConfig
from concord.transfer import CodeRange, Codes
from concord.utils.arrays import FloatArray


@dataclass(frozen=True)
class _CodesGraph:
    """A graph that nodes are appended to.

    Parameters
    ----------
    graph : Graph
        The graph.
    split : Split
        The network on codes.
    unit : int
        log2 of the unit of weights.
    paddings : mapping of str to PadMove
        By tensor the padding that the host writes around the input that it is.
    tables : mapping of str to CodeTable
        Tables that only read what an operation requantises, by its tensor: they and the requantisation are one.
    limited : bool
        Whether tables say their ends in double precision, too.
    """

    graph: Graph
    split: Split
    unit: int
    paddings: Mapping[str, PadMove] = field(default_factory=dict)
    tables: Mapping[str, CodeTable] = field(default_factory=dict)
    limited: bool = False

    def add(self, op: str, inputs: tuple[str, ...], output: str, **attrs: Any) -> str:
        """Append a node, and return its output."""
        node = Node(op, output, inputs, (output,), attrs)
        shapes = [self.graph.shapes[name] for name in inputs]
        (self.graph.shapes[output],) = operator_of(node).shape(node, shapes)
        self.graph.nodes.append(node)
        return output

    def rank(self, tensor: str) -> int:
        """Number of axes of a tensor."""
        return len(self.graph.shapes[tensor])

    def weight(self, weight: Any) -> FloatArray:
        """Whole numbers in units of accumulators."""
        return np.asarray(np.ldexp(weight.astype(np.float64), self.unit))

    def function(self, tensor: str, domain: InputSpan | WholeEntries, name: str) -> str:
        """A table of whole numbers."""
        return self.add("Function", (tensor,), name, functions=(("identity", {}),), domain=domain)


def graph_of(split: Split, config: NpuConfig) -> tuple[Graph, dict[str, float]]:
    """The graph of what the NPU computes, and offsets that the host takes off inputs.

    Weights are multiples of ``2**wgt_exp_min``, so that accumulators are whole numbers of the units of ``vv_scale``.
    Tensors have the names and the layouts that they have in the network on codes. An input with an offset has codes
    less their zero points, as the host pads it for the one convolution that reads it.
    """
    graph, users = _without_nodes(split), readers(split.npu.operations)
    padded = {name: part for name in graph.inputs if (part := _padded_by_host(split, name, users)) is not None}
    zeros = {name: padded[name][1].value if name in padded else split.stored[name].origin for name in graph.inputs}
    graph.quantization |= {name: _whole_numbers(split.npu.schemes[name], zero) for name, zero in zeros.items()}
    _append_all(_CodesGraph(graph, split, config.wgt_exp_min, dict(padded.values()), _tables_behind(split, users)))
    return graph, {name: float(split.stored[name].origin - zeros[name]) for name in padded}


def definition_of(split: Split, config: NpuConfig, offsets: Mapping[str, float]) -> Graph:
    """The graph whose results in double precision are the numbers of the NPU.

    Offsets are taken off inputs by its first nodes, and the padding of such inputs is a node. Tensors have the names
    that they have in :func:`graph_of`.
    """
    graph = _without_nodes(split)
    tables = _tables_behind(split, readers(split.npu.operations))
    made = _CodesGraph(graph, split, config.wgt_exp_min, {}, tables, limited=True)
    _append_all(made)
    stored = {name: f"{name}/stored" for name in offsets}
    nodes = [replace(node, inputs=tuple(stored.get(name, name) for name in node.inputs)) for node in graph.nodes]
    graph.nodes.clear()
    for name, offset in offsets.items():
        made.add("Sub", (name,), stored[name], constant=np.array(offset))
    graph.nodes.extend(nodes)
    return graph


def _without_nodes(split: Split) -> Graph:
    """A graph with the inputs and outputs of what the NPU computes."""
    inputs, outputs = [*split.npu.inputs.values()], [*split.npu.outputs]
    shapes = {name: (1, *split.shapes[name]) for name in inputs}
    return Graph(split.npu.name, [], inputs, outputs, shapes, {*inputs, *outputs})


def _append_all(made: _CodesGraph) -> None:
    """Append the nodes of all operations."""
    merged = {table.output for table in made.tables.values()}
    for operation in made.split.npu.operations:
        if operation.output not in merged:
            _append(made, operation)


def _whole_numbers(scheme: Codes | WideNumbers, origin: int) -> Codes:
    """Codes less an origin: the host sends inputs as codes."""
    bits = (scheme.high - scheme.low).bit_length()
    return Codes(bits, 1, origin, CodeRange.of(scheme.low < 0))


def _padded_by_host(split: Split, name: str, users: Mapping[str, list[IntegerOperation]]) -> tuple[str, PadMove] | None:
    """The tensor that an input is with padding for the one convolution that reads it, and that padding."""
    tensor, outputs = name, split.npu.outputs
    while len(parts := users.get(tensor, [])) == 1 and tensor not in outputs:
        (part,) = parts
        if isinstance(part, CodeMovement) and isinstance(part.move, NoMove):
            tensor = part.output
            continue
        if not isinstance(part, CodeMovement) or not isinstance(part.move, PadMove) or part.output in outputs:
            return None
        match users[part.output]:
            case [IntegerConvolution(groups=1)]:
                return part.output, part.move
        return None
    return None


def _tables_behind(split: Split, users: Mapping[str, list[IntegerOperation]]) -> dict[str, CodeTable]:
    """Tables that are the only readers of what an operation requantises, by its tensor."""
    tables = {}
    for operation in split.npu.operations:
        if operation.output in split.npu.outputs:
            continue
        match operation, users.get(operation.output):
            case WeightedSums() | WindowSums() | WeightedPair(), [CodeTable() as table]:
                tables[operation.output] = table
    return tables


def _append(made: _CodesGraph, operation: IntegerOperation) -> None:
    """Append the nodes of an operation, with those of the table behind it."""
    inputs, table = operation.inputs, made.tables.get(operation.output)
    name = operation.output if table is None else table.output
    match operation:
        case CodeMovement():
            _move(made, operation)
        case CodeTable():
            made.function(inputs[0], _entries(made, operation), name)
        case CodeMaximum(last=True):
            first = _channels_first(made, inputs[0], name)
            _channels_last(made, _maximum(made, first, operation, f"{name}/maximum"), name)
        case CodeMaximum():
            _maximum(made, inputs[0], operation, name)
        case IntegerMatMul():
            weight = made.weight(operation.weight.T)
            sums = made.add("Dense", inputs, f"{name}/sums", weight=weight, bias=np.zeros(len(weight)))
            _codes(made, sums, operation, name)
        case IntegerConvolution(last=True):
            products = _windows(made, _channels_first(made, inputs[0], name), operation, name)
            _channels_last(made, _codes(made, products, operation, f"{name}/codes"), name)
        case IntegerConvolution():
            _codes(made, _windows(made, inputs[0], operation, name), operation, name)
        case WindowSums():
            _window_sums(made, operation, name)
        case WeightedPair():
            _pair(made, operation, name)
        case _:
            raise TypeError(f"operation must be one that the rewriting makes, not {operation!r}")


# Moves -----------------------------------------------------------------------------------------


def _move(made: _CodesGraph, operation: CodeMovement) -> None:
    name, rank = operation.output, made.rank(operation.inputs[0])
    match operation.move:
        case PadMove(widths, value) if name not in made.paddings:
            number = float(value - made.split.stored[name].origin)
            made.add("Pad", operation.inputs, name, pads=_pads(widths), mode="constant", value=number)
        case ConcatMove(axis):
            made.add("Concat", operation.inputs, name, axis=axis % rank)
        case TakeMove(axis, indices):
            made.add("Pick", operation.inputs, name, axis=axis % rank, indices=indices)
        case TransposeMove(axes):
            perm = tuple(reversed(range(rank))) if axes is None else axes
            made.add("Transpose", operation.inputs, name, perm=tuple(axis % rank for axis in perm))
        case _:
            source = operation.inputs[0] if name in made.paddings else name
            made.add("Reshape", operation.inputs, name, shape=(1, *made.split.shapes[source]))


def _pads(widths: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Pads in front of all axes, then behind them."""
    return tuple(size for side in zip(*widths, strict=True) for size in side)


def _channels_first(made: _CodesGraph, tensor: str, name: str) -> str:
    rank = made.rank(tensor)
    return made.add("Transpose", (tensor,), f"{name}/channels first", perm=(0, rank - 1, *range(1, rank - 1)))


def _channels_last(made: _CodesGraph, tensor: str, name: str) -> str:
    return made.add("Transpose", (tensor,), name, perm=(0, *range(2, made.rank(tensor)), 1))


# Products --------------------------------------------------------------------------------------


def _conv(made: _CodesGraph, tensor: str, weight: Any, name: str, **attrs: Any) -> str:
    bias = np.zeros(len(weight))
    return made.add("Conv", (tensor,), f"{name}/sums", weight=made.weight(weight), bias=bias, **attrs)


def _windows(made: _CodesGraph, tensor: str, operation: IntegerConvolution, name: str) -> str:
    pads, padding = operation.pads, made.paddings.get(operation.inputs[0])
    if padding is not None:
        first = 1 if operation.last else 2
        pads = _pads(padding.widths[first : first + len(operation.strides)])
    return _conv(
        made, tensor, operation.weight, name, group=operation.groups, strides=operation.strides, pads=pads,
        dilations=operation.dilations,
    )  # fmt: skip


def _window_sums(made: _CodesGraph, operation: WindowSums, name: str) -> None:
    tensor = operation.inputs[0]
    tensor = _channels_first(made, tensor, name) if operation.last else tensor
    channels = made.graph.shapes[tensor][1]
    ones = np.ones((channels, 1, *operation.kernel), dtype=np.int64)
    sums = _conv(
        made, tensor, ones, name, group=channels, strides=operation.strides, pads=operation.pads,
        dilations=operation.dilations,
    )  # fmt: skip
    tensor = _codes(made, sums, operation, f"{name}/codes")
    tensor = _channels_last(made, tensor, f"{name}/channels last") if operation.last else tensor
    made.add("Reshape", (tensor,), name, shape=(1, *operation.shape))


def _pair(made: _CodesGraph, operation: WeightedPair, name: str) -> None:
    """Two tensors, times one weight each."""
    rank = made.rank(operation.inputs[0])
    axis = rank - 1 if operation.last or rank == 2 else 1
    sums = made.add(
        "WeightedSum", operation.inputs, f"{name}/sums", weights=operation.weights, unit=made.unit, axis=axis
    )
    _codes(made, sums, operation, name)


def _maximum(made: _CodesGraph, tensor: str, operation: CodeMaximum, name: str) -> str:
    return made.add(
        "MaxPool", (tensor,), name, kernel=operation.kernel, strides=operation.strides, pads=operation.pads,
        dilations=operation.dilations,
    )  # fmt: skip


# Requantisation --------------------------------------------------------------------------------


def _codes(made: _CodesGraph, sums: str, operation: WeightedSums | WindowSums | WeightedPair, name: str) -> str:
    """Codes less the origin, or what the table after them makes of them."""
    requantisation = operation.requantisation
    assert isinstance(requantisation, FactorRequantisation)
    rank, words = made.rank(sums), []
    for array in (requantisation.factor, requantisation.fraction, requantisation.whole):
        words.append(array.reshape((1,) * (rank - array.ndim) + array.shape).astype(np.float64))
    factor, fraction, whole = words
    tensor = made.add(
        "ScaleAccumulators", (sums,), f"{name}/scaled", factor=factor, fraction=fraction,
        shift=requantisation.shift, unit=made.unit,
    )  # fmt: skip
    if whole.any():
        tensor = made.add("Add", (tensor,), f"{name}/whole", constant=whole)
    low, high = requantisation.ends
    if (table := made.tables.get(operation.output)) is not None:
        return made.function(tensor, _entries(made, table, (low, high)), name)
    if made.limited:
        return made.function(tensor, WholeEntries(low, tuple(range(low, high + 1))), name)
    return made.function(tensor, InputSpan(low, high + 1, scale=0), name)


def _entries(made: _CodesGraph, operation: CodeTable, ends: tuple[int, int] | None = None) -> WholeEntries:
    """A table of codes less their origins; ``ends`` are the least and the greatest that there are."""
    source, target = (made.split.stored[name] for name in (operation.inputs[0], operation.output))
    low, high = (source.low - source.origin, source.high - source.origin) if ends is None else ends
    codes = operation.run(np.arange(low, high + 1) + source.origin) - target.origin
    return WholeEntries(low, tuple(codes.tolist()))
