"""Matrix products of a batch: matrix products in floating point that are exact, in whatever order they are summed.

A product of two codes is a multiple of the least power of two of the weights of a matrix row times that of the vectors
it meets. As long as the magnitudes of the products of a row add up to no more than 2**24 such units, every partial sum
is a float32 number; up to 2**53 it is a float64 number. The magnitudes are at most those of the weights times ``q_max``
times the greatest power of two of the vectors. This is checked for every position and lane, with the exponents of the
sources: those beyond the first bound are computed in float64, those beyond 2**53 units of the accumulator by the golden
model. So are those that may leave a register of few bits (``acc_register``), where the order of the terms decides: no
term and no partial sum is beyond the sum of all magnitudes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from concord.emulator.fused import compiled
from concord.emulator.kernels import decode, round_doubles, round_singles, round_sums
from concord.emulator.lanes import Lanes, WordAccess
from concord.golden import accumulate
from concord.program import Chain
from concord.program.weights import Weights
from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.sums.exact import DOUBLE_BITS, SINGLE_BITS
from concord.utils.arrays import Array, Bools, Float32s, FloatArray, Ids, Integers, Ints

#: Of so many positions and lanes one may exceed float32; with more of them, all are computed in float64.
_RARE = 16
#: Below this many lanes, positions and lanes are multiplied together.
_FEW_LANES = 64
#: Elements that are worked on together by the definition.
_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class SumBounds:
    """Shares of weights in the bounds of sums: numbers, or arrays ``[B]`` if they differ from lane to lane.

    Parameters
    ----------
    factor : float or array
        The greatest scale of a window times this is at least the sum of the magnitudes of its products.
    ratio : float or array
        Largest quotient of the greatest and the least power of two of a window for float32.
    """

    factor: Any
    ratio: Any

    @cached_property
    def greatest_factor(self) -> float:
        """Factor of the lane that needs the most."""
        return float(np.max(self.factor))

    @cached_property
    def least_ratio(self) -> float:
        """Ratio of the lane that allows the least."""
        return float(np.min(self.ratio))

    @cached_property
    def greatest_ratio(self) -> float:
        """Ratio of the lane that allows the most."""
        return float(np.max(self.ratio))

    @staticmethod
    def of(config: NpuConfig, norm: Any, spread: Any) -> SumBounds:
        """Bounds that follow from sums over the weights of each matrix row.

        ``norm``: sum of the magnitudes of a row; ``spread``: that sum in units of which all weights are multiples.
        """
        q_max = config.act.q_max
        return SumBounds(q_max * norm, 2.0**SINGLE_BITS / np.maximum(q_max * spread, 1.0))


class BlockProduct:
    """A dense or depthwise product for some positions and rows of a chain, wherever its weights come from.

    Parameters
    ----------
    index : Index
        Source addresses ``[positions, rows, blocks]`` with zeros outside the image pointing beyond the memory; a dense
        product whose rows share their source has one row only.
    rows : int
        Number of rows of the product.
    fast : bool
        Whether compiled kernels are used.
    """

    #: Weights that are the same in all lanes.
    weights: Weights | None = None

    def __init__(self, chain: Chain, index: Ids, rows: int, config: NpuConfig, fast: bool):
        self.config, self.index, self._fast = config, index, fast
        self.depthwise = chain.depthwise
        self.used = np.unique(index)
        self.shape = (len(index), rows, config.native)
        taps = [index[:, :, t] for t in range(index.shape[2])] if self.depthwise else [index]
        self.places = [WordAccess(tap) for tap in taps]
        self.limit = 2.0 ** (config.acc_width - 1 - config.acc_frac)
        self.exact = 2.0 ** (DOUBLE_BITS - config.acc_frac)
        #: Below this magnitude everything stays in the register.
        self.register = 2.0 ** (config.register_bits - 1 - config.acc_frac)

    def run(self, lanes: Lanes, out: Float32s) -> int:
        """Results as binary16 values, and flags."""
        flags, exact = self.add_up(lanes, out)
        return flags | (round_singles(out, lanes.pool) if exact else 0)

    def add_up(self, lanes: Lanes, out: Float32s) -> tuple[int, bool]:
        """Flags, and whether the results are exact sums that are not rounded yet; binary16 values otherwise."""
        top, least = self._extremes(lanes)
        bounds = self._bounds(lanes)
        bound = top * bounds.greatest_factor
        if bound < min(self.limit, self.exact):
            beyond = self._beyond_single(lanes, top, least, bounds)
            if beyond is not None:
                self._run_single(lanes, beyond, out)
                return 0, True
        return self._run_double(lanes, bound, bounds.factor, out), False

    def units(self, lanes: Lanes, out: Ints) -> int:
        """Accumulators as ``vv_scale`` reads them, whole numbers of ``2**wgt_exp_min``; returns the flags."""
        top, least = self._extremes(lanes)
        bounds = self._bounds(lanes)
        bound = top * bounds.greatest_factor
        if bound < min(self.limit, self.exact):
            beyond = self._beyond_single(lanes, top, least, bounds)
            if beyond is not None and not len(beyond):
                singles = lanes.pool.take("singles", out.shape)
                self._run_single(lanes, beyond, singles)
                self._whole(singles, out)
                return 0
        sums = lanes.pool.take("sums", out.shape, np.float64)
        flags, unsafe = self._doubles(lanes, bound, bounds.factor, sums)
        self._whole(sums, out)
        for part in self._parts(len(unsafe)):
            position, lane = unsafe[part].T
            limited, over = accumulate.saturate(self._golden_sums(lanes, unsafe[part]), self.config.acc_width)
            out[position, :, :, lane] = (limited >> -self.config.act_exp_min).astype(np.int64)
            flags |= bool(over.any()) << Flag.ACC_OVERFLOW
        return flags

    def _whole(self, sums: Array, out: Ints) -> None:
        """Sums as whole numbers of units; they are destroyed."""
        np.multiply(sums, sums.dtype.type(2.0**-self.config.wgt_exp_min), out=sums)
        np.copyto(out, np.floor(sums, out=sums), casting="unsafe")

    def _extremes(self, lanes: Lanes) -> tuple[float, float]:
        """Greatest scale and least grain of all sources."""
        if self._fast:
            top, least = compiled().extremes(lanes.scale, lanes.grain, self.used)
            return float(top), float(least)
        return float(lanes.scale[self.used].max()), float(lanes.grain[self.used].min())

    # What depends on where the weights are ------------------------------------------------------

    def _bounds(self, lanes: Lanes) -> SumBounds:
        raise NotImplementedError

    def _sum(self, lanes: Lanes, sums: Array) -> None:
        """Sums ``[positions, rows, N, B]`` in the arithmetic of the array, where they are exact."""
        raise NotImplementedError

    def _column_sums(self, lanes: Lanes, lane: Ids, x: FloatArray, sizes: bool) -> FloatArray:
        """Sums ``[columns, rows, N]`` of sources ``[columns, rows, blocks, N]`` in some lanes; of magnitudes if wanted.

        With fewer rows of sources than of the product the last one counts for all that follow.
        """
        raise NotImplementedError

    def _codes(self, lanes: Lanes, lane: Ids, row: int) -> tuple[Array, Array]:
        """Mantissas ``[..., N, blocks, elements]`` and exponents of a row of tiles, by lane or for all lanes."""
        raise NotImplementedError

    def _source(self, row: int) -> int:
        """Row of the sources for a row of the product."""
        return min(row, int(self.index.shape[1]) - 1)

    def _column_size(self) -> int:
        """Values that are in work for every column."""
        return int(self.index[0].size) * self.config.native * self.shape[1]

    # In float32 --------------------------------------------------------------------------------

    def _beyond_single(self, lanes: Lanes, top: float, least: float, bounds: SumBounds) -> Ids | None:
        """Positions and lanes ``[count, 2]`` whose sums may be no float32 numbers; nothing if there are many.

        ``top`` and ``least``: greatest scale and least grain of all sources.
        """
        if bounds.greatest_ratio < 1.0:
            return None
        if top <= least * bounds.least_ratio:
            return np.empty((0, 2), dtype=np.int64)
        window = self.index.reshape(len(self.index), -1)
        if self._fast and np.ndim(bounds.ratio) == 0:
            beyond = np.empty((len(window), lanes.batch), dtype=np.bool_)
            compiled().beyond(lanes.scale, lanes.grain, np.ascontiguousarray(window), bounds.ratio, beyond)
        else:
            beyond = lanes.scale[window].max(axis=1) > lanes.grain[window].min(axis=1) * bounds.ratio
        return np.argwhere(beyond) if np.count_nonzero(beyond) * _RARE <= beyond.size else None

    def _run_single(self, lanes: Lanes, beyond: Ids, out: Float32s) -> None:
        self._sum(lanes, out)
        for part in self._parts(len(beyond)):
            position, lane = beyond[part].T
            sums = self._columns(lanes, position, lane)
            columns = np.empty(sums.shape, dtype=np.float32)
            np.add(sums, 0.0, out=sums)
            round_doubles(sums, columns, lanes.pool)
            out[position, :, :, lane] = columns  # what is rounded once more stays as it is

    def _columns(self, lanes: Lanes, position: Ids, lane: Ids, sizes: bool = False) -> FloatArray:
        """Sums ``[columns, rows, N]`` of some (position, lane) pairs; of magnitudes if wanted."""
        x = lanes.narrow[self.index[position], :, lane[:, None, None]].astype(np.float64)  # [columns, rows, blocks, N]
        return self._column_sums(lanes, lane, np.abs(x) if sizes else x, sizes)

    # In float64 --------------------------------------------------------------------------------

    def _run_double(self, lanes: Lanes, bound: float, factor: Any, out: Float32s) -> int:
        sums = lanes.pool.take("sums", out.shape, np.float64)
        flags, unsafe = self._doubles(lanes, bound, factor, sums)
        flags |= round_sums(sums, out, lanes.pool)
        return flags | (self._golden(lanes, out, unsafe) if len(unsafe) else 0)

    def _doubles(self, lanes: Lanes, bound: float, factor: Any, sums: FloatArray) -> tuple[int, Ids]:
        """Saturated sums; flags, and positions and lanes ``[count, 2]`` that are left to the definition."""
        self._sum(lanes, sums)
        unsafe = np.empty((0, 2), dtype=np.int64)
        if bound >= min(self.exact, self.register):
            tops = lanes.scale[self.index.reshape(len(self.index), -1)].max(axis=1) * factor
            unsafe = np.argwhere(tops >= min(self.exact, self.register))
            inexact = tops[unsafe[:, 0], unsafe[:, 1]] >= self.exact
            unsafe = unsafe[inexact | self._may_leave(lanes, unsafe)]
            sums[unsafe[:, 0], :, :, unsafe[:, 1]] = 0.0
        flags = 0
        if bound >= self.limit:
            least, greatest = -self.limit, self.limit - 2.0**-self.config.acc_frac
            if sums.max() > greatest or sums.min() < least:
                np.clip(sums, least, greatest, out=sums)
                flags |= 1 << Flag.ACC_OVERFLOW
        return flags, unsafe

    def _may_leave(self, lanes: Lanes, columns: Ids) -> Bools:
        """Mask of (position, lane) pairs whose magnitudes add up to more than the register holds.

        Exact below ``self.exact``, where every sum is a float64 number.
        """
        beyond = np.zeros(len(columns), dtype=np.bool_)
        if not self.config.acc_register:
            return beyond
        for part in self._parts(len(columns)):
            position, lane = columns[part].T
            sums = self._columns(lanes, position, lane, sizes=True)
            beyond[part] = sums.reshape(len(sums), -1).max(axis=1) >= self.register
        return beyond

    def _parts(self, count: int) -> Iterator[slice]:
        """Columns that are worked on together."""
        step = max(1, _ELEMENTS // self._column_size())
        return (slice(first, first + step) for first in range(0, count, step))

    # The exact way -----------------------------------------------------------------------------

    def _golden(self, lanes: Lanes, out: Float32s, columns: Ids) -> int:
        """Compute some (position, lane) pairs by the definition."""
        flags = 0
        for part in self._parts(len(columns)):
            position, lane = columns[part].T
            sums = self._golden_sums(lanes, columns[part])
            bits, acc_over, half_over = accumulate.acc_to_binary16(sums, self.config)
            out[position, :, :, lane] = decode(bits)
            flags |= bool(acc_over.any()) << Flag.ACC_OVERFLOW | bool(half_over.any()) << Flag.HALF_OVERFLOW
        return flags

    def _golden_sums(self, lanes: Lanes, columns: Ids) -> Integers:
        """Accumulators ``[columns, rows, N]``."""
        position, lane = columns.T
        index = self.index[position]  # [columns, rows, blocks]
        scale = lanes.scale[index, lane[:, None, None]]
        mant = (lanes.narrow[index, :, lane[:, None, None]] / scale[..., None]).astype(np.int64)
        exp = np.frexp(scale)[1].astype(np.int64) - 1
        sums = [
            self._golden_row(mant[:, self._source(row)], exp[:, self._source(row)], *self._codes(lanes, lane, row))
            for row in range(self.shape[1])
        ]
        return np.stack(sums, axis=1)

    def _golden_row(self, mant: Ids, exp: Ids, w_mant: Ids, w_exp: Ids) -> Integers:
        """Sums ``[columns, N]`` of one row of tiles."""
        config = self.config
        if not self.depthwise:
            parts = mant.reshape(len(mant), -1, config.lanes)
            return self._accumulate(parts, np.repeat(exp, config.steps, axis=1), w_mant, w_exp)
        sums = [
            self._accumulate(mant[:, :, n, None], exp, w_mant[..., n, None, :, :], w_exp[..., n, None, :])[:, 0]
            for n in range(config.native)
        ]
        return np.stack(sums, axis=1)

    def _accumulate(self, x_mant: Ids, x_exp: Ids, w_mant: Ids, w_exp: Ids) -> Integers:
        return accumulate.accumulate(x_mant, x_exp, w_mant, w_exp, self.config.acc_frac, self.config.acc_register)


class Product(BlockProduct):
    """A product with the same weights in all lanes.

    Parameters
    ----------
    index : Index
        As of :class:`BlockProduct`.
    weights : Weights
        Of the rows.
    fast : bool
        Whether compiled kernels are used.
    """

    def __init__(self, chain: Chain, index: Ids, weights: Weights, config: NpuConfig, fast: bool = False):
        super().__init__(chain, index, len(weights.mant), config, fast)
        self.weights: Weights = weights
        self._constant = SumBounds.of(config, weights.norm, weights.spread)

    def _bounds(self, lanes: Lanes) -> SumBounds:
        return self._constant

    def _codes(self, lanes: Lanes, lane: Ids, row: int) -> tuple[Array, Array]:
        return self.weights.mant[row], self.weights.exp[row]

    def _column_sums(self, lanes: Lanes, lane: Ids, x: FloatArray, sizes: bool) -> FloatArray:
        weights = np.abs(self.weights.values) if sizes else self.weights.values
        if self.depthwise:
            return np.asarray((x.swapaxes(2, 3) * weights).sum(axis=-1))
        x = x.reshape(*x.shape[:2], 1, -1)
        return np.asarray((x @ weights.swapaxes(1, 2))[:, :, 0])

    def _sum(self, lanes: Lanes, sums: Array) -> None:
        single = sums.dtype == np.float32
        weights = self.weights.singles if single else self.weights.values
        if single and self._fast and self.depthwise:
            rows = self.index * self.config.native
            compiled().depthwise(lanes.narrow_rows, rows, weights, sums.reshape(-1, lanes.batch))
        elif self.depthwise:
            self._depthwise(lanes, weights, sums)
        else:
            self._dense(lanes, weights, sums)

    def _dense(self, lanes: Lanes, weights: Array, sums: Array) -> None:
        native, pool, batch = self.config.native, lanes.pool, lanes.batch
        positions, groups, blocks = self.index.shape
        depth = blocks * native
        x = self.places[0].read(lanes.narrow, "gathered", pool)
        weights = weights.reshape(groups, -1, depth)
        if batch >= _FEW_LANES or positions == 1 or groups > 1:
            exact = x
            if x.dtype != weights.dtype or x.strides[2] != native * x.strides[3]:
                exact = pool.take("exact", x.shape, weights.dtype)
                np.copyto(exact, x)
            exact = exact.reshape(positions, groups, depth, batch)
            np.matmul(weights, exact, out=sums.reshape(positions, groups, -1, batch))
            return
        exact = pool.take("exact", (depth, positions * batch), weights.dtype)
        np.copyto(exact.reshape(blocks, native, positions, batch), x[:, 0].transpose(1, 2, 0, 3))
        together = np.matmul(weights[0], exact).reshape(-1, positions, batch)
        np.copyto(sums.reshape(positions, -1, batch), together.transpose(1, 0, 2))

    def _depthwise(self, lanes: Lanes, weights: Array, sums: Array) -> None:
        term = lanes.pool.take("exact", sums.shape, sums.dtype.type)
        for tap, place in enumerate(self.places):
            x = place.read(lanes.narrow, "gathered", lanes.pool)
            np.multiply(x, weights[:, :, tap, None], out=term if tap else sums)
            if tap:
                np.add(sums, term, out=sums)
