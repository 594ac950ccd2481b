"""Codes as an NPU makes them, with factors of 16 bits, made of operations on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from concord.derive.exact.arrays import Array, ArrayWriter, WindowPlaces
from concord.derive.exact.parts import LoweringParts
from concord.integer.graph import IntegerOperation
from concord.integer.npu.factors import FactorRequantisation
from concord.integer.npu.operations import WeightedPair, WindowSums
from concord.integer.weighted_sums import RequantisedSums
from concord.spec.formats import SCALE_FRACTION_BITS


def codes_by_factors(writer: ArrayWriter, sums: Array, operation: RequantisedSums) -> Array:
    """Codes of accumulators, an error where one is that the NPU does not hold.

    What the NPU limits at 2047 is beyond the codes, and limited with them.
    """
    how = operation.requantisation
    assert isinstance(how, FactorRequantisation)
    if operation.largest_sum > how.largest_sum:
        sums = writer.in_bits(sums, how.bits)
    moved = writer.shifted_right(writer.multiply(sums, writer.integers(how.factor, "factor")), how.shift)
    if how.fraction.any():
        moved = writer.add(moved, writer.integers(how.fraction, "fraction"))
    made = writer.shifted_to_even(moved, SCALE_FRACTION_BITS)
    if (how.whole + how.zero_point).any():
        made = writer.add(made, writer.integers(how.whole + how.zero_point, "whole"))
    return writer.limited(made, how.low, how.high)


def _window_sums(lowering: LoweringParts, operation: WindowSums, codes: list[Array]) -> Array:
    writer, shape = lowering.writer, lowering.shapes[operation.inputs[0]]
    rank, axis = len(shape), len(shape) - 1 if operation.last else 1
    order = [0, axis, *(k for k in range(1, rank) if k != axis)]
    rows = lowering.transposed(lowering.offset(codes[0], operation.zero_point), order)
    window = WindowPlaces(operation.kernel, operation.strides, operation.dilations, operation.pads)
    windows = writer.windows(rows, window, tuple(shape[k] for k in order[2:]))
    places = operation.requantisation.factor.shape[1:]
    sums = writer.reshape(writer.total(windows, [rank]), (shape[axis], *places))
    made = codes_by_factors(writer, sums, operation)
    if operation.last:
        made = lowering.transposed(made, [0, *range(2, rank), 1])
    return writer.reshape(made, operation.shape)


def _weighted_pair(lowering: LoweringParts, operation: WeightedPair, codes: list[Array]) -> Array:
    writer = lowering.writer
    a, b = (
        writer.multiply(lowering.offset(part, zero), writer.integers(weight, "weight"))
        for part, zero, weight in zip(codes, operation.zeros, operation.weights, strict=True)
    )
    return codes_by_factors(writer, writer.add(a, b), operation)


#: Functions that write the operations, by class.
NPU_RULES: Mapping[type[IntegerOperation], Callable[[LoweringParts, Any, list[Array]], Array]] = {
    WeightedPair: _weighted_pair,
    WindowSums: _window_sums,
}
