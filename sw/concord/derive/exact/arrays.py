"""Interface of a library of arrays for which a quantised network can be written.

Arrays have the samples as their first axis and hold integers of 64 bits, or binary32 numbers. Every operation on
numbers is one that IEEE 754 rounds once, so all libraries give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.compiler.codes.operations import WindowSums
from concord.integer.float32 import Binary32, Integers
from concord.integer.operations import CodeAverage, CodeMovement, CodeWindows
from concord.integer.requantise import ACCUMULATOR, ACCUMULATOR_BITS
from concord.integer.sum_orders import Step
from concord.integer.tflite.fixed_point import (
    LEAST,
    MOST,
    NEWTON_SLOPE,
    NEWTON_START,
    NEWTON_STEPS,
    FixedPointMultiplier,
    interpolated,
)
from concord.integer.tflite.operations import MOST_16, RECIPROCALS_16, InterpolatedSoftmax
from concord.integer.weighted_sums import IntegerConvolution
from concord.spec.widths import limits, needed_width

#: Shapes of tensors by their names.
Shapes = Mapping[str, tuple[int, ...]]
#: Bits by which an integer is moved down until only its sign is left.
_SIGN = 62


@dataclass(frozen=True, eq=False)
class Array:
    """A value that a file computes.

    Parameters
    ----------
    text : str
        What it is called in the file.
    real : bool
        Whether it holds binary32 numbers; integers otherwise.
    """

    text: str
    real: bool = False


@dataclass(frozen=True)
class WindowPlaces:
    """Places of the windows of a convolution or a pool.

    Parameters
    ----------
    kernel, strides, dilations : tuple of int
        Elements, by dimension.
    pads : tuple of int
        Elements in front by dimension, then those at the end.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @classmethod
    def of(cls, operation: IntegerConvolution | CodeWindows | CodeAverage | WindowSums) -> WindowPlaces:
        """Places of the windows of an operation."""
        return cls(operation.kernel, operation.strides, operation.dilations, operation.pads)


class ArrayWriter(ABC):
    """Writes operations on arrays, each of which gives an array.

    Those that are made of others here may be one operation of a library.

    Members
    -------
    any_samples : bool
        Whether what is written takes any number of samples, of which shapes have one; all those of a run otherwise.
    """

    any_samples = True

    @abstractmethod
    def integers(self, values: Any, hint: str) -> Array:
        """A constant of integers; ``hint`` is a word for its name."""

    @abstractmethod
    def numbers(self, values: Any, hint: str) -> Array:
        """A constant of binary32 numbers."""

    @abstractmethod
    def add(self, a: Array, b: Array) -> Array:
        """Sums of integers, exact, or of numbers, rounded once. Shapes are broadcast, here and below."""

    @abstractmethod
    def subtract(self, a: Array, b: Array) -> Array:
        """Differences of integers, exact, or of numbers, rounded once."""

    @abstractmethod
    def multiply(self, a: Array, b: Array) -> Array:
        """Products of integers, exact, or of numbers, rounded once."""

    @abstractmethod
    def divide(self, a: Array, b: Array) -> Array:
        """Quotients of numbers, rounded once."""

    @abstractmethod
    def to_numbers(self, a: Array) -> Array:
        """The nearest binary32 numbers to integers."""

    @abstractmethod
    def to_integers(self, a: Array) -> Array:
        """Whole numbers as integers."""

    @abstractmethod
    def to_codes(self, a: Array, zero_point: int, low: int, high: int) -> Array:
        """The nearest integers to numbers, of two the even one, plus the zero point, limited to ``low`` .. ``high``."""

    @abstractmethod
    def to_codes_by_binary64(self, a: Array, scale: NDArray[np.float64], zero_point: int, low: int, high: int) -> Array:
        """``round(float64(a * scale)) + zero_point`` of integers, halves away from zero, limited."""

    @abstractmethod
    def shifted_right(self, a: Array, bits: int | Integers) -> Array:
        """``floor(a / 2**bits)`` of integers below 2**62 in magnitude, by 0 to 62 bits, or an array of those."""

    @abstractmethod
    def limited(self, a: Array, low: int, high: int) -> Array:
        """Integers limited to ``low`` .. ``high``."""

    @abstractmethod
    def limited_numbers(self, a: Array, low: float, high: float) -> Array:
        """Numbers limited to ``low`` .. ``high``."""

    @abstractmethod
    def finite(self, a: Array) -> Array:
        """Numbers as they are; an error as the file runs if one is beyond binary32, in files that can say so."""

    @abstractmethod
    def in_bits(self, a: Array, bits: int = ACCUMULATOR_BITS) -> Array:
        """Accumulators as they are; an error as the file runs if one does not fit so many bits, sign included.

        Raises
        ------
        ValueError
            If files cannot say so.
        """

    def within(self, a: Array, ends: tuple[int, int], bound: int) -> Array:
        """Accumulators up to ``bound`` in magnitude as they are; an error as the file runs if one is beyond the ends.

        Raises
        ------
        ValueError
            If files cannot say so.
        """
        bits = needed_width(ends[1])
        if ends != limits(bits):
            raise ValueError(f"accumulators must be at most {ends[1]} in magnitude, and may reach {bound}")
        return self.in_bits(a, bits)

    def sign(self, a: Array) -> Array:
        """-1 for a negative integer, else 0."""
        return self.shifted_right(a, _SIGN)

    @abstractmethod
    def nearest_quotient(self, a: Array, count: Integers) -> Array:
        """``a / count`` of integers, by positive ones, halves away from zero."""

    def shifted_to_even(self, a: Array, bits: int) -> Array:
        """``a / 2**bits``, halves to the even integer."""
        floor, twice = (self.shifted_right(a, bits + more) for more in (0, 1))
        odd = self.subtract(floor, self.multiply(twice, self.integers(2, "two")))
        raised = self.add(self.add(a, self.integers((1 << bits - 1) - 1, "half")), odd)
        return self.shifted_right(raised, bits)

    def high_product(self, a: Array, b: Array) -> Array:
        """``a * b / 2**31``, halves up."""
        return self.shifted_right(self.add(self.multiply(a, b), self.integers(1 << 30, "half")), 31)

    def divided(self, a: Array, bits: Integers | int) -> Array:
        """``a / 2**bits``, halves away from zero."""
        shift = np.asarray(bits, dtype=np.int64)
        if not shift.any():
            return a
        half, moved = np.int64(1) << shift >> 1, np.int64(shift > 0)
        below = self.sign(a) if moved.all() else self.multiply(self.sign(a), self.integers(moved, "moved"))
        return self.shifted_right(self.add(self.add(a, self.integers(half, "half")), below), shift)

    def fixed_point_product(self, a: Array, multiplier: Integers, down: Integers) -> Array:
        """``a * multiplier / 2**(31 + down)``, rounded twice: to an integer in front of the shift, and after it."""
        return self.divided(self.high_product(a, self.integers(multiplier, "multiplier")), down)

    def times(self, a: Array, scale: FixedPointMultiplier, bound: int) -> Array:
        """Products of integers up to ``bound`` in magnitude, rounded twice."""
        up = np.maximum(scale.shift, 0)
        if up.any():
            a = self.multiply(a, self.integers(np.int64(1) << up, "unit"))
        if bound << int(up.max()) > ACCUMULATOR[1]:
            a = self.in_bits(a)
        return self.fixed_point_product(a, scale.multiplier, np.maximum(-scale.shift, 0))

    def rounded_product(self, a: Array, factor: Integers, down: Integers) -> Array:
        """``a * factor / 2**down``, halves up."""
        product = self.multiply(a, self.integers(factor, "factor"))
        return self.shifted_right(self.add(product, self.integers(np.int64(1) << down - 1, "half")), down)

    def length_of(self, a: Array, axis: int) -> Array:
        """Number of bits of integers that are not negative; they have size 1 along the last axis, ``axis``."""
        powers = self.integers(np.int64(1) << np.arange(31), "powers of two")
        return self.add(self.total(self.sign(self.subtract(a, powers)), [axis]), self.integers(31, "bits"))

    def reciprocal(self, a: Array, bits: Array) -> Array:
        """``mantissa`` of :func:`~concord.integer.tflite.fixed_point.reciprocals` of integers of so many bits."""
        units = np.int64(1) << np.arange(33)
        half = self.shifted_right(self.multiply(a, self.look_up(units[::-1], bits, 0, "units")), 1)
        slope = self.high_product(half, self.integers(NEWTON_SLOPE, "slope"))
        x = self.add(slope, self.integers(NEWTON_START, "start"))
        for _ in range(NEWTON_STEPS):
            missing = self.subtract(self.integers(1 << 29, "one"), self.high_product(half, x))
            step = self.multiply(self.high_product(x, missing), self.integers(4, "four"))
            x = self.add(x, self.limited(step, LEAST, MOST))
        return self.limited(self.multiply(x, self.integers(2, "two")), LEAST, MOST)

    def interpolated_powers(self, a: Array, operation: InterpolatedSoftmax) -> Array:
        """Powers of a softmax of differences of codes of 16 bits."""
        differences = np.arange(-(1 << 16) + 1, 1)
        return self.look_up(operation.powers(differences), a, int(differences[0]), "powers")

    def interpolated_reciprocal(self, a: Array, bits: Array) -> Array:
        """``2**(bits + 14) / a`` nearly, on lines between the values of a table."""
        mantissa = self.multiply(a, self.look_up((np.int64(1) << np.arange(32))[::-1], bits, 0, "units"))
        mantissa = self.shifted_right(self.add(mantissa, self.integers(1 << 13, "half")), 14)
        places = np.arange(1 << 16, (1 << 17) + 1)
        shares = interpolated(RECIPROCALS_16, np.minimum(places - (3 << 15), MOST_16))
        return self.look_up(shares, mantissa, int(places[0]), "reciprocals")

    @abstractmethod
    def divided_by_power(self, a: Array, bits: Array, more: int) -> Array:
        """``a / 2**(bits + more)`` of integers that are not negative, halves up; ``bits`` is 1 to 31."""

    def fused_sum(
        self, parts: tuple[Array, Array], ratios: tuple[np.float32, np.float32], offset: Binary32, name: str
    ) -> Array:
        """``fma(a, ratio_a, fma(b, ratio_b, offset))`` of integers; ``name`` is the operation that needs it.

        Raises
        ------
        ValueError
            If files cannot say so.
        """
        raise ValueError(f"{name} must have operands whose scales are less than about 2**20 apart")

    @abstractmethod
    def matrix_product(self, a: Array, weight: Integers, reach: int) -> Array:
        """Rows ``[..., inputs]`` of integers up to ``reach`` in magnitude times ``weight[inputs, channels]``."""

    @abstractmethod
    def product_of_two(self, a: Array, b: Array, bound: int) -> Array:
        """Matrices of integers ``[..., rows, inputs]`` times ``[..., inputs, columns]``, with sums up to ``bound``."""

    @abstractmethod
    def convolution(self, a: Array, weight: Integers, window: WindowPlaces, groups: int, reach: int) -> Array:
        """Sums of products of windows with ``weight[channels, inputs of a group, *kernel]``; padding is 0."""

    @abstractmethod
    def window_maxima(self, a: Array, window: WindowPlaces) -> Array:
        """The greatest integer or number of each window of ``[samples, channels, *sizes]``; padding is none."""

    @abstractmethod
    def windows(self, a: Array, window: WindowPlaces, sizes: Sequence[int]) -> Array:
        """Windows ``[samples, channels, *places, elements]`` of integers ``[samples, channels, *sizes]``."""

    @abstractmethod
    def total(self, a: Array, axes: Sequence[int]) -> Array:
        """Sums of integers along axes, which stay with size 1."""

    @abstractmethod
    def added_up(self, a: Array) -> Array:
        """Sums of numbers along the last axis, in its order, each step rounded; the axis stays with size 1."""

    @abstractmethod
    def summed(self, a: Array, rows: tuple[int, int], steps: Sequence[Step]) -> Array:
        """Sums of so many rows of so many numbers each, in an order of :mod:`concord.integer.sum_orders`."""

    @abstractmethod
    def greatest(self, a: Array) -> Array:
        """The greatest integer along the last axis, which stays with size 1."""

    @abstractmethod
    def look_up(self, table: NDArray[Any], index: Array, low: int, hint: str) -> Array:
        """Entries ``table[index - low]``: integers of an array of integers, else numbers."""

    @abstractmethod
    def reshape(self, a: Array, shape: Sequence[int]) -> Array:
        """Another shape ``[samples, *shape]``."""

    @abstractmethod
    def regroup(self, a: Array, shape: Sequence[int]) -> Array:
        """Another shape ``[any, *shape]`` of the elements of all samples, in their order."""

    @abstractmethod
    def transpose(self, a: Array, axes: Sequence[int]) -> Array:
        """Axes in another order, the samples in front."""

    @abstractmethod
    def moved(self, operation: CodeMovement, parts: list[Array], shapes: Shapes) -> Array:
        """Result of a movement of arrays; ``shapes`` are those of its operands and its result, with one sample.

        Raises
        ------
        ValueError
            If samples mix, and files take any number of them.
        """

    @abstractmethod
    def for_one_sample(self, single: Array, several: Array) -> Array:
        """``single`` if there is one sample, else ``several``."""
