"""Lazy update [lazy-update]: weights of few bits that lose nothing of small updates, without a float copy.

Beside every weight W stands an accumulator A whose last bit lies ``shift`` bits below that of W (15 in the source): a
weight is worth ``T = W * 2**shift + A`` in units of ``2**e_acc``, with ``e_acc = e_w - shift``. An update C comes as
a block of its own, with the exponent e_ch. Exponents are those of a block of weights.

1. ``A <- saturate(A + round(C >> e_acc - e_ch))``. A shift to the left is exact. What an update has below the last
   bit of A is rounded, so it may vanish; what A cannot hold is refused. What is left is *accepted*.
2. ``carry <- round(A >> shift)``, nearest, halves away from zero.
3. ``W <- W + carry``, ``A <- A - (carry << shift)``.

Steps 2 and 3 leave T as it is: **T changes by exactly what step 1 has accepted.** A is within ``+-2**(shift-1)`` then.

growth
    If a weight of the block is beyond ``2**(bits-1) - 1`` now, both exponents of the block grow by k, the least
    number that helps: ``T <- round(T >> k)`` (nearest, away), ``W <- round(T >> shift)``, ``A <- T - (W << shift)``
    for every weight of the block. That loses at most half of a last bit of the new accumulator, and nothing else.
    Exponents never shrink.
greatest exponent
    Where a block cannot grow as far, weights beyond the end are ``+-(2**(bits-1) - 1)`` with ``A = 0`` at the greatest
    exponent, and that counts as refused.
without growth
    With ``accumulator.growth = False`` every exponent is the greatest one: weights beyond the end stay there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from concord.golden.rounding import nearest_integers, round_shift
from concord.golden.training import shared_exponent
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN, AccumulatorFormat, TrainingFormat
from concord.utils.arrays import Bools, Ints

#: An update saturates any accumulator of up to 32 bits after a shift by that many to the left, unless it is 0.
_LEFT_LIMIT = 32
#: A carry has less than 32 bits, so a block never has to grow by more than that.
_MOST_GROWTH = 31


class Updated(NamedTuple):
    """Outcome of an update.

    Parameters
    ----------
    weight, acc : arrays of int64 ``[..., n]``
        New mantissas.
    exp : array of int64 ``[...]``
        New exponents of the weights; those of the accumulators are ``shift`` less.
    accepted : array of int64 ``[..., n]``
        By how much every T has changed before growth, in units of the old accumulator.
    refused : array of bool ``[..., n]``
        Where the accumulator, or a weight at the greatest exponent, has saturated.
    vanished : array of bool ``[..., n]``
        Where an update that is not 0 was rounded to 0.
    grown : array of int64 ``[...]``
        By how much every exponent has grown.
    """

    weight: Ints
    acc: Ints
    exp: Ints
    accepted: Ints
    refused: Bools
    vanished: Bools
    grown: Ints


def start(
    values: ArrayLike,
    fmt: TrainingFormat,
    accumulator: AccumulatorFormat,
    zero_exp: int = 0,
    least_exp: int = TRAIN_EXP_MIN,
) -> tuple[Ints, Ints, Ints]:
    """Weights, accumulators and exponents of the weights for blocks of floats ``values[..., n]``.

    The accumulator takes what rounding to the weight leaves, so a pretrained weight begins with all bits of both. A
    block that would saturate, and whose numbers are all multiples of the next step, has that one: what a format holds
    begins as it is.

    Parameters
    ----------
    values : array of float
        Pretrained or random numbers.
    fmt, accumulator
        Formats.
    zero_exp : int
        Exponent of a block of zeros.
    least_exp : int
        No block has an exponent below this.

    Raises
    ------
    ValueError
        If a number is not finite.
    """
    exact = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(exact)):
        raise ValueError("weights must be finite, not infinite or NaN")
    exp = np.where(np.any(exact, axis=-1), shared_exponent(exact, fmt.bits), zero_exp)
    over = np.ldexp(np.abs(exact).max(axis=-1, initial=0.0), -exp) > fmt.q_max
    coarser = np.ldexp(exact, -1 - exp[..., None])
    exp = exp + (over & np.all(coarser == np.rint(coarser), axis=-1))
    exp = np.clip(exp, max(TRAIN_EXP_MIN + accumulator.shift, least_exp), TRAIN_EXP_MAX)
    total = nearest_integers(np.ldexp(exact, accumulator.shift - exp[..., None]))
    weight = np.clip(round_shift(total, accumulator.shift), -fmt.q_max, fmt.q_max)
    return weight, _remainder(total, weight, accumulator), np.asarray(exp)


def _remainder(total: Ints, weight: Ints, accumulator: AccumulatorFormat) -> Ints:
    if not accumulator.shift:
        return np.zeros_like(total)
    return np.asarray(np.clip(total - (weight << accumulator.shift), -accumulator.q_max, accumulator.q_max))


def lazy_update(
    weight: ArrayLike,
    acc: ArrayLike,
    exp: ArrayLike,
    change: ArrayLike,
    change_exp: ArrayLike,
    fmt: TrainingFormat,
    accumulator: AccumulatorFormat,
    noise: ArrayLike | None = None,
) -> Updated:
    """Update blocks of weights.

    Parameters
    ----------
    weight, acc, change : arrays of int ``[..., n]``
        Mantissas: at most ``fmt.bits``, ``accumulator.bits`` and 32 bits.
    exp, change_exp : arrays of int ``[...]``
        Exponents of the weights and of the update; the latter may be one for all.
    fmt, accumulator
        Formats of the weights and of the accumulators.
    noise : array of int or None
        16 random bits per element, if updates are rounded stochastically.
    """
    w, a, c = (np.asarray(x, dtype=np.int64) for x in (weight, acc, change))
    e_w = np.asarray(exp, dtype=np.int64)
    shift = accumulator.shift
    right = np.broadcast_to(e_w - shift - np.asarray(change_exp, dtype=np.int64), e_w.shape)
    moved = round_shift(c, np.maximum(right, -_LEFT_LIMIT)[..., None], accumulator.rounding, noise)
    held = np.clip(a + moved, -accumulator.q_max, accumulator.q_max)
    refused = held != a + moved
    carry = round_shift(held, shift)
    w_new, a_new = w + carry, held - (carry << shift)
    beyond = np.any(np.abs(w_new) > fmt.q_max, axis=-1)
    vanished = (c != 0) & (moved == 0)
    if not np.any(beyond):
        return Updated(w_new, a_new, e_w, held - a, refused, vanished, np.zeros_like(e_w))
    before, total = (w << shift) + a, (w_new << shift) + a_new
    room = np.minimum(TRAIN_EXP_MAX - e_w, _MOST_GROWTH if accumulator.growth else 0)[..., None]
    ends = beyond[..., None] & (np.abs(round_shift(round_shift(total, room), shift)) > fmt.q_max)
    total = np.where(ends, np.sign(total) * (fmt.q_max << shift + room), total)
    w_new, a_new, grown = _grow(total, w_new, a_new, beyond, fmt, accumulator)
    return Updated(w_new, a_new, e_w + grown, total - before, refused | ends, vanished, grown)


def _grow(
    total: Ints, weight: Ints, acc: Ints, beyond: Bools, fmt: TrainingFormat, accumulator: AccumulatorFormat
) -> tuple[Ints, Ints, Ints]:
    """Shift blocks until all their weights fit; mantissas, and by how much exponents grow."""
    grown = np.zeros(beyond.shape, dtype=np.int64)
    if np.any(beyond):  # at the greatest exponent a block may have to stay where it is
        weight = np.where(beyond[..., None], round_shift(total, accumulator.shift), weight)
        acc = np.where(beyond[..., None], total - (weight << accumulator.shift), acc)
        beyond = beyond & np.any(np.abs(weight) > fmt.q_max, axis=-1)
    k = 0
    while np.any(beyond):
        k += 1
        grown = np.where(beyond, k, grown)
        halved = round_shift(total, k)
        carried = round_shift(halved, accumulator.shift)
        left = halved - (carried << accumulator.shift)
        weight, acc = np.where(beyond[..., None], carried, weight), np.where(beyond[..., None], left, acc)
        beyond = beyond & np.any(np.abs(weight) > fmt.q_max, axis=-1)
    return weight, acc, grown
