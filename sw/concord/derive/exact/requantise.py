"""Codes of accumulators by every rule of requantisation, made of operations on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from concord.derive.exact.arrays import Array, ArrayWriter
from concord.integer.float32 import Integers
from concord.integer.npu.factors import FactorRequantisation
from concord.integer.requantise import ACCUMULATOR, FloatRequantisation, Requantisation, Requantiser
from concord.integer.tflite.fixed_point import FixedPointMultiplier
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.integer.wide import Dequantisation
from concord.spec.formats import SCALE_FRACTION_BITS

#: Bits by which an integer is moved down until only its sign is left.
_SIGN = 62
_HALF = 1 << SCALE_FRACTION_BITS - 1


def codes_of_sums(
    writer: ArrayWriter, sums: Array, how: Requantiser, bound: int, channels: tuple[int, ...] = ()
) -> Array:
    """Codes, or numbers, of accumulators; an error as the file runs where one is beyond the limits.

    Parameters
    ----------
    writer : ArrayWriter
        Of the file.
    sums : Array
        Accumulators.
    how : Requantiser
        The rule.
    bound : int
        Largest magnitude of an accumulator.
    channels : tuple of int
        Shape of what each channel has of its own.

    Raises
    ------
    ValueError
        If accumulators of more than 32 bits may be beyond the limits of fixed point, or files cannot say so.
    """
    if bound > how.largest_sum:
        if isinstance(how, FixedPointRequantisation | Binary64Requantisation) and how.wide:
            raise ValueError(f"accumulators must be at most {how.largest_sum} in magnitude, and may reach {bound}")
        sums, bound = writer.in_bits(sums, how.bits), how.largest_sum
    match how:
        case Requantisation():
            numbers = writer.multiply(writer.to_numbers(sums), _of_channels(writer, how.scale, channels, "scale"))
            return writer.to_codes(numbers, how.zero_point, how.low, how.high)
        case FloatRequantisation():
            steps = writer.divide(_numbers(writer, sums, how, channels), writer.numbers(how.step, "step"))
            return writer.to_codes(steps, how.zero_point, how.low, how.high)
        case Dequantisation():
            return writer.finite(_numbers(writer, sums, how, channels))
        case Binary64Requantisation():
            scale = np.ldexp(how.significand.astype(np.float64), how.exponent)
            scale = scale.reshape(channels if scale.size > 1 else ())
            return writer.to_codes_by_binary64(sums, scale, how.zero_point, how.low, how.high)
        case FixedPointRequantisation():
            made = _in_fixed_point(writer, sums, how, bound, channels)
            added = np.asarray(how.zero_point)
        case FactorRequantisation():
            made = _by_factors(writer, sums, how)
            added = how.whole + how.zero_point
        case _:
            raise TypeError(f"requantisation must be one that is written on arrays, not {how!r}")
    if added.any():
        made = writer.add(made, writer.integers(added, "whole" if added.ndim else "zero"))
    return writer.limited(made, how.low, how.high)


def _of_channels(writer: ArrayWriter, values: NDArray[np.float32], channels: tuple[int, ...], hint: str) -> Array:
    return writer.numbers(values.reshape(channels if values.size > 1 else ()), hint)


def _numbers(
    writer: ArrayWriter, sums: Array, how: FloatRequantisation | Dequantisation, channels: tuple[int, ...]
) -> Array:
    """Numbers of accumulators times factors, plus terms."""
    numbers = writer.multiply(writer.to_numbers(sums), _of_channels(writer, how.factor, channels, "factor"))
    return writer.add(numbers, _of_channels(writer, how.term, channels, "term")) if how.term.any() else numbers


def _in_fixed_point(
    writer: ArrayWriter, sums: Array, how: FixedPointRequantisation, bound: int, channels: tuple[int, ...]
) -> Array:
    """Products in fixed point: rounded twice, or those of 48 bits once."""
    scales = how.scale.reshaped(channels)
    if not how.wide:
        return times(writer, sums, scales, bound)
    factor, down = scales.reduced
    product = writer.multiply(sums, writer.integers(factor, "factor"))
    return writer.shifted_right(writer.add(product, writer.integers(np.int64(1) << down - 1, "half")), down)


def _by_factors(writer: ArrayWriter, sums: Array, how: FactorRequantisation) -> Array:
    """Products with factors of an NPU; what that limits at 2047 is beyond the codes, and limited with them."""
    moved = writer.shifted_right(writer.multiply(sums, writer.integers(how.factor, "factor")), how.shift)
    if how.fraction.any():
        moved = writer.add(moved, writer.integers(how.fraction, "fraction"))
    floor, twice = (writer.shifted_right(moved, SCALE_FRACTION_BITS + more) for more in (0, 1))
    odd = writer.subtract(floor, writer.multiply(twice, writer.integers(2, "two")))
    raised = writer.add(writer.add(moved, writer.integers(_HALF - 1, "half")), odd)
    return writer.shifted_right(raised, SCALE_FRACTION_BITS)


def sign(writer: ArrayWriter, a: Array) -> Array:
    """-1 for a negative integer, else 0."""
    return writer.shifted_right(a, _SIGN)


def high_product(writer: ArrayWriter, a: Array, b: Array) -> Array:
    """``a * b / 2**31``, halves up."""
    return writer.shifted_right(writer.add(writer.multiply(a, b), writer.integers(1 << 30, "half")), 31)


def divided(writer: ArrayWriter, a: Array, bits: Integers | int) -> Array:
    """``a / 2**bits``, halves away from zero."""
    shift = np.asarray(bits, dtype=np.int64)
    if not shift.any():
        return a
    half, moved = np.int64(1) << shift >> 1, np.int64(shift > 0)
    below = writer.multiply(sign(writer, a), writer.integers(moved, "moved")) if not moved.all() else sign(writer, a)
    return writer.shifted_right(writer.add(writer.add(a, writer.integers(half, "half")), below), shift)


def times(writer: ArrayWriter, a: Array, scale: FixedPointMultiplier, bound: int) -> Array:
    """Products of integers up to ``bound`` in magnitude, rounded twice."""
    up = np.maximum(scale.shift, 0)
    if up.any():
        a = writer.multiply(a, writer.integers(np.int64(1) << up, "unit"))
    if bound << int(up.max()) > ACCUMULATOR[1]:
        a = writer.in_bits(a)
    product = high_product(writer, a, writer.integers(scale.multiplier, "multiplier"))
    return divided(writer, product, np.maximum(-scale.shift, 0))
