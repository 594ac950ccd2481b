"""Starts of vectors, in order; from then on all latencies are fixed."""

from __future__ import annotations

from collections.abc import Iterator

from concord.cycles.times import Times, Token
from concord.spec import timing
from concord.spec.isa import Mem


class Launch:
    """Starts of vectors.

    Parameters
    ----------
    times : Times
        What is known.
    """

    def __init__(self, times: Times):
        self.times = times
        config = times.config
        self._beats = config.beats
        self._start = 0
        self._reads = 0
        #: First start of a vector that leaves early: it must not overtake others.
        self._early_start = 0
        begin = timing.launch_latency() + timing.reduce_latency(config) + 1
        offsets = (timing.MUL_OFFSET, timing.ADD_OFFSET)
        #: From the start to when the last beat of an operand leaves its queue: the one before it is used then.
        self._consumed = [begin + unit * timing.MFU + k + self._beats - 2 for unit in range(2) for k in offsets]
        self._begin, self._quantizer = begin, timing.quantizer_latency(config)

    def process(self) -> Iterator[None]:
        """Start vectors; yields when nothing more is known."""
        times = self.times
        while True:
            while times.launched == len(times.tokens):
                yield
            token = times.tokens[times.launched]
            self._start = max(self._start + self._beats, token.ready)
            if token.job >= 0:
                while token.job >= len(times.results):
                    yield
                self._start = max(self._start, times.results[token.job] + 2)
            else:
                yield from self._trips(token)
            if token.early:
                self._start = max(self._start, self._early_start)
            for port in token.ports:
                number = len(times.consumed[port])
                while number >= len(times.operands[port]):
                    yield
                self._start = max(self._start, times.operands[port][number] + timing.VECTOR_READ + 2)
            self._started(token)

    def _trips(self, token: Token) -> Iterator[None]:
        """All trips of a vector from the source queue; its operands must be there for the last one."""
        times = self.times
        for trip in range(token.trips):
            while self._reads >= len(times.sources):
                yield
            self._start = max(
                self._start + self._beats * (trip > 0), times.sources[self._reads] + timing.BUFFERED_QUEUE + 1
            )
            self._reads += 1
            if trip < token.trips - 1 or token.broadcast:
                times.taken.append(self._start)
        self._start += self._beats * token.broadcast

    def _started(self, token: Token) -> None:
        """Notes all that follows from the start of a vector."""
        times, start = self.times, self._start
        if token.job < 0 and not token.broadcast:
            times.taken.append(start)
        if token.ends_job:
            times.freed.append(start + self._beats)
        for port in token.ports:
            times.consumed[port].append(start + self._consumed[port])
        last_beat = start + self._begin + timing.mfu_latency(token.early) + self._beats - 1
        narrow = last_beat + 1 + self._quantizer
        times.retiring.left.append(last_beat)
        if token.wide:
            times.writes[Mem.WIDE].left.append(last_beat + 1)
        if token.narrow:
            times.writes[Mem.NARROW].left.append(narrow)
        if token.row:
            times.rows.append(narrow)
        times.retired = narrow
        if not token.early:
            self._early_start = start + self._beats + timing.mfu_latency(False) - timing.mfu_latency(True)
        times.launched += 1
