"""Integer products counted in order: ``R = x1*w1 + x2*w2 + ...``, one product after the other [overflow].

Every product is an intermediate value, and so is every sum after an addition: n products make n - 1 sums, the last of
which is the result as well. A bias is one more addition, after the others. The result is an output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.overflow.histogram import Histogram, StageCounter, Tally
from concord.overflow.pairs import Pairs, countable

#: Values that are worked on together: few enough for the cache, many enough to hide the cost of a call.
_CHUNK = 1 << 17


@dataclass
class SumHistograms:
    """Histograms of one layer."""

    product: Histogram = field(default_factory=Histogram)
    sum: Histogram = field(default_factory=Histogram)
    output: Histogram = field(default_factory=Histogram)

    @property
    def stages(self) -> dict[str, Histogram]:
        """Histograms by the name of the stage."""
        return {"product": self.product, "sum": self.sum, "output": self.output}


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

    x: NDArray[Any]
    w: NDArray[Any]
    bias: NDArray[Any] | None = None


def total_of(parts: Iterable[SumHistograms]) -> SumHistograms:
    """Sum of the histograms of several parts of the products."""
    whole = SumHistograms()
    for part in parts:
        for stage, histogram in part.stages.items():
            whole.stages[stage].add(histogram)
    return whole


def count(blocks: Iterable[ProductBlock]) -> SumHistograms:
    """Count all products, partial sums and outputs."""
    sums, counter = SumHistograms(), StageCounter()
    for block in blocks:
        _products(block, sums.product)
        _additions(block, counter)
    for stage, histogram in counter.taken().items():
        sums.stages[stage].add(histogram)
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
    """A type in which all partial sums are exact: float32, float64, or Python integers."""
    x_max = int(np.abs(block.x).max(initial=0))
    norm = max((sum(map(abs, row)) for row in block.w.reshape(-1, block.w.shape[2]).tolist()), default=0)
    most = x_max * norm + (0 if block.bias is None else max(map(abs, block.bias.reshape(-1).tolist()), default=0))
    for kind, limit in Tally.LIMITS.items():
        if most <= 1 << limit:
            return kind
    return object


def _sequence(x: Any, w: Any, bias: Any, counter: StageCounter) -> None:
    """Multiply and add, one element after the other."""
    shape = (w.shape[0], w.shape[1], x.shape[2])
    sums = np.zeros(shape, x.dtype)
    term = np.empty(shape, x.dtype) if x.dtype == object else counter.pool.take("term", shape, x.dtype)
    for k in range(x.shape[1]):
        np.multiply(w[:, :, k, None], x[:, None, k], out=term)
        np.add(sums, term, out=sums)
        if k:
            counter.count("sum", sums)
    if bias is not None:
        np.add(sums, bias[:, :, None], out=sums)
        counter.count("sum", sums)
    counter.count("output", sums)


def bound(w: NDArray[Any], bias: NDArray[Any] | None, x_ends: tuple[int, int]) -> dict[str, int]:
    """Bits that hold what elements between two integers can make, zero among them.

    Parameters
    ----------
    w : integers ``[rows, K]``
    bias : integers ``[rows]`` or None
    x_ends : pair of int
        Least, at most 0, and greatest element.

    Returns
    -------
    dict
        Bits of products, sums and outputs.
    """
    low, high = x_ends
    product, sums, output = Histogram(), Histogram(), Histogram()
    corners = np.array([[int(v) * low, int(v) * high] for v in np.unique(w)] or [[0, 0]], dtype=object)
    product.count(corners)
    offsets = [0] * len(w) if bias is None else bias.tolist()
    for row, offset in zip(w.tolist(), offsets, strict=True):
        least, most = (sum(pick(v * low, v * high) for v in row) for pick in (min, max))
        finals = [int(least) + int(offset), int(most) + int(offset)]
        sums.count(np.array([int(least), int(most), *finals], dtype=object))
        output.count(np.array(finals, dtype=object))
    return {"product": product.bits, "sum": sums.bits, "output": output.bits}
