"""Operations on codes that are computed with 16-bit factors, and are no products of their own in the model."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from concord.compiler.codes.factors import FactorRequantisation
from concord.integer.float32 import Integers
from concord.integer.weighted_sums import RequantisedSums, windows_of


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowSums(RequantisedSums):
    """Sums of codes over windows of ``[samples, channels, *sizes]``, requantised: means.

    Parameters
    ----------
    kernel, strides, pads
        As of :class:`concord.integer.weighted_sums.IntegerConvolution`; padding has the number 0.
    last : bool
        Whether channels are the last axis.
    shape : tuple of int
        That of the result, after the samples.
    zero_point : int
        Of the codes read.
    reach : int
        Largest magnitude of a code read, less its zero point.
    requantisation : FactorRequantisation
        From sums to codes, in the layout ``[channels, *places]``.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    last: bool
    shape: tuple[int, ...]
    zero_point: int
    reach: int
    requantisation: FactorRequantisation

    @property
    def largest_sum(self) -> int:
        return prod(self.kernel) * self.reach

    @property
    def dilations(self) -> tuple[int, ...]:
        """Steps between the elements of a window."""
        return (1,) * len(self.kernel)

    def run(self, *codes: Integers) -> Integers:
        offsets = codes[0] - self.zero_point
        windows = windows_of(offsets, self.kernel, self.strides, self.dilations, self.pads, 0, last=self.last)
        made = self.requantisation.apply(windows.sum(axis=tuple(range(-len(self.kernel), 0))), 1)
        made = np.moveaxis(made, 1, -1) if self.last else made
        return made.reshape(len(made), *self.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedPair(RequantisedSums):
    """The sum of two tensors of one shape times whole numbers, requantised.

    Parameters
    ----------
    weights, zeros, reaches : pairs of int
        By operand; reaches are the largest magnitudes of codes less their zero points.
    last : bool
        Whether channels are the last axis; else they are the first one after the samples.
    requantisation : FactorRequantisation
        From sums to codes.
    """

    weights: tuple[int, int]
    zeros: tuple[int, int]
    reaches: tuple[int, int]
    last: bool
    requantisation: FactorRequantisation

    @property
    def largest_sum(self) -> int:
        return sum(abs(weight) * reach for weight, reach in zip(self.weights, self.reaches, strict=True))

    def run(self, *codes: Integers) -> Integers:
        parts = zip(codes, self.zeros, self.weights, strict=True)
        a, b = ((part - zero) * weight for part, zero, weight in parts)
        return self.requantisation.apply(a + b, -1)
