"""Blocks of weights with updates, at corners of their formats and anywhere, and what the golden model makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from concord.golden.lazy_update import Updated, lazy_update
from concord.spec.formats import NOISE_BITS, Rounding
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN, AccumulatorFormat, TrainingFormat
from concord_rtl.pipe.integers.lazy.widths import LazyWidths


def widths(weight, acc, change, point=None, rounding=Rounding.NEAREST_AWAY, coarser=0):
    """Formats from numbers."""
    return LazyWidths(TrainingFormat(weight), AccumulatorFormat(acc, point, rounding), TrainingFormat(change), coarser)


#: Formats of the tests: those of the source, others, and each with what is special in it.
WIDTHS = {
    "8/16/32": widths(8, 16, 32),
    "5/12/24": widths(5, 12, 24),
    "6/9/14 even": widths(6, 9, 14, None, Rounding.NEAREST_EVEN),
    "8/16/32 stochastic": widths(8, 16, 32, None, Rounding.STOCHASTIC),
    "8/16/32 point 12": widths(8, 16, 32, 12),
    "8/16/32 point 0": widths(8, 16, 32, 0),
    "4/10/20 point 1": widths(4, 10, 20, 1),
    "2/2/2": widths(2, 2, 2),
    "14/32/32": widths(14, 32, 32),
    "8/16/32 coarser by 0 to 5": widths(8, 16, 32, coarser=5),
    "5/10/20 point 8, by 0 to 2": widths(5, 10, 20, 8, coarser=2),
}


@dataclass(frozen=True)
class Block:
    """A block of weights and its update."""

    weight: list[int]
    acc: list[int]
    exp: int
    change: list[int]
    change_exp: int
    noise: list[int]
    coarser: int = 0

    @property
    def count(self):
        return len(self.weight)


def corners(rng, count, limit, more=()):
    """Integers up to a limit: its ends, numbers around zero, anything of any length, and other ones."""
    ends = [limit, -limit, limit - 1, 1 - limit, 0, 1, -1, *more]
    lengths = rng.integers(0, int(limit).bit_length() + 1, count)
    anything = rng.integers(-limit, limit + 1, count) >> lengths
    return np.where(rng.random(count) < 0.4, rng.choice(np.array(ends, dtype=np.int64), count), anything).tolist()


def random_block(rng, widths, count, *, inner=False):
    """A block; with ``inner`` its weights are so small that it does not grow."""
    coarser = int(rng.integers(0, widths.coarser_max + 1))
    shift = widths.shift - coarser
    half, q_max = (1 << shift) // 2, widths.accumulator.q_max
    weight = [0] * count if inner else corners(rng, count, widths.weight.q_max)
    reach = q_max if rng.random() < 0.3 else min(half, q_max)
    acc = corners(rng, count, reach, [half, -half]) if reach else [0] * count
    acc = [max(-q_max, min(q_max, a)) for a in acc]
    if rng.random() < 0.4:  # the greatest exponent is near
        exp = TRAIN_EXP_MAX - int(rng.integers(0, 4)) * int(rng.integers(0, 2))
    else:
        exp = int(rng.integers(TRAIN_EXP_MIN, TRAIN_EXP_MAX + 1))
    far = rng.random() < 0.1
    right = int(rng.integers(-255, 256) if far else rng.integers(-3, widths.change.bits + 3))
    if inner and widths.weight.q_max << shift <= q_max:
        right = 300  # any update that is not nothing might be too much
    change_exp = int(np.clip(exp - shift - right, TRAIN_EXP_MIN, TRAIN_EXP_MAX))
    change = corners(rng, count, widths.change.q_max)
    if rng.random() < 0.3:  # away from zero, from the ends of the range
        change = [abs(c) if w > 0 else -abs(c) for c, w in zip(change, weight, strict=True)]
    if rng.random() < 0.2:  # ties
        change = [c & -(1 << max(min(right - 1, widths.change.bits - 2), 0)) for c in change]
        change = [max(-widths.change.q_max, c) for c in change]
    noise = rng.integers(0, 1 << NOISE_BITS, count)
    noise = np.where(rng.random(count) < 0.2, rng.choice([0, (1 << NOISE_BITS) - 1], count), noise).tolist()
    return Block(weight, acc, exp, change, change_exp, noise, coarser)


def golden(widths, block) -> Updated:
    """The block after its update."""
    return lazy_update(
        block.weight,
        block.acc,
        block.exp,
        block.change,
        block.change_exp,
        widths.weight,
        replace(widths.accumulator, point=widths.shift - block.coarser),
        block.noise if widths.stochastic else None,
    )


def elements(weight, acc, lanes):
    """Beats of weights and accumulators; what is missing in the last one is anything."""
    pairs = [{"weight": int(w), "acc": int(a)} for w, a in zip(weight, acc, strict=True)]
    pairs += [{"weight": 1, "acc": -1}] * (-len(pairs) % lanes)
    return [pairs[k : k + lanes] for k in range(0, len(pairs), lanes)]


def increments(widths, block, lanes):
    """Beats of updates; what is missing in the last one is large."""
    pad = -block.count % lanes
    change = block.change + [widths.change.q_max] * pad
    noise = block.noise + [0] * pad
    each = [{"change": c, **({"noise": n} if widths.stochastic else {})} for c, n in zip(change, noise, strict=True)]
    return [each[k : k + lanes] for k in range(0, len(each), lanes)]


def activity(count, lanes):
    """Bits of the lanes that hold elements, beat by beat."""
    return [(1 << min(lanes, count - k)) - 1 for k in range(0, count, lanes)]
