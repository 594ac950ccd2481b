"""Matrix products whose weights a program has written: those of every lane are its own.

Results are exact as those of :mod:`concord.emulator.product`, and for the same reason. The bounds of a row of weights
are those of as many elements with the greatest mantissa, at its greatest power of two.
"""

from __future__ import annotations

import numpy as np

from concord.emulator.fused import compiled
from concord.emulator.lanes import Lanes
from concord.emulator.product import BlockProduct, SumBounds
from concord.emulator.tiles import Tiles
from concord.golden.blocks import floor_log2
from concord.program import Chain
from concord.program.weights import product_words
from concord.utils.arrays import Array, Float32s, FloatArray, Ids


class WrittenProduct(BlockProduct):
    """A product that reads tiles of every lane.

    Parameters
    ----------
    index : Index
        As of :class:`BlockProduct`.
    rows : slice
        Of the chain.
    tiles : Tiles
    fast : bool
        Whether compiled kernels are used.
    """

    def __init__(self, chain: Chain, index: Ids, rows: slice, tiles: Tiles, fast: bool = False):
        config = tiles.config
        super().__init__(chain, index, rows.stop - rows.start, config, fast)
        words = product_words(chain, config)
        #: By row, the engine and the words.
        if chain.depthwise:
            engines, groups = np.zeros(self.shape[1], dtype=np.int64), words[rows]
        else:
            groups, engines = np.divmod(np.arange(rows.start, rows.stop), config.engines)
            groups = words.reshape(len(words), -1)[groups]
        self._engines, slots = engines, tiles.slots(groups // config.steps)
        self._tiles = len(tiles.numbers)
        #: By row and word: the first of its elements in a row of the tiles.
        elements = slots * config.native + groups % config.steps * config.lanes
        first = (engines * config.native)[:, None] + np.arange(config.native)
        #: Starts of rows of the tiles ``[rows, N]``, and elements of them that are read ``[rows, K]``.
        self._starts = first * self._tiles * config.native
        self._every = (elements[..., None] + np.arange(config.lanes)).reshape(len(first), -1)
        #: Places ``[rows, N, tiles]`` of everything that is read.
        tiles_read = np.concatenate([slots[:, :: config.steps], slots[:, -1:]], axis=1)
        self._places = first[..., None] * self._tiles + tiles_read[:, None]
        if chain.depthwise:
            word, lane = chain.tap_places(config)
            self._taps = elements[:, word] + lane

    def _row(self, lanes: Lanes, row: int) -> Float32s:
        """Weights ``[N, K, B]`` of a row of tiles; a view, if they are in one piece."""
        native, every = self.config.native, self._every[row]
        first = self._engines[row] * native
        matrix = lanes.matrix.values.reshape(-1, self._tiles * native, lanes.batch)[first : first + native]
        if self.depthwise:
            return matrix[:, self._taps[row]]
        if every[-1] - every[0] == len(every) - 1:
            return matrix[:, every[0] : every[-1] + 1]
        return matrix[:, every]

    def _bounds(self, lanes: Lanes) -> SumBounds:
        scale, grain = lanes.matrix.scale[self._places], lanes.matrix.grain[self._places]  # [rows, N, tiles, B]
        top = scale.max(axis=2)
        terms = (self._taps if self.depthwise else self._every).shape[1]
        most = terms * self.config.wgt.q_max
        spread = (top / grain.min(axis=2)).max(axis=(0, 1))
        return SumBounds.of(
            self.config, most * top.max(axis=(0, 1)).astype(np.float64), most * spread.astype(np.float64)
        )

    def _sum(self, lanes: Lanes, sums: Array) -> None:
        kind = sums.dtype.type
        if self.depthwise:
            x = lanes.narrow[self.index].astype(kind, copy=False)  # [positions, rows, taps, N, B]
            for row in range(self.shape[1]):
                weights = self._row(lanes, row).astype(kind, copy=False)
                np.einsum("ntb,ptnb->pnb", weights, x[:, self._source(row)], out=sums[:, row])
            return
        if self._fast and lanes.batch > 1:
            rows, out = self.index * self.config.native, sums.reshape(-1, lanes.batch)
            compiled().products(lanes.matrix.rows, self._starts, self._every, lanes.narrow_rows, rows, out)
            return
        x = self.places[0].read(lanes.narrow, "gathered", lanes.pool).astype(kind, copy=False)
        x = x.reshape(*x.shape[:2], -1, lanes.batch)
        for row in range(self.shape[1]):
            weights, source = self._row(lanes, row).astype(kind, copy=False), x[:, self._source(row)]
            if lanes.batch == 1:
                np.matmul(source[..., 0], weights[..., 0].T, out=sums[:, row, :, 0])
            else:
                np.einsum("nkb,pkb->pnb", weights, source, out=sums[:, row])

    # Some positions and lanes --------------------------------------------------------------------

    def _column_size(self) -> int:
        return super()._column_size() * self.config.native

    def _column_sums(self, lanes: Lanes, lane: Ids, x: FloatArray, sizes: bool) -> FloatArray:
        sums = np.empty((len(x), *self.shape[1:]))
        for row in range(self.shape[1]):
            weights = self._row(lanes, row)[..., lane].astype(np.float64)
            weights, source = np.abs(weights) if sizes else weights, x[:, self._source(row)]
            if self.depthwise:
                np.einsum("ntc,ctn->cn", weights, source, out=sums[:, row])
            else:
                np.einsum("nkc,ck->cn", weights, source.reshape(len(x), -1), out=sums[:, row])
        return sums

    def _codes(self, lanes: Lanes, lane: Ids, row: int) -> tuple[Array, Array]:
        """Each block with the exponent that conversion would give it; the terms of a sum are the same numbers."""
        fmt = self.config.wgt
        block = 1 if self.depthwise else self.config.lanes
        values = np.moveaxis(self._row(lanes, row)[..., lane], -1, 0).astype(np.float64)
        values = values.reshape(*values.shape[:2], -1, block)
        top = np.abs(values).max(axis=-1)
        exp = np.where(top > 0, np.maximum(floor_log2(top) - fmt.headroom, fmt.exp_min), fmt.exp_min)
        return np.ldexp(values, -exp[..., None]).astype(np.int64), exp
