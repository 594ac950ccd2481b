"""Formats of training in block floating point with lazy update [lazy-update].

A tensor is integers ("mantissas") times a power of two: ``value = mantissa * 2**exponent``. What the numbers mean and
how they are rounded is defined by :mod:`concord.golden.training` and :mod:`concord.golden.lazy_update`; this module
holds the parameters. Mantissas of ``bits`` bits are two's complement in the symmetric range ``-(2**(bits-1) - 1) ..
2**(bits-1) - 1``, as the NPU's are, so that a trained weight is a weight of the NPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from concord.spec.formats import BLOCK_ROUNDINGS, Rounding
from concord.spec.widths import largest

#: Exponents have 8 bits, whatever the width of the mantissas.
TRAIN_EXP_BITS = 8
TRAIN_EXP_MIN = -(1 << TRAIN_EXP_BITS - 1)
TRAIN_EXP_MAX = largest(TRAIN_EXP_BITS)
#: Widths of mantissas in training.
TRAIN_BITS_MIN, TRAIN_BITS_MAX = 2, 32
#: Blocks of a tensor have exponents at most this far below its greatest one, so that products of two tensors stay
#: exact.
BLOCK_SPREAD = 12


@dataclass(frozen=True)
class TrainingFormat:
    """One kind of tensor in training.

    Parameters
    ----------
    bits : int
        Width of the mantissas, sign included, 2 to 32.
    block : int
        Neighbours along the last axis (channels, features) that share an exponent, such as the native dimension of the
        NPU; 0: the whole tensor, as in the source.
    rounding : Rounding
        How bits are dropped. Nearest is away from zero in the source.
    """

    bits: int
    block: int = 0
    rounding: Rounding = Rounding.NEAREST_AWAY

    def __post_init__(self) -> None:
        if not TRAIN_BITS_MIN <= self.bits <= TRAIN_BITS_MAX:
            raise ValueError(f"bits must be in {TRAIN_BITS_MIN}..{TRAIN_BITS_MAX}, not {self.bits!r}")
        if self.block < 0:
            raise ValueError(f"block must be 0 (the whole tensor) or more, not {self.block!r}")
        if self.rounding not in BLOCK_ROUNDINGS:
            raise ValueError(
                f"rounding must be one of {[r.name.lower() for r in BLOCK_ROUNDINGS]}, not {self.rounding!r}"
            )

    @property
    def q_max(self) -> int:
        """Greatest mantissa; the least is its negative."""
        return largest(self.bits)


@dataclass(frozen=True)
class AccumulatorFormat:
    """The lazy accumulator: what updates have not brought to the weights yet.

    Parameters
    ----------
    bits : int
        Width of the mantissas, sign included, 2 to 32.
    point : int or None
        How many bits its binary point lies below that of the weights, at most ``bits - 1``. ``None``: ``bits - 1``,
        as in the source. 0: there is no accumulator, updates are rounded to the weights.
    rounding : Rounding
        How an update is rounded to the last bit of the accumulator.
    growth : bool
        Whether the exponents of a block grow with its weights. If not, a weight stays at the end of its range.
    """

    bits: int = 16
    point: int | None = None
    rounding: Rounding = Rounding.NEAREST_AWAY
    growth: bool = True

    def __post_init__(self) -> None:
        TrainingFormat(self.bits, 0, self.rounding)
        if not isinstance(self.growth, bool):
            raise ValueError(f"growth must be true or false, not {self.growth!r}")
        if self.point is not None and not 0 <= self.point < self.bits:
            raise ValueError(f"point must be in 0..{self.bits - 1}, not {self.point!r}")

    @property
    def q_max(self) -> int:
        """Greatest mantissa; the least is its negative."""
        return largest(self.bits)

    @property
    def shift(self) -> int:
        """Bits from the last bit of the accumulator to that of the weights: ``e_acc = e_w - shift``."""
        return self.bits - 1 if self.point is None else self.point


@dataclass(frozen=True)
class TrainingFormats:
    """Formats of everything in training; the defaults are those of the source.

    Parameters
    ----------
    weight, bias : TrainingFormat
        Parameters.
    activation : TrainingFormat
        What a product or a function reads.
    gradient : TrainingFormat
        Gradients of activations, where a layer reads them.
    intermediate : TrainingFormat
        Results of products, gradients of parameters, and updates.
    accumulator : AccumulatorFormat
        Beside every parameter.
    """

    weight: TrainingFormat = field(default_factory=lambda: TrainingFormat(8))
    bias: TrainingFormat = field(default_factory=lambda: TrainingFormat(8))
    activation: TrainingFormat = field(default_factory=lambda: TrainingFormat(8))
    gradient: TrainingFormat = field(default_factory=lambda: TrainingFormat(16))
    intermediate: TrainingFormat = field(default_factory=lambda: TrainingFormat(32))
    accumulator: AccumulatorFormat = field(default_factory=AccumulatorFormat)

    def __post_init__(self) -> None:
        if self.intermediate.block:
            raise ValueError("intermediate must have one exponent per tensor, block = 0")
        for parameter in (self.weight, self.bias):
            if parameter.bits + self.accumulator.shift > TRAIN_BITS_MAX + 14:
                raise ValueError(
                    f"weight and accumulator must have at most {TRAIN_BITS_MAX + 14} bits together, "
                    f"not {parameter.bits} + {self.accumulator.shift}"
                )

    @classmethod
    def names(cls) -> list[str]:
        """Names of the formats."""
        return [f.name for f in fields(cls)]
