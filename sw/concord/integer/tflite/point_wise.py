"""Tables of TensorFlow Lite's functions of one code [tflite-kernels].

Functions of codes are computed in fixed point, as their kernels do it. Those of numbers are computed as the tables of
TensorFlow Lite are filled: in binary32, with halves away from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from concord.golden.rounding import nearest_integers
from concord.integer.float32 import Integers
from concord.integer.tables import rounded_to_binary32
from concord.integer.tflite.fixed_point import FixedPointMultiplier, divided, inverse_roots
from concord.transfer import Codes, TransferTable
from concord.transfer.operators import PointwiseOperator

#: From codes to codes that may be beyond their ends, both in int64.
CodeFunction = Callable[[Integers], Integers]
Float32s = NDArray[np.float32]
#: From numbers to numbers of binary32.
NumberFunction = Callable[[Float32s], Float32s]
_ONE = np.float32(1)
#: Ends of an integer of 16 bits.
_LEAST, _MOST = -(1 << 15), (1 << 15) - 1


def function_table(name: str, source: Codes, function: CodeFunction, target: Codes) -> TransferTable:
    """The table of a function of codes, saturated to those of the target."""

    def codes_of(codes: Integers) -> Integers:
        return np.clip(function(codes), target.low, target.high)

    def number_of(number: Fraction) -> Fraction:
        return target.dequantize(int(codes_of(np.asarray([source.quantize(number)]))[0]))

    operator = PointwiseOperator(f"TensorFlow Lite: {name}", custom=True, custom_function=number_of)
    return TransferTable(source, (operator,), target, codes_of(np.arange(source.low, source.high + 1)))


def scales_of(*schemes: Codes) -> list[np.float32]:
    """The steps, which are float32 numbers."""
    return [np.float32(scheme.scale) for scheme in schemes]


def nearest(values: Float32s) -> Integers:
    """The nearest integers, halves away from zero."""
    return nearest_integers(values)


def rescaled(source: Codes, target: Codes, scale: float) -> CodeFunction:
    """Codes with other scales and zero points."""
    multiplier = FixedPointMultiplier.of(scale)
    return lambda codes: multiplier.times(codes - source.zero) + target.zero


def leaky_relu(source: Codes, target: Codes, alpha: float) -> CodeFunction:
    """LEAKY_RELU: negative codes have a multiplier of their own; each is a quotient of binary32."""
    x, y = scales_of(source, target)
    slope = x * np.float32(alpha) / y
    scales = FixedPointMultiplier.of(x / y), FixedPointMultiplier.of(abs(slope))

    def function(codes: Integers) -> Integers:
        offsets = codes - source.zero
        negative = scales[1].times(offsets)
        steps = np.where(offsets < 0, -negative if slope < 0 else negative, scales[0].times(offsets))
        return np.asarray(steps + target.zero)

    return function


def hard_swish(source: Codes, target: Codes) -> CodeFunction:
    """HARD_SWISH in fixed point of 16 bits; ``ValueError`` if the scale of the result is too small for it."""
    x, y = scales_of(source, target)
    fine = x / np.float32(128)
    output = FixedPointMultiplier.of(fine / y)
    relu = FixedPointMultiplier.of(fine / (np.float32(3) / np.float32(32768)))
    up = int(relu.shift)
    if output.shift > 0:
        raise ValueError(f"scale of the result must be at least {float(fine):.9g}, not {float(y):.9g}")

    def function(codes: Integers) -> Integers:
        moved = codes - source.zero << 7
        value = _high_half(moved, _upper(output))
        share = np.clip(moved << max(up - 1, 0), _LEAST, _MOST)
        share = _high_half(share, _upper(relu))
        share = np.clip(share << min(max(up, 0), 1), _LEAST, _MOST)
        share = divided(share, max(-up, 0)) + (1 << 15) >> 1
        product = share * value
        cut = np.where(product < 0, -(-product >> 15), product >> 15)
        return np.asarray(divided(cut, -int(output.shift)) + target.zero)

    return function


def _upper(scale: FixedPointMultiplier) -> Integers:
    """The upper 16 bits of a multiplier, rounded."""
    return np.asarray(np.minimum(scale.multiplier + (1 << 15) >> 16, _MOST))


def _high_half(a: Integers, b: Integers) -> Integers:
    """``a * b / 2**15`` of integers of 16 bits, halves up."""
    return np.asarray(a * b + (1 << 14) >> 15)


def inverse_root(source: Codes, target: Codes, scale: FixedPointMultiplier) -> CodeFunction:
    """RSQRT: the inverse root of each code less its zero point with 20 bits behind the point, times a multiplier."""
    bits = 20
    low = FixedPointMultiplier(scale.multiplier, scale.shift - bits)

    def function(codes: Integers) -> Integers:
        offsets = np.asarray(codes - source.zero)
        roots, downs = inverse_roots(np.maximum(offsets, 1))
        fine = FixedPointMultiplier(roots, bits - downs).times(np.ones_like(offsets))
        return np.where(offsets > 0, low.times(fine) + target.zero, target.high)

    return function


def of_numbers(source: Codes, target: Codes, function: NumberFunction) -> CodeFunction:
    """A function of numbers of binary32."""
    x, y = scales_of(source, target)

    def codes_of(codes: Integers) -> Integers:
        numbers = (codes - source.zero).astype(np.float32) * x
        return nearest(function(numbers) * (_ONE / y)) + target.zero

    return codes_of


def quantised_again(source: Codes, target: Codes, function: NumberFunction = lambda numbers: numbers) -> CodeFunction:
    """Codes that QUANTIZE makes of a function of the numbers of codes, with a quotient of binary32."""
    x, y = scales_of(source, target)
    return lambda codes: nearest(function((codes - source.zero).astype(np.float32) * x) / y) + target.zero


def logistic(numbers: Float32s) -> Float32s:
    """``1 / (1 + exp(-x))``, each step rounded."""
    return _ONE / (_ONE + rounded_to_binary32(PointwiseOperator("exp"), -numbers))


def tanh(numbers: Float32s) -> Float32s:
    """``tanh(x)``, rounded."""
    return rounded_to_binary32(PointwiseOperator("tanh"), numbers)


def concatenated(source: Codes, target: Codes) -> CodeFunction:
    """Codes that CONCATENATION makes of codes of uint8 with another scale: a product and a sum of binary32."""
    x, y = scales_of(source, target)
    scale = x * (_ONE / y)
    return lambda codes: nearest(codes.astype(np.float32) * scale + np.float32(-source.zero) * scale) + target.zero


def _sigmoids() -> Integers:
    """sigmoid(k / 24) over 2**16, of which the last one is taken for 1.

    Each is beside the exact one by half of the error that the line to the next one has in its middle.
    """
    exact = 2.0**16 / (1 + np.exp(np.arange(511) / -48))
    begins, middles, ends = exact[:-1:2], exact[1::2], exact[2::2]
    values = np.rint(begins - ((begins + ends) / 2 - middles) / 2)
    return np.append(values, 2**16 - 1).astype(np.int64)


_SIGMOIDS = _sigmoids()


def _sigmoid_places(source: Codes, powers: tuple[int, ...]) -> CodeFunction:
    """Places of the numbers of codes of 16 bits, in steps of 1/(3 * 2**12).

    A scale of nearly 2**-12, or of another one of the powers of two, has a multiplier of 2 bits, others have one of 15.
    """
    scale = np.float32(source.scale)
    power, near = _nearest_power(scale)
    multiplier, down = float(scale) * 3 * 2**12, 0
    if near and power + 12 in powers:
        multiplier = 3 << power + 12
    else:
        while multiplier <= _MOST / 2 and down <= 30:
            multiplier, down = 2 * multiplier, down + 1
    if multiplier > 1 << 15:
        raise ValueError(f"scale must be less than 8/3, not {float(scale):.9g}")
    factor, half = int(multiplier), 1 << down >> 1
    return lambda codes: codes * factor + half >> down


def _nearest_power(number: np.float32) -> tuple[int, bool]:
    """The exponent of the nearest power of two, and whether it is so near that kernels take the number for it."""
    exponent = np.log2(number)
    return int(np.rint(exponent)), bool(abs(exponent - np.rint(exponent)) < 1e-3)


def _check_of_16_bits(source: Codes, target: Codes) -> None:
    if source.zero or target.zero:
        raise ValueError(f"zero points of 16 bits must be 0, not {source.zero} and {target.zero}")
    if _nearest_power(np.float32(target.scale)) != (-15, True):
        raise ValueError(f"scale of the result must be 1/32768, not {float(target.scale):.9g}")


def logistic_16(source: Codes, target: Codes) -> CodeFunction:
    """LOGISTIC of codes of 16 bits, on lines between sigmoids; ``ValueError`` for scales that kernels do not take."""
    _check_of_16_bits(source, target)
    places_of = _sigmoid_places(source, (0,))

    def codes_of(codes: Integers) -> Integers:
        places = places_of(codes)
        size = _between_sigmoids(np.abs(places), 9, 0x7FFF << 10)
        return np.where(places >= 0, size + (1 << 9), (1 << 25) - size + (1 << 9) - 1) >> 10

    return codes_of


def tanh_16(source: Codes, target: Codes) -> CodeFunction:
    """TANH of codes of 16 bits, which is twice a sigmoid less 1; ``ValueError`` as of :func:`logistic_16`."""
    _check_of_16_bits(source, target)
    places_of = _sigmoid_places(source, (0, 1))

    def codes_of(codes: Integers) -> Integers:
        places = places_of(codes)
        size = _between_sigmoids(np.abs(places), 8, 0xFFFF << 8) - (1 << 23)
        return np.where(places >= 0, size + (1 << 7), (1 << 7) - size - 1) >> 8

    return codes_of


def _between_sigmoids(places: Integers, bits: int, most: int) -> Integers:
    """Sigmoids over ``2**(16 + bits)``, on lines between those of the table; ``most`` after its end."""
    k = np.minimum(places >> bits, len(_SIGMOIDS) - 2)
    line = (_SIGMOIDS[k] << bits) + (places & (1 << bits) - 1) * (_SIGMOIDS[k + 1] - _SIGMOIDS[k])
    return np.where(places >> bits >= len(_SIGMOIDS) - 1, most, line)
