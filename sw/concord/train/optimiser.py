"""Optimiser, which makes updates of gradients: SGD, with momentum and decay, in integers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concord.spec.training import TRAIN_EXP_MIN, TrainingFormats
from concord.train.noise import NoiseStream
from concord.train.parameters import Parameter, UpdateCounts
from concord.train.tensor import Dyadic, Tensor, added, multiplied

#: Ends of names of parameters that decay: the weights of products, also those of hidden states, by direction.
_WEIGHT = re.compile(r"\.(weight|recurrent)\d*$")


class UpdateFactors(NamedTuple):
    """Factors of a step: from the gradient, or from the momentum, to the update; 1 / n; and of weights that decay."""

    change: Dyadic
    mean: Dyadic
    decay: Dyadic


@dataclass(frozen=True)
class Optimiser:
    """SGD.

    The gradient G of a parameter is that of the sum over n samples. Factors are numbers of 16 bits, each product and
    sum is an intermediate.

    without momentum
        ``C = -(rate / n) G``
    with momentum
        ``V <- momentum V + (1 / n) G``, ``C = -rate V``
    decay
        ``- (rate * decay) W`` comes on top for weights of products, those of recurrent layers included, not for biases.

    Parameters
    ----------
    momentum : Dyadic
        0: none.
    decay : Fraction
        0: none.
    """

    momentum: Dyadic
    decay: Fraction

    def factors(self, samples: int, rate: Fraction) -> UpdateFactors:
        """Factors of a step over so many samples."""
        change = -rate if self.momentum.mant else -rate / samples
        numbers = change, Fraction(1, samples), -rate * self.decay
        return UpdateFactors(*map(Dyadic.nearest, numbers))

    def step(
        self,
        parameter: Parameter,
        gradient: Tensor,
        samples: int,
        rate: Fraction,
        formats: TrainingFormats,
        noise: NoiseStream | None,
    ) -> UpdateCounts:
        """Update a parameter."""
        fmt, factors = formats.intermediate, self.factors(samples, rate)
        if self.momentum.mant:
            mean = multiplied(gradient, factors.mean, fmt)
            parts = [mean]
            if parameter.velocity is not None:
                old = Tensor.of(parameter.velocity, parameter.velocity_exp)
                parts.insert(0, multiplied(old, self.momentum, fmt))
            velocity = added(parts, fmt)
            parameter.velocity = velocity.mant.astype(np.int32).reshape(parameter.blocks.shape)
            parameter.velocity_exp = velocity.exp
            change = multiplied(velocity, factors.change, fmt)
            vanished = _vanished(gradient, mean) | _vanished(velocity, change)
        else:
            change = multiplied(gradient, factors.change, fmt)
            vanished = _vanished(gradient, change)
        if self.decay and _WEIGHT.search(parameter.name):
            decay = multiplied(parameter.tensor, factors.decay, fmt)
            vanished = vanished | _vanished(parameter.tensor, decay)
            change = added([change, decay], fmt)
        counts = parameter.update(change, noise)
        counts.vanished += int(np.count_nonzero(vanished & (change.mant == 0)))
        return counts


def _vanished(tensor: Tensor, product: Tensor) -> npt.NDArray[np.bool_]:
    """True where a product is 0 because there is no exponent below the least one."""
    if product.exp > TRAIN_EXP_MIN:
        return np.zeros(tensor.mant.shape, dtype=np.bool_)
    return np.asarray((tensor.mant != 0) & (product.mant == 0))
