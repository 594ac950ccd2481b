"""Weights whose sums fit an accumulator for every input: a bound of their norm, kept by projection in integers.

With elements of at most X in magnitude, no partial sum of a channel leaves a register of P bits, in any order, while
the magnitudes of its weights add up to at most ``(2**(P-1) - 1) // X`` (as in A2Q, Colbert et al., ICCV 2023). Where
elements are never negative, as after a Relu, that holds for its positive and for its negative weights by themselves.
"""

from __future__ import annotations

import numpy as np

from concord.sums.reach import norms, sides_of
from concord.train.parameters import Parameter
from concord.utils.arrays import Ints


def projected(values: Ints, limit: int) -> Ints:
    """Rows ``[n, K]`` in the ball ``sum |v| <= limit``: the Euclidean projection, each magnitude rounded down.

    Magnitudes lose the least whole number with which the rest is within the limit, and what is less becomes 0.
    """
    size = np.abs(values)
    beyond = np.flatnonzero(size.sum(axis=1) > limit)
    if not len(beyond):
        return values
    falling = -np.sort(-size[beyond], axis=1)
    over = np.cumsum(falling, axis=1) - limit
    count = np.arange(1, values.shape[1] + 1)
    last = np.count_nonzero(falling * count > over, axis=1) - 1
    rows = np.arange(len(beyond))
    off = -(-over[rows, last] // count[last])
    clipped = values.copy()
    clipped[beyond] = np.sign(values[beyond]) * np.maximum(size[beyond] - off[:, None], 0)
    return clipped


def rounded(total: Ints, shift: int, limit: int) -> Ints:
    """Rows of ``total >> shift`` to the nearest, as far as magnitudes add up to ``limit`` at most.

    ``total`` is within ``limit << shift``. Magnitudes are rounded down first; then those that would be rounded up are,
    the greatest fraction first (the first in the row, where some are equal), while the limit allows it.
    """
    size = np.abs(total)
    whole, rest = size >> shift, size & (1 << shift) - 1
    if shift:
        wanted = rest >= 1 << shift - 1
        order = np.argsort(np.where(wanted, -rest, 1), axis=1, kind="stable")
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.broadcast_to(np.arange(size.shape[1]), order.shape), axis=1)
        whole += wanted & (place < (limit - whole.sum(axis=1))[:, None])
    return np.asarray(np.sign(total) * whole)


def bounded(total: Ints, shift: int, limit: int, apart: bool) -> tuple[Ints, Ints]:
    """Totals of rows within the bound, and the weights that they give; ``apart``: each sign by itself."""
    if not apart:
        kept = projected(total, limit << shift)
        return kept, rounded(kept, shift, limit)
    up, down = (projected(side, limit << shift) for side in sides_of(total, apart))
    return up - down, rounded(up, shift, limit) - rounded(down, shift, limit)


def row_norms(parameter: Parameter, apart: bool) -> Ints:
    """Norms of the rows of a parameter ``[O, ...]``, which the bound limits, as :func:`concord.sums.reach.norms`."""
    return norms(parameter.weight.astype(np.int64).reshape(parameter.blocks.shape[0], -1), 1, apart)


def bind(parameter: Parameter, limit: int, apart: bool) -> int:
    """Bring the rows of a parameter ``[O, ...]``, one block, within the bound; how many rows were beyond it.

    The accumulator of a weight holds what the weight is less than its total, which may be almost a step.
    """
    shift = parameter.accumulator.shift
    total = parameter.total.reshape(parameter.blocks.shape[0], -1)
    kept, weight = bounded(total, shift, limit, apart)
    changed = int(np.count_nonzero(np.any(kept != total, axis=1)))
    acc = np.clip(kept - (weight << shift), -parameter.accumulator.q_max, parameter.accumulator.q_max)
    parameter.replace(weight.reshape(1, -1), acc.reshape(1, -1), parameter.exp)
    return changed
