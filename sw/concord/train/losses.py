"""Losses: their gradients in integers, with no function of the machine; their values for people to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.softmax import probabilities
from concord.spec.softmax import PROBABILITY_POINT
from concord.spec.training import TrainingFormats
from concord.train.tensor import Dyadic, Tensor, added, carrier, multiplied, quantised

#: The label of a position that does not count.
IGNORED = -1


@dataclass(frozen=True)
class Loss:
    """A loss of a batch.

    Parameters
    ----------
    gradient : Tensor
        Of the sum of the samples' losses, by the output of the network.
    value : float
        Their sum, for reports only.
    right : int or None
        Labels whose class has the largest output.
    """

    gradient: Tensor
    value: float
    right: int | None


def cross_entropy(output: Tensor, labels: npt.NDArray[Any], formats: TrainingFormats) -> Loss:
    """Softmax and cross-entropy; the gradient is probability minus one-hot, with exponent -30.

    Parameters
    ----------
    output : Tensor
        ``[samples, *shape]``.
    labels : array of int
        A class per sample ``[samples]``: all outputs are classes. Or one per position ``[samples, *positions]``, as
        many as there are outputs before the last axis, which is that of the classes. :data:`IGNORED` is no class: the
        gradient of that position is zero, and it has no part in the value.
    formats : TrainingFormats
        Not used: the gradient has a format of its own.
    """
    shape = output.mant.shape
    flat = output.reshaped(-1, shape[-1]) if labels.ndim > 1 else output.reshaped(shape[0], -1)
    gradient, classes = probabilities(flat.mant.astype(np.int64), flat.exp), labels.reshape(-1)
    rows = np.flatnonzero(classes != IGNORED)
    classes = classes[rows]
    hit = gradient[rows, classes]
    right = int(np.count_nonzero(flat.mant.argmax(axis=1)[rows] == classes))
    value = float(np.sum(PROBABILITY_POINT * np.log(2) - np.log(np.maximum(hit, 0.5))))
    gradient[rows, classes] -= 1 << PROBABILITY_POINT
    if len(rows) < len(gradient):
        gradient[labels.reshape(-1) == IGNORED] = 0
    peak = 1 << PROBABILITY_POINT
    return Loss(Tensor(gradient.astype(carrier(peak)).reshape(shape), -PROBABILITY_POINT, peak), value, right)


def squared_error(output: Tensor, targets: npt.NDArray[Any], formats: TrainingFormats) -> Loss:
    """The mean of the squared differences of a sample; targets are rounded to the bits of gradients, batch by batch."""
    block = quantised(targets.reshape(-1), formats.gradient)
    target = Tensor(-block.mant.reshape(output.mant.shape).astype(np.float64), int(block.exp), formats.gradient.q_max)
    difference = added([output, target], formats.intermediate)
    elements = output.mant[0].size
    gradient = multiplied(difference, Dyadic.nearest(Fraction(2, elements)), formats.intermediate)
    return Loss(gradient, float(np.sum(difference.values**2) / elements), None)


def judged_count(loss: str, labels: npt.NDArray[Any]) -> int:
    """What the value of a loss is divided by: labels that count, or samples of a squared error."""
    return int(np.count_nonzero(labels != IGNORED)) if loss == "cross_entropy" else len(labels)


#: Losses by their names.
LOSSES: dict[str, Callable[[Tensor, npt.NDArray[Any], TrainingFormats], Loss]] = {
    "cross_entropy": cross_entropy,
    "mse": squared_error,
}
