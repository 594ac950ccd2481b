"""Weights that do not fit into the matrix memory: which stay there, and the blocks in which the others are copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from concord.spec.config import NpuConfig
from concord.spec.isa import COPY_ROWS_BITS, COPY_UNIT

#: Name of the words of the matrix memory that copies write.
BUFFER = "copied weights"
#: Instruction words for each block of weights that a program has, at the most, as a share of its memory.
_WORDS_PER_BLOCK = 16


@dataclass(frozen=True)
class DenseWeights:
    """Dense weights of a layer or gate.

    Parameters
    ----------
    name : str
        Of their allocation.
    groups : int
        Parts of T result vectors, each of which is needed in one piece.
    words : int
        Words of the matrix memory that a group takes.
    runs : int
        How often they are used in a run.
    """

    name: str
    groups: int
    words: int
    runs: int = 1

    @property
    def total(self) -> int:
        """Words of the matrix memory that they take."""
        return self.groups * self.words


@dataclass(frozen=True)
class WeightBlock:
    """Result vectors that are computed with weights that are in the matrix memory at the same time.

    Parameters
    ----------
    first, count : int
        The first of the result vectors, and how many they are.
    unit : int or None
        Address in the external memory; ``None`` if the weights stay in the matrix memory.
    rows : int
        Rows of tiles.
    """

    first: int
    count: int
    unit: int | None = None
    rows: int = 0


def groups_of_block(weights: DenseWeights, buffer: int, config: NpuConfig) -> int:
    """Groups that a copy takes into so many words."""
    most = ((1 << COPY_ROWS_BITS) - 1) // config.rows * config.steps
    return min(weights.groups, min(buffer, most) // weights.words)


def copied(weights: Sequence[DenseWeights], room: int, config: NpuConfig) -> tuple[set[str], int]:
    """Names of the weights that are copied, and words of the buffer for them: none if all fit into ``room`` words.

    As many stay as leave room for a group of each of the others, those that are used most often first; fewer, where
    the program would have more blocks than it has room for.
    """
    if sum(item.total for item in weights) <= room:
        return set(), 0
    order = sorted(weights, key=lambda item: (-item.runs, item.total))
    for stay in range(len(order) - 1, -1, -1):
        others = order[stay:]
        buffer = (room - sum(item.total for item in order[:stay])) // config.steps * config.steps
        if buffer < max(item.words for item in others):
            continue
        if stay == 0 or _blocks(others, buffer, config) * _WORDS_PER_BLOCK <= config.program_depth:
            return {item.name for item in others}, buffer
    return set(), 0


def _blocks(weights: Iterable[DenseWeights], buffer: int, config: NpuConfig) -> int:
    return sum(-(-item.groups // groups_of_block(item, buffer, config)) for item in weights)


def blocks_of(weights: DenseWeights, vectors: int, buffer: int, config: NpuConfig) -> tuple[WeightBlock, ...]:
    """Blocks of weights with so many result vectors, one after the other from address 0 of the external memory on."""
    size, unit, blocks = groups_of_block(weights, buffer, config), 0, list[WeightBlock]()
    for first in range(0, weights.groups, size):
        groups = min(size, weights.groups - first)
        rows, begin = groups * weights.words // config.steps * config.rows, first * config.engines
        blocks.append(WeightBlock(begin, min(groups * config.engines, vectors - begin), unit, rows))
        unit += -(-rows * config.row_columns // COPY_UNIT)
    return tuple(blocks)
