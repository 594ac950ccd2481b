"""Reads and writes of a chain: words of the memories by vector, and the vectors that may go together.

A vector of an integer chain must not read what another vector of its chain writes: hardware reads ahead of what it
writes. A vector may write where it reads itself, as an update does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from concord.program.chains import VECTOR_MASK, Chain, VectorPlace
from concord.program.integers import IntegerChain, broken_integer_rules
from concord.program.matrix_writes import broken_matrix_rules, row_words
from concord.program.rules import Broken
from concord.program.sliding import broken_rules
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem, Op
from concord.spec.memmap import RegionId
from concord.spec.operations import IntegerSource
from concord.spec.rules import ProgramRule
from concord.utils.arrays import Ids

#: Regions of the link by vector memory, and vector memories by region.
REGIONS = {Mem.WIDE: RegionId.WIDE, Mem.NARROW: RegionId.NARROW}
VECTORS = {region: mem for mem, region in REGIONS.items()}
#: Words ``[vectors, words]`` by region; -1 stands for none.
Words = Mapping[RegionId, Ids]
#: Offsets after the memory of a vector of zeros and of one of -inf, for what lies outside an image.
ZERO, LOWEST = 0, 1


def depth(config: NpuConfig, mem: Mem) -> int:
    """Words of one vector memory."""
    return config.wide_depth if mem is Mem.WIDE else config.narrow_depth


@dataclass(frozen=True)
class Segment:
    """Vectors whose source is read before any of them is written.

    Parameters
    ----------
    positions, rows : slice
        Which ones.
    passes : tuple of slice
        Rows that go through multifunction units and into the memories together, in order: a row of a group of T may
        have operands that an earlier one has written.
    """

    positions: slice
    rows: slice
    passes: tuple[slice, ...]


@dataclass(frozen=True, eq=False)
class Access:
    """All addresses of a chain ``[positions, rows, ...]``, checked against the depths of the memories.

    Members
    -------
    source : Ids ``[positions, rows, taps * cols]``
        Taps outside the image point to a word after the memory.
    operands : list of Ids or None
        One per step.
    scale : list of Ids
        Factors and fractions of ``vv_scale``, if there is one.
    targets : dict of Ids
        By memory.
    rows : Ids ``[positions, rows]`` or None
        Rows of tiles that ``m_wr`` writes (:meth:`Chain.written_rows`).
    """

    chain: Chain
    config: NpuConfig
    source: Ids
    operands: list[Ids | None]
    scale: list[Ids]
    targets: dict[Mem, Ids]
    rows: Ids | None

    @classmethod
    def of(cls, chain: Chain, config: NpuConfig) -> Access:
        """Addresses of a chain.

        Raises
        ------
        ValueError
            If a rule of the chain is broken, or an address does not exist.
        """
        for broken in broken_rules(chain, config):
            raise ValueError(f"a sliding product at pc {chain.pc} {broken.message}")
        for broken in broken_matrix_rules(chain, config):
            raise ValueError(f"a chain at pc {chain.pc} {broken.message}")

        def checked(index: Ids, mem: Mem) -> Ids:
            if index.max() >= (limit := depth(config, mem)):
                raise ValueError(f"addresses of {mem.name.lower()} must be below {limit}, not {index.max()}")
            return index.reshape(chain.outer * chain.inner, chain.rows, -1)

        outside = depth(config, chain.mem) + (ZERO if chain.reduce is Op.MV_MUL else LOWEST)
        inside = chain.inside()[:, :, None, :, None]
        source = checked(np.where(inside, chain.sources(config), -1), chain.mem)
        scale = () if chain.scale is None else chain.scale.operands
        addresses = [op.operand for op in chain.mfu_ops]
        rows = None if chain.into_matrix is None else chain.written_rows(config)
        return cls(
            chain,
            config,
            np.where(source < 0, outside, source),
            [None if part is None else checked(chain.addresses(part), Mem.WIDE)[..., 0] for part in addresses],
            [checked(chain.addresses(part), Mem.WIDE)[..., 0] for part in scale],
            {d.mem: checked(chain.addresses(d.address), d.mem)[..., 0] for d in chain.destinations},
            None if rows is None else rows.reshape(chain.outer * chain.inner, chain.rows, -1)[..., 0],
        )

    @property
    def positions(self) -> int:
        """Number of positions of the chain."""
        return self.chain.outer * self.chain.inner

    def reads(self, mem: Mem) -> list[tuple[Ids, Ids]]:
        """Addresses ``[positions, rows, ...]`` that are read from one memory, and ``[positions, rows]`` before which
        vector each is read.
        """
        each = np.arange(self.positions * self.chain.rows)
        sources = [(self.source, self.chain.source_order(self.config))] if self.chain.mem is mem else []
        if mem is Mem.WIDE:
            sources += [(index[..., None], each) for index in (*self.scale, *self.operands) if index is not None]
        shape = self.positions, self.chain.rows
        return [(np.where(at < depth(self.config, mem), at, -1), when.reshape(shape)) for at, when in sources]

    def read(self, mem: Mem) -> set[int]:
        """Words of a memory that are read."""
        return {a for index, _ in self.reads(mem) for a in np.unique(index).tolist()} - {-1}

    def written(self, mem: Mem) -> set[int]:
        """Words of a memory that are written."""
        return set(np.unique(self.targets[mem]).tolist())

    def segments(self) -> Iterator[Segment]:
        """Positions and rows in order, cut wherever a vector reads what one of the same segment writes."""
        rows, group = self.chain.rows, self.chain.group(self.config)
        writer = self._writers()
        if writer is None:
            yield Segment(slice(0, self.positions), slice(0, rows), (slice(0, rows),))
            return
        for position in range(self.positions):
            writers = [writer[position * rows + row] - position * rows for row in range(rows)]  # row, negative: earlier
            start = 0
            for first in range(0, rows, group):
                stop = min(first + group, rows)
                inner = [row for row in range(first + 1, stop) if writers[row] >= first]
                if first > start and (inner or max(writers[first:stop]) >= start):
                    yield self._segment(position, [start, first])
                    start = first
                if inner:
                    yield self._segment(position, [first, *inner, stop])
                    start = stop
            if start < rows:
                yield self._segment(position, [start, rows])

    @staticmethod
    def _segment(position: int, cuts: list[int]) -> Segment:
        passes = tuple(slice(*ends) for ends in pairwise(cuts))
        return Segment(slice(position, position + 1), slice(cuts[0], cuts[-1]), passes)

    def _writers(self) -> list[int] | None:
        """Latest earlier vector that writes what a vector reads, for each vector; nothing if there are none at all.

        What a group of T rows reads as its source counts for the first of them.
        """
        count = self.positions * self.chain.rows
        pairs = []
        dependent = False
        for mem, target in self.targets.items():
            first = np.full(depth(self.config, mem) + 1, count, dtype=np.int64)
            first[target.reshape(-1)[::-1]] = np.arange(count)[::-1]
            reads = self.reads(mem)
            dependent |= any(bool((first[index] < when[..., None]).any()) for index, when in reads)
            lists = [(index.reshape(count, -1).tolist(), when.reshape(count).tolist()) for index, when in reads]
            pairs.append((target.reshape(-1).tolist(), lists))
        if not dependent:
            return None
        latest = [-1] * count
        for targets, lists in pairs:
            written: dict[int, int] = {}
            for vector, target_address in enumerate(targets):
                for addresses, when in lists:
                    if when[vector] == vector:
                        latest[vector] = max(latest[vector], *(written.get(a, -1) for a in addresses[vector]))
                written[target_address] = vector
        return latest


# Integer chains ----------------------------------------------------------------------------------------------


def words_read(chain: IntegerChain, config: NpuConfig, accumulators: int) -> Words:
    """Words that an integer chain reads, by region ``[vectors, words]``; -1 in the place of taps outside the image.

    ``accumulators``: from a word of weights to its accumulators, as the ``t_upd`` in front of it says.
    """
    if chain.kind is IntegerSource.PRODUCT:
        inside = chain.inside()[:, :, None, None, :, None]
        parts = [(RegionId.NARROW, np.where(inside, chain.source_taps(), -1))]
        parts.append((RegionId.MATRIX, chain.tile_words(config)))
    else:
        mem = Mem.WIDE if chain.kind is IntegerSource.WIDE else Mem.NARROW
        parts = [_integers(chain, VectorPlace(mem, chain.source))]
    if chain.with_operand:
        parts.append(_integers(chain, chain.operand))
    if chain.steps.update:
        parts.append((RegionId.WIDE, chain.addresses(chain.operand.address) + accumulators & VECTOR_MASK))
    return _joined(parts, chain.vectors)


def words_written(chain: IntegerChain, config: NpuConfig, accumulators: int) -> Words:
    """Words that an integer chain writes, by region ``[vectors, words]``; of the matrix memory all that it writes a
    part of.
    """
    steps, parts = chain.steps, list[tuple[RegionId, Ids]]()
    if steps.update:
        parts.append(_integers(chain, chain.operand))
        parts.append((RegionId.WIDE, chain.addresses(chain.operand.address) + accumulators & VECTOR_MASK))
    if steps.to_vector and chain.destination.mem is Mem.NARROW:
        parts.append((RegionId.NARROW, chain.narrow_targets()))
    elif steps.to_vector:
        parts.append(_integers(chain, chain.destination))
    if steps.to_column:
        parts.append((RegionId.MATRIX, chain.written_columns() // config.lanes))
    if steps.to_row:
        parts.append((RegionId.MATRIX, row_words(chain.written_tile_rows(), config)))
    return _joined(parts, chain.vectors)


def both_words(first: Ids) -> Ids:
    """The two words ``[..., 2]`` of wide integers."""
    return np.stack([first, first + 1], axis=-1)


def _integers(chain: IntegerChain, place: VectorPlace) -> tuple[RegionId, Ids]:
    """Words of vectors of narrow or wide integers."""
    first = chain.addresses(place.address)
    return REGIONS[place.mem], first if place.mem is Mem.NARROW else both_words(first)


def _joined(parts: list[tuple[RegionId, Ids]], vectors: int) -> Words:
    """Words by region, all of a vector in a row."""
    return {
        region: np.concatenate([words.reshape(vectors, -1) for other, words in parts if other is region], axis=1)
        for region in dict.fromkeys(region for region, _ in parts)
    }


def broken_chain_rules(chain: IntegerChain, config: NpuConfig, accumulators: int = 0) -> list[Broken]:
    """All rules that an integer chain breaks; those between its vectors are looked at if it breaks none of the others.

    Parameters
    ----------
    chain : IntegerChain
    config : NpuConfig
    accumulators : int
        From a word of weights to its accumulators, as the latest ``t_upd`` says.
    """
    reads, writes = words_read(chain, config, accumulators), words_written(chain, config, accumulators)
    depths = {REGIONS[mem]: depth(config, mem) for mem in (Mem.NARROW, Mem.WIDE)} | {
        RegionId.MATRIX: config.matrix_depth
    }
    broken = broken_integer_rules(chain, config)
    for region, words in depths.items():
        used = [part[region] for part in (reads, writes) if region in part]
        most = max((int(index.max()) for index in used), default=0)
        if most >= words:
            message = f"must stay below word {words} of the {region.name.lower()} memory, not touch {most}"
            broken.append(Broken(ProgramRule.INTEGER_ADDRESSES, message))
    if RegionId.MATRIX in writes and writes[RegionId.MATRIX].min() < 0:
        message = "must not write columns or rows in front of the first tile"
        broken.append(Broken(ProgramRule.FIRST_TILE, message))
    if broken:
        return broken
    for region, words in depths.items():
        if region in reads and region in writes:
            broken += _overlap(reads[region], writes[region], words, region.name.lower())
    return broken + _written_twice(chain, config)


def _overlap(reads: Ids, writes: Ids, depth: int, name: str) -> list[Broken]:
    """Words that a vector reads and another one writes."""
    vectors = len(reads)
    number = np.repeat(np.arange(vectors), writes.shape[1])
    first, last = np.full(depth + 1, -1), np.full(depth + 1, -1)  # word -1, which nothing writes, is the one at the end
    last[writes.ravel()] = number
    first[writes.ravel()[::-1]] = number[::-1]
    own = np.arange(vectors)[:, None]
    wrong = (first[reads] >= 0) & ((first[reads] != own) | (last[reads] != own))
    if not wrong.any():
        return []
    message = f"must not read {name} {int(reads[wrong].min())} in a vector, which another vector of it writes"
    return [Broken(ProgramRule.OTHER_VECTORS, message)]


def _written_twice(chain: IntegerChain, config: NpuConfig) -> list[Broken]:
    """Words of the matrix memory that are written as columns and as rows."""
    if not (chain.steps.to_column and chain.steps.to_row):
        return []
    columns = chain.written_columns() // config.lanes
    both = np.intersect1d(columns, row_words(chain.written_tile_rows(), config))
    if not both.size:
        return []
    return [Broken(ProgramRule.COLUMNS_AND_ROWS, f"must not write matrix {int(both[0])} both as columns and as rows")]
