"""A network on codes with the arithmetic of the NPU, up to where the host goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from concord.compiler.codes.factors import ScaleError
from concord.compiler.codes.operations import WeightedPair, WindowSums
from concord.compiler.codes.origins import Stored
from concord.compiler.codes.products import product
from concord.compiler.codes.scales import fixed_scale, nearest_weights, real_scales
from concord.compiler.codes.tensors import NotOnNpu as NotOnNpu
from concord.compiler.codes.tensors import NpuTensors
from concord.compiler.lowering.products import largest_weight
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import ConcatMove, ExpandMove, FlattenMove, NoMove, ReshapeMove, SqueezeMove, TransposeMove
from concord.integer.operations import (
    CodeAverage,
    CodeFloats,
    CodeMaximum,
    CodeMean,
    CodeMovement,
    CodePairTable,
    CodeSum,
    CodeTable,
    IntegerAverage,
)
from concord.integer.tflite.operations import FixedPointMean, FixedPointSum
from concord.integer.weighted_sums import WeightedSums, elements_of_windows
from concord.spec.config import NpuConfig

_MOVES = (ConcatMove, ExpandMove, FlattenMove, NoMove, ReshapeMove, SqueezeMove, TransposeMove)
#: Greatest window that a chain walks in one direction.
_LONGEST = 63
#: Advice where the NPU does not compute a network on codes.
_INSTEAD = "block floating point takes more: compile without --exact"


@dataclass(frozen=True, eq=False)
class Split:
    """A network on codes in two parts.

    Parameters
    ----------
    npu : IntegerGraph
        What the NPU computes, with its arithmetic; its outputs have the names of their tensors.
    host : list of IntegerOperation
        What is computed from these outputs, as in the network.
    shapes : dict of str to tuple of int
        Of all tensors, after the samples.
    stored : dict of str to Stored
        Codes of all tensors on the NPU, and which of them is stored as 0.
    outputs : dict of str to str
        Tensors of codes that hold the outputs of the model, by the names of these.
    """

    npu: IntegerGraph
    host: list[IntegerOperation]
    shapes: Mapping[str, tuple[int, ...]]
    stored: Mapping[str, Stored]
    outputs: dict[str, str]

    @property
    def arithmetic(self) -> IntegerGraph:
        """The network with the arithmetic of the NPU, and what the host computes after it."""
        return replace(self.npu, operations=[*self.npu.operations, *self.host], outputs=self.outputs)


def split(graph: IntegerGraph, shapes: Mapping[str, tuple[int, ...]], config: NpuConfig) -> Split:
    """The parts of a network on codes.

    Parameters
    ----------
    graph : IntegerGraph
        The network.
    shapes : mapping of str to tuple of int
        Of all tensors, after the samples.
    config : NpuConfig
        With ``vv_scale``.

    Raises
    ------
    NotOnNpu
        If a product has to be computed after something that the NPU does not compute: every reason, with its tensor.
    """
    rewriter = _Rewriter(graph, shapes, config)
    graph = rewriter.graph
    reasons = [f"{name}: {why}" for name, why in rewriter.refused.items()]
    late = [part.name for part in rewriter.host if isinstance(part, WeightedSums)]
    if late or not rewriter.npu:
        products = f"; behind that stand products ({', '.join(late)})" if late else ""
        raise NotOnNpu(f"{'; '.join(reasons)}{products}; {_INSTEAD}")
    made = {*graph.inputs.values(), *(part.output for part in rewriter.npu)}
    there = {*made, *(part.output for part in rewriter.host)}
    schemes = {name: scheme for name, scheme in graph.schemes.items() if name in there}
    read = {name for part in rewriter.host for name in part.inputs} | set(graph.outputs.values())
    outputs = {name: name for name in sorted(read & made)}
    npu = replace(graph, schemes=schemes, operations=rewriter.npu, outputs=outputs, aliases={})
    return Split(npu, rewriter.host, rewriter.shapes, rewriter.stored, graph.outputs)


class _Rewriter:
    """Goes through the operations in order."""

    def __init__(self, graph: IntegerGraph, shapes: Mapping[str, tuple[int, ...]], config: NpuConfig):
        self.config, self.tensors = config, NpuTensors(graph, shapes, config)
        self.schemes, self.shapes, self.stored = self.tensors.schemes, self.tensors.shapes, self.tensors.stored
        self.graph = self._behind_limits(graph)
        self.host: list[IntegerOperation] = []
        self.refused: dict[str, str] = {}
        there = {*graph.inputs.values(), *(part.output for part in self.tensors.operations)}
        for operation in self.graph.operations:
            if there.issuperset(operation.inputs):
                try:
                    self._rewrite(operation)
                except (NotOnNpu, ScaleError) as error:
                    self.refused[operation.output] = str(error)
                else:
                    there.add(operation.output)
                    continue
            self.host.append(operation)
        needed = {*self.graph.outputs.values(), *(name for part in self.host for name in part.inputs)}
        self.npu: list[IntegerOperation] = []
        for operation in reversed(self.tensors.operations):  # all but what was computed in parts instead
            if operation.output in needed:
                needed.update(operation.inputs)
                self.npu.insert(0, operation)

    def _behind_limits(self, graph: IntegerGraph) -> IntegerGraph:
        """The network behind inputs of which mantissas do not hold one code, so that this is limited first."""
        names = dict[str, str]()
        for name in graph.inputs.values():
            if name in self.stored and self.stored[name].limited:
                names[name] = self.tensors.move(f"{name}/limited", (name,), NoMove(), self.shapes[name])
        operations = [
            replace(part, inputs=tuple(names.get(name, name) for name in part.inputs)) for part in graph.operations
        ]
        outputs = {name: names.get(tensor, tensor) for name, tensor in graph.outputs.items()}
        return replace(graph, schemes=self.schemes, operations=operations, outputs=outputs)

    def _rewrite(self, operation: IntegerOperation) -> None:
        self.tensors.check((*operation.inputs, operation.output))
        rule = next((rule for kind, rule in _RULES.items() if isinstance(operation, kind)), None)
        if isinstance(operation, CodePairTable):
            raise NotOnNpu("tables with two indices are not on the NPU; load the network with pairs=False")
        if rule is None:
            raise NotOnNpu(f"{type(operation).__name__} is not computed on codes by the NPU")
        if (made := rule(self, operation)) is not None:
            self.tensors.operations.append(made)

    # Operations --------------------------------------------------------------------------------

    def products(self, operation: WeightedSums) -> IntegerOperation | None:
        """Products with a requantisation by factors."""
        return product(self.tensors, operation)

    def table(self, operation: CodeTable) -> IntegerOperation:
        """A function of one code."""
        stored, table = self.stored[operation.output], operation.table
        if not stored.limited:
            return operation
        entries = np.clip(table.entries, stored.low, stored.high)
        return replace(operation, table=replace(table, entries=entries))

    def movement(self, operation: CodeMovement) -> IntegerOperation:
        """Codes that only move."""
        if not isinstance(operation.move, _MOVES):
            raise NotOnNpu(f"{type(operation.move).__name__} is not one of the NPU")
        self._check_limits(operation, "codes that are moved and limited at once are")
        return operation

    def _check_limits(self, operation: Any, what: str) -> None:
        """Refuse limits that any code is beyond."""
        stored = self.stored[operation.output]
        if operation.low > stored.low or operation.high < stored.high:
            raise NotOnNpu(f"{what} not computed by the NPU")

    def maximum(self, operation: CodeMaximum) -> IntegerOperation:
        """Maxima of codes, as they are."""
        self._check_limits(operation, "a maximum that is limited is")
        if len(operation.kernel) not in (1, 2) or max(operation.dilations) > 1:
            raise NotOnNpu("a maximum must be of one or two dimensions, without dilations")
        return operation

    def mean(self, operation: CodeMean) -> IntegerOperation:
        """The mean of all elements of a channel, or of windows."""
        sizes = self.shapes[operation.inputs[0]][1:]
        ratio = Fraction(float(operation.scale)) / Fraction(float(operation.target_scale))
        limits = _Limits(operation.target_zero_point, operation.low, operation.high)
        window = sizes, sizes, (0,) * 2 * len(sizes)
        if isinstance(operation, CodeAverage):
            if max(operation.dilations) > 1 or (operation.padding_counts and any(operation.pads)):
                raise NotOnNpu("a mean must be without dilations, and without padding that counts")
            window = operation.kernel, operation.strides, operation.pads
        return self._sums(operation, False, operation.zero_point, window, ratio, limits)

    def average(self, operation: IntegerAverage) -> IntegerOperation:
        """Means of windows of TensorFlow Lite."""
        zero = self.schemes[operation.inputs[0]].zero
        window, limits = (operation.kernel, operation.strides, operation.pads), operation
        return self._sums(operation, True, zero, window, Fraction(1), _Limits(zero, limits.low, limits.high), up=True)

    def mean_of_axes(self, operation: FixedPointMean) -> IntegerOperation:
        """The mean of TensorFlow Lite, of all axes but the channels."""
        sizes = self.shapes[operation.inputs[0]]
        if operation.axes != tuple(range(1, len(sizes))):
            raise NotOnNpu(f"a mean must be of all axes but samples and channels, not of {list(operation.axes)}")
        scales, _, _ = real_scales(operation.requantisation, np.zeros(1, np.int64))
        window = sizes[:-1], sizes[:-1], (0,) * 2 * (len(sizes) - 1)
        ratio = scales[0] * prod(sizes[:-1])
        return self._sums(operation, True, operation.zero_point, window, ratio, operation.requantisation, up=True)

    def _sums(
        self,
        operation: IntegerOperation,
        last: bool,
        zero_point: int,
        window: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        ratio: Fraction,
        limits: Any,
        *,
        up: bool = False,
    ) -> IntegerOperation:
        kernel, strides, pads = window
        if len(kernel) not in (1, 2) or max(kernel) > _LONGEST:
            raise NotOnNpu(f"a mean must be of one or two dimensions of at most {_LONGEST}, not of {list(kernel)}")
        shape, stored = self.shapes[operation.inputs[0]], self.stored[operation.inputs[0]]
        sizes = shape[:-1] if last else shape[1:]
        counts = elements_of_windows(sizes, kernel, strides, (1,) * len(kernel), pads)[0, 0]
        scales = [ratio / int(count) for count in counts.ravel()]
        terms = [ratio * (stored.origin - zero_point)] * len(scales)
        made = self.tensors.requantisation(operation.output, scales, terms, (1, *counts.shape), limits, up)
        return WindowSums(
            name=operation.name, inputs=operation.inputs, output=operation.output, kernel=kernel, strides=strides,
            pads=pads, last=last, shape=self.shapes[operation.output], zero_point=stored.origin, reach=stored.reach,
            requantisation=made,
        )  # fmt: skip

    def sum_of_codes(self, operation: CodeSum) -> IntegerOperation:
        """Add of ONNX."""
        return self._pair(operation, [Fraction(float(ratio)) for ratio in operation.ratios], operation)

    def sum_of_floats(self, operation: CodeFloats) -> IntegerOperation:
        """Add of ONNX in binary32; the NPU has factors of its own."""
        if operation.operator != "Add":
            raise NotOnNpu(f"{operation.operator} of two tensors is not computed on codes by the NPU")
        step = Fraction(float(operation.step))
        return self._pair(operation, [Fraction(float(scale)) / step for scale in operation.scales], operation)

    def fixed_point_sum(self, operation: FixedPointSum) -> IntegerOperation:
        """Add and Sub of TensorFlow Lite."""
        (output,), _, _ = real_scales(operation.requantisation, np.zeros(1, np.int64))
        ratios = [fixed_scale(scale)[0] * output * (1 << operation.up) for scale in operation.scales]
        signed = [ratios[0], -ratios[1] if operation.difference else ratios[1]]
        return self._pair(operation, signed, operation.requantisation, up=True)

    def _pair(self, operation: Any, ratios: list[Fraction], limits: Any, *, up: bool = False) -> IntegerOperation:
        a, b = (self.shapes[name] for name in operation.inputs)
        if a != b or operation.inputs[0] == operation.inputs[1]:
            raise NotOnNpu("a sum must be of two tensors of one shape")
        sizes = nearest_weights(abs(ratios[0]), abs(ratios[1]), largest_weight(self.config.wgt_mant))
        larger = 0 if abs(ratios[0]) >= abs(ratios[1]) else 1
        scale = abs(ratios[larger]) / sizes[larger]
        weights = [-size if ratio < 0 else size for ratio, size in zip(ratios, sizes, strict=True)]
        stored = [self.stored[name] for name in operation.inputs]
        moved = sum(
            weight * (part.origin - zero) for weight, part, zero in zip(weights, stored, operation.zeros, strict=True)
        )
        made = self.tensors.requantisation(operation.output, [scale], [scale * moved], (1,) * len(a), limits, up)
        return WeightedPair(
            name=operation.name, inputs=operation.inputs, output=operation.output, weights=(weights[0], weights[1]),
            zeros=(stored[0].origin, stored[1].origin), reaches=(stored[0].reach, stored[1].reach),
            last=isinstance(operation, FixedPointSum), requantisation=made,
        )  # fmt: skip


@dataclass(frozen=True)
class _Limits:
    """Code of 0, and least and greatest code of a result."""

    zero_point: int
    low: int
    high: int


_RULES: dict[Any, Callable[[_Rewriter, Any], IntegerOperation | None]] = {
    WeightedSums: _Rewriter.products,
    CodeMovement: _Rewriter.movement,
    CodeTable: _Rewriter.table,
    CodeMaximum: _Rewriter.maximum,
    IntegerAverage: _Rewriter.average,
    CodeMean: _Rewriter.mean,
    FixedPointMean: _Rewriter.mean_of_axes,
    CodeSum: _Rewriter.sum_of_codes,
    CodeFloats: _Rewriter.sum_of_floats,
    FixedPointSum: _Rewriter.fixed_point_sum,
}
