"""Bounds of sums of products, for all elements within a range."""

from __future__ import annotations

import numpy as np

from concord.spec.widths import largest, needed_width
from concord.sums.histogram import SumStage
from concord.utils.arrays import Integers


def sides_of(weights: Integers, apart: bool) -> tuple[Integers, ...]:
    """Magnitudes of weights; ``apart``: those of the positive and those of the negative ones, with 0 for the others."""
    return (np.maximum(weights, 0), np.maximum(-weights, 0)) if apart else (np.abs(weights),)


def norms(weights: Integers, axis: int | tuple[int, ...], apart: bool = False) -> Integers:
    """Sums of magnitudes along axes, which no sum of products with elements of magnitude 1 exceeds.

    ``apart``: for elements that are not negative, the greater one of the sums of the positive and the negative weights.
    """
    return np.asarray(np.maximum.reduce([side.sum(axis=axis) for side in sides_of(weights, apart)]))


def sum_bound(weights: Integers, axis: int | tuple[int, ...], reach: int) -> int:
    """The greatest magnitude of a sum of products along axes, whatever the factors up to ``reach`` are."""
    return int(norms(weights, axis).max(initial=0)) * reach


def radius(bits: int, reach: int) -> int:
    """The greatest norm of integer weights with which a register of some bits holds all sums, inverse of a bound."""
    return largest(bits) // max(reach, 1)


class Extremes:
    """Least and greatest integer of every stage.

    Members
    -------
    low, high : dict
        By stage; a stage that never was has neither.
    """

    def __init__(self) -> None:
        self.low: dict[SumStage, int] = {}
        self.high: dict[SumStage, int] = {}

    def include(self, stage: SumStage, *values: float) -> None:
        """Take in whole numbers."""
        whole = [int(value) for value in values]
        self.low[stage] = min([self.low.get(stage, whole[0]), *whole])
        self.high[stage] = max([self.high.get(stage, whole[0]), *whole])

    def bits(self, stage: SumStage) -> int:
        """Width that holds everything; 0 if there is nothing."""
        return needed_width(self.low[stage], self.high[stage]) if stage in self.low else 0


def bound(w: Integers, bias: Integers | None, x_ends: tuple[int, int]) -> Extremes:
    """Ends of what elements between two integers can make, zero among them.

    Parameters
    ----------
    w : integers ``[rows, K]``
    bias : integers ``[rows]`` or None
    x_ends : pair of int
        Least, at most 0, and greatest element.

    Returns
    -------
    Extremes
        Of products, sums and outputs.
    """
    low, high = x_ends
    extremes = Extremes()
    extremes.include(SumStage.PRODUCT, 0, *(int(weight) * end for weight in np.unique(w) for end in x_ends))
    offsets = [0] * len(w) if bias is None else bias.tolist()
    for row, offset in zip(w.tolist(), offsets, strict=True):
        ends = [sum(pick(weight * low, weight * high) for weight in row) for pick in (min, max)]
        finals = [end + int(offset) for end in ends]
        extremes.include(SumStage.SUM, *ends, *finals)
        extremes.include(SumStage.OUTPUT, *finals)
    return extremes
