"""Tensors in vector memories, and the addresses that they share over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from concord.compiler.ir.layout import Storage
from concord.spec.isa import Mem


@dataclass(frozen=True)
class LiveRange:
    """Words ``low`` to ``high - 1`` in use from layer ``first_use`` to layer ``last_use``."""

    low: int
    high: int
    first_use: int
    last_use: int

    def at(self, addr: int) -> LiveRange:
        """The range from an address on."""
        return LiveRange(addr + self.low, addr + self.high, self.first_use, self.last_use)

    def overlaps(self, other: LiveRange) -> bool:
        """True if both are in use at some time."""
        return self.first_use <= other.last_use and other.first_use <= self.last_use


@dataclass
class Copy:
    """A tensor in one vector memory, from the layer that writes it to the last one that reads it.

    ``first_use`` and ``last_use`` are indices of layers. The first use of an input is -1, and the last use of an output
    is the number of layers. ``operands`` are the layers that read it as an operand of a step, if nothing reads it
    otherwise.
    """

    storage: Storage
    mem: Mem
    first_use: int
    last_use: int
    addr: int = -1
    operands: set[int] | None = field(default_factory=set)
    #: The copy whose place it takes, vector by vector, in the layer that reads that for the last time.
    over: Copy | None = None
    #: Vectors of a buffer for some of the rows at a time, instead of all of them.
    size: int | None = None
    #: Vectors of the first rows of a buffer, which stay as long as any layer of ``kept_while`` is computed, the first
    #: and the last one.
    kept: int = 0
    kept_while: tuple[int, int] = (-1, -1)
    #: True if rows lie in reverse order in memory, and if they must not.
    reversed: bool = False
    forwards: bool = False

    @property
    def vectors(self) -> int:
        """Words it takes."""
        return self.storage.vectors if self.size is None else self.size

    @property
    def live_ranges(self) -> list[LiveRange]:
        """Ranges of words of the copy, each with the layers in which it is in use."""
        size, kept = self.vectors, self.kept
        if not kept:
            return [LiveRange(0, size, self.first_use, self.last_use)]
        pinned, rest = ((size - kept, size), (0, size - kept)) if self.reversed else ((0, kept), (kept, size))
        return [LiveRange(*pinned, *self.kept_while), LiveRange(*rest, self.first_use, self.last_use)]

    @property
    def group(self) -> Copy:
        """The first of the copies that share a place."""
        first = self
        while first.over is not None:
            first = first.over
        return first


def at_a_time(copies: Iterable[Copy]) -> list[list[Copy]]:
    """Copies in parts between which there is a time without any."""
    parts, until = list[list[Copy]](), -2
    for copy in sorted(copies, key=lambda copy: min(live.first_use for live in copy.live_ranges)):
        if min(live.first_use for live in copy.live_ranges) > until:
            parts.append([])
        parts[-1].append(copy)
        until = max(until, *(live.last_use for live in copy.live_ranges))
    return parts


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

    Rows that buffers keep split the memory. So buffers that keep some may lie in reverse order, and two of them
    share what they need at different times. Copies that begin while something is kept are tried in random order.

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
    until = max((copy.kept_while[1] for group in order for copy in group), default=-1)
    early = [group for group in order if group[0].first_use <= until]
    late = [group for group in order if group[0].first_use > until]
    for count in range(1, tries + 1):
        if _place([*early, *late], 0, room) <= room:
            return count
        noise.shuffle(early)
        for group in early:
            group[0].reversed = bool(group[0].kept) and noise.random() < 0.5 and not group[0].forwards
    return tries + 1


def _largest_first(copies: Iterable[Copy]) -> list[list[Copy]]:
    """Copies that share a place, each such group as a list."""
    groups: dict[int, list[Copy]] = {}
    firsts: dict[int, Copy] = {}  # of copies whose place another one has taken: a long row is walked once
    for copy in copies:
        first = firsts.get(id(copy.over)) or copy.group
        firsts[id(copy)] = first
        groups.setdefault(id(first), []).append(copy)
    return sorted(groups.values(), key=lambda group: (-group[0].vectors, min(copy.first_use for copy in group)))


def _place(order: list[list[Copy]], start: int, room: int | None = None) -> int:
    """Place groups in this order; the end of the first that leaves the room, if there is one."""
    placed: list[LiveRange] = []
    for group in order:
        ranges = [live for copy in group for live in copy.live_ranges]
        addr = start
        while (above := _above(ranges, addr, placed)) is not None:
            addr = above
        for copy in group:
            copy.addr = addr
        placed += [live.at(addr) for live in ranges]
        if room is not None and addr + group[0].vectors > room:
            return addr + group[0].vectors
    return max((live.high for live in placed), default=start)


def _above(ranges: list[LiveRange], addr: int, placed: list[LiveRange]) -> int | None:
    """The least address at which one of ``ranges`` is clear of something placed that it overlaps at ``addr``."""
    addresses = (
        other.high - live.low
        for live in ranges
        for other in placed
        if addr + live.low < other.high and other.low < addr + live.high and live.overlaps(other)
    )
    return min(addresses, default=None)


def peak(copies: Iterable[Copy], first: int = -1) -> int:
    """A number of words that no placement does without: the most that are in use at the same time.

    ``first`` is the layer from which on they count.
    """
    ranges = [live for copy in copies if copy.over is None for live in copy.live_ranges if live.last_use >= first]
    times = {max(first, live.first_use) for live in ranges}
    return max((sum(k.high - k.low for k in ranges if k.first_use <= now <= k.last_use) for now in times), default=0)
