"""Moves of codes as data: NumPy executes them, and software in other languages is written from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import numpy as np

from concord.integer.float32 import Integers


class Move(ABC):
    """Move of elements: an array of the elements of others, none of which changes."""

    @abstractmethod
    def apply(self, *codes: Integers) -> Integers:
        """The array."""


@dataclass(frozen=True)
class ReshapeMove(Move):
    """Change of the shape; the order of the elements stays.

    Parameters
    ----------
    sizes : tuple of int
        -1 for one that follows from the others.
    kept : bool
        Whether a size of 0 stands for the one that is there.
    """

    sizes: tuple[int, ...]
    kept: bool = True

    def apply(self, *codes: Integers) -> Integers:
        shape = codes[0].shape
        return codes[0].reshape([shape[k] if size == 0 and self.kept else size for k, size in enumerate(self.sizes)])


@dataclass(frozen=True)
class FlattenMove(Move):
    """A matrix: the axes in front of ``axis`` are the first one, the others the second one."""

    axis: int

    def apply(self, *codes: Integers) -> Integers:
        return codes[0].reshape(prod(codes[0].shape[: self.axis]), -1)


@dataclass(frozen=True)
class TransposeMove(Move):
    """Axes in another order; the other way round for ``None``."""

    axes: tuple[int, ...] | None

    def apply(self, *codes: Integers) -> Integers:
        return np.transpose(codes[0], self.axes)


@dataclass(frozen=True)
class SqueezeMove(Move):
    """Without axes of size 1; ``None`` are all of them."""

    axes: tuple[int, ...] | None

    def apply(self, *codes: Integers) -> Integers:
        return np.squeeze(codes[0], self.axes)


@dataclass(frozen=True)
class ExpandMove(Move):
    """Array with more axes of size 1."""

    axes: tuple[int, ...]

    def apply(self, *codes: Integers) -> Integers:
        return np.expand_dims(codes[0], self.axes)


@dataclass(frozen=True)
class ConcatMove(Move):
    """Arrays along an axis; those of one sample go with every sample of the others."""

    axis: int

    def apply(self, *codes: Integers) -> Integers:
        if self.axis % codes[0].ndim and len({len(part) for part in codes}) > 1:
            samples = max(map(len, codes))
            codes = tuple(np.broadcast_to(part, (samples, *part.shape[1:])) for part in codes)
        return np.concatenate(codes, axis=self.axis)


@dataclass(frozen=True)
class PadMove(Move):
    """Padding with a constant code.

    Parameters
    ----------
    widths : tuple of pairs
        Elements before and after, by axis.
    value : int
        Code of the padding.
    """

    widths: tuple[tuple[int, int], ...]
    value: int

    def apply(self, *codes: Integers) -> Integers:
        return np.pad(codes[0], self.widths, constant_values=self.value)


@dataclass(frozen=True)
class TakeMove(Move):
    """The elements with some indices along an axis, which may come several times."""

    axis: int
    indices: tuple[int, ...]

    def apply(self, *codes: Integers) -> Integers:
        return np.take(codes[0], self.indices, self.axis)


@dataclass(frozen=True)
class NoMove(Move):
    """The array as it is."""

    def apply(self, *codes: Integers) -> Integers:
        return codes[0]
