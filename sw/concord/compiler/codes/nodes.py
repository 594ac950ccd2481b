"""The graph that the compiler reads: codes less their origins are the numbers of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from concord.compiler.codes.factors import FactorRequantisation
from concord.compiler.codes.operations import WeightedPair, WindowSums
from concord.compiler.codes.rewriting import Split
from concord.compiler.ir.table_specs import InputSpan, WholeEntries
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.quantization import Quantization
from concord.integer.graph import IntegerOperation, readers
from concord.integer.moves import ConcatMove, NoMove, PadMove, TakeMove, TransposeMove
from concord.integer.operations import CodeMaximum, CodeMovement, CodeTable
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul, WeightedSums
from concord.integer.wide_numbers import WideNumbers
from concord.spec.config import NpuConfig
from concord.transfer import UniformAffine
from concord.utils.arrays import FloatArray


def graph_of(split: Split, config: NpuConfig) -> tuple[Graph, dict[str, float]]:
    """The graph of what the NPU computes, and offsets that the host takes off inputs.

    Weights are multiples of ``2**wgt_exp_min``, so that accumulators are whole numbers of the units of ``vv_scale``.
    Tensors have the names and the layouts that they have in the network on codes. An input with an offset has codes
    less their zero points, as the host pads it for the one convolution that reads it.
    """
    writer = _GraphWriter(split, config)
    return writer.graph, writer.offsets


def _whole_numbers(scheme: UniformAffine | WideNumbers, origin: int) -> Quantization:
    """Codes less an origin: the host sends inputs as codes."""
    bits = (scheme.high - scheme.low).bit_length()
    return Quantization(np.array(1.0), np.array(origin), bits, scheme.low < 0)


class _GraphWriter:
    """Appends the nodes of every operation."""

    def __init__(self, split: Split, config: NpuConfig):
        source = split.npu
        self.unit, self.split = config.wgt_exp_min, split
        inputs, outputs = [*source.inputs.values()], [*source.outputs]
        shapes = {name: (1, *split.shapes[name]) for name in inputs}
        self.graph = Graph(source.name, [], inputs, outputs, shapes, {*inputs, *outputs})
        users = readers(source.operations)
        self.source = source
        #: Numbers that the host takes off inputs, and the tensors of these inputs with what the host pads.
        self.offsets, self.of_host = dict[str, float](), dict[str, CodeMovement]()
        for name in inputs:
            origin = self._padded_by_host(name, users)
            self.graph.quantization[name] = _whole_numbers(source.schemes[name], origin)
        #: Tables that only read what an operation requantises, by its tensor: they and the requantisation are one.
        self.tables: dict[str, CodeTable] = {}
        for operation in source.operations:
            others = users.get(operation.output, [])
            if len(others) == 1 and isinstance(others[0], CodeTable) and operation.output not in source.outputs:
                if isinstance(operation, WeightedSums | WindowSums | WeightedPair):
                    self.tables[operation.output] = others[0]
        merged = {id(table) for table in self.tables.values()}
        for operation in source.operations:
            if id(operation) not in merged:
                self._add(operation)

    def _node(self, op: str, inputs: tuple[str, ...], output: str, **attrs: Any) -> str:
        """Append a node, and return its output."""
        node = Node(op, output, inputs, (output,), attrs)
        shapes = [self.graph.shapes[name] for name in inputs]
        (self.graph.shapes[output],) = operator_of(node).shape(node, shapes)
        self.graph.nodes.append(node)
        return output

    def _padded_by_host(self, name: str, users: Mapping[str, list[IntegerOperation]]) -> int:
        """The code that is the number 0 of an input: its zero point, if the host pads it for one convolution."""
        origin, tensor = self.split.stored[name].origin, name
        while len(parts := users.get(tensor, [])) == 1 and tensor not in self.source.outputs:
            (part,) = parts
            if isinstance(part, CodeMovement) and isinstance(part.move, NoMove):
                tensor = part.output
                continue
            if not isinstance(part, CodeMovement) or not isinstance(part.move, PadMove):
                break
            if part.output in self.source.outputs or len(convolutions := users[part.output]) != 1:
                break
            if isinstance(convolutions[0], IntegerConvolution) and convolutions[0].groups == 1:
                self.offsets[name], self.of_host[part.output] = origin - part.move.value, part
                return part.move.value
            break
        return origin

    def _add(self, operation: IntegerOperation) -> None:
        inputs, table = operation.inputs, self.tables.get(operation.output)
        name = operation.output if table is None else table.output
        match operation:
            case CodeMovement():
                self._move(operation)
            case CodeTable():
                self._function(inputs[0], self._entries(operation), name)
            case CodeMaximum(last=True):
                first = self._channels_first(inputs[0], name)
                self._channels_last(self._maximum(first, operation, f"{name}/maximum"), name)
            case CodeMaximum():
                self._maximum(inputs[0], operation, name)
            case IntegerMatMul():
                products = self._dense(inputs[0], operation.weight.T, name)
                self._codes(products, operation, name)
            case IntegerConvolution(last=True):
                products = self._windows(self._channels_first(inputs[0], name), operation, name)
                requantised = self._codes(products, operation, f"{name}/codes")
                self._channels_last(requantised, name)
            case IntegerConvolution():
                self._codes(self._windows(inputs[0], operation, name), operation, name)
            case WindowSums():
                self._window_sums(operation, name)
            case WeightedPair():
                self._pair(operation, name)
            case _:
                raise TypeError(f"operation must be one that the rewriting makes, not {operation!r}")

    # Moves -------------------------------------------------------------------------------------

    def _move(self, operation: CodeMovement) -> None:
        name, rank = operation.output, len(self.graph.shapes[operation.inputs[0]])
        match operation.move:
            case PadMove(widths, value) if name not in self.of_host:
                pads = tuple(size for side in zip(*widths, strict=True) for size in side)
                number = float(value - self.split.stored[name].origin)
                self._node("Pad", operation.inputs, name, pads=pads, mode="constant", value=number)
            case ConcatMove(axis):
                self._node("Concat", operation.inputs, name, axis=axis % rank)
            case TakeMove(axis, indices):
                self._node("Pick", operation.inputs, name, axis=axis % rank, indices=indices)
            case TransposeMove(axes):
                perm = tuple(reversed(range(rank))) if axes is None else axes
                self._node("Transpose", operation.inputs, name, perm=tuple(axis % rank for axis in perm))
            case _:
                source = operation.inputs[0] if name in self.of_host else name
                shape = (1, *self.split.shapes[source])
                self._node("Reshape", operation.inputs, name, shape=shape)

    def _channels_first(self, tensor: str, name: str) -> str:
        rank = len(self.graph.shapes[tensor])
        return self._node("Transpose", (tensor,), f"{name}/channels first", perm=(0, rank - 1, *range(1, rank - 1)))

    def _channels_last(self, tensor: str, name: str) -> str:
        rank = len(self.graph.shapes[tensor])
        return self._node("Transpose", (tensor,), name, perm=(0, *range(2, rank), 1))

    # Products ----------------------------------------------------------------------------------

    def _weight(self, weight: Any) -> FloatArray:
        return np.asarray(np.ldexp(weight.astype(np.float64), self.unit))

    def _dense(self, tensor: str, weight: Any, name: str) -> str:
        """Products with a weight ``[outputs, inputs]``."""
        bias = np.zeros(len(weight))
        return self._node("Dense", (tensor,), f"{name}/sums", weight=self._weight(weight), bias=bias)

    def _conv(self, tensor: str, weight: Any, name: str, **attrs: Any) -> str:
        bias = np.zeros(len(weight))
        return self._node("Conv", (tensor,), f"{name}/sums", weight=self._weight(weight), bias=bias, **attrs)

    def _windows(self, tensor: str, operation: IntegerConvolution, name: str) -> str:
        pads, padded = operation.pads, self.of_host.get(operation.inputs[0])
        if padded is not None:
            assert isinstance(padded.move, PadMove)
            first = 1 if operation.last else 2
            around = padded.move.widths[first : first + len(operation.strides)]
            pads = tuple(size for side in zip(*around, strict=True) for size in side)
        return self._conv(
            tensor, operation.weight, name, group=operation.groups, strides=operation.strides, pads=pads,
            dilations=operation.dilations,
        )  # fmt: skip

    def _window_sums(self, operation: WindowSums, name: str) -> None:
        tensor = operation.inputs[0]
        tensor = self._channels_first(tensor, name) if operation.last else tensor
        channels, rank = self.graph.shapes[tensor][1], len(operation.kernel)
        ones = np.ones((channels, 1, *operation.kernel), dtype=np.int64)
        sums = self._conv(
            tensor, ones, name, group=channels, strides=operation.strides, pads=operation.pads, dilations=(1,) * rank
        )
        tensor = self._codes(sums, operation, f"{name}/codes")
        tensor = self._channels_last(tensor, f"{name}/channels last") if operation.last else tensor
        self._node("Reshape", (tensor,), name, shape=(1, *operation.shape))

    def _pair(self, operation: WeightedPair, name: str) -> None:
        """Two tensors, times one weight each."""
        rank = len(self.graph.shapes[operation.inputs[0]])
        axis = rank - 1 if operation.last or rank == 2 else 1
        sums = self._node(
            "WeightedSum", operation.inputs, f"{name}/sums", weights=operation.weights, unit=self.unit, axis=axis
        )
        self._codes(sums, operation, name)

    def _maximum(self, tensor: str, operation: Any, name: str) -> str:
        return self._node(
            "MaxPool", (tensor,), name, kernel=operation.kernel, strides=operation.strides, pads=operation.pads,
            dilations=operation.dilations,
        )  # fmt: skip

    # Requantisation ----------------------------------------------------------------------------

    def _codes(self, sums: str, operation: Any, name: str) -> str:
        """Codes less the origin, or what the table after them makes of them."""
        requantisation = operation.requantisation
        assert isinstance(requantisation, FactorRequantisation)
        rank, words = len(self.graph.shapes[sums]), []
        for array in (requantisation.factor, requantisation.fraction, requantisation.whole):
            words.append(array.reshape((1,) * (rank - array.ndim) + array.shape).astype(np.float64))
        factor, fraction, whole = words
        tensor = self._node(
            "ScaleAccumulators", (sums,), f"{name}/scaled", factor=factor, fraction=fraction,
            shift=requantisation.shift, unit=self.unit,
        )  # fmt: skip
        if whole.any():
            tensor = self._node("Add", (tensor,), f"{name}/whole", constant=whole)
        low, high = requantisation.ends
        if (table := self.tables.get(operation.output)) is not None:
            return self._function(tensor, self._entries(table, (low, high)), name)
        return self._function(tensor, InputSpan(low, high + 1, scale=0), name)

    def _function(self, tensor: str, domain: InputSpan | WholeEntries, name: str) -> str:
        return self._node("Function", (tensor,), name, functions=(("identity", {}),), domain=domain)

    def _entries(self, operation: CodeTable, ends: tuple[int, int] | None = None) -> WholeEntries:
        """A table of codes less their origins; ``ends`` are the least and the greatest that there are."""
        source, target = (self.split.stored[name] for name in (operation.inputs[0], operation.output))
        low, high = (source.low - source.origin, source.high - source.origin) if ends is None else ends
        codes = operation.run(np.arange(low, high + 1) + source.origin) - target.origin
        return WholeEntries(low, tuple(codes.tolist()))
