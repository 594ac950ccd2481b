"""Operations of TensorFlow Lite, in fixed point, made of operations on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from concord.derive.exact.arrays import Array, ArrayWriter, WindowPlaces
from concord.derive.exact.parts import LoweringParts
from concord.derive.exact.requantise import codes_of_sums, divided, high_product, sign, times
from concord.integer.graph import IntegerOperation
from concord.integer.operations import IntegerAverage
from concord.integer.tflite.fixed_point import (
    LEAST,
    MOST,
    NEWTON_SLOPE,
    NEWTON_START,
    NEWTON_STEPS,
    interpolated,
)
from concord.integer.tflite.operations import (
    MOST_16,
    RECIPROCALS_16,
    SUM_BITS,
    FixedPointMean,
    FixedPointProduct,
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
    negative = writer.add(writer.multiply(sign(writer, sums), writer.integers(2, "two")), writer.integers(1, "one"))
    size = writer.add(writer.multiply(sums, negative), writer.integers(count // 2, "half"))
    mean = writer.multiply(writer.quotient(size, writer.integers(count, "count")), negative)
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
        parts.append(times(writer, moved, scale, reach))
        bound += abs(int(scale.times(np.asarray(reach))))
    made = writer.subtract(*parts) if operation.difference else writer.add(*parts)
    return codes_of_sums(writer, made, operation.requantisation, bound + 1)


def _product(lowering: LoweringParts, operation: FixedPointProduct, codes: list[Array]) -> Array:
    a, b = (lowering.offset(part, zero) for part, zero in zip(codes, operation.zeros, strict=True))
    bound = prod(lowering.reach(name, zero) for name, zero in zip(operation.inputs, operation.zeros, strict=True))
    return codes_of_sums(lowering.writer, lowering.writer.multiply(a, b), operation.requantisation, bound)


def _softmax(lowering: LoweringParts, operation: FixedPointSoftmax, codes: list[Array]) -> Array:
    writer, size = lowering.writer, lowering.shapes[operation.inputs[0]][-1]
    index = writer.subtract(codes[0], writer.greatest(codes[0]))
    own = writer.look_up(operation.powers, index, 1 - len(operation.powers), "powers")
    sums = writer.total(divided(writer, own, SUM_BITS), [len(lowering.shapes[operation.inputs[0]]) - 1])
    if size << 31 - SUM_BITS > MOST:
        sums = writer.in_bits(sums)
    bits = _bits(lowering, operation, sums)
    units = np.int64(1) << np.arange(33)
    mantissa = _reciprocal(writer, writer.multiply(sums, writer.look_up(units[::-1], bits, 0, "units")))
    shares = high_product(writer, mantissa, own)
    down = np.int64(1) << np.maximum(np.arange(32) + SUM_BITS - 1 - operation.bits, 0)
    half = writer.look_up(down >> 1, bits, 0, "halves")
    made = writer.quotient(writer.add(shares, half), writer.look_up(down, bits, 0, "units"))
    return writer.limited(writer.add(made, writer.integers(operation.low, "low")), operation.low, operation.high)


def _interpolated_softmax(lowering: LoweringParts, operation: InterpolatedSoftmax, codes: list[Array]) -> Array:
    writer, shape = lowering.writer, lowering.shapes[operation.inputs[0]]
    differences = np.arange(-(1 << 16) + 1, 1)
    index = writer.subtract(codes[0], writer.greatest(codes[0]))
    own = writer.look_up(operation.powers(differences), index, int(differences[0]), "powers")
    sums = writer.total(own, [len(shape) - 1])
    if shape[-1] << 15 > MOST:
        sums = writer.in_bits(sums)
    bits = _bits(lowering, operation, sums)
    mantissa = writer.multiply(sums, writer.look_up((np.int64(1) << np.arange(32))[::-1], bits, 0, "units"))
    mantissa = writer.shifted_right(writer.add(mantissa, writer.integers(1 << 13, "half")), 14)
    places = np.arange(1 << 16, (1 << 17) + 1)
    shares = interpolated(RECIPROCALS_16, np.minimum(places - (3 << 15), MOST_16))
    share = writer.look_up(shares, mantissa, int(places[0]), "reciprocals")
    down = np.int64(1) << np.maximum(np.arange(32) - 1, 0)
    product = writer.add(writer.multiply(own, share), writer.look_up(down >> 1, bits, 0, "halves"))
    return writer.limited(writer.quotient(product, writer.look_up(down, bits, 0, "units")), 0, MOST_16)


def _bits(lowering: LoweringParts, operation: FixedPointSoftmax | InterpolatedSoftmax, sums: Array) -> Array:
    """The number of bits of sums along the last axis: that of the powers of two that they reach."""
    writer = lowering.writer
    reached = sign(writer, writer.subtract(sums, writer.integers(np.int64(1) << np.arange(31), "powers of two")))
    rank = len(lowering.shapes[operation.inputs[0]])
    return writer.add(writer.total(reached, [rank - 1]), writer.integers(31, "bits"))


def _reciprocal(writer: ArrayWriter, value: Array) -> Array:
    """``mantissa`` of :func:`~concord.integer.tflite.fixed_point.reciprocals` of values moved up to 32 bits."""
    half = writer.shifted_right(value, 1)
    x = writer.add(high_product(writer, half, writer.integers(NEWTON_SLOPE, "slope")),
                   writer.integers(NEWTON_START, "start"))  # fmt: skip
    for _ in range(NEWTON_STEPS):
        missing = writer.subtract(writer.integers(1 << 29, "one"), high_product(writer, half, x))
        step = writer.multiply(high_product(writer, x, missing), writer.integers(4, "four"))
        x = writer.add(x, writer.limited(step, LEAST, MOST))
    return writer.limited(writer.multiply(x, writer.integers(2, "two")), LEAST, MOST)


#: Functions that write the operations, by class.
FIXED_POINT_RULES: Mapping[type[IntegerOperation], Callable[[LoweringParts, Any, list[Array]], Array]] = {
    IntegerAverage: _average,
    FixedPointMean: _mean,
    FixedPointSum: _sum,
    FixedPointProduct: _product,
    FixedPointSoftmax: _softmax,
    InterpolatedSoftmax: _interpolated_softmax,
}
