"""Codes of accumulators by every rule of requantisation, made of operations on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from concord.compiler.codes.factors import FactorRequantisation
from concord.derive.exact.arrays import Array, ArrayWriter
from concord.integer.requantise import FloatRequantisation, Requantisation, Requantiser
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.integer.wide import Dequantisation
from concord.spec.formats import SCALE_FRACTION_BITS


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
        If accumulators may be beyond the limits, and files cannot say so.
    """
    if bound > how.largest_sum:
        sums, bound = writer.within(sums, how.limits, bound), how.largest_sum
    match how:
        case Requantisation():
            numbers = writer.multiply(writer.to_numbers(sums), _of_channels(writer, how.scale, channels, "scale"))
            return writer.to_codes(numbers, how.zero_point, how.low, how.high)
        case FloatRequantisation():
            steps = _numbers(writer, sums, how, channels)
            if how.step != 1:
                steps = writer.divide(steps, writer.numbers(how.step, "step"))
            return writer.to_codes(steps, how.zero_point, how.low, how.high)
        case Dequantisation():
            return writer.finite(_numbers(writer, sums, how, channels))
        case Binary64Requantisation():
            scale = np.ldexp(how.significand.astype(np.float64), how.exponent)
            scale = scale.reshape(channels if scale.size > 1 else ())
            return writer.to_codes_by_binary64(sums, scale, how.zero_point, how.low, how.high)
        case FixedPointRequantisation():
            scales, added = how.scale.reshaped(channels), np.asarray(how.zero_point)
            made = writer.rounded_product(sums, *scales.reduced) if how.wide else writer.times(sums, scales, bound)
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


def _by_factors(writer: ArrayWriter, sums: Array, how: FactorRequantisation) -> Array:
    """Products with factors of an NPU; what that limits at 2047 is beyond the codes, and limited with them."""
    moved = writer.shifted_right(writer.multiply(sums, writer.integers(how.factor, "factor")), how.shift)
    if how.fraction.any():
        moved = writer.add(moved, writer.integers(how.fraction, "fraction"))
    return writer.shifted_to_even(moved, SCALE_FRACTION_BITS)
