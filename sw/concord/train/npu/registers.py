"""Tensor and factor registers of training."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class TrainingFactor(IntEnum):
    """Factor registers; those from ``AVERAGE`` on are for the averages of the network."""

    CHANGE = 0  #: from the gradient, or from the momentum, to the update
    MEAN = 1  #: from the sum over the samples to their mean, with momentum
    MOMENTUM = 2
    DECAY = 3  #: from the weights to their part of the update
    NEGATION = 4  #: -1
    AVERAGE = 5


class ParameterRegisters(NamedTuple):
    """Tensor registers of a parameter, and with momentum of that and of the mean gradient."""

    value: int
    velocity: int
    mean: int
