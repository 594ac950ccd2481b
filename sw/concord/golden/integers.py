"""Integers with one exponent per tensor: by how much they move, and what their greatest magnitude is then.

The rules of training [lazy-update] that are about tensors as a whole, on Python integers. The trainer, the machines
that execute integer chains and their hardware all follow these. Arrays of integers are moved by
:func:`concord.golden.rounding.round_shift`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from concord.golden.rounding import round_shift
from concord.spec.formats import Rounding
from concord.spec.integers import DIGIT_BITS, DIGIT_HALF, GRID_BITS, SUM_BITS, digit_span
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN
from concord.spec.widths import largest
from concord.utils.arrays import Ints


class IntegerRangeError(OverflowError):
    """Integers, or the exponent of a tensor, beyond what integer chains have: trap ``INTEGER_RANGE``."""


class Fitted(NamedTuple):
    """A tensor whose integers are rounded to some bits.

    Parameters
    ----------
    exp : int
        Its exponent, within those of training.
    top : int
        Its greatest magnitude.
    right : int
        Bits that its integers drop. Negative: they move to the left, as the greatest exponent is too small for them.
    wanted : int
        The exponent that it would have without a greatest and a least one.
    """

    exp: int
    top: int
    right: int
    wanted: int


class Aligned(NamedTuple):
    """Two tensors on one grid.

    Parameters
    ----------
    exp : int
        Exponent of the grid.
    first, second : int
        Bits by which the integers of either move to the right; negative: to the left.
    """

    exp: int
    first: int
    second: int


def excess(top: int, bits: int) -> int:
    """Bits that integers with this greatest magnitude must lose to have ``bits`` bits, sign included.

    A magnitude of exactly ``2**(bits-1)`` loses none: it saturates [lazy-update].
    """
    return max((top - 1).bit_length() - (bits - 1), 0) if top else 0


def moved(magnitude: int, right: int) -> int:
    """A magnitude times ``2**-right``, to the nearest, halves away from zero."""
    return magnitude << -right if right <= 0 else magnitude + (1 << right - 1) >> right


def fitted(exp: int, top: int, bits: int) -> Fitted:
    """Round a tensor to ``bits`` bits, halves away from zero."""
    limit = largest(bits)
    wanted = exp + excess(top, bits)
    own = min(max(wanted, TRAIN_EXP_MIN), TRAIN_EXP_MAX)
    right = own - exp if top else 0
    return Fitted(own, min(moved(top, right) if right > -WIDEST else limit if top else 0, limit), right, wanted)


#: A move to the left by so many bits saturates every number but 0.
WIDEST = 32


def grid_of(tensors: list[tuple[int, int]]) -> int:
    """The exponent on which tensors are added that have these exponents and greatest magnitudes, none of them 0.

    The least exponent; where an operand would have more than 46 bits there, one that is as much greater.
    """
    least = min(exp for exp, _ in tensors)
    return max([least] + [exp + top.bit_length() - GRID_BITS for exp, top in tensors])


def aligned(exp: int, top: int, other_exp: int, other_top: int) -> Aligned:
    """Two tensors for their sum. Tensors of zeros have no say in the grid; of two of them the first one has."""
    there = [(e, t) for e, t in ((exp, top), (other_exp, other_top)) if t]
    grid = grid_of(there) if there else exp
    return Aligned(grid, grid - exp if top else 0, grid - other_exp if other_top else 0)


def beyond_grid(exp: int, bias_exp: int, bias_top: int) -> bool:
    """True if a bias would have more than 46 bits on the grid of a product."""
    return bool(bias_top) and bias_top.bit_length() + bias_exp - exp > GRID_BITS


def rounded(
    values: ArrayLike,
    right: ArrayLike,
    bits: int,
    rounding: Rounding = Rounding.NEAREST_AWAY,
    noise: ArrayLike | None = None,
) -> Ints:
    """Integers without the bits that they drop, limited to ``bits`` bits.

    ``right`` is one number or an array that is broadcast; negative: they move to the left. Noise is that of
    :func:`round_shift`.
    """
    limit, exact, drop = largest(bits), np.asarray(values, dtype=np.int64), np.asarray(right)
    if np.any(drop < 0):
        exact = np.where(drop < 0, np.clip(exact, -limit, limit), exact)
    moved = round_shift(exact, np.maximum(drop, 1 - WIDEST), rounding, noise)
    return np.asarray(np.clip(moved, -limit, limit))


def within(values: ArrayLike, bits: int = SUM_BITS) -> Ints:
    """The integers themselves; :class:`IntegerRangeError` if one is beyond the symmetric range of ``bits`` bits."""
    exact = np.asarray(values, dtype=np.int64)
    limit = largest(bits)
    if exact.size and (exact.max() > limit or exact.min() < -limit):
        raise IntegerRangeError(f"integers must have at most {bits} bits, not be {_extreme(exact)}")
    return exact


def digits(values: ArrayLike, count: int) -> Ints:
    """Digits ``[count, ...]`` of integers, least first; of one digit the integers themselves.

    Raises
    ------
    IntegerRangeError
        If one has more.
    """
    exact = np.asarray(values, dtype=np.int64)
    low, high = digit_span(count)
    if exact.size and (exact.min() < low or exact.max() > high):
        raise IntegerRangeError(f"integers must be in {low}..{high} for {count} digits, not {_extreme(exact)}")
    if count == 1:
        return exact[None]
    raised = exact - low
    mask = (1 << DIGIT_BITS) - 1
    return np.stack([(raised >> DIGIT_BITS * p & mask) - DIGIT_HALF for p in range(count)])


def _extreme(values: Ints) -> int:
    return int(values.flat[np.abs(values).argmax()])
