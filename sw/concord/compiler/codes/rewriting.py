"""A network on codes with the arithmetic of the NPU, up to where the host goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    tensors = NpuTensors.of(graph, shapes, config)
    graph = _behind_limits(graph, tensors)
    host, refused = _rewritten(graph, tensors)
    needed = {*graph.outputs.values(), *(name for part in host for name in part.inputs)}
    operations = _needed(tensors.operations, needed)  # all but what was computed in parts instead
    late = [part.name for part in host if isinstance(part, WeightedSums)]
    if late or not operations:
        products = f"; behind that stand products ({', '.join(late)})" if late else ""
        reasons = (f"{name}: {why}" for name, why in refused.items())
        raise NotOnNpu(f"{'; '.join(reasons)}{products}; {_INSTEAD}")
    made = {*graph.inputs.values(), *(part.output for part in operations)}
    there = {*made, *(part.output for part in host)}
    schemes = {name: scheme for name, scheme in graph.schemes.items() if name in there}
    outputs = {name: name for name in sorted(needed & made)}
    npu = replace(graph, schemes=schemes, operations=operations, outputs=outputs, aliases={})
    return Split(npu, host, tensors.shapes, tensors.stored, graph.outputs)


def _behind_limits(graph: IntegerGraph, tensors: NpuTensors) -> IntegerGraph:
    """The network behind inputs of which mantissas do not hold one code, so that this is limited first."""
    limited = [name for name in graph.inputs.values() if name in tensors.stored and tensors.stored[name].limited]
    names = {
        name: tensors.move(f"{name}/limited", (name,), NoMove(), tensors.shapes[name])
        for name in dict.fromkeys(limited)
    }
    operations = [
        replace(part, inputs=tuple(names.get(name, name) for name in part.inputs)) for part in graph.operations
    ]
    outputs = {name: names.get(tensor, tensor) for name, tensor in graph.outputs.items()}
    return replace(graph, schemes=tensors.schemes, operations=operations, outputs=outputs)


def _rewritten(graph: IntegerGraph, tensors: NpuTensors) -> tuple[list[IntegerOperation], dict[str, str]]:
    """Operations that are left for the host, and by tensor the reasons; the others are appended for the NPU."""
    host: list[IntegerOperation] = []
    refused: dict[str, str] = {}
    there = {*graph.inputs.values(), *(part.output for part in tensors.operations)}
    for operation in graph.operations:
        if there.issuperset(operation.inputs):
            try:
                tensors.check((*operation.inputs, operation.output))
                if (made := _of_npu(tensors, operation)) is not None:
                    tensors.operations.append(made)
            except (NotOnNpu, ScaleError) as error:
                refused[operation.output] = str(error)
            else:
                there.add(operation.output)
                continue
        host.append(operation)
    return host, refused


def _needed(operations: Sequence[IntegerOperation], names: Collection[str]) -> list[IntegerOperation]:
    """Operations that some tensors depend on."""
    needed, kept = set(names), list[IntegerOperation]()
    for operation in reversed(operations):
        if operation.output in needed:
            needed.update(operation.inputs)
            kept.insert(0, operation)
    return kept


def _of_npu(tensors: NpuTensors, operation: IntegerOperation) -> IntegerOperation | None:
    """Operation that the NPU computes in the place of one; nothing if that is appended as several."""
    match operation:
        case CodePairTable():
            raise NotOnNpu("tables with two indices are not on the NPU; load the network with pairs=False")
        case WeightedSums():
            return product(tensors, operation)
        case CodeMovement():
            return _movement(tensors, operation)
        case CodeTable():
            return _table(tensors, operation)
        case CodeMaximum():
            return _maximum(tensors, operation)
        case IntegerAverage():
            return _average(tensors, operation)
        case CodeMean():
            return _mean(tensors, operation)
        case FixedPointMean():
            return _mean_of_axes(tensors, operation)
        case CodeSum():
            return _pair(tensors, operation, [Fraction(float(ratio)) for ratio in operation.ratios], operation)
        case CodeFloats():
            return _sum_of_floats(tensors, operation)
        case FixedPointSum():
            return _fixed_point_sum(tensors, operation)
        case _:
            raise NotOnNpu(f"{type(operation).__name__} is not computed on codes by the NPU")


# Codes as they are -----------------------------------------------------------------------------


def _table(tensors: NpuTensors, operation: CodeTable) -> CodeTable:
    """A function of one code."""
    stored, table = tensors.stored[operation.output], operation.table
    if not stored.limited:
        return operation
    entries = np.clip(table.entries, stored.low, stored.high)
    return replace(operation, table=replace(table, entries=entries))


def _movement(tensors: NpuTensors, operation: CodeMovement) -> CodeMovement:
    """Codes that only move."""
    if not isinstance(operation.move, _MOVES):
        raise NotOnNpu(f"{type(operation.move).__name__} is not one of the NPU")
    _check_limits(tensors, operation, "codes that are moved and limited at once are")
    return operation


def _check_limits(tensors: NpuTensors, operation: CodeMovement | CodeMaximum, what: str) -> None:
    """Refuse limits that any code is beyond."""
    stored = tensors.stored[operation.output]
    if operation.low > stored.low or operation.high < stored.high:
        raise NotOnNpu(f"{what} not computed by the NPU")


def _maximum(tensors: NpuTensors, operation: CodeMaximum) -> CodeMaximum:
    """Maxima of codes, as they are."""
    _check_limits(tensors, operation, "a maximum that is limited is")
    if len(operation.kernel) not in (1, 2) or max(operation.dilations) > 1:
        raise NotOnNpu("a maximum must be of one or two dimensions, without dilations")
    return operation


# Means -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limits:
    """Code of 0, and least and greatest code of a result."""

    zero_point: int
    low: int
    high: int


@dataclass(frozen=True)
class _Window:
    """Windows of a mean: kernel, strides and pads, and whether channels are the last axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    last: bool

    @classmethod
    def whole(cls, sizes: tuple[int, ...], last: bool) -> _Window:
        """The one window of all elements."""
        return cls(sizes, sizes, (0,) * 2 * len(sizes), last)


def _mean(tensors: NpuTensors, operation: CodeMean) -> WindowSums:
    """The mean of all elements of a channel, or of windows."""
    ratio = Fraction(float(operation.scale)) / Fraction(float(operation.target_scale))
    limits = _Limits(operation.target_zero_point, operation.low, operation.high)
    window = _Window.whole(tensors.shapes[operation.inputs[0]][1:], last=False)
    if isinstance(operation, CodeAverage):
        if max(operation.dilations) > 1 or (operation.padding_counts and any(operation.pads)):
            raise NotOnNpu("a mean must be without dilations, and without padding that counts")
        window = _Window(operation.kernel, operation.strides, operation.pads, last=False)
    return _sums(tensors, operation, operation.zero_point, window, ratio, limits)


def _average(tensors: NpuTensors, operation: IntegerAverage) -> WindowSums:
    """Means of windows of TensorFlow Lite."""
    zero = tensors.schemes[operation.inputs[0]].zero
    window = _Window(operation.kernel, operation.strides, operation.pads, last=True)
    limits = _Limits(zero, operation.low, operation.high)
    return _sums(tensors, operation, zero, window, Fraction(1), limits, up=True)


def _mean_of_axes(tensors: NpuTensors, operation: FixedPointMean) -> WindowSums:
    """The mean of TensorFlow Lite, of all axes but the channels."""
    sizes = tensors.shapes[operation.inputs[0]]
    if operation.axes != tuple(range(1, len(sizes))):
        raise NotOnNpu(f"a mean must be of all axes but samples and channels, not of {list(operation.axes)}")
    scales, _, _ = real_scales(operation.requantisation, np.zeros(1, np.int64))
    ratio = scales[0] * prod(sizes[:-1])
    window = _Window.whole(sizes[:-1], last=True)
    return _sums(tensors, operation, operation.zero_point, window, ratio, operation.requantisation, up=True)


def _sums(
    tensors: NpuTensors,
    operation: IntegerOperation,
    zero_point: int,
    window: _Window,
    ratio: Fraction,
    limits: Any,
    *,
    up: bool = False,
) -> WindowSums:
    """Sums of windows, times a ratio over the number of their elements."""
    kernel, strides, pads, last = window.kernel, window.strides, window.pads, window.last
    if len(kernel) not in (1, 2) or max(kernel) > _LONGEST:
        raise NotOnNpu(f"a mean must be of one or two dimensions of at most {_LONGEST}, not of {list(kernel)}")
    shape, stored = tensors.shapes[operation.inputs[0]], tensors.stored[operation.inputs[0]]
    sizes = shape[:-1] if last else shape[1:]
    counts = elements_of_windows(sizes, kernel, strides, (1,) * len(kernel), pads)[0, 0]
    scales = [ratio / int(count) for count in counts.ravel()]
    terms = [ratio * (stored.origin - zero_point)] * len(scales)
    made = tensors.requantisation(operation.output, scales, terms, (1, *counts.shape), limits, up)
    return WindowSums(
        name=operation.name, inputs=operation.inputs, output=operation.output, kernel=kernel, strides=strides,
        pads=pads, last=last, shape=tensors.shapes[operation.output], zero_point=stored.origin, reach=stored.reach,
        requantisation=made,
    )  # fmt: skip


# Sums of two tensors ---------------------------------------------------------------------------


def _sum_of_floats(tensors: NpuTensors, operation: CodeFloats) -> WeightedPair:
    """Add of ONNX in binary32; the NPU has factors of its own."""
    if operation.operator != "Add":
        raise NotOnNpu(f"{operation.operator} of two tensors is not computed on codes by the NPU")
    step = Fraction(float(operation.step))
    return _pair(tensors, operation, [Fraction(float(scale)) / step for scale in operation.scales], operation)


def _fixed_point_sum(tensors: NpuTensors, operation: FixedPointSum) -> WeightedPair:
    """Add and Sub of TensorFlow Lite."""
    (output,), _, _ = real_scales(operation.requantisation, np.zeros(1, np.int64))
    ratios = [fixed_scale(scale)[0] * output * (1 << operation.up) for scale in operation.scales]
    signed = [ratios[0], -ratios[1] if operation.difference else ratios[1]]
    return _pair(tensors, operation, signed, operation.requantisation, up=True)


def _pair(
    tensors: NpuTensors, operation: Any, ratios: list[Fraction], limits: Any, *, up: bool = False
) -> WeightedPair:
    """The sum of two tensors times ratios."""
    a, b = (tensors.shapes[name] for name in operation.inputs)
    if a != b or operation.inputs[0] == operation.inputs[1]:
        raise NotOnNpu("a sum must be of two tensors of one shape")
    sizes = nearest_weights(abs(ratios[0]), abs(ratios[1]), largest_weight(tensors.config.wgt_mant))
    larger = 0 if abs(ratios[0]) >= abs(ratios[1]) else 1
    scale = abs(ratios[larger]) / sizes[larger]
    weights = [-size if ratio < 0 else size for ratio, size in zip(ratios, sizes, strict=True)]
    stored = [tensors.stored[name] for name in operation.inputs]
    moved = sum(
        weight * (part.origin - zero) for weight, part, zero in zip(weights, stored, operation.zeros, strict=True)
    )
    made = tensors.requantisation(operation.output, [scale], [scale * moved], (1,) * len(a), limits, up)
    return WeightedPair(
        name=operation.name, inputs=operation.inputs, output=operation.output, weights=(weights[0], weights[1]),
        zeros=(stored[0].origin, stored[1].origin), reaches=(stored[0].reach, stored[1].reach),
        last=isinstance(operation, FixedPointSum), requantisation=made,
    )  # fmt: skip
