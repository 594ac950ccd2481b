"""Matrix products of a batch: float64 matrix products of values on the accumulator grid.

A float64 sum is exact, in whatever order, as long as it stays below 2**53 units of the grid. The bound is checked with
the exponents of the sources; lanes that might exceed it are left to the golden model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from concord.golden import accumulate
from concord.program import Chain
from concord.program.chains import Index
from concord.spec.config import NpuConfig
from concord.spec.formats import Flag

from .kernels import F32, decode, round_sums
from .lanes import Lanes, Place
from .memories import Memories

F64 = NDArray[np.float64]

_EXACT_BITS = 53
#: Below this many lanes, positions and lanes are multiplied together.
_FEW_LANES = 64


@dataclass(frozen=True)
class Weights:
    """Weights of a chain: mantissas ``[rows, N, blocks, lanes]`` and exponents ``[rows, N, blocks]``.

    A dense product has one block per N/L-th of a tile, a depthwise product one of one element per tap.
    """

    mant: NDArray[np.int64]
    exp: NDArray[np.int64]

    @cached_property
    def values(self) -> F64:
        """Weights as numbers ``[rows, N, K]``."""
        exact = np.ldexp(self.mant.astype(np.float64), self.exp[..., None])
        return np.ascontiguousarray(exact.reshape(*self.exp.shape[:2], -1))

    @cached_property
    def norm(self) -> float:
        """Greatest sum of magnitudes of a matrix row."""
        return float(np.abs(self.values).sum(axis=-1).max())


def fetch(chain: Chain, memories: Memories) -> Weights:
    """Read the weights of a product; ``ValueError`` if they lie beyond the matrix memory."""
    config = memories.config
    words = chain.matrix_words(config)
    if words.max() >= config.matrix_depth:
        raise ValueError(f"matrix addresses must be below {config.matrix_depth}, not {words.max()}")
    mant, exp = memories.matrix_mant[words].astype(np.int64), memories.matrix_exp[words].astype(np.int64)
    n, lanes, rows = config.native, config.lanes, chain.rows
    if chain.depthwise:
        taps = chain.window.taps
        mant = mant[:, :, :n].swapaxes(1, 2).reshape(rows, n, -1)[..., :taps, None]
        return Weights(mant, np.repeat(exp[:, :, :n].swapaxes(1, 2), lanes, axis=-1)[..., :taps])
    groups = len(words)
    mant = mant.reshape(groups, -1, config.engines, n, lanes).transpose(0, 2, 3, 1, 4)
    exp = exp.reshape(groups, -1, config.engines, n).transpose(0, 2, 3, 1)
    return Weights(mant.reshape(-1, *mant.shape[2:])[:rows], exp.reshape(-1, *exp.shape[2:])[:rows])


class Product:
    """A dense or depthwise product for some positions and rows of a chain.

    Parameters
    ----------
    index : Index
        Source addresses ``[positions, rows, blocks]`` with zeros outside the image pointing behind the memory; a dense
        product whose rows share their source has one row only.
    weights : Weights
        Of these rows.
    """

    def __init__(self, chain: Chain, index: Index, weights: Weights, lanes: Lanes):
        self.config: NpuConfig = lanes.config
        self.lanes, self.weights, self.index = lanes, weights, index
        self.depthwise = chain.depthwise
        self.used = np.unique(index)
        rows = len(weights.mant)
        self.shape = (len(index), rows, self.config.native, lanes.batch)
        taps = [index[:, :, t] for t in range(index.shape[2])] if self.depthwise else [index]
        self.places = [Place(lanes.narrow, tap, lanes.pool) for tap in taps]
        self.limit = 2.0 ** (self.config.acc_width - 1 - self.config.acc_frac)
        self.exact = 2.0 ** (_EXACT_BITS - self.config.acc_frac)

    def run(self, out: F32) -> int:
        """Results as binary16 values, and flags."""
        sums = self._depthwise() if self.depthwise else self._dense()
        factor = self.config.act.q_max * self.weights.norm
        bound = float(self.lanes.scale[self.used].max()) * factor
        unsafe = None
        if bound >= self.exact:
            tops = self.lanes.scale[self.index.reshape(len(self.index), -1)].max(axis=1)
            unsafe = np.argwhere(tops * factor >= self.exact)
            sums[unsafe[:, 0], :, :, unsafe[:, 1]] = 0.0
        flags = 0
        if bound >= self.limit:
            least, greatest = -self.limit, self.limit - 2.0**-self.config.acc_frac
            if sums.max() > greatest or sums.min() < least:
                np.clip(sums, least, greatest, out=sums)
                flags |= 1 << Flag.ACC_OVERFLOW
        flags |= round_sums(sums, out, self.lanes.pool)
        if unsafe is not None and len(unsafe):
            flags |= self._golden(out, unsafe)
        return flags

    def _dense(self) -> F64:
        config, pool = self.config, self.lanes.pool
        positions, groups, blocks = self.index.shape
        batch, depth = self.lanes.batch, blocks * config.native
        x = self.places[0].read("gathered")
        sums = pool.take("sums", self.shape, np.float64)
        weights = self.weights.values.reshape(groups, -1, depth)
        if batch >= _FEW_LANES or positions == 1 or groups > 1:
            exact = pool.take("exact", (positions, groups, depth, batch), np.float64)
            np.copyto(exact.reshape(x.shape), x)
            np.matmul(weights, exact, out=sums.reshape(positions, groups, -1, batch))
            return sums
        exact = pool.take("exact", (depth, positions * batch), np.float64)
        np.copyto(exact.reshape(blocks, config.native, positions, batch), x[:, 0].transpose(1, 2, 0, 3))
        together = np.matmul(weights[0], exact).reshape(-1, positions, batch)
        np.copyto(sums.reshape(positions, -1, batch), together.transpose(1, 0, 2))
        return sums

    def _depthwise(self) -> F64:
        pool = self.lanes.pool
        sums = pool.take("sums", self.shape, np.float64)
        term = pool.take("exact", self.shape, np.float64)
        for tap, place in enumerate(self.places):
            weight = self.weights.values[:, :, tap, None]
            np.multiply(place.read("gathered"), weight, out=term if tap else sums)
            if tap:
                np.add(sums, term, out=sums)
        return sums

    # The exact way -----------------------------------------------------------------------------

    def _golden(self, out: F32, columns: NDArray[np.int64]) -> int:
        """Compute some (position, lane) pairs by the definition."""
        position, lane = columns.T
        index = self.index[position]  # [columns, rows, blocks]
        scale = self.lanes.scale[index, lane[:, None, None]]
        mant = (self.lanes.narrow[index, :, lane[:, None, None]] / scale[..., None]).astype(np.int64)
        exp = np.frexp(scale)[1].astype(np.int64) - 1
        sums = [
            self._golden_row(mant[:, min(row, index.shape[1] - 1)], exp[:, min(row, index.shape[1] - 1)], row)
            for row in range(self.shape[1])
        ]
        bits, acc_over, half_over = accumulate.acc_to_half(np.stack(sums, axis=1), self.config)
        out[position, :, :, lane] = decode(bits)
        return bool(acc_over.any()) << Flag.ACC_OVERFLOW | bool(half_over.any()) << Flag.HALF_OVERFLOW

    def _golden_row(self, mant: NDArray[np.int64], exp: NDArray[np.int64], row: int) -> accumulate.Grid:
        """Sums ``[columns, N]`` of one row of tiles."""
        config, w_mant, w_exp = self.config, self.weights.mant[row], self.weights.exp[row]
        if not self.depthwise:
            parts = mant.reshape(len(mant), -1, config.lanes)
            return accumulate.accumulate(parts, np.repeat(exp, config.steps, axis=1), w_mant, w_exp, config.acc_frac)
        sums = [
            accumulate.accumulate(mant[:, :, n, None], exp, w_mant[n, None], w_exp[n, None], config.acc_frac)[:, 0]
            for n in range(config.native)
        ]
        return np.stack(sums, axis=1)
