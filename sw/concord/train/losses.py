"""Losses: their gradients in integers, with no function of the machine; their values for people to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.softmax import probabilities
from concord.spec.softmax import PROBABILITY_POINT
from concord.spec.training import TrainingFormats
from concord.train.tensor import Dyadic, Tensor, added, multiplied, quantised

#: The label of a position that does not count.
IGNORED = -1
#: Name of the only output of a network where losses have no names.
ONLY = ""


@dataclass(frozen=True)
class Loss:
    """A loss of a batch.

    Parameters
    ----------
    value : float
        The sum of the samples' losses, for people.
    right : int or None
        Labels whose class has the largest output; ``None`` without classes.
    gradient : Tensor
        Of the sum of the samples' losses, by the output of the network.
    output : str
        Whose loss it is.
    """

    value: float
    right: int | None
    gradient: Tensor
    output: str = ONLY


@dataclass(frozen=True)
class OutputLoss:
    """Loss by which an output is judged.

    Parameters
    ----------
    loss : str
        ``cross_entropy`` or ``mse``.
    weight : Fraction
        Of its loss in the sum of all, above 0; the nearest number of 16 bits.

    Raises
    ------
    ValueError
        If the loss is not known, or the weight is not above 0.
    """

    loss: str = "cross_entropy"
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        check_loss(self.loss)
        if not self.weight > 0:
            raise ValueError(f"weight must be above 0, not {float(self.weight)!r}")

    @property
    def factor(self) -> Dyadic:
        """The weight that counts."""
        return Dyadic.nearest(self.weight)


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
    hit = np.maximum(gradient[rows, classes], 0.5)  # less than one half of the last bit counts as that
    value = float(np.sum(PROBABILITY_POINT * np.log(2) - np.log(hit)))
    right = int(np.count_nonzero(flat.mant.argmax(axis=1)[rows] == classes))
    gradient[rows, classes] -= 1 << PROBABILITY_POINT
    if len(rows) < len(gradient):
        gradient[labels.reshape(-1) == IGNORED] = 0
    whole = Tensor.of(gradient.reshape(shape), -PROBABILITY_POINT, 1 << PROBABILITY_POINT)
    return Loss(value, right, whole)


def squared_error(output: Tensor, targets: npt.NDArray[Any], formats: TrainingFormats) -> Loss:
    """The mean of the squared differences of a sample; targets are rounded to the bits of gradients, batch by batch."""
    block, elements = quantised(targets.reshape(-1), formats.gradient), output.mant[0].size
    negated = -block.mant.reshape(output.mant.shape).astype(np.float64)
    target = Tensor(negated, int(block.exp), formats.gradient.q_max)
    difference = added([output, target], formats.intermediate)
    gradient = multiplied(difference, Dyadic.nearest(Fraction(2, elements)), formats.intermediate)
    squares = difference.values.ravel() ** 2  # in whatever order the elements lie in memory
    return Loss(float(np.sum(squares) / elements), None, gradient)


def judged_count(loss: str, labels: npt.NDArray[Any]) -> int:
    """Divisor of the value of a loss: labels that count, or samples of a squared error."""
    return int(np.count_nonzero(labels != IGNORED)) if loss == "cross_entropy" else len(labels)


#: Losses by their names.
LOSSES: dict[str, Callable[[Tensor, npt.NDArray[Any], TrainingFormats], Loss]] = {
    "cross_entropy": cross_entropy,
    "mse": squared_error,
}


def check_loss(name: str) -> None:
    """Raise ``ValueError`` unless there is a loss of this name."""
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, not {name!r}")


def losses_of(
    outputs: Mapping[str, Tensor],
    labels: Mapping[str, npt.NDArray[Any]],
    losses: Mapping[str, OutputLoss],
    formats: TrainingFormats,
) -> list[Loss]:
    """The loss of every output, each with the gradient of the weighted sum of all.

    Parameters
    ----------
    outputs : dict
        ``[samples, *shape]`` by their names.
    labels, losses : dict
        What each should be, and what it is judged by.
    formats : TrainingFormats
        Of gradients.
    """
    judged = []
    for name, by in losses.items():
        loss = LOSSES[by.loss](outputs[name], labels[name], formats)
        weighted = loss.gradient if by.weight == 1 else multiplied(loss.gradient, by.factor, formats.intermediate)
        judged.append(replace(loss, gradient=weighted, output=name))
    return judged
