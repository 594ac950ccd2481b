"""A session: captures become inputs, inputs become classes, and what there is to show is kept for who shows it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Condition

import numpy as np

from concord.live.captures import Capture
from concord.live.inference import Classification, Inference
from concord.live.recipes import Recipe
from concord.program.flags import FlagDiagnostic
from concord.utils.arrays import Array

#: Latest frames that rates and latencies on the way are of.
_LATEST = 60


@dataclass(frozen=True)
class FlagCount:
    """A flag of a layer, as it was raised last, and in how many frames it was raised."""

    flag: FlagDiagnostic
    frames: int


@dataclass(frozen=True)
class LiveState:
    """State that there is to show after a frame.

    Parameters
    ----------
    frames : int
        Frames that have run.
    capture : Capture
        The last one.
    seen : array
        What of it the network saw.
    classification : Classification
        What it said.
    rate : float
        Frames per second, lately.
    latency, median, p95 : float
        Seconds from a capture to its classification: of this frame, and of the latest ones.
    dropped : int
        Captures that came faster than they could run.
    flags : tuple of FlagCount
        All flags so far.
    ended : bool
        Whether this is the last one.
    """

    frames: int
    capture: Capture
    seen: Array
    classification: Classification
    rate: float
    latency: float
    median: float
    p95: float
    dropped: int
    flags: tuple[FlagCount, ...]
    ended: bool = False


@dataclass(frozen=True)
class LiveSummary:
    """A session in figures.

    Parameters
    ----------
    frames, dropped : int
        Frames that have run, and captures that were dropped.
    seconds : float
        From the beginning to the last classification.
    median, p95 : float
        Seconds from a capture to its classification.
    classes : mapping of str to int
        Frames by class, the most frequent first.
    flags : tuple of FlagCount
        Flags that were raised.
    """

    frames: int
    dropped: int
    seconds: float
    median: float
    p95: float
    classes: dict[str, int]
    flags: tuple[FlagCount, ...]

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / self.seconds if self.seconds else 0.0


class LiveBoard:
    """The last state of a session, which threads wait for."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._state: LiveState | None = None

    @property
    def state(self) -> LiveState | None:
        """The last one, if there is any."""
        return self._state

    def publish(self, state: LiveState) -> None:
        """Show another one."""
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def end(self) -> None:
        """Say that there are no more."""
        if self._state is not None:
            self.publish(replace(self._state, ended=True))

    def newer(self, frames: int, timeout: float) -> LiveState | None:
        """A state after more frames than these, or the last one; after ``timeout`` seconds whichever there is."""

        def there() -> bool:
            return self._state is not None and (self._state.ended or self._state.frames > frames)

        with self._changed:
            self._changed.wait_for(there, timeout)
            return self._state


@dataclass
class LiveSession:
    """Frames that run one after the other.

    Parameters
    ----------
    inference : Inference
        The network on its device.
    recipe : Recipe
        What makes an input of a capture.

    Members
    -------
    board : LiveBoard
        Where the states are.
    dropped : int
        Captures that the source has dropped; whoever reads the source sets it.
    """

    inference: Inference
    recipe: Recipe
    board: LiveBoard = field(default_factory=LiveBoard)
    dropped: int = 0

    def __post_init__(self) -> None:
        self._begin = self._end = time.perf_counter()
        self._latencies: list[float] = []
        self._ends: deque[float] = deque(maxlen=_LATEST)
        self._classes: Counter[str] = Counter()
        self._flags: dict[tuple[str, str], FlagCount] = {}

    def run(self, captures: Iterable[Capture]) -> Iterator[LiveState]:
        """Run one capture after the other; gives what there is to show after each."""
        self._begin = time.perf_counter()
        for capture in captures:
            seen = self.recipe.seen(capture.data)
            classification = self.inference.run(self.recipe.values(seen))
            self._end = time.perf_counter()
            state = self._counted(capture, seen, classification)
            self.board.publish(state)
            yield state

    def _counted(self, capture: Capture, seen: Array, classification: Classification) -> LiveState:
        self._latencies.append(self._end - capture.taken)
        self._ends.append(self._end)
        self._classes[classification.label] += 1
        for place, flag in {
            (flag.where, flag.flag): flag for flag in classification.flags
        }.items():  # once for all chains
            count = self._flags[place].frames if place in self._flags else 0
            self._flags[place] = FlagCount(flag, count + 1)
        latest = self._latencies[-_LATEST:]
        span = self._ends[-1] - self._ends[0]
        return LiveState(
            len(self._latencies),
            capture,
            seen,
            classification,
            (len(self._ends) - 1) / span if span else 0.0,
            latest[-1],
            *_median_and_p95(latest),
            self.dropped,
            tuple(self._flags.values()),
        )

    @property
    def summary(self) -> LiveSummary:
        """Figures of what has run so far."""
        return LiveSummary(
            len(self._latencies),
            self.dropped,
            self._end - self._begin,
            *_median_and_p95(self._latencies),
            dict(self._classes.most_common()),
            tuple(self._flags.values()),
        )


def _median_and_p95(latencies: list[float]) -> tuple[float, float]:
    if not latencies:
        return 0.0, 0.0
    median, p95 = np.quantile(latencies, (0.5, 0.95))
    return float(median), float(p95)
