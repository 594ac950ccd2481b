"""Operations from codes to codes without weights: pools, sums and products of two tensors, look-ups, and movement."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from concord.integer.float32 import Binary32, Integers
from concord.integer.graph import IntegerOperation
from concord.integer.moves import Move
from concord.integer.requantise import Requantisation, Requantiser, codes_of_steps
from concord.integer.sum_orders import SUM_ORDERS
from concord.integer.weighted_sums import elements_of_windows, windows_of
from concord.transfer import TransferTable

_INT64 = np.iinfo(np.int64)
#: Largest magnitude of a code of 16 bits.
_LARGEST_CODE = 65535
#: Bits of the integers that sums of two tensors are made of, and by which they may be moved down.
_GRID_BITS = 62


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeWindows(IntegerOperation):
    """Operation that makes a code of each window, and limits it.

    Parameters
    ----------
    kernel, strides, dilations, pads
        As of :class:`IntegerConvolution`, by dimension; padding is no element of a window.
    last : bool
        Whether channels are the last axis of what is read and made, and not the second one.
    low, high : int
        Least and greatest code of the result.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    last: bool = False
    low: int = _INT64.min
    high: int = _INT64.max

    @property
    def _taps(self) -> tuple[int, ...]:
        """Axes of the elements of a window."""
        return tuple(range(-len(self.kernel), 0))

    def _windows(self, codes: Integers, padding: int) -> Integers:
        return windows_of(codes, self.kernel, self.strides, self.dilations, self.pads, padding, last=self.last)

    def counts(self, shape: tuple[int, ...], padding: int = 0) -> Integers:
        """Number of elements ``[1, 1, *places]`` of each window of a tensor of a shape; 1 for ``padding`` counts it."""
        sizes = shape[1:-1] if self.last else shape[2:]
        return elements_of_windows(sizes, self.kernel, self.strides, self.dilations, self.pads, padding)

    def _limited(self, codes: Integers) -> Integers:
        """Codes ``[samples, channels, *places]`` in the layout of the result."""
        return np.clip(np.moveaxis(codes, 1, -1) if self.last else codes, self.low, self.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeMaximum(CodeWindows):
    """Greatest code of each window, as MaxPool."""

    def run(self, *codes: Integers) -> Integers:
        return self._limited(self._windows(codes[0], _INT64.min).max(axis=self._taps))


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerAverage(CodeWindows):
    """The mean of the codes of each window, halves away from zero, as AVERAGE_POOL_2D of TensorFlow Lite."""

    def run(self, *codes: Integers) -> Integers:
        sums, count = self._windows(codes[0], 0).sum(axis=self._taps), self.counts(codes[0].shape)
        size = (np.abs(sums) + count // 2) // count
        return self._limited(np.where(sums < 0, -size, size))


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeMean(IntegerOperation):
    """The mean of all elements of a channel: their sum, requantised by the scale over their number.

    Parameters
    ----------
    zero_point : int
        Of the codes read.
    scale, target_scale : float32
        Of the codes read, and of those made.
    target_zero_point, low, high : int
        Of the codes made.
    order : str
        Where there is no integer kernel, that in which the numbers of the codes are added up in binary32, one of
        :data:`concord.integer.sum_orders.SUM_ORDERS`; then the sum is divided by their count and by the scale of the
        codes made, and rounded.
    """

    zero_point: int
    scale: np.float32
    target_scale: np.float32
    target_zero_point: int
    low: int
    high: int
    order: str = ""

    def requantisation(self, count: int) -> Requantisation:
        """Requantisation of the sum of ``count`` elements to the code of their mean."""
        scale = np.asarray(self.scale / (self.target_scale * np.float32(count)))
        return Requantisation(scale, self.target_zero_point, self.low, self.high)

    def run(self, *codes: Integers) -> Integers:
        axes = tuple(range(2, codes[0].ndim))
        offsets = codes[0] - self.zero_point
        if self.order:
            rows = offsets.reshape(*offsets.shape[:2], -1)
            made = self.codes_of_rows(rows, np.asarray(rows.shape[-1]), 0)
            return made.reshape(*offsets.shape[:2], *(1 for _ in axes))
        return self.requantisation(prod(codes[0].shape[2:])).apply(offsets.sum(axis=axes, keepdims=True), 1)

    def codes_of_rows(self, rows: Integers, counts: Integers, in_front: int) -> Integers:
        """Codes of the means of ``rows`` along the last axis; ``in_front`` is added before the last rounding."""
        numbers = Binary32.of_integers(rows) * Binary32.of(self.scale)
        total = numbers.summed_in(SUM_ORDERS[self.order or "one by one"](rows.shape[-1]))
        steps = total / Binary32.of_integers(counts) / Binary32.of(self.target_scale)
        made = (steps + _zero(in_front)).integers() + self.target_zero_point - in_front
        return np.clip(made, self.low, self.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeAverage(CodeWindows, CodeMean):
    """Mean of windows, as AveragePool; that of the whole image is a :class:`CodeMean`.

    The numbers of the codes are added up in binary32, row by row; the sum is divided by their count and by the scale of
    the result, and rounded, each step to binary32. An integer kernel adds the zero point in front of the last rounding.

    Parameters
    ----------
    padding_counts : bool
        Whether elements of the padding count.
    shift : int
        Added to the codes made as long as a kernel makes them.
    """

    padding_counts: bool
    shift: int = 0

    @property
    def in_front(self) -> int:
        """The integer that is added in front of the last rounding; what it is not of the zero point comes after it."""
        return 0 if self.order else self.target_zero_point + self.shift

    def is_mean(self, shape: tuple[int, ...]) -> bool:
        """True if a kernel takes the only window, all of a tensor ``[samples, channels, *sizes]``, for a mean."""
        return not self.order and shape[2:] == self.kernel and not any(self.pads)

    def counts(self, shape: tuple[int, ...], padding: int = 0) -> Integers:
        return super().counts(shape, max(padding, int(self.padding_counts)))

    def run(self, *codes: Integers) -> Integers:
        if self.is_mean(codes[0].shape):
            return CodeMean.run(self, *codes)
        offsets = codes[0] - self.zero_point
        windows = self._windows(offsets, 0)
        rows = windows.reshape(*windows.shape[: offsets.ndim], -1)
        return self.codes_of_rows(rows, self.counts(offsets.shape), self.in_front)


def _zero(zero_point: int) -> Binary32:
    return Binary32.of_integers(np.asarray(zero_point))


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSoftmax(IntegerOperation):
    """Softmax along an axis: powers from a table, over their sum, which is added up in binary32.

    Parameters
    ----------
    axis : int
        Along which it is; if ``flattened``, the axes from it on are one.
    flattened : bool
        As operators before opset 13 have it.
    scale : float32
        Of the codes read.
    zero_point, low, high : int
        Of the codes made.
    """

    axis: int
    flattened: bool
    scale: np.float32
    zero_point: int
    low: int
    high: int

    @abstractmethod
    def powers_of(self, count: int) -> NDArray[np.float32]:
        """Powers of a row of ``count`` codes by code less the greatest one, the last for 0."""

    @abstractmethod
    def steps_of(self, powers: Binary32, total: Binary32) -> Binary32:
        """Steps from the zero point, of powers and of their sum."""

    def run(self, *codes: Integers) -> Integers:
        axis = self.axis % codes[0].ndim
        rows = codes[0].reshape(*codes[0].shape[:axis], -1) if self.flattened else np.moveaxis(codes[0], axis, -1)
        powers = self.powers_of(rows.shape[-1])
        own = Binary32.of(powers)[rows - rows.max(axis=-1, keepdims=True) + len(powers) - 1]
        steps = self.steps_of(own, own.summed()[..., None])
        made = np.clip(steps.integers() + self.zero_point, self.low, self.high)
        return made.reshape(codes[0].shape) if self.flattened else np.moveaxis(made, -1, axis)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeSoftmax(RowSoftmax):
    """Softmax by the kernel on codes: ``code = clamp(rne(f32(f32(power * steps) / sum)) + zero_point)``.

    Parameters
    ----------
    steps : float32
        Codes of the result per unit, a whole number.
    """

    steps: np.float32

    def powers_of(self, count: int) -> NDArray[np.float32]:
        return powers_of_softmax(self.scale, count)

    def steps_of(self, powers: Binary32, total: Binary32) -> Binary32:
        return powers * Binary32.of(self.steps) / total


@lru_cache(maxsize=64)
def powers_of_softmax(scale: np.float32, count: int) -> NDArray[np.float32]:
    """The table of ONNX Runtime's Softmax of ``count`` codes of 8 bits, in binary32, the last for the greatest code.

    Powers are as large as ``count`` of them may be without an overflow of their sum.
    """
    largest = np.log(np.float64(np.finfo(np.float32).max / np.float32(count)))
    shift = max(0.0, float(largest) - 5) / float(scale)
    return np.asarray(np.exp((np.arange(256) - 255 + shift) * float(scale)).astype(np.float32))


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerProduct(IntegerOperation):
    """The product of two tensors of codes, which may be broadcast, requantised.

    Parameters
    ----------
    zeros : pair of int
        Zero points of the operands.
    requantisation : Requantiser
        From products of codes less their zero points to codes.
    """

    zeros: tuple[int, int]
    requantisation: Requantiser

    def run(self, *codes: Integers) -> Integers:
        a, b = (part - zero for part, zero in zip(codes, self.zeros, strict=True))
        return self.requantisation.apply(a * b, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeSum(IntegerOperation):
    """Add of two tensors, which may be broadcast, by an integer kernel.

    ``code = clamp(rne(fma(a, ratio_a, fma(b, ratio_b, offset))))`` in binary32, with the ratios of the scales and
    ``offset = zero_point - fma(ratio_a, zero_a, f32(ratio_b * zero_b))``: what ONNX Runtime computes on processors with
    AVX2. If the first operand has one number for a whole row of the second one, they change places.

    Parameters
    ----------
    ratios : pair of float32
        Scale of each operand over that of the result.
    zeros : pair of int
        Zero points of the operands.
    zero_point, low, high : int
        Of the codes made.
    shifts : tuple of int
        Added to all codes of ``a`` and ``b`` and their zero points, and to the codes made, for the kernel.
    """

    ratios: tuple[np.float32, np.float32]
    zeros: tuple[int, int]
    zero_point: int
    low: int
    high: int
    shifts: tuple[int, int, int] = (0, 0, 0)

    def offset(self, swapped: bool) -> Binary32:
        """``zero_point - fma(ratio_a, zero_a, f32(ratio_b * zero_b))``; ``swapped`` if operands change places."""
        zeros = [np.asarray(zero + shift) for zero, shift in zip(self.zeros, self.shifts, strict=False)]
        operands = [(Binary32.of(ratio), zero) for ratio, zero in zip(self.ratios, zeros, strict=True)]
        (ratio_a, zero_a), (ratio_b, zero_b) = reversed(operands) if swapped else operands
        made = _zero(self.zero_point + self.shifts[2])
        return made + -(ratio_b * Binary32.of_integers(zero_b)).plus_product(zero_a, ratio_a)

    def on_grid(self, swapped: bool) -> GridSum | None:
        """This sum in integers; ``None`` if ratios and offset are so far apart that they do not fit."""
        ratios = [Binary32.of(ratio) for ratio in self.ratios]
        parts = [*(reversed(ratios) if swapped else ratios), self.offset(swapped)]
        terms = [_without_zeros(int(part.mantissa), int(part.exponent)) for part in parts]
        shift = max(1, *(-exponent for _, exponent in terms))
        a, b, c = (mantissa << exponent + shift for mantissa, exponent in terms)
        fits = shift <= _GRID_BITS and (a + b) * _LARGEST_CODE + abs(c) < 1 << _GRID_BITS - 1
        return GridSum(a, b, c, shift) if fits else None

    def run(self, *codes: Integers) -> Integers:
        swapped = first_is_single(codes[0].shape, codes[1].shape)
        operands = [part + shift for part, shift in zip(codes, self.shifts, strict=False)]
        a, b = reversed(operands) if swapped else operands
        if grid := self.on_grid(swapped):
            inner = (b * grid.b + grid.c).astype(np.float32).astype(np.int64)
            steps = np.rint((a * grid.a + inner).astype(np.float32) * grid.unit)
            return codes_of_steps(steps, -self.shifts[2], self.low, self.high)
        ratio_a, ratio_b = map(Binary32.of, reversed(self.ratios) if swapped else self.ratios)
        total = self.offset(swapped).plus_product(b, ratio_b).plus_product(a, ratio_a)
        return np.clip(total.integers() - self.shifts[2], self.low, self.high)


@dataclass(frozen=True)
class GridSum:
    """``f32(a * x + f32(b * y + c)) / 2**shift``, where products and sums of integers of 62 bits are exact."""

    a: int
    b: int
    c: int
    shift: int

    @property
    def unit(self) -> np.float32:
        """``2**-shift``."""
        return np.float32(2.0**-self.shift)


def _without_zeros(mantissa: int, exponent: int) -> tuple[int, int]:
    """Mantissa and exponent of a number with an odd mantissa; 0 has the exponent 0."""
    if not mantissa:
        return 0, 0
    zeros = (mantissa & -mantissa).bit_length() - 1
    return mantissa >> zeros, exponent + zeros


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeFloats(IntegerOperation):
    """Sub, Add or Mul of the numbers of two tensors in binary32, where there is no integer kernel.

    ``code = clamp(rne(f32(f32(f32(scale_a * a) - f32(scale_b * b)) / step)) + zero_point)``, of codes less their zero
    points, and with ``+`` or ``*`` for ``-``.

    Parameters
    ----------
    operator : str
        Of ONNX.
    scales : pair of float32
        Of the operands.
    zeros : pair of int
        Zero points of the operands.
    step : float32
        Scale of the codes made.
    zero_point, low, high : int
        Of the codes made.
    """

    scales: tuple[np.float32, np.float32]
    zeros: tuple[int, int]
    step: np.float32
    zero_point: int
    low: int
    high: int
    operator: str = "Sub"

    def run(self, *codes: Integers) -> Integers:
        a, b = (
            Binary32.of_integers(part - zero) * Binary32.of(scale)
            for part, zero, scale in zip(codes, self.zeros, self.scales, strict=True)
        )
        result = a * b if self.operator == "Mul" else a + b if self.operator == "Add" else a + -b
        steps = result / Binary32.of(self.step)
        return np.clip(steps.integers() + self.zero_point, self.low, self.high)


def first_is_single(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """True if the first of two operands has one number for a whole row of the other one, or both have one at all."""
    sizes = zip_longest(reversed(a), reversed(b), fillvalue=1)
    return next((size_a == 1 for size_a, size_b in sizes if (size_a, size_b) != (1, 1)), True)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeConstant(IntegerOperation):
    """Constant codes."""

    value: Integers

    def run(self, *codes: Integers) -> Integers:
        return self.value


@dataclass(frozen=True, kw_only=True, eq=False)
class TableOperation(IntegerOperation):
    """Operation that looks up in a table."""

    table: TransferTable


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeTable(TableOperation):
    """A point-wise function, looked up."""

    def run(self, *codes: Integers) -> Integers:
        return self.table.apply(codes[0]).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodePairTable(TableOperation):
    """A function of two codes, looked up by ``(a - lows[0]) * count + (b - lows[1])``; operands may be broadcast.

    Parameters
    ----------
    lows : pair of int
        Least codes of the operands.
    count : int
        Number of codes of the second one.
    """

    lows: tuple[int, int]
    count: int

    def run(self, *codes: Integers) -> Integers:
        a, b = (part - low for part, low in zip(codes, self.lows, strict=True))
        return self.table.apply(a * self.count + b).astype(np.int64)


class Ends(Protocol):
    """Anything with a least and a greatest code."""

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeMovement(IntegerOperation):
    """Operation that makes an array of codes of others, and changes none but those that are beyond its ends.

    Parameters
    ----------
    move : Move
    low, high : int
        Least and greatest code of the result.
    """

    move: Move
    low: int
    high: int

    @classmethod
    def of(cls, name: str, inputs: Sequence[str], output: str, move: Move, ends: Ends) -> CodeMovement:
        """A movement with the least and the greatest code of a scheme, or of what else has ends."""
        return cls(name=name, inputs=tuple(inputs), output=output, move=move, low=ends.low, high=ends.high)

    def run(self, *codes: Integers) -> Integers:
        return np.clip(self.move.apply(*codes), self.low, self.high)
