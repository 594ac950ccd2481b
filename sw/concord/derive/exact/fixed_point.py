"""Operations of TensorFlow Lite, in fixed point, made of operations on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from concord.derive.exact.arrays import Array, ArrayWriter, WindowPlaces
from concord.derive.exact.npu_codes import codes_by_factors
from concord.derive.exact.parts import LoweringParts
from concord.integer.graph import IntegerOperation
from concord.integer.npu.factors import FactorRequantisation
from concord.integer.requantise import ACCUMULATOR, Requantiser
from concord.integer.tflite.fixed_point import (
    MOST,
    FixedPointMultiplier,
)
from concord.integer.tflite.operations import (
    MOST_16,
    SUM_BITS,
    ChannelsLastAverage,
    ChannelsLastConvolution,
    ChannelsLastMaximum,
    DenseRows,
    FixedPointMean,
    FixedPointProduct,
    FixedPointSoftmax,
    FixedPointSum,
    InterpolatedSoftmax,
)
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.integer.weighted_sums import WeightedSums


def times_multiplier(writer: ArrayWriter, a: Array, scale: FixedPointMultiplier, bound: int) -> Array:
    """Products of integers up to ``bound`` in magnitude, rounded twice."""
    up = np.maximum(scale.shift, 0)
    if up.any():
        a = writer.shifted_left(a, up)
    if bound << int(up.max()) > ACCUMULATOR[1]:
        a = writer.in_bits(a)
    return writer.fixed_point_product(a, scale.multiplier, np.maximum(-scale.shift, 0))


def codes_in_fixed_point(
    writer: ArrayWriter, sums: Array, how: Requantiser, bound: int, channels: tuple[int, ...]
) -> Array:
    """Codes of accumulators up to ``bound`` in magnitude; ``channels`` is the shape of what each channel has."""
    if bound > how.largest_sum:
        sums = writer.within(sums, how.limits, bound)
        bound = how.largest_sum
    if isinstance(how, Binary64Requantisation):
        scale = np.ldexp(how.significand.astype(np.float64), how.exponent)
        scale = scale.reshape(channels if scale.size > 1 else ())
        return writer.to_codes_by_binary64(sums, scale, how.zero_point, how.low, how.high)
    assert isinstance(how, FixedPointRequantisation)
    scales = how.scale.reshaped(channels)
    if how.wide:
        made = writer.rounded_product(sums, *scales.reduced)
    else:
        made = times_multiplier(writer, sums, scales, bound)
    if how.zero_point:
        made = writer.add(made, writer.integers(how.zero_point, "zero"))
    return writer.limited(made, how.low, how.high)


def _codes_of_sums(writer: ArrayWriter, sums: Array, operation: WeightedSums, channels: tuple[int, ...]) -> Array:
    """Codes of the sums of a product, with its scales or with factors of an NPU."""
    if isinstance(operation.requantisation, FactorRequantisation):
        return codes_by_factors(writer, sums, operation)
    return codes_in_fixed_point(writer, sums, operation.requantisation, operation.largest_sum, channels)


def _channels_first(lowering: LoweringParts, codes: Array, rank: int) -> Array:
    return lowering.transposed(codes, [0, rank - 1, *range(1, rank - 1)])


def _channels_last(lowering: LoweringParts, codes: Array, rank: int) -> Array:
    return lowering.transposed(codes, [0, *range(2, rank), 1])


def _convolution(lowering: LoweringParts, operation: ChannelsLastConvolution, codes: list[Array]) -> Array:
    rank = operation.weight.ndim
    sums = lowering.windows(operation, _channels_first(lowering, codes[0], rank))
    channels = (-1, *[1] * (rank - 2))
    return _channels_last(lowering, _codes_of_sums(lowering.writer, sums, operation, channels), rank)


def _dense(lowering: LoweringParts, operation: DenseRows, codes: list[Array]) -> Array:
    sums = lowering.rows(operation, codes[0])
    return _codes_of_sums(lowering.writer, sums, operation, (-1,))


def _window(operation: ChannelsLastMaximum) -> WindowPlaces:
    return WindowPlaces(operation.kernel, operation.strides, operation.dilations, operation.pads)


def _clamped(lowering: LoweringParts, operation: ChannelsLastMaximum, codes: Array) -> Array:
    made = _channels_last(lowering, codes, len(operation.kernel) + 2)
    scheme = lowering.graph.schemes[operation.inputs[0]]
    inside = operation.low <= scheme.low and scheme.high <= operation.high
    return made if inside else lowering.writer.limited(made, operation.low, operation.high)


def _maximum(lowering: LoweringParts, operation: ChannelsLastMaximum, codes: list[Array]) -> Array:
    first = _channels_first(lowering, codes[0], len(operation.kernel) + 2)
    return _clamped(lowering, operation, lowering.writer.window_maxima(first, _window(operation)))


def _average(lowering: LoweringParts, operation: ChannelsLastAverage, codes: list[Array]) -> Array:
    writer, shape = lowering.writer, lowering.shapes[operation.inputs[0]]
    first = _channels_first(lowering, codes[0], len(shape))
    windows = writer.windows(first, _window(operation), shape[1:-1])
    output = lowering.shapes[operation.output]
    sums = writer.reshape(writer.total(windows, [len(shape)]), (output[-1], *output[1:-1]))
    return _clamped(lowering, operation, writer.nearest_quotient(sums, operation.counts(shape)))


def _mean(lowering: LoweringParts, operation: FixedPointMean, codes: list[Array]) -> Array:
    shape, output = lowering.shapes[operation.inputs[0]], lowering.shapes[operation.output]
    sums = lowering.writer.total(lowering.offset(codes[0], operation.zero_point), operation.axes)
    bound = prod(shape[axis] for axis in operation.axes) * lowering.reach(operation.inputs[0], operation.zero_point)
    made = codes_in_fixed_point(lowering.writer, sums, operation.requantisation, bound, ())
    return made if operation.kept else lowering.writer.reshape(made, output[1:])


def _sum(lowering: LoweringParts, operation: FixedPointSum, codes: list[Array]) -> Array:
    writer, parts, bound = lowering.writer, [], 0
    for part, name, zero, scale in zip(codes, operation.inputs, operation.zeros, operation.scales, strict=True):
        reach = lowering.reach(name, zero) << operation.up
        moved = writer.multiply(lowering.offset(part, zero), writer.integers(1 << operation.up, "unit"))
        parts.append(times_multiplier(writer, moved, scale, reach))
        bound += abs(int(scale.times(np.asarray(reach))))
    made = writer.subtract(*parts) if operation.difference else writer.add(*parts)
    return codes_in_fixed_point(writer, made, operation.requantisation, bound + 1, ())


def _product(lowering: LoweringParts, operation: FixedPointProduct, codes: list[Array]) -> Array:
    a, b = (lowering.offset(part, zero) for part, zero in zip(codes, operation.zeros, strict=True))
    bound = prod(lowering.reach(name, zero) for name, zero in zip(operation.inputs, operation.zeros, strict=True))
    return codes_in_fixed_point(lowering.writer, lowering.writer.multiply(a, b), operation.requantisation, bound, ())


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
    ChannelsLastConvolution: _convolution,
    DenseRows: _dense,
    ChannelsLastMaximum: _maximum,
    ChannelsLastAverage: _average,
    FixedPointMean: _mean,
    FixedPointSum: _sum,
    FixedPointProduct: _product,
    FixedPointSoftmax: _softmax,
    InterpolatedSoftmax: _interpolated_softmax,
}
