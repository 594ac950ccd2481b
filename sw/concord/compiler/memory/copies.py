"""Tensors in vector memories, and the addresses that they share over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from concord.compiler.ir.layout import Storage
from concord.spec.isa import Mem


@dataclass(frozen=True)
class Life:
    """Words ``low`` to ``high - 1`` in use from layer ``born`` to layer ``dies``."""

    low: int
    high: int
    born: int
    dies: int

    def meets(self, other: Life) -> bool:
        """Whether both are in use at some time."""
        return self.born <= other.dies and other.born <= self.dies


@dataclass
class Copy:
    """A tensor in one vector memory, from the layer that writes it to the last one that reads it.

    ``born`` and ``dies`` are indices of layers; inputs are born at -1, outputs die after the last layer. ``operands``
    are the layers that read it as an operand of a step, if nothing reads it otherwise.
    """

    storage: Storage
    mem: Mem
    born: int
    dies: int
    addr: int = -1
    operands: set[int] | None = field(default_factory=set)
    #: The copy whose place it takes, vector by vector, in the layer that reads that for the last time.
    over: Copy | None = None
    #: Vectors of a buffer for some of the rows at a time, instead of all of them.
    size: int | None = None
    #: Vectors of the first rows of a buffer, which stay there as long as any layer up to ``kept_until`` is computed.
    kept: int = 0
    kept_until: int = -1
    #: Whether rows lie in reverse order in memory.
    reversed: bool = False

    @property
    def vectors(self) -> int:
        """Words it takes."""
        return self.storage.vectors if self.size is None else self.size

    @property
    def lives(self) -> list[Life]:
        """What it takes, and for how long."""
        size, kept = self.vectors, self.kept
        if not kept:
            return [Life(0, size, self.born, self.dies)]
        pinned, rest = ((size - kept, size), (0, size - kept)) if self.reversed else ((0, kept), (kept, size))
        return [Life(*pinned, -1, self.kept_until), Life(*rest, self.born, self.dies)]

    @property
    def group(self) -> Copy:
        """The first of the copies that share a place."""
        return self if self.over is None else self.over.group


def place(copies: Iterable[Copy], start: int) -> int:
    """Give every copy the least address from ``start`` on that no copy alive at the same time has; largest first.

    Returns
    -------
    int
        Words in use, ``start`` included.
    """
    return _place(_largest_first(copies), start)


def place_within(copies: Iterable[Copy], room: int, tries: int) -> int:
    """Give every copy an address below ``room``, if one of some orders leads to that.

    What buffers keep splits the memory. So those that keep something may lie upside down, and two of them have what
    they need at different times in common. Copies born while something is kept are tried in random order.

    Parameters
    ----------
    tries : int
        Greatest number of orders.

    Returns
    -------
    int
        Orders that were tried; more than ``tries`` if none did.
    """
    order, noise = _largest_first(copies), Random(0)
    until = max((copy.kept_until for group in order for copy in group), default=-1)
    early = [group for group in order if group[0].born <= until]
    late = [group for group in order if group[0].born > until]
    for count in range(1, tries + 1):
        if _place([*early, *late], 0, room) <= room:
            return count
        noise.shuffle(early)
        for group in early:
            group[0].reversed = bool(group[0].kept) and noise.random() < 0.5
    return tries + 1


def _largest_first(copies: Iterable[Copy]) -> list[list[Copy]]:
    """Copies that share a place, each such group as a list."""
    groups: dict[int, list[Copy]] = {}
    for copy in copies:
        groups.setdefault(id(copy.group), []).append(copy)
    return sorted(groups.values(), key=lambda group: (-group[0].vectors, min(copy.born for copy in group)))


def _place(order: list[list[Copy]], start: int, room: int | None = None) -> int:
    """Place groups in this order; the end of the first that leaves the room, if there is one."""
    placed: list[Life] = []
    for group in order:
        lives = [life for copy in group for life in copy.lives]
        addr = start
        while (above := _above(lives, addr, placed)) is not None:
            addr = above
        for copy in group:
            copy.addr = addr
        placed += [Life(addr + life.low, addr + life.high, life.born, life.dies) for life in lives]
        if room is not None and addr + group[0].vectors > room:
            return addr + group[0].vectors
    return max((life.high for life in placed), default=start)


def _above(lives: list[Life], addr: int, placed: list[Life]) -> int | None:
    """The least address from which on one of ``lives`` is clear of something placed that it meets at ``addr``."""
    found = (
        other.high - life.low
        for life in lives
        for other in placed
        if addr + life.low < other.high and other.low < addr + life.high and life.meets(other)
    )
    return min(found, default=None)


def peak(copies: Iterable[Copy]) -> int:
    """A number of words that no placement does without: the most that are in use at the same time."""
    lives = [life for copy in copies if copy.over is None for life in copy.lives]
    times = {life.born for life in lives}
    return max((sum(k.high - k.low for k in lives if k.born <= now <= k.dies) for now in times), default=0)
