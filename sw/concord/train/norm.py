"""The state of batch normalisation: scale, shift and running statistics, in integers and exponents.

Everything per channel is computed with integers of any length (:mod:`concord.golden.normalise`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.normalise import nearest, reciprocal_root, rounded_quotient
from concord.train.parameters import Parameter
from concord.train.tensor import Dyadic, Tensor

#: Bits of reciprocal roots and of the factors made of them, and of running statistics.
ROOT_BITS, RUNNING_BITS = 16, 31

#: A number: mantissa and exponent.
Number = tuple[int, int]


def on_one_grid(numbers: Sequence[Number], most: int) -> Tensor:
    """Numbers on the finest grid any of them has, on which the greatest still has at most ``most`` bits.

    What is finer is rounded to the nearest, away from zero.
    """
    there = [number for number in numbers if number[0]]
    if not there:
        return Tensor(np.zeros(len(numbers), np.float32), 0, 0)
    top = max(abs(mant).bit_length() + exp for mant, exp in there)
    grid = max(min(exp for _, exp in there), top - most)
    mants = [mant << exp - grid if exp >= grid else rounded_quotient(mant, 1 << grid - exp) for mant, exp in numbers]
    return Tensor.of(np.array(mants), grid)


@dataclass
class Running:
    """Numbers of the channels that follow the batches: integers and exponents, never a float.

    Parameters
    ----------
    mant : array of int32
        Below ``2**31`` in magnitude.
    exp : array of int16
        One per channel.
    """

    mant: npt.NDArray[np.int32]
    exp: npt.NDArray[np.int16]

    @classmethod
    def begin(cls, numbers: npt.ArrayLike) -> Running:
        """Statistics from floats, each rounded to 31 bits."""
        exact = [Dyadic.nearest(float(x), RUNNING_BITS) for x in np.asarray(numbers, dtype=np.float64)]
        return cls.of([(number.mant, number.exp) for number in exact])

    @classmethod
    def of(cls, numbers: Sequence[Number]) -> Running:
        """Statistics from numbers of at most 31 bits."""
        mants, exps = zip(*numbers, strict=True)
        return cls(np.array(mants, np.int32), np.array(exps, np.int16))

    def become(self, numbers: Sequence[Number]) -> None:
        """Take other numbers."""
        fresh = Running.of(numbers)
        self.mant, self.exp = fresh.mant, fresh.exp

    @property
    def numbers(self) -> list[Number]:
        """Mantissa and exponent of every channel."""
        return list(zip(self.mant.tolist(), self.exp.tolist(), strict=True))

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """Values of the numbers, exact in float64."""
        return np.ldexp(self.mant.astype(np.float64), self.exp)

    def follow(self, new: Sequence[tuple[int, int, int]], factor: Dyadic) -> None:
        """``run + factor (new - run)``, rounded to 31 bits; ``new`` are quotients: numerator, denominator, exponent."""
        moved = []
        for (mant, exp), (num, den, at) in zip(self.numbers, new, strict=True):
            least = min(exp, at)
            whole = 1 << max(-factor.exp, 0)  # factor = f / whole
            f = factor.mant << max(factor.exp, 0)
            kept = mant * den * (whole - f) << exp - least
            moved.append(nearest(kept + (num * f << at - least), whole * den, least, RUNNING_BITS))
        self.become(moved)


@dataclass
class Norm:
    """State of a normalisation: its parameters and running statistics.

    Parameters
    ----------
    name : str
        Of its node.
    scale, shift : Parameter
        ``[C]``: gamma and beta.
    mean, variance : Running
        Of the batches so far; a variance is that of the population, estimated from the batch.
    epsilon : Dyadic
        Is added to the variance; above 0.
    momentum : Dyadic
        Share of a new batch in the running statistics.
    """

    name: str
    scale: Parameter
    shift: Parameter
    mean: Running
    variance: Running
    epsilon: Dyadic
    momentum: Dyadic

    def begin_behind(self, bias: Parameter) -> None:
        """Take over the bias of a product: the running mean becomes that without it."""
        exps = np.repeat(bias.exp, bias.weight.shape[1]) - bias.accumulator.shift
        totals, exps = (bias.blocks.join(x).tolist() for x in (bias.total, exps.reshape(bias.weight.shape)))
        moved = []
        for (mant, exp), other, at in zip(self.mean.numbers, totals, exps, strict=True):
            least = min(exp, at)
            moved.append(nearest((mant << exp - least) - (other << at - least), 1, least, RUNNING_BITS))
        self.mean.become(moved)

    @property
    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Statistics that the batches have left, beside the parameters; for checkpoints."""
        mean, variance = self.mean, self.variance
        return {"mean": mean.mant, "mean_exp": mean.exp, "variance": variance.mant, "variance_exp": variance.exp}

    @state.setter
    def state(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.mean = Running(arrays["mean"], arrays["mean_exp"])
        self.variance = Running(arrays["variance"], arrays["variance_exp"])

    def root(self, num: int, den: int, exp: int) -> Number:
        """``1 / sqrt(num / den * 2**exp + epsilon)``, the nearest number of 16 bits."""
        least = min(exp, self.epsilon.exp)
        whole = (num << exp - least) + (self.epsilon.mant * den << self.epsilon.exp - least)
        return reciprocal_root(whole, den, least, ROOT_BITS)

    def factors(self, roots: Sequence[Number]) -> list[Number]:
        """``gamma`` times the root of every channel, the nearest number of 16 bits."""
        scale = self.scale.tensor
        return [
            nearest(int(gamma) * mant, 1, scale.exp + exp, ROOT_BITS)
            for gamma, (mant, exp) in zip(scale.mant.tolist(), roots, strict=True)
        ]

    def follow(self, batch: Statistics) -> None:
        """Let the running statistics follow a batch."""
        self.mean.follow([(s, batch.count, batch.exp) for s in batch.sums], self.momentum)
        self.variance.follow(
            [(v, max(batch.count - 1, 1), 2 * e) for v, e in zip(batch.squares, batch.exps, strict=True)],
            self.momentum,
        )


@dataclass(frozen=True)
class Statistics:
    """Sums of a batch, by channel.

    Parameters
    ----------
    count : int
        Elements of a channel.
    sums, exp : list of int, int
        Of the elements, times ``2**exp``.
    squares, exps : list of int
        Of the squares of what is centred, times ``4**exps``.
    """

    count: int
    sums: list[int]
    exp: int
    squares: list[int]
    exps: list[int]
