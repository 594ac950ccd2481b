"""Losses: their gradients in integers, with no function of the machine; their values for people to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.rounding import Ints, round_shift
from concord.spec.training import TrainingFormats
from concord.train.tensor import Dyadic, Tensor, added, carrier, multiplied, quantised

#: Bits behind the binary point: of differences of logits, of powers, and of probabilities.
LOGIT_POINT, POWER_POINT, PROBABILITY_POINT = 16, 30, 30
#: The label of a position that does not count.
IGNORED = -1
#: Differences of logits beyond this count as this: exp(-64) is nothing in 30 bits.
LOGIT_LIMIT = 64


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


@lru_cache(maxsize=1)
def powers() -> tuple[int, Ints, Ints]:
    """``log2(e)``, ``2**(-j/256)`` and ``2**(-j/65536)`` for j < 256, times ``2**30``, rounded half up."""
    with localcontext(Context(prec=50)):
        ln2 = Decimal(2).ln()

        def rounded(number: Decimal) -> int:
            return int((number * (1 << POWER_POINT)).to_integral_value(ROUND_HALF_UP))

        coarse = [rounded((-ln2 * j / 256).exp()) for j in range(256)]
        fine = [rounded((-ln2 * j / 65536).exp()) for j in range(256)]
        return rounded(1 / ln2), np.array(coarse, dtype=np.int64), np.array(fine, dtype=np.int64)


def exponentials(below: Ints, exp: int) -> Ints:
    """``exp(-below * 2**exp) * 2**30`` of numbers that are not negative.

    1. d = below * 2**exp with 16 bits behind the point, rounded half away, at most 64.
    2. t = (d * log2(e) + half) >> 30, with 16 bits behind the point: k = t >> 16, f = t & 65535.
    3. ``coarse[f >> 8] * fine[f & 255]``, with 30 bits behind the point, rounded half up; shifted right by k, rounded
    half up.
    """
    scale, coarse, fine = powers()
    exp = min(exp, LOGIT_LIMIT.bit_length() - 1)  # from there on the least difference is beyond the limit
    whole = LOGIT_LIMIT << -exp if -40 <= exp <= 0 else max(LOGIT_LIMIT >> max(exp, 0), 1) if exp > 0 else 1 << 46
    d = round_shift(np.minimum(below, whole), -(LOGIT_POINT + exp))
    d = np.minimum(d, LOGIT_LIMIT << LOGIT_POINT)
    t = d * scale + (1 << POWER_POINT - 1) >> POWER_POINT
    f = t & (1 << LOGIT_POINT) - 1
    power = coarse[f >> 8] * fine[f & 255] + (1 << POWER_POINT - 1) >> POWER_POINT
    return round_shift(power, t >> LOGIT_POINT)


def softmax(logits: Tensor) -> Ints:
    """Probabilities along the last axis, 30 bits behind the point: ``(2 E 2**30 + S) // (2 S)``, S the sum of all E."""
    mant = logits.mant.astype(np.int64)
    power = exponentials(mant.max(axis=-1, keepdims=True) - mant, logits.exp)
    whole = power.sum(axis=-1, keepdims=True)
    return np.asarray(((power << PROBABILITY_POINT + 1) + whole) // (2 * whole))


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
    gradient, classes = softmax(flat), labels.reshape(-1)
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
