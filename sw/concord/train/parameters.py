"""Parameters: mantissas, lazy accumulators and exponents; never a float."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from concord.golden.lazy_update import lazy_update, start
from concord.spec.formats import Rounding
from concord.spec.training import BLOCK_SPREAD, AccumulatorFormat, TrainingFormat
from concord.train.noise import NoiseStream
from concord.train.tensor import Tensor
from concord.utils.arrays import Ints


def integer(bits: int) -> type[np.signedinteger[Any]]:
    """The smallest type of array for mantissas."""
    return np.int8 if bits <= 8 else np.int16 if bits <= 16 else np.int32


@dataclass(frozen=True)
class BlockLayout:
    """Division of the elements of a parameter into blocks ``[blocks, n]``.

    Parameters
    ----------
    shape : tuple of int
        Of the parameter.
    size : int
        Elements of a block along ``axis``; 0: the whole parameter is one block.
    axis : int or None
        ``None``: a block is everything of one index of the first axis (a kernel of a depthwise convolution).
    """

    shape: tuple[int, ...]
    size: int = 0
    axis: int | None = -1

    def split(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``[blocks, n]`` of an array of the shape; the last block along an axis is filled with zeros."""
        if not self.size:
            return values.reshape(1, -1)
        if self.axis is None:
            return values.reshape(self.shape[0], -1)
        last = np.moveaxis(values, self.axis, -1)
        padded = np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, -last.shape[-1] % self.size)])
        return padded.reshape(-1, self.size)

    def join(self, blocks: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array of blocks."""
        if not self.size or self.axis is None:
            return blocks.reshape(self.shape)
        sizes = np.moveaxis(np.empty(self.shape, np.bool_), self.axis, -1).shape
        padded = blocks.reshape(*sizes[:-1], -1)[..., : sizes[-1]]
        return np.ascontiguousarray(np.moveaxis(padded, -1, self.axis))


class AddedCounts:
    """Counts that can be added up, field by field."""

    def add(self, other: Self) -> None:
        """Count further ones."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class UpdateCounts(AddedCounts):
    """Counts of updates, in elements; see :mod:`concord.golden.lazy_update`.

    ``saturated`` are elements of any tensor that needed a greater exponent than there is, see
    :func:`concord.train.tensor.saturations`.
    """

    elements: int = 0
    refused: int = 0
    vanished: int = 0
    grown: int = 0
    saturated: int = 0


@dataclass
class Parameter:
    """A weight or bias with its accumulator.

    Parameters
    ----------
    name : str
        Of the layer and of what it is there, such as ``conv1.weight``.
    blocks : BlockLayout
        Shape and blocks.
    fmt, accumulator : formats
        Of weights and of accumulators.
    weight, acc : arrays of int ``[blocks, n]``
        Mantissas.
    exp : array of int ``[blocks]``
        Exponents of the weights.
    velocity : array of int32 and int, or None
        Mantissas of the momentum in the shape of the parameter, and their exponent.
    """

    name: str
    blocks: BlockLayout
    fmt: TrainingFormat
    accumulator: AccumulatorFormat
    weight: npt.NDArray[Any]
    acc: npt.NDArray[Any]
    exp: npt.NDArray[np.int16]
    velocity: npt.NDArray[np.int32] | None = None
    velocity_exp: int = 0
    _tensor: Tensor | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls,
        name: str,
        values: npt.ArrayLike,
        fmt: TrainingFormat,
        accumulator: AccumulatorFormat,
        zero_exp: int = 0,
        axis: int | None = -1,
    ) -> Parameter:
        """A parameter from pretrained or random numbers.

        Raises
        ------
        ValueError
            If one is not finite.
        """
        exact = np.asarray(values, dtype=np.float64)
        if not np.all(np.isfinite(exact)):
            raise ValueError(f"{name} must be finite, not infinite or NaN")
        blocks = BlockLayout(exact.shape, fmt.block, axis)
        split = blocks.split(exact)
        weight, acc, exp = start(split, fmt, accumulator, zero_exp)
        least = int(exp.max(initial=zero_exp)) - BLOCK_SPREAD
        if np.any(exp < least):  # blocks of numbers that are far smaller
            weight, acc, exp = start(split, fmt, accumulator, zero_exp, least)
        types = integer(fmt.bits), integer(accumulator.bits)
        return cls(name, blocks, fmt, accumulator, weight.astype(types[0]), acc.astype(types[1]), exp.astype(np.int16))

    @property
    def tensor(self) -> Tensor:
        """The weights on one grid, for products."""
        if self._tensor is None:
            used = np.any(self.weight, axis=1)
            exp = self.exp.astype(np.int64)
            least = int(exp[used].min()) if used.any() else int(exp.max())
            mant = self.weight.astype(np.int64) << np.where(used, exp - least, 0)[:, None]
            self._tensor = Tensor.of(self.blocks.join(mant), least, int(np.abs(mant).max(initial=0)))
        return self._tensor

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """Values of the weights: exact, for export."""
        return np.asarray(self.blocks.join(np.ldexp(self.weight.astype(np.float64), self.exp[:, None])))

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.blocks.shape)

    @property
    def total(self) -> Ints:
        """Weights and accumulators together ``[blocks, n]``, in units of the accumulators."""
        return np.asarray((self.weight.astype(np.int64) << self.accumulator.shift) + self.acc)

    def replace(self, weight: npt.NDArray[Any], acc: npt.NDArray[Any], exp: npt.NDArray[Any]) -> None:
        """Take other mantissas and exponents, in the types of those that are there."""
        self.weight = weight.astype(self.weight.dtype, copy=False)
        self.acc = acc.astype(self.acc.dtype, copy=False)
        self.exp = exp.astype(self.exp.dtype, copy=False)
        self._tensor = None

    def update(self, change: Tensor, noise: NoiseStream | None) -> UpdateCounts:
        """Add an update of the shape of the parameter."""
        split = self.blocks.split(change.mant.astype(np.int64))
        bits = noise.take(split.shape) if noise and self.accumulator.rounding == Rounding.STOCHASTIC else None
        got = lazy_update(self.weight, self.acc, self.exp, split, change.exp, self.fmt, self.accumulator, bits)
        self.replace(got.weight, got.acc, got.exp)
        sums = (int(np.count_nonzero(x)) for x in (got.refused, got.vanished, got.grown))
        return UpdateCounts(self.count, *sums)
