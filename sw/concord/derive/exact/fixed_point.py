"""Operations of TensorFlow Lite, in fixed point, made of operations on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from concord.derive.exact.arrays import Array, WindowPlaces
from concord.derive.exact.parts import LoweringParts
from concord.derive.exact.requantise import codes_of_sums
from concord.integer.graph import IntegerOperation
from concord.integer.operations import IntegerAverage
from concord.integer.tflite.fixed_point import MOST
from concord.integer.tflite.operations import (
    MOST_16,
    SUM_BITS,
    FixedPointMean,
    FixedPointSoftmax,
    FixedPointSum,
    InterpolatedSoftmax,
)


def _average(lowering: LoweringParts, operation: IntegerAverage, codes: list[Array]) -> Array:
    writer, last = lowering.writer, operation.last
    shape, made = (lowering.shape_of(name, last) for name in (operation.inputs[0], operation.output))
    first = lowering.channels_first(codes[0], len(shape), last)
    windows = writer.windows(first, WindowPlaces.of(operation), shape[2:])
    sums = writer.reshape(writer.total(windows, [len(shape)]), made[1:])
    count = operation.counts(lowering.shapes[operation.inputs[0]])
    mean = writer.nearest_quotient(sums, count)
    return lowering.within(operation, lowering.channels_last(mean, len(shape), last))


def _mean(lowering: LoweringParts, operation: FixedPointMean, codes: list[Array]) -> Array:
    shape, output = lowering.shapes[operation.inputs[0]], lowering.shapes[operation.output]
    sums = lowering.writer.total(lowering.offset(codes[0], operation.zero_point), operation.axes)
    bound = prod(shape[axis] for axis in operation.axes) * lowering.reach(operation.inputs[0], operation.zero_point)
    made = codes_of_sums(lowering.writer, sums, operation.requantisation, bound)
    return made if operation.kept else lowering.writer.reshape(made, output[1:])


def _sum(lowering: LoweringParts, operation: FixedPointSum, codes: list[Array]) -> Array:
    writer, parts, bound = lowering.writer, [], 0
    for part, name, zero, scale in zip(codes, operation.inputs, operation.zeros, operation.scales, strict=True):
        reach = lowering.reach(name, zero) << operation.up
        moved = writer.multiply(lowering.offset(part, zero), writer.integers(1 << operation.up, "unit"))
        parts.append(writer.times(moved, scale, reach))
        bound += abs(int(scale.times(np.asarray(reach))))
    made = writer.subtract(*parts) if operation.difference else writer.add(*parts)
    return codes_of_sums(writer, made, operation.requantisation, bound + 1)


def _softmax(lowering: LoweringParts, operation: FixedPointSoftmax, codes: list[Array]) -> Array:
    writer, size = lowering.writer, lowering.shapes[operation.inputs[0]][-1]
    index = writer.subtract(codes[0], writer.greatest(codes[0]))
    own = writer.look_up(operation.powers, index, 1 - len(operation.powers), "powers")
    sums = writer.total(writer.divided(own, SUM_BITS), [len(lowering.shapes[operation.inputs[0]]) - 1])
    if size << 31 - SUM_BITS > MOST:
        sums = writer.in_bits(sums)
    bits = writer.length_of(sums, len(lowering.shapes[operation.inputs[0]]) - 1)
    shares = writer.high_product(writer.reciprocal(sums, bits), own)
    made = writer.divided_by_power(shares, bits, SUM_BITS - 1 - operation.bits)
    return writer.limited(writer.add(made, writer.integers(operation.low, "low")), operation.low, operation.high)


def _interpolated_softmax(lowering: LoweringParts, operation: InterpolatedSoftmax, codes: list[Array]) -> Array:
    writer, shape = lowering.writer, lowering.shapes[operation.inputs[0]]
    index = writer.subtract(codes[0], writer.greatest(codes[0]))
    own = writer.interpolated_powers(index, operation)
    sums = writer.total(own, [len(shape) - 1])
    if shape[-1] << 15 > MOST:
        sums = writer.in_bits(sums)
    bits = writer.length_of(sums, len(shape) - 1)
    share = writer.interpolated_reciprocal(sums, bits)
    return writer.limited(writer.divided_by_power(writer.multiply(own, share), bits, -1), 0, MOST_16)


#: Functions that write the operations, by class.
FIXED_POINT_RULES: Mapping[type[IntegerOperation], Callable[[LoweringParts, Any, list[Array]], Array]] = {
    IntegerAverage: _average,
    FixedPointMean: _mean,
    FixedPointSum: _sum,
    FixedPointSoftmax: _softmax,
    InterpolatedSoftmax: _interpolated_softmax,
}
