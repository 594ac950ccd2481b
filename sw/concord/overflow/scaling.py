"""Ranges grow until the count of overflows is within the threshold, and shrink while width is unused [overflow]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from concord.overflow.kinds import IntegerSettings
from concord.sums.histogram import Histograms, SumStage


@dataclass(frozen=True)
class Excess:
    """Values that leave the storages.

    Parameters
    ----------
    count : int
        Values that leave their storage.
    total : int
        All values.
    bits : int
        Most bits that one lacks; below zero, bits that no value uses.
    """

    count: int
    total: int
    bits: int

    @classmethod
    def of(cls, sums: Histograms, settings: IntegerSettings) -> Excess:
        """Excess of products and sums beyond the intermediate width, and of outputs beyond theirs."""
        widths = {name: settings.output_width if name is SumStage.OUTPUT else settings.width for name in sums}
        count = sum(stage.beyond(widths[name]) for name, stage in sums.items())
        bits = max((stage.bits - widths[name] for name, stage in sums.items() if stage.total), default=0)
        return cls(count, sum(stage.total for stage in sums.values()), bits)


def growth(excess: Excess, settings: IntegerSettings) -> float:
    """Factor by which the product of both steps grows: the more, the more values overflow and the further they do.

    1 if nothing overflows. ``ValueError`` is never raised: settings are checked where they are made.
    """
    if not excess.count:
        return 1.0
    share = excess.count / excess.total
    bits = settings.per_bit * (excess.bits - 1) + settings.least + (settings.most - settings.least) * share
    return float(2.0**bits)


def shrinkage(excess: Excess) -> float:
    """Factor by which the product of both steps shrinks, in (0, 1), if bits are unused; 1 if none are."""
    return 1.0 if excess.bits >= 0 else float(2.0 ** (excess.bits + 0.5))


@dataclass(frozen=True)
class Factors:
    """Factors by which the ranges of weights and of inputs are mapped."""

    weight: float = 1.0
    input: float = 1.0

    def times(self, both: float, share: float, floor: Factors | None = None) -> Factors:
        """Factors whose product is changed; not below a floor, where what one cannot take goes to the other."""
        weight, data = self.weight * both**share, self.input * both ** (1.0 - share)
        if floor is None:
            return Factors(weight, data)
        if weight < floor.weight:
            weight, data = floor.weight, data * weight / floor.weight
        if data < floor.input:
            weight, data = max(floor.weight, weight * data / floor.input), floor.input
        return Factors(weight, data)


@dataclass(frozen=True)
class Scaled:
    """Result of the scaling: factors, what they give, and how often it was counted."""

    factors: Factors
    sums: Histograms
    rounds: int
    within: bool


def scale(count: Callable[[Factors], Histograms], settings: IntegerSettings, floor: Factors) -> Scaled:
    """Find factors with which a layer stays within the threshold and uses the width.

    Parameters
    ----------
    count : callable
        Counts the layer with some factors.
    settings : IntegerSettings
        Storages, threshold and growth.
    floor : Factors
        The least factors that may be tried; with smaller ones values would be cut off.
    """
    factors, best = Factors(), None
    for number in range(1, settings.rounds + 1):
        sums = count(factors)
        excess = Excess.of(sums, settings)
        within = excess.count <= settings.threshold
        if not within and best is not None:  # shrunk too far: what was there before stays
            return Scaled(best.factors, best.sums, number, True)
        scaled = Scaled(factors, sums, number, within)
        if within:
            best = scaled
            smaller = factors.times(shrinkage(excess), settings.weight_share, floor)
            if smaller.weight * smaller.input >= factors.weight * factors.input * (1.0 - 1e-9):
                return scaled
            factors = smaller
        else:
            factors = factors.times(growth(excess, settings), settings.weight_share)
    return Scaled(best.factors, best.sums, settings.rounds, True) if best is not None else scaled
