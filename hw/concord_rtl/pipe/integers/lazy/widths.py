"""Widths of the lazy update, derived from its formats."""

from __future__ import annotations

from dataclasses import dataclass, field

from amaranth import signed
from amaranth.lib import data

from concord.spec.formats import NOISE_BITS, Rounding
from concord.spec.training import TRAIN_EXP_BITS, AccumulatorFormat, TrainingFormat, TrainingFormats

#: An exponent of a block.
EXPONENT = signed(TRAIN_EXP_BITS)


@dataclass(frozen=True)
class LazyWidths:
    """Formats of weights, accumulators and updates, and what follows from them.

    Every format of training is supported; ``point=0``, updates without an accumulator, and all roundings included.

    Parameters
    ----------
    weight : TrainingFormat
        Weights.
    accumulator : AccumulatorFormat
        Their lazy accumulators; ``rounding`` is that of the updates.
    change : TrainingFormat
        Updates.
    coarser_max : int
        Bits by which the point of the accumulators of a block may lie higher, as an input of the units says; 0: there
        is no such input.

    Raises
    ------
    ValueError
        If training does not have these formats together, blocks do not grow, or one might have to grow by more than 1
        where points may lie higher.
    TypeError
        If one is no format.
    """

    weight: TrainingFormat = field(default_factory=lambda: TrainingFormat(8))
    accumulator: AccumulatorFormat = field(default_factory=AccumulatorFormat)
    change: TrainingFormat = field(default_factory=lambda: TrainingFormat(32))
    coarser_max: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("weight", TrainingFormat), ("accumulator", AccumulatorFormat), ("change", TrainingFormat)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {getattr(self, name)!r}")
        TrainingFormats(weight=self.weight, accumulator=self.accumulator, intermediate=self.change)
        if not self.accumulator.growth:
            raise ValueError("accumulator must have growth = True: the hardware has no other rule for large weights")
        if self.coarser_max and not (0 < self.coarser_max < self.shift and self.growth_max == 1):
            raise ValueError(
                f"coarser_max must be in 0..{self.shift - 1}, and 0 with growth by more than 1, "
                f"not {self.coarser_max!r}"
            )

    @property
    def shift(self) -> int:
        """Bits from the last bit of the accumulator to that of the weights."""
        return self.accumulator.shift

    @property
    def stochastic(self) -> bool:
        """True if updates are rounded with noise."""
        return self.accumulator.rounding == Rounding.STOCHASTIC

    @property
    def fraction(self) -> int:
        """Bits of an update below the last bit of the accumulator that its rounding looks at by themselves."""
        return NOISE_BITS if self.stochastic else 1

    @property
    def places_max(self) -> int:
        """Places to shift an update right, from the place where all its bits are above the accumulator, to be gone."""
        return self.accumulator.bits + self.change.bits + self.fraction

    @property
    def moved_bits(self) -> int:
        """Bits of a carry to a weight in front of it: what it may come to before it is too large."""
        carry = ((self.accumulator.q_max << self.coarser_max) + (1 << self.shift) // 2) >> self.shift
        return (self.weight.q_max + carry).bit_length() + 1

    @property
    def total_bits(self) -> int:
        """Bits of a weight and its accumulator on the lowest common point."""
        return self._total_max.bit_length() + 1

    @property
    def _total_max(self) -> int:
        return (self.weight.q_max << self.shift) + (self.accumulator.q_max << self.coarser_max)

    def fitting(self, places: int) -> int:
        """Greatest magnitude of weight and accumulator together whose weight is in range after growth by ``places``."""
        most = (self.weight.q_max << self.shift) + max((1 << self.shift) // 2 - 1, 0)
        return (most << places) + (1 << places >> 1) - (places > 0)

    @property
    def growth_max(self) -> int:
        """Greatest growth that a block can need: 1 where the point is ``bits - 1`` below that of the weights."""
        return next(k for k in range(self.total_bits + 1) if self.fitting(k) >= self._total_max)

    @property
    def element(self) -> data.StructLayout:
        """A weight and its accumulator as they stand in a memory."""
        return data.StructLayout({"weight": signed(self.weight.bits), "acc": signed(self.accumulator.bits)})

    @property
    def coarser(self) -> dict[str, range]:
        """Member of a beat that says how much higher the point lies, if it may."""
        return {"coarser": range(self.coarser_max + 1)} if self.coarser_max else {}

    @property
    def increment(self) -> data.StructLayout:
        """An update, and its noise where there is any."""
        noise = {"noise": NOISE_BITS} if self.stochastic else {}
        return data.StructLayout({"change": signed(self.change.bits), **noise})
