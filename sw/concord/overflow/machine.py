"""Values in the accumulators of a compiled network: every partial sum of every product, in the order of the machine.

A step multiplies L mantissas by L weights per matrix row, adds them up pairwise (in an element-serial configuration one
after the other), shifts the sum onto the grid by both exponents and adds it to the accumulator; taps come one after the
other, columns within a tap, parts of a tile within a column. A depthwise step multiplies one mantissa per row. Steps of
taps outside the image add zero, and are counted, as are rows and lanes that are only padding: the machine makes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from concord.program.chains import Chain
from concord.program.weights import Weights
from concord.spec.config import NpuConfig
from concord.sums.histogram import Histograms, StageCounter, SumStage, Tally
from concord.sums.pairs import Pairs, countable
from concord.utils.arrays import Array, Float32s, FloatArray, Ids

#: Values that are worked on together: few enough for the cache, many enough to hide the cost of a call.
_CHUNK = 1 << 17

#: Message for a program that writes weights.
WRITTEN = (
    "weights must be constants for sums to be counted or bounded, and not written by m_wr: a configuration with "
    "writable_matrix = false has none that are"
)
#: Stages on the grid of the accumulator, whose width they decide.
ON_GRID = (SumStage.TERM, SumStage.SUM, SumStage.OUTPUT)


class ProductPiece(Protocol):
    """Some positions and rows of a product.

    Members
    -------
    index : Index
        Addresses of the sources ``[positions, rows, blocks]``; one row where all of them share their sources.
    weights : Weights or None
        Of the rows, if they are constants.
    """

    @property
    def index(self) -> Ids: ...
    @property
    def weights(self) -> Weights | None: ...


class ChainPiece(Protocol):
    """Some vectors of a chain, and their product if they come out of one."""

    @property
    def chain(self) -> Chain: ...
    @property
    def product(self) -> ProductPiece | None: ...


class NarrowLanes(Protocol):
    """The narrow memory of a batch: float32 values ``[words, N, lanes]`` and powers of two ``[words, lanes]``."""

    narrow: Float32s
    scale: Float32s


@dataclass(frozen=True)
class _Operands:
    """Weights made ready: mantissas ``[steps, L, rows, N]`` as floats and ``2**exponent`` ``[steps, rows, N]``."""

    of: Weights
    mant: Array
    scale: FloatArray


class Watcher:
    """Counts what the products of an emulator make. The object is the ``watch`` of the emulator.

    Parameters
    ----------
    config : NpuConfig
        Of the emulator.
    layer_of : callable
        Name of the layer of the chain whose ``v_rd`` has an address.
    """

    def __init__(self, config: NpuConfig, layer_of: Callable[[int], str]):
        self.config, self._layer_of = config, layer_of
        self._raw: Any = np.float32 if config.lane_dot_bits - 1 <= Tally.LIMITS[np.float32] else np.float64
        self._exact = 2.0 ** (Tally.LIMITS[np.float64] - config.acc_frac)
        self._joint = countable(config.act.q_max, config.wgt.q_max)
        self._lock, self._local = threading.Lock(), threading.local()
        self._counters: list[_Counter] = []
        self._operands: dict[int, _Operands] = {}
        self._pairs: dict[tuple[str, int, int], Pairs] = {}
        self._by_layer: dict[str, Histograms] = {}

    def __call__(self, part: ChainPiece, lanes: NarrowLanes, count: int) -> None:
        """Count one piece of a chain in the first ``count`` lanes, from what they hold before it is executed."""
        if part.product is None:
            return
        if part.product.weights is None:
            raise ValueError(WRITTEN)
        name = self._layer_of(part.chain.pc)
        if not hasattr(self._local, "counter"):
            self._local.counter = _Counter(self.config, self._raw, not self._joint)
            with self._lock:
                self._counters.append(self._local.counter)
        counter: _Counter = self._local.counter
        if counter.layer != name:
            self._take(counter)
            counter.layer = name
        self._product(name, part.chain.depthwise, part.product.index, part.product.weights, lanes, count, counter)

    def _take(self, counter: _Counter) -> None:
        """Add what a thread has counted for its last layer."""
        with self._lock:
            if counter.layer is not None:
                self._by_layer.setdefault(counter.layer, Histograms()).add(counter.taken())

    def observed(self) -> dict[str, Histograms]:
        """Counts by layer in the order of execution; nothing must be running."""
        for counter in self._counters:
            self._take(counter)
        whole: dict[str, Histograms] = {}
        for name, observed in self._by_layer.items():
            whole.setdefault(name, Histograms()).add(observed)
        for (name, _, _), pairs in self._pairs.items():
            whole[name][SumStage.PRODUCT].add(pairs.counts())
        return whole

    def _product(
        self,
        name: str,
        depthwise: bool,
        index: Ids,
        constants: Weights,
        lanes: NarrowLanes,
        count: int,
        counter: _Counter,
    ) -> None:
        weights, factor = self._prepared(constants), self.config.act.q_max * constants.norm
        positions, groups, _ = index.shape
        for group in range(groups):
            rows = slice(group, group + 1) if groups > 1 else slice(0, len(constants.mant))
            mant, scale = weights.mant[:, :, rows], weights.scale[:, rows]
            pairs = self._pairs_of(name, depthwise, constants, rows) if self._joint else None
            step = max(1, _CHUNK // (mant[0].size * count))
            for first in range(0, positions, step):
                at = index[first : first + step, group]
                powers = lanes.scale[at][..., :count]  # [positions, blocks, lanes]
                x = lanes.narrow[at][..., :count] / powers[:, :, None]  # [positions, blocks, N, lanes]
                x = x.transpose(1, 2, 0, 3).reshape(at.shape[1], self.config.native, -1)
                if pairs is not None:
                    elements = x.reshape(-1, x.shape[-1])
                    with self._lock:
                        pairs.add(elements)
                exact = (powers.max(axis=1) * factor < self._exact).reshape(-1)
                powers = powers.transpose(1, 0, 2).reshape(at.shape[1], -1).astype(np.float64)
                for columns, whole in ((exact, False), (~exact, True)):
                    if columns.any():
                        some = (x, powers) if columns.all() else (x[..., columns], powers[:, columns])
                        counter.steps(depthwise, (mant, scale), *some, whole)

    def _prepared(self, weights: Weights) -> _Operands:
        with self._lock:
            if id(weights) not in self._operands:
                mant = np.ascontiguousarray(weights.mant.transpose(2, 3, 0, 1).astype(self._raw))
                scale = np.ldexp(1.0, weights.exp.transpose(2, 0, 1))
                self._operands[id(weights)] = _Operands(weights, mant, np.ascontiguousarray(scale))
            return self._operands[id(weights)]

    def _pairs_of(self, name: str, depthwise: bool, weights: Weights, rows: slice) -> Pairs:
        """The counter of the products with some rows of a matrix."""
        key = name, id(weights), rows.start
        with self._lock:
            if key not in self._pairs:
                mant = weights.mant[rows]  # [rows, N, blocks, lanes]
                if depthwise:  # an element of a tap meets the weight of its own row only
                    mant = mant[..., 0].transpose(2, 1, 0).reshape(-1, len(mant))
                else:
                    mant = mant.reshape(mant.shape[0] * mant.shape[1], -1).T
                self._pairs[key] = Pairs(mant, self.config.act.q_max)
            return self._pairs[key]


class _Counter:
    """Counts products step by step, in one thread.

    Parameters
    ----------
    config : NpuConfig
    raw : type
        Of the floats in which products and sums of lanes are exact.
    products : bool
        Whether products are counted here.

    Members
    -------
    layer : str or None
        What is being counted.
    """

    def __init__(self, config: NpuConfig, raw: Any, products: bool):
        self.config, self.raw, self.products = config, raw, products
        self.layer: str | None = None
        counts = StageCounter(dict.fromkeys(ON_GRID, config.acc_frac))
        self._take, self._count, self.taken = counts.pool.take, counts.count, counts.taken

    def steps(self, depthwise: bool, weights: tuple[Any, Any], mant: Any, powers: Any, whole: bool) -> None:
        """All steps for some columns.

        Parameters
        ----------
        weights : pair of arrays
            Mantissas ``[steps, L, rows, N]`` and powers of two ``[steps, rows, N]``.
        mant, powers : arrays ``[blocks, N, columns]`` and ``[blocks, columns]``
            Vectors of the columns.
        whole : bool
            Add up Python integers; else the sums must be exact in float64.
        """
        w_mant, w_powers = weights
        per_block = 1 if depthwise else self.config.steps
        sums = np.zeros((*w_mant.shape[2:], mant.shape[-1]), dtype=object if whole else np.float64)
        x = mant.astype(self.raw, copy=False)
        # Elements for [L, rows, N]: the lanes of a step are the same for all rows, or each row has its own element.
        x = x[:, None, None] if depthwise else x.reshape(len(w_mant), self.config.lanes, 1, 1, -1)
        for step in range(len(w_mant)):
            dots = self._lanes(self._products(w_mant[step], x[step]))
            sums = self._add(sums, dots, w_powers[step][..., None] * powers[step // per_block], whole)
        self._count(SumStage.OUTPUT, sums)

    def _products(self, w: Any, x: Any) -> Any:
        """Products ``[L, rows, N, columns]`` of mantissas."""
        products = self._take("products", (*w.shape, x.shape[-1]), self.raw)
        np.multiply(w[..., None], x, out=products)
        if self.products:
            self._count(SumStage.PRODUCT, products)
        return products

    def _lanes(self, products: Any) -> Any:
        """Add up pairwise, as the adder tree does; in an element-serial configuration one after the other."""
        if len(products) == 1:
            return products[0]
        nodes = self._take("nodes", (len(products) - 1, *products.shape[1:]), self.raw)
        if self.config.serial:
            np.add(products[0], products[1], out=nodes[0])
            for lane in range(2, len(products)):
                np.add(nodes[lane - 2], products[lane], out=nodes[lane - 1])
        else:
            level, first = products, 0
            while len(level) > 1:
                out = nodes[first : first + len(level) // 2]
                np.add(level[0::2], level[1::2], out=out)
                level, first = out, first + len(out)
        self._count(SumStage.LANE_SUM, nodes)
        return nodes[-1]

    def _add(self, sums: Any, dots: Any, powers: Any, whole: bool) -> Any:
        """Shift sums of lanes onto the grid and add them."""
        if whole:
            shift = np.frexp(powers)[1] - 1 + self.config.acc_frac
            terms = dots.astype(np.int64).astype(object) << shift.astype(object)
            sums = sums + terms
        else:
            terms = self._take("terms", sums.shape, np.float64)
            np.multiply(dots, powers, out=terms)
            np.add(sums, terms, out=sums)
        self._count(SumStage.TERM, terms)
        self._count(SumStage.SUM, sums)
        return sums
