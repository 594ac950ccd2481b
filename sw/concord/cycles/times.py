"""Times that the processes of the pipe share."""

from __future__ import annotations

from dataclasses import dataclass

from concord.cycles.places import Places
from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.spec.operations import OPERANDS


@dataclass(slots=True)
class Token:
    """A vector that waits for its launch.

    Parameters
    ----------
    ready : int
        First cycle in which it may start.
    job : int
        Number of the product whose result it is, or -1.
    ends_job : bool
        It is the last vector of that product.
    trips : int
        Source reads of a vector without a product.
    broadcast : bool
        One more trip after those.
    ports : tuple of int
        Operand ports.
    wide, narrow : bool
        Destinations.
    early : bool
        It needs neither a table nor the second multifunction unit.
    row : bool
        It becomes a row of the matrix memory.
    """

    ready: int
    job: int
    ends_job: bool
    trips: int
    broadcast: bool
    ports: tuple[int, ...]
    wide: bool
    narrow: bool
    early: bool
    row: bool


@dataclass(slots=True)
class Request:
    """An operand that is to be read.

    Parameters
    ----------
    ready : int
        First cycle in which it may enter the hazard gate.
    port : int
        Number of the operand port.
    write : int
        Number of the write to wait for, or -1.
    last : bool
        It is the last operand of its vector.
    """

    ready: int
    port: int
    write: int
    last: bool


class Times:
    """Events by number, and the cycles in which they happen, counted from the start of the run.

    Parameters
    ----------
    config : NpuConfig
        Gives the depths of all queues.

    Attributes
    ----------
    tokens : list of Token
        Vectors that the walker has issued.
    launched, retired : int
        How many of them have been launched, and when the last of these is written.
    jobs, fetches, retiring : Places
        Queues after the walker: jobs, operands of vectors, vectors under way.
    writes : dict of Places
        Writes under way, by memory.
    rows : list of int
        When a row of the matrix memory is written.
    results, freed : list of int
        When a product is in the result queue, and when its place is free again.
    sources, taken : list of int
        When a vector is in the source queue, and when it leaves it.
    wide_sources : set of int
        Cycles in which sources have the read port of the wide memory.
    requests : list of Request
        Operands, in the order in which they are read.
    operands, consumed : lists of int
        By port: when an operand is read, and when its place is free again.
    stalls : list of (int, int)
        From when to when a read waits for a write, both included.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self.tokens: list[Token] = []
        self.launched = self.retired = 0
        self.jobs = Places(timing.JOBS)
        self.fetches = Places(timing.operand_places(config))
        self.retiring = Places(config.inflight)
        self.writes = {mem: Places(config.inflight) for mem in Mem}
        self.rows: list[int] = []
        self.results: list[int] = []
        self.freed: list[int] = []
        self.sources: list[int] = []
        self.taken: list[int] = []
        self.wide_sources: set[int] = set()
        self.requests: list[Request] = []
        self.operands: list[list[int]] = [[] for _ in OPERANDS]
        self.consumed: list[list[int]] = [[] for _ in OPERANDS]
        self.stalls: list[tuple[int, int]] = []

    def stalled(self) -> int:
        """Cycles in which any read waits for a write."""
        total, covered = 0, -1
        for first, last in sorted(self.stalls):
            total += max(0, last - max(first - 1, covered))
            covered = max(covered, last)
        return total
