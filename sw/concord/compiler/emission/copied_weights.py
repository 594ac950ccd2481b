"""Weights that do not fit into the matrix memory: which stay there, and the blocks in which the others are copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from concord.program.builder import ProgramBuilder
from concord.spec.config import NpuConfig
from concord.spec.isa import ADDR_REGS, COPY_ROWS_BITS, COPY_UNIT
from concord.spec.operations import Op

#: Name of the words of the matrix memory that copies write.
BUFFER = "copied weights"
#: Instruction words for each block of weights that a program has, at the most, as a share of its memory.
_WORDS_PER_BLOCK = 16
#: Blocks that have as many instructions as a loop over blocks.
_LOOP = 6


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
        How often they are copied in a run, if they are. Input weights of a recurrent layer count as one: a copy serves
        as many steps as there is room for.
    places : int
        How many places of the program copy them then, roughly.
    loop : bool
        Whether many blocks are a loop.
    """

    name: str
    groups: int
    words: int
    runs: int = 1
    places: int = 1
    loop: bool = False

    @property
    def total(self) -> int:
        """Words of the matrix memory that they take."""
        return self.groups * self.words


@dataclass(frozen=True)
class CopyBuffer:
    """Words of the matrix memory that copies write: a part is written while products read the other one.

    Parameters
    ----------
    words : int
        Words of a part.
    parts : int
        Two; one if there is no room for two.
    """

    words: int
    parts: int = 2

    @property
    def total(self) -> int:
        """Words of all parts."""
        return self.words * self.parts


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


class CopiesAhead:
    """Writes copies of blocks, each as soon as the words that it writes are free.

    The first one stands at the beginning. With a buffer of two parts the copy of the next block stands in front of the
    products with a block, else after them. It is a ``fence`` until the next block is known, and stays one if there is
    none: both wait for the block, and for products with the block that was there before.

    The second copy of a layer may stand further in front, between layers whose products need no copies: at the first
    such place at which the first copy is over, as far as the steps of these products tell.
    """

    def __init__(self, first: int, buffer: CopyBuffer, columns: int):
        self._first, self._buffer, self._columns = first, buffer, columns  # these are columns of a row of a tile
        self._place: int | None = None  # of the word that becomes the next copy
        self._second: int | None = None  # of the word that becomes the second copy
        self._part, self._steps = 0, 0  # steps of products since the beginning
        self._first_waits = False  # no copy has taken the place at the beginning
        self._in_front = False  # the place of the next copy is that of the second one of a layer

    def begin(self, builder: ProgramBuilder) -> None:
        """Let the first copy stand here: nothing that follows meets it."""
        self._place, self._second, self._part, self._steps = builder.fence(), None, 1, 0
        self._first_waits, self._in_front = True, False

    def between(self, builder: ProgramBuilder, blocks: Sequence[WeightBlock], steps: int) -> None:
        """Let the second copy stand in front of a layer, if there is a place for the first one.

        Parameters
        ----------
        builder : ProgramBuilder
        blocks : sequence of WeightBlock
            What the next layer with copies needs.
        steps : int
            Those of the products of the layer that follows; 0 if that is the layer with the copies.
        """
        if not (self._first_waits and self._place is not None and self._second is None):
            return
        if len(blocks) > 1 and self._buffer.parts > 1 and (self._steps >= blocks[0].rows * self._columns or not steps):
            self._second = builder.inc_addr(ADDR_REGS - 1, 0)
        self._steps += steps

    def copy(self, builder: ProgramBuilder, block: WeightBlock) -> int:
        """Write what brings a block; returns its first word in the matrix memory."""
        if self._place is None:
            self.begin(builder)
        assert self._place is not None
        self._part = (self._part + 1) % self._buffer.parts
        matrix = self.place(0)
        builder.rewrite(self._place, Op.COPY, dram=block.unit or 0, matrix=matrix, rows=block.rows, ahead=1)
        self._in_front = self._second is not None
        self._place = builder.fence() if self._second is None else self._second
        self._second, self._first_waits = None, False
        return matrix

    @property
    def alternate(self) -> bool:
        """True if copies of blocks that follow each other go to two parts, and the next one does not stand further in
        front."""
        return self._buffer.parts > 1 and not self._in_front

    def place(self, later: int) -> int:
        """First word in the matrix memory of the block so many copies after the latest one."""
        return self._first + (self._part + later) % self._buffer.parts * self._buffer.words

    def resume(self, builder: ProgramBuilder) -> None:
        """Let the next copy stand here: others in between went to as many blocks of each part."""
        self._place = builder.fence()

    def used(self, builder: ProgramBuilder) -> None:
        """All products with the block are written."""
        if self._buffer.parts == 1:
            self._place = builder.fence()

    def end(self) -> None:
        """Begin anew: what follows is executed several times, in another run, or writes the matrix memory."""
        self._place, self._second = None, None


def groups_of_block(weights: DenseWeights, buffer: int, config: NpuConfig) -> int:
    """Groups that a copy takes into so many words."""
    most = ((1 << COPY_ROWS_BITS) - 1) // config.rows * config.steps
    return min(weights.groups, min(buffer, most) // weights.words)


def copied(
    weights: Sequence[DenseWeights], room: int, config: NpuConfig, program: int
) -> tuple[dict[str, int], CopyBuffer | None]:
    """Groups that stay of the weights that are copied, by name, and the buffer for the others.

    The buffer is as small as a program of so many words has room for its blocks, and holds a group of each of these
    weights. Beside it as many groups stay as there is room for, those first that would be copied most often. If no
    buffer of two parts leaves the program short enough, one block is there at a time.
    """
    if sum(item.total for item in weights) <= room:
        return {}, None
    order = sorted(weights, key=lambda item: (-item.runs, item.total))
    for parts in (2, 1):
        most = room // parts
        for words in sorted(
            {n * item.words for item in order for n in range(1, min(item.groups, most // item.words) + 1)}
        ):
            stay = _staying(order, room - parts * words)
            others = [item for item in order if stay[item.name] < item.groups]
            blocks = sum(item.places * _written(item, stay[item.name], words, config) for item in others)
            if max(item.words for item in others) <= words and blocks * _WORDS_PER_BLOCK <= program:
                return {item.name: stay[item.name] for item in others}, CopyBuffer(words, parts)
    words = room // config.steps * config.steps
    if words < max(item.words for item in order):
        return {}, None
    return {item.name: 0 for item in order}, CopyBuffer(words, 1)


def _staying(order: Iterable[DenseWeights], room: int) -> dict[str, int]:
    """Groups for which there is room, by the name of their weights."""
    stay = {}
    for item in order:
        stay[item.name] = min(item.groups, room // item.words)
        room -= stay[item.name] * item.words
    return stay


def _blocks(weights: DenseWeights, stay: int, buffer: int, config: NpuConfig) -> int:
    size = groups_of_block(weights, buffer, config)
    return -(-(weights.groups - stay) // size) if size else weights.groups


def _written(weights: DenseWeights, stay: int, buffer: int, config: NpuConfig) -> int:
    """Blocks for each of which there are instructions."""
    blocks = _blocks(weights, stay, buffer, config)
    return min(blocks, _LOOP) if weights.loop else blocks


def blocks_of(
    weights: DenseWeights, stay: int, vectors: int, buffer: int, config: NpuConfig
) -> tuple[WeightBlock, ...]:
    """Blocks of weights with so many result vectors: first the groups that stay, as a block, if there are any.

    The others lie one after the other, from address 0 of the external memory on.
    """
    size, unit = groups_of_block(weights, buffer, config), 0
    blocks = [WeightBlock(0, stay * config.engines)] if stay else []
    for first in range(stay, weights.groups, size):
        groups = min(size, weights.groups - first)
        rows, begin = groups * weights.words // config.steps * config.rows, first * config.engines
        blocks.append(WeightBlock(begin, min(groups * config.engines, vectors - begin), unit, rows))
        unit += -(-rows * config.row_columns // COPY_UNIT)
    return tuple(blocks)
