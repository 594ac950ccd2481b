"""Fixed-point arithmetic of TensorFlow Lite's kernels, on codes and accumulators in int64 [tflite-kernels].

A real multiplier becomes ``multiplier * 2**(shift - 31)`` once, with a multiplier of 31 bits. A product with it is
rounded twice: to an integer with the factor ``2**min(shift, 0)`` in front of the result, halves up; then to the result,
halves away from zero. Powers and reciprocals are those of gemmlowp. Numbers in ``[-1, 1)`` are integers over ``2**31``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.golden.rounding import nearest_integers
from concord.integer.float32 import Integers, bit_length
from concord.integer.requantise import ACCUMULATOR

Numbers = NDArray[np.float64]
#: Ends of an integer of 32 bits.
LEAST, MOST = ACCUMULATOR
#: Larger accumulators are not multiplied by the kernels for codes of 16 bits.
WIDE = (1 << 47) - 1
#: Shifts that a multiplier may have.
_SHIFTS = (-31, 30)
#: Significant bits that the multiplier of a wide accumulator keeps.
_WIDE_MULTIPLIER_BITS = 15


@dataclass(frozen=True, eq=False)
class FixedPointMultiplier:
    """Real multipliers ``multiplier * 2**(shift - 31)``.

    Parameters
    ----------
    multiplier : array of int64
        One, or one for each channel; below 2**31.
    shift : array of int64
        Of the same shape, -31 to 30.
    """

    multiplier: Integers
    shift: Integers

    @classmethod
    def of(cls, numbers: ArrayLike) -> FixedPointMultiplier:
        """The nearest to numbers of binary64, halves up; those below 2**-32 become 0.

        Raises
        ------
        ValueError
            If a number is negative, or not below 2**30.
        """
        reals = np.asarray(numbers, dtype=np.float64)
        if not ((reals >= 0) & (reals < 2.0 ** _SHIFTS[1])).all():
            raise ValueError(f"multipliers must be in 0..2**{_SHIFTS[1]}, not {reals.ravel().tolist()}")
        fraction, exponent = np.frexp(reals)
        multiplier = nearest_integers(fraction * 2.0**31)
        shift = np.asarray(exponent, dtype=np.int64)
        full = multiplier == 1 << 31
        multiplier, shift = np.where(full, 1 << 30, multiplier), shift + full
        kept = shift >= _SHIFTS[0]
        return cls(np.where(kept, multiplier, 0), np.where(kept, shift, 0))

    def reshaped(self, shape: tuple[int, ...]) -> FixedPointMultiplier:
        """Multipliers with the channels along another axis; one multiplier stays one."""
        if self.multiplier.size == 1:
            shape = ()
        return FixedPointMultiplier(self.multiplier.reshape(shape), self.shift.reshape(shape))

    def times(self, values: Integers) -> Integers:
        """Products with integers of 32 bits, rounded twice; ``OverflowError`` if an integer shifted left has more."""
        moved = checked(values << np.maximum(self.shift, 0))
        return divided(high_product(moved, self.multiplier), np.maximum(-self.shift, 0))

    def times_wide(self, values: Integers) -> Integers:
        """Products with integers of 48 bits, by the upper 15 bits of the multiplier, rounded once, halves up.

        ``OverflowError`` if an integer has more bits.
        """
        if values.size and not (-WIDE <= values.min() and values.max() <= WIDE):
            raise OverflowError(f"accumulators must fit 48 bits, not be in {values.min()}..{values.max()}")
        factor, down = self.reduced
        return np.asarray((values * factor + (np.int64(1) << down - 1)) >> down)

    @property
    def reduced(self) -> tuple[Integers, Integers]:
        """The upper 15 bits of the multiplier, and by how many bits a product with them is moved down."""
        lower = 31 - _WIDE_MULTIPLIER_BITS
        factor = np.minimum((self.multiplier + (1 << lower - 1)) >> lower, (1 << _WIDE_MULTIPLIER_BITS) - 1)
        return factor, _WIDE_MULTIPLIER_BITS - self.shift


def checked(values: Integers) -> Integers:
    """Integers that fit 32 bits; ``OverflowError`` for others."""
    if values.size and not (LEAST <= values.min() and values.max() <= MOST):
        raise OverflowError(f"integers must fit 32 bits, not be in {values.min()}..{values.max()}")
    return values


def high_product(a: Integers, b: Integers) -> Integers:
    """``a * b / 2**31`` of integers of 32 bits, halves up; not both are the least one."""
    return np.asarray((a * b + (1 << 30)) >> 31)


def divided(values: Integers, bits: Integers | int) -> Integers:
    """``values / 2**bits``, halves away from zero."""
    rest = values & ((np.int64(1) << bits) - 1)
    middle = ((np.int64(1) << bits) - 1 >> 1) + (values < 0)
    return np.asarray((values >> bits) + (rest > middle))


def _shifted_up(values: Integers, bits: int) -> Integers:
    """``values * 2**bits``, saturated to 32 bits."""
    return np.asarray(np.clip(values << bits, LEAST, MOST))


#: Half of the root of 2, over 2**31.
_HALF_ROOT_OF_2 = 1518500250
#: exp(-1/8), and 1/3, over 2**31.
_EXP_EIGHTH, _THIRD = 1895147668, 715827883
#: exp(-2**k) over 2**31, from k = -2 on.
_EXP_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
#: Bits after the point of the numbers whose power is taken.
EXP_FRACTION_BITS = 26


def exponentials(numbers: Integers) -> Integers:
    """``exp(a)`` over ``2**31`` of ``a = numbers / 2**26`` from -32 to 0: a series on a quarter, times powers of e."""
    quarter = 1 << EXP_FRACTION_BITS - 2
    rest = (numbers & (quarter - 1)) - quarter
    x = _shifted_up(rest, 31 - EXP_FRACTION_BITS) + (1 << 28)  # around -1/8
    x2 = high_product(x, x)
    x3, x4 = high_product(x2, x), high_product(x2, x2)
    higher = divided(high_product(divided(x4, 2) + x3, np.asarray(_THIRD)) + x2, 1)
    eighth = np.asarray(_EXP_EIGHTH)
    result = eighth + high_product(eighth, x + higher)
    for k, power in enumerate(_EXP_POWERS):
        by = high_product(result, np.asarray(power))
        result = np.where((rest - numbers) >> (EXP_FRACTION_BITS - 2 + k) & 1 == 1, by, result)
    return np.where(numbers == 0, MOST, result)


#: 48/17 and -32/17 over 2**29, from which Newton's iteration begins.
NEWTON_START, NEWTON_SLOPE = 1515870810, -1010580540
#: Steps of it.
NEWTON_STEPS = 3


def reciprocals(values: Integers) -> tuple[Integers, Integers]:
    """Reciprocals of positive integers of 31 bits, by three steps of Newton's iteration.

    Returns
    -------
    mantissa, exponent : arrays of int64
        ``1 / value = mantissa * 2**-(30 + exponent)`` nearly, where ``exponent`` counts the bits of the value.
    """
    exponent = bit_length(values)
    a = (values << 32 - exponent) - (1 << 31)  # value = (1 + a / 2**31) * 2**(exponent - 1)
    half = a + MOST + 1 >> 1  # (2 + a) / 2; a sum is positive, and rounded up
    x = NEWTON_START + high_product(half, np.asarray(NEWTON_SLOPE))
    for _ in range(NEWTON_STEPS):
        missing = (1 << 29) - high_product(half, x)
        x = x + _shifted_up(high_product(x, missing), 2)
    return _shifted_up(x, 1), exponent


#: Bits of an argument between two neighbours of an interpolated table, and steps of that table.
BETWEEN_BITS, TABLE_STEPS = 7, 512


def interpolated(table: Integers, values: Integers) -> Integers:
    """A function of codes of 16 bits from ``TABLE_STEPS + 1`` values: on lines between neighbours, halves up."""
    places = values + (1 << 15)
    k, part = places >> BETWEEN_BITS, places & (1 << BETWEEN_BITS) - 1
    slope = table[k + 1] - table[k]
    return np.asarray(table[k] + (slope * part + (1 << BETWEEN_BITS - 1) >> BETWEEN_BITS))


def table_to_interpolate(function: Callable[[Numbers], Numbers], least: float, most: float) -> Integers:
    """Values of a function from ``least`` to ``most`` over 2**15.

    Each is beside the exact one by half of the error that the line to the next one has in its middle.
    """
    step = (most - least) / TABLE_STEPS
    places = least + step * np.arange(TABLE_STEPS + 1, dtype=np.float64)
    exact = function(places) * 2.0**15
    near, middle = nearest_integers(exact), nearest_integers(function(places[:-1] + step / 2) * 2.0**15)
    error = nearest_integers((exact[1:] + near[:-1]) / 2) - middle
    values = np.append(near[:-1] - nearest_integers(error / 2), near[-1])
    return np.asarray(np.clip(values, -(1 << 15), (1 << 15) - 1), dtype=np.int64)


def inverse_roots(values: Integers) -> tuple[Integers, Integers]:
    """Inverse roots of integers from 1 to 2**29 - 1: ``root`` and ``down`` of ``root / 2**(31 + down)``.

    Five steps of Newton's method, with 3 bits in front of the point.
    """
    pairs = (31 - bit_length(values)) // 2 - 1
    moved = values << 2 * pairs
    half, three_halves = divided(moved >> 1, 1), np.asarray((1 << 28) + (1 << 27))
    root = np.full_like(values, 1 << 28)
    for _ in range(5):
        cube = _shifted_up(high_product(high_product(root, root), root), 6)
        root = _shifted_up(high_product(three_halves, root) - high_product(half, cube), 3)
    root = high_product(root, np.asarray(_HALF_ROOT_OF_2))
    down = 11 - pairs
    root, down = root << np.maximum(-down, 0), np.maximum(down, 0)
    single = values == 1
    return np.where(single, MOST, root), np.where(single, 0, down)
