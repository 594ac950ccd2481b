"""Tiles of the matrix memory with contents of their own in every lane, as programs write them."""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cached_property

import numpy as np

from concord.program import Chain, Trace
from concord.program.matrix_writes import row_words
from concord.program.weights import product_words
from concord.spec.config import NpuConfig
from concord.spec.isa import Op
from concord.utils.arrays import Ids


class Tiles:
    """Tiles that chains write, and all those that products read together with a tile that is written.

    Rows of tiles are at places ``[T*N, tiles]``: a row of a matrix of several tiles is in one piece.

    Parameters
    ----------
    config : NpuConfig
    chains : iterable of Chain
        What is executed.
    earlier : set of int
        Tiles that were written before.

    Members
    -------
    numbers : Index
        Of the tiles, in order.
    """

    def __init__(self, config: NpuConfig, chains: Iterable[Chain] = (), earlier: Set[int] = frozenset()):
        self.config = config
        every = list(dict.fromkeys(chains))
        self.written = {tile for chain in every for tile in written_tiles(chain, config)}
        self._changed = self.written | earlier
        numbers = self.written.union(*(self._read(chain) for chain in every if self.own(chain)))
        self.numbers: Ids = np.array(sorted(numbers), dtype=np.int64)

    @cached_property
    def key(self) -> tuple[tuple[int, ...], frozenset[int]]:
        """Key of the places, and of the products that :meth:`own` names."""
        return tuple(self.numbers.tolist()), frozenset(self._changed)

    def own(self, chain: Chain) -> bool:
        """True if a chain is a product whose weights may differ from lane to lane."""
        return bool(self._changed) and chain.reduce is Op.MV_MUL and not self._changed.isdisjoint(self._read(chain))

    def _read(self, chain: Chain) -> set[int]:
        return set((product_words(chain, self.config) // self.config.steps).ravel().tolist())

    def rows_read(self, chain: Chain) -> set[int]:
        """Rows of tiles that a product looks at; a depthwise one has those of engine 0."""
        tiles = np.array(sorted(self._read(chain)), dtype=np.int64)[:, None]
        count = self.config.native if chain.depthwise else self.config.rows
        return set((tiles * self.config.rows + np.arange(count)).ravel().tolist())

    def slots(self, tiles: Ids) -> Ids:
        """Places of tiles among these."""
        return np.searchsorted(self.numbers, tiles)

    def places(self, rows: Ids) -> Ids:
        """Places of rows of tiles."""
        tile, row = np.divmod(rows, self.config.rows)
        return np.asarray(row * len(self.numbers) + self.slots(tile))

    def words(self, rows: Ids) -> tuple[Ids, Ids]:
        """Words ``[rows, N/L]`` of the matrix memory with rows of tiles, and the row of each of them.

        Of a tile that ends beyond the memory the last word stands for those that are missing.
        """
        words = np.minimum(row_words(rows, self.config), self.config.matrix_depth - 1)
        return words, np.broadcast_to(rows[:, None] % self.config.rows, words.shape)


def written_tiles(chain: Chain, config: NpuConfig) -> set[int]:
    """Tiles that a chain writes rows of."""
    if chain.into_matrix is None:
        return set()
    return set(np.unique(chain.written_rows(config) // config.rows).tolist())


def check_written_once(run: Trace, config: NpuConfig) -> None:
    """:class:`ValueError` if copies and ``m_wr`` write rows of the same tile."""
    copied = {tile for copy in dict.fromkeys(run.copies) for tile in copy.tiles(config)}
    chains = dict.fromkeys(run.chains) if copied else ()
    if both := sorted(tile for chain in chains for tile in written_tiles(chain, config) & copied):
        raise ValueError(f"tiles that m_wr writes must not be written by copies, as tile {both[0]} is")
