"""Operations from codes to codes: products, pools, sums of two tensors, look-ups, and what only moves codes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from concord.integer.float32 import Binary32, Integers
from concord.integer.graph import IntegerOperation
from concord.integer.requantise import Requantisation
from concord.transfer import TransferTable

#: Integers below this are exact in float64, in which BLAS multiplies them.
_EXACT = 1 << 53


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerProduct(IntegerOperation):
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
    requantisation : Requantisation
        From sums to codes.
    """

    weight: Integers
    bias: Integers
    zero_point: int
    reach: int
    requantisation: Requantisation

    @abstractmethod
    def _channels(self) -> Integers:
        """Weights in rows, those of one channel in each."""

    @property
    def largest_sums(self) -> Integers:
        """Bounds on the magnitude of the accumulator of each channel, whatever the codes are."""
        return np.asarray(np.abs(self._channels()).sum(axis=1) * self.reach + np.abs(self.bias))


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerMatMul(IntegerProduct):
    """Rows ``[..., inputs]`` times the weight ``[inputs, channels]``."""

    def _channels(self) -> Integers:
        return self.weight.T

    def run(self, *codes: Integers) -> Integers:
        rows = codes[0] - self.zero_point
        return self.requantisation.apply(_matmul(rows, self.weight, self.reach) + self.bias, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerConvolution(IntegerProduct):
    """A convolution in any number of dimensions.

    The weight is ``[channels, inputs of a group, *kernel]``.

    Parameters
    ----------
    strides, dilations : tuple of int
        By dimension.
    pads : tuple of int
        In front by dimension, then those at the end; padding has the number 0.
    groups : int
        The inputs and the channels are divided into.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int

    def _channels(self) -> Integers:
        return self.weight.reshape(len(self.weight), -1)

    def run(self, *codes: Integers) -> Integers:
        kernel = self.weight.shape[2:]
        windows = windows_of(codes[0] - self.zero_point, kernel, self.strides, self.dilations, self.pads, 0)
        samples, channels, *places = windows.shape[: windows.ndim - self.weight.ndim + 2]
        rank = len(places)
        # [samples, groups, *places, inputs of a group, *kernel]
        grouped = windows.reshape(samples, self.groups, channels // self.groups, *windows.shape[2:])
        rows = np.moveaxis(grouped, 2, 2 + rank).reshape(samples, self.groups, prod(places), -1)
        weights = self._channels().reshape(self.groups, len(self.weight) // self.groups, -1)
        sums = _matmul(rows, np.swapaxes(weights, 1, 2), self.reach)  # [samples, groups, places, channels of a group]
        sums = np.swapaxes(sums, 2, 3).reshape(samples, len(self.weight), *places)
        return self.requantisation.apply(sums + self.bias.reshape(-1, *[1] * rank), 1)


def _matmul(rows: Integers, weights: Integers, reach: int) -> Integers:
    """The exact product of integers: in float64 where every sum is exact in it."""
    if np.abs(weights).sum(axis=-2, dtype=np.int64).max(initial=0) * reach < _EXACT:
        return np.asarray(np.matmul(rows.astype(np.float64), weights.astype(np.float64)).astype(np.int64))
    return np.asarray(np.matmul(rows, weights))


def windows_of(
    codes: Integers,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    padding: int,
) -> Integers:
    """Windows ``[samples, channels, *places, *kernel]`` of codes ``[samples, channels, *sizes]``."""
    rank = len(kernel)
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(codes, around, constant_values=padding)
    extents = tuple(dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True))
    windows = sliding_window_view(padded, extents, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    return np.asarray(windows[(slice(None), slice(None), *steps)])


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeMaximum(IntegerOperation):
    """MaxPool: the greatest code of each window; parameters as of :class:`IntegerConvolution`."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def run(self, *codes: Integers) -> Integers:
        least = int(np.iinfo(np.int64).min)
        windows = windows_of(codes[0], self.kernel, self.strides, self.dilations, self.pads, least)
        return np.asarray(windows.max(axis=tuple(range(-len(self.kernel), 0))))


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeMean(IntegerOperation):
    """The mean of all elements of a channel: their sum, requantised by the scale over their number.

    Parameters
    ----------
    kernel : tuple of int or None
        Size of the window that must be the whole image.
    zero_point : int
        Of the codes read.
    scale, target_scale : float32
        Of the codes read, and of those made.
    target_zero_point, low, high : int
        Of the codes made.
    """

    kernel: tuple[int, ...] | None
    zero_point: int
    scale: np.float32
    target_scale: np.float32
    target_zero_point: int
    low: int
    high: int

    def run(self, *codes: Integers) -> Integers:
        if self.kernel is not None and codes[0].shape[2:] != self.kernel:
            raise ValueError(f"{self.name} must average whole images {self.kernel}, not {codes[0].shape[2:]}")
        axes = tuple(range(2, codes[0].ndim))
        count = prod(codes[0].shape[2:])
        sums = (codes[0] - self.zero_point).sum(axis=axes, keepdims=True)
        scale = np.asarray(self.scale / (self.target_scale * np.float32(count)))
        return Requantisation(scale, self.target_zero_point, self.low, self.high).apply(sums, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeSum(IntegerOperation):
    """Add of two tensors.

    ``code = clamp(rne(fma(a, ratio_a, fma(b, ratio_b, offset))))`` in binary32, with the ratios of the scales and
    ``offset = zero_point - (ratio_a * zero_a + ratio_b * zero_b)``: what ONNX Runtime computes on processors with AVX2.

    Parameters
    ----------
    ratios : pair of float32
        Scale of each operand over that of the result.
    offset : float32
        What is left of the zero points.
    low, high : int
        Least and greatest code of the result.
    """

    ratios: tuple[np.float32, np.float32]
    offset: np.float32
    low: int
    high: int

    def run(self, *codes: Integers) -> Integers:
        (a, b), (ratio_a, ratio_b) = codes, self.ratios
        if a.shape != b.shape:
            raise ValueError(f"{self.name} must add tensors of one shape, not {a.shape} and {b.shape}")
        total = Binary32.of(self.offset).plus_product(b, Binary32.of(ratio_b))
        return np.clip(total.plus_product(a, Binary32.of(ratio_a)).integers(), self.low, self.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeTable(IntegerOperation):
    """A point-wise function, looked up."""

    table: TransferTable

    def run(self, *codes: Integers) -> Integers:
        return self.table.apply(codes[0]).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeMovement(IntegerOperation):
    """What makes an array of the codes of others and changes none: the function that does it on NumPy arrays."""

    moved: Callable[..., Integers]

    def run(self, *codes: Integers) -> Integers:
        return np.asarray(self.moved(*codes))
