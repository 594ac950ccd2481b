"""Operations from codes to codes that add up with constant weights: products and convolutions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from concord.integer.float32 import Integers
from concord.integer.graph import IntegerOperation
from concord.integer.requantise import Requantiser
from concord.sums.exact import exact_type
from concord.sums.reach import norms, sum_bound


@dataclass(frozen=True, kw_only=True, eq=False)
class RequantisedSums(IntegerOperation):
    """Operation that makes codes of sums whose bound is known.

    Parameters
    ----------
    requantisation : Requantiser
        From sums to codes.
    """

    requantisation: Requantiser

    @property
    @abstractmethod
    def largest_sum(self) -> int:
        """A bound on the magnitude of all accumulators, whatever the codes are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedSums(RequantisedSums):
    """Sums of products of codes and constant integers, requantised.

    Parameters
    ----------
    weight : array of int64
        Codes of the weights less their zero points.
    bias : array of int64
        One integer for each channel, in the scale of the sums.
    zero_point : int
        Of the codes read.
    reach : int
        Largest magnitude of a code read, less its zero point.
    """

    weight: Integers
    bias: Integers
    zero_point: int
    reach: int

    @abstractmethod
    def _channels(self) -> Integers:
        """Weights in rows, those of one channel in each."""

    @property
    def largest_sums(self) -> Integers:
        """Bounds on the magnitude of the accumulator of each channel, whatever the codes are."""
        return np.asarray(norms(self._channels(), 1) * self.reach + np.abs(self.bias))

    @property
    def largest_sum(self) -> int:
        return int(self.largest_sums.max())


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerMatMul(WeightedSums):
    """Rows ``[..., inputs]`` times the weight ``[inputs, channels]``."""

    def _channels(self) -> Integers:
        return self.weight.T

    def run(self, *codes: Integers) -> Integers:
        return self.requantisation.apply(_matmul(codes[0] - self.zero_point, self.weight, self.reach) + self.bias, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeMatMul(RequantisedSums):
    """Matrices ``[..., rows, inputs]`` times matrices ``[..., inputs, columns]`` of codes; axes in front are broadcast.

    Parameters
    ----------
    zeros : pair of int
        Zero points of the operands.
    largest : int
        A bound on the magnitude of the sums.
    """

    zeros: tuple[int, int]
    largest: int

    @property
    def largest_sum(self) -> int:
        return self.largest

    def run(self, *codes: Integers) -> Integers:
        kind = exact_type(self.largest)
        a, b = ((part - zero).astype(kind) for part, zero in zip(codes, self.zeros, strict=True))
        return self.requantisation.apply(np.matmul(a, b).astype(np.int64), -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerConvolution(WeightedSums):
    """A convolution in any number of dimensions, of codes ``[samples, channels, *sizes]``.

    The weight is ``[channels, inputs of a group, *kernel]``.

    Parameters
    ----------
    strides, dilations : tuple of int
        By dimension.
    pads : tuple of int
        In front by dimension, then those at the end; padding has the number 0.
    groups : int
        Number of groups into which inputs and channels are divided.
    last : bool
        Whether channels are the last axis of what is read and made, and not the second one.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    last: bool = False

    @property
    def kernel(self) -> tuple[int, ...]:
        """Sizes of a window by dimension."""
        return self.weight.shape[2:]

    def _channels(self) -> Integers:
        return self.weight.reshape(len(self.weight), -1)

    def run(self, *codes: Integers) -> Integers:
        rows = (codes[0] - self.zero_point).astype(exact_type(sum_bound(self._channels(), 1, self.reach)))
        windows = windows_of(rows, self.kernel, self.strides, self.dilations, self.pads, 0, last=self.last)
        samples, channels, *places = windows.shape[: windows.ndim - self.weight.ndim + 2]
        rank = len(places)
        # [samples, groups, *places, inputs of a group, *kernel]
        grouped = windows.reshape(samples, self.groups, channels // self.groups, *windows.shape[2:])
        rows = np.moveaxis(grouped, 2, 2 + rank).reshape(samples, self.groups, prod(places), -1)
        weights = self._channels().reshape(self.groups, len(self.weight) // self.groups, -1)
        sums = _matmul(rows, np.swapaxes(weights, 1, 2), self.reach)  # [samples, groups, places, channels of a group]
        sums = np.swapaxes(sums, 2, 3).reshape(samples, len(self.weight), *places)
        made = self.requantisation.apply(sums + self.bias.reshape(-1, *[1] * rank), 1)
        return np.moveaxis(made, 1, -1) if self.last else made


def _matmul(rows: NDArray[Any], weights: Integers, reach: int) -> Integers:
    """The exact product of whole numbers."""
    kind = exact_type(sum_bound(weights, -2, reach))
    return np.asarray(np.matmul(rows.astype(kind, copy=False), weights.astype(kind)).astype(np.int64, copy=False))


def windows_of(
    codes: Integers,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    padding: int,
    *,
    last: bool = False,
) -> Integers:
    """Windows ``[samples, channels, *places, *kernel]`` of codes ``[samples, channels, *sizes]``.

    ``last`` if the channels are the last axis of the codes.
    """
    rank = len(kernel)
    codes = np.moveaxis(codes, -1, 1) if last else codes
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(codes, around, constant_values=padding)
    extents = tuple(dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True))
    windows = sliding_window_view(padded, extents, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    return np.asarray(windows[(slice(None), slice(None), *steps)])


def elements_of_windows(
    sizes: Sequence[int],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    padding: int = 0,
) -> Integers:
    """Number of elements ``[1, 1, *places]`` of each window of some sizes; with 1 for ``padding`` that counts, too."""
    ones = np.ones((1, 1, *sizes), dtype=np.int64)
    windows = windows_of(ones, kernel, strides, dilations, pads, padding)
    return np.asarray(windows.sum(axis=tuple(range(-len(kernel), 0))))
