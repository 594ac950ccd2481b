"""Codes as an NPU makes them, with factors of 16 bits, made of operations on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from concord.compiler.codes.operations import WeightedPair, WindowSums
from concord.derive.exact.arrays import Array, WindowPlaces
from concord.derive.exact.parts import LoweringParts
from concord.integer.graph import IntegerOperation


def _window_sums(lowering: LoweringParts, operation: WindowSums, codes: list[Array]) -> Array:
    writer, (_, channels, *sizes) = lowering.writer, lowering.shape_of(operation.inputs[0], operation.last)
    rank = len(sizes) + 2
    rows = lowering.channels_first(lowering.offset(codes[0], operation.zero_point), rank, operation.last)
    windows = writer.windows(rows, WindowPlaces.of(operation), sizes)
    sums = writer.reshape(writer.total(windows, [rank]), (channels, *operation.requantisation.factor.shape[1:]))
    made = lowering.channels_last(lowering.codes(operation, sums), rank, operation.last)
    return writer.reshape(made, operation.shape)


def _weighted_pair(lowering: LoweringParts, operation: WeightedPair, codes: list[Array]) -> Array:
    writer = lowering.writer
    a, b = (
        writer.multiply(lowering.offset(part, zero), writer.integers(weight, "weight"))
        for part, zero, weight in zip(codes, operation.zeros, operation.weights, strict=True)
    )
    return lowering.codes(operation, writer.add(a, b))


#: Functions that write the operations, by class.
NPU_RULES: Mapping[type[IntegerOperation], Callable[[LoweringParts, Any, list[Array]], Array]] = {
    WeightedPair: _weighted_pair,
    WindowSums: _window_sums,
}
