"""Integer products counted in order: ``R = x1*w1 + x2*w2 + ...``, one product after the other [overflow].

Every product is an intermediate value, and so is every sum after an addition: n products make n - 1 sums, the last of
which is the result as well. A bias is one more addition, after the others. The result is an output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.sums.histogram import Histogram, Histograms, StageCounter, SumStage, Tally
from concord.sums.pairs import Pairs, countable
from concord.sums.reach import sum_bound
from concord.utils.arrays import Array

#: Values that are worked on together: few enough for the cache, many enough to hide the cost of a call.
_CHUNK = 1 << 17
#: Stages of products that are added up one after the other.
ORDERED = (SumStage.PRODUCT, SumStage.SUM, SumStage.OUTPUT)


@dataclass(frozen=True)
class ProductBlock:
    """Integer products that are alike.

    Parameters
    ----------
    x : integers ``[groups, K, columns]``
        Elements in the order in which they are multiplied.
    w : integers ``[groups, rows, K]``
        Weights: every column of a group meets every row of it.
    bias : integers ``[groups, rows]`` or None
        Added last.
    """

    x: Array
    w: Array
    bias: Array | None = None


def count(blocks: Iterable[ProductBlock]) -> Histograms:
    """Histograms of all products, partial sums and outputs."""
    sums, counter = Histograms({stage: Histogram() for stage in ORDERED}), StageCounter()
    for block in blocks:
        _products(block, sums[SumStage.PRODUCT])
        _additions(block, counter)
    sums.add(counter.taken())
    return sums


def _products(block: ProductBlock, histogram: Histogram) -> None:
    groups, terms, columns = block.x.shape
    x_max, w_max = (int(np.abs(a).max(initial=0)) for a in (block.x, block.w))
    if countable(x_max, w_max):
        pairs = Pairs(block.w.transpose(0, 2, 1).reshape(groups * terms, -1), x_max)
        pairs.add(block.x.reshape(groups * terms, columns))
        histogram.add(pairs.counts())
        return
    wide = x_max * w_max >= 1 << 62
    for k in range(terms):
        x, w = (a.astype(object) if wide else a.astype(np.int64) for a in (block.x[:, k], block.w[:, :, k]))
        histogram.count(x[:, None] * w[:, :, None])


def _additions(block: ProductBlock, counter: StageCounter) -> None:
    """Groups, rows and columns in pieces of a suitable size."""
    groups, _, columns = block.x.shape
    rows = block.w.shape[1]
    kind = _kind(block)
    per_column = max(1, rows)
    width = max(1, min(columns, _CHUNK // per_column))
    several = max(1, _CHUNK // (per_column * width))
    for g in range(0, groups, several):
        some = slice(g, g + several)
        w = block.w[some].astype(kind)
        bias = None if block.bias is None else block.bias[some].astype(kind)
        for c in range(0, columns, width):
            _sequence(block.x[some, :, c : c + width].astype(kind), w, bias, counter)


def _kind(block: ProductBlock) -> Any:
    """A type in which a tally counts all partial sums: float32, float64, or Python integers."""
    most = sum_bound(block.w, 2, int(np.abs(block.x).max(initial=0)))
    most += 0 if block.bias is None else int(np.abs(block.bias).max(initial=0))
    return next((kind for kind, limit in Tally.LIMITS.items() if most <= 1 << limit), object)


def _sequence(x: Any, w: Any, bias: Any, counter: StageCounter) -> None:
    """Multiply and add, one element after the other."""
    shape = (w.shape[0], w.shape[1], x.shape[2])
    sums = np.zeros(shape, x.dtype)
    term = np.empty(shape, x.dtype) if x.dtype == object else counter.pool.take("term", shape, x.dtype)
    for k in range(x.shape[1]):
        np.multiply(w[:, :, k, None], x[:, None, k], out=term)
        np.add(sums, term, out=sums)
        if k:
            counter.count(SumStage.SUM, sums)
    if bias is not None:
        np.add(sums, bias[:, :, None], out=sums)
        counter.count(SumStage.SUM, sums)
    counter.count(SumStage.OUTPUT, sums)
