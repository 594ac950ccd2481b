"""Interface of a library of arrays for which a quantised network can be written.

Arrays have the samples as their first axis and hold integers of 64 bits, or binary32 numbers. Every operation on
numbers is one that IEEE 754 rounds once, so all libraries give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.integer.float32 import Integers
from concord.integer.npu.operations import WindowSums
from concord.integer.operations import CodeAverage, CodeWindows
from concord.integer.requantise import ACCUMULATOR_BITS
from concord.integer.weighted_sums import IntegerConvolution


@dataclass(frozen=True)
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
    """Writes operations on arrays, each of which gives an array."""

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
    def quotient(self, a: Array, b: Array) -> Array:
        """``floor(a / b)`` of integers that are not negative, by positive ones."""

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
    def concatenate(self, parts: Sequence[Array], axis: int) -> Array:
        """Arrays side by side."""

    @abstractmethod
    def take(self, a: Array, index: Integers, hint: str) -> Array:
        """Elements of each sample of ``[samples, elements]`` by constant indices of one dimension."""

    @abstractmethod
    def for_one_sample(self, single: Array, several: Array) -> Array:
        """``single`` if there is one sample, else ``several``."""
