"""Operands of the multifunction units, on their way to the read port of the wide memory and to their queues."""

from __future__ import annotations

from concord.cycles.times import Times
from concord.spec import timing
from concord.spec.isa import Mem


class Operands:
    """Reads of operands, in the order of the vectors.

    Parameters
    ----------
    times : Times
        What is known.

    Attributes
    ----------
    entered : list of int
        When requests enter the hazard gate.
    """

    def __init__(self, times: Times):
        self.times = times
        self.entered: list[int] = []
        #: When requests leave the registers of the gate, the last one into a register slice, and when they are read.
        self._second: list[int] = []
        self._third: list[int] = []
        self._passed: list[int] = []
        self._read: list[int] = []

    @property
    def known(self) -> int:
        """Number of times that are known."""
        return len(self.entered) + len(self._second) + len(self._third) + len(self._passed)

    def advance(self) -> None:
        """Moves requests through the gate as far as is known: each register needs the one after it."""
        while True:
            before = self.known
            self._pass()
            if len(self._third) < min(len(self._second), len(self._passed) + 1):
                self._third.append(_leaving_time(self._second, self._passed, len(self._third)))
            if len(self._second) < min(len(self.entered), len(self._third) + 1):
                self._second.append(_leaving_time(self.entered, self._third, len(self._second)))
            self._enter()
            if self.known == before:
                return

    def _enter(self) -> None:
        n = len(self.entered)
        if n < len(self.times.requests) and len(self._second) >= n:
            request = self.times.requests[n]
            self.entered.append(max(request.ready, self._second[n - 1] if n else 0))
            if request.last:
                self.times.fetches.left.append(self.entered[n])

    def _pass(self) -> None:
        n, written = len(self._passed), self.times.writes[Mem.WIDE].left
        if n < len(self._third) and len(self._read) >= n - 1 and self.times.requests[n].write < len(written):
            write, third = self.times.requests[n].write, self._third[n]
            end = written[write] if write >= 0 else -1
            if end > third:
                self.times.stalls.append((third + 1, end))
            self._passed.append(max(third + 1, end + 1, self._read[n - 2] + 1 if n > 1 else 0))

    def read(self) -> None:
        """The next read takes place, in the first cycle in which no source is read."""
        n = len(self._read)
        if n >= len(self._passed):
            raise AssertionError("a pipe must go on for ever")
        port = self.times.requests[n].port
        operands = self.times.operands[port]
        time = max(self._passed[n] + timing.REGISTER_SLICE, self._read[-1] + 1 if n else 0)
        full = len(operands) - timing.operand_places(self.times.config)
        if full >= 0:
            time = max(time, self.times.consumed[port][full] + 2)
        while time in self.times.wide_sources:
            time += 1
        self._read.append(time)
        operands.append(time)


def _leaving_time(before: list[int], after: list[int], n: int) -> int:
    """Cycle in which request ``n`` leaves a register: after it came, when the one in front leaves the next register."""
    return max(before[n] + 1, after[n - 1] if n else 0)
