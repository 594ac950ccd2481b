"""Captures of a source: pictures or windows of sound, in time; recordings keep their pace, others drop what is old."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Protocol

from concord.utils.arrays import Array

#: Seconds between two looks at whether it is time to end.
_TICK = 0.05
#: Seconds that a source gets to let go of its device.
_PATIENCE = 2.0


@dataclass(frozen=True)
class Capture:
    """A picture, or a window of sound.

    Parameters
    ----------
    position : float
        Seconds from the beginning of the source.
    data : array
        Picture ``[height, width, 3]`` of bytes in the order red, green, blue; or samples of sound from -1 to 1.
    taken : float
        When it was complete, on the clock of ``time.perf_counter``.
    """

    position: float
    data: Array
    taken: float = field(default_factory=time.perf_counter)


#: Captures in their order; what a source has open is closed with them.
Captures = Generator[Capture, None, None]


class Source(Protocol):
    """Source of pictures or sound."""

    @property
    def text(self) -> str:
        """Source in words."""

    @property
    def live(self) -> bool:
        """True if captures come by themselves, so that old ones are dropped if they are not taken in time."""

    def captures(self) -> Captures:
        """Captures to the end of the source."""


class Stop:
    """End of a session: after some seconds, or when somebody says so.

    Parameters
    ----------
    seconds : float or None
        How long it may last; ``None`` if it has no such end.
    clock, sleep : callable
        Seconds so far, and to let some pass; by default it returns at once when the end is asked for.
    """

    def __init__(
        self,
        seconds: float | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] | None = None,
    ):
        self.clock = clock
        self._asked = Event()
        self._sleep = sleep or self._asked.wait
        self._end = None if seconds is None else clock() + seconds

    def ask(self) -> None:
        """End it now."""
        self._asked.set()

    @property
    def reached(self) -> bool:
        """True if the session is to end."""
        return self._asked.is_set() or (self._end is not None and self.clock() >= self._end)

    def wait(self, moment: float) -> None:
        """Return at a moment of its clock, or when it is to end."""
        while (left := moment - self.clock()) > 0 and not self.reached:
            self._sleep(min(left, _TICK))


def paced(captures: Iterator[Capture], stop: Stop) -> Captures:
    """The captures of a recording, none of them earlier than when it was recorded."""
    begin = stop.clock()
    for capture in captures:
        stop.wait(begin + capture.position)
        yield Capture(capture.position, capture.data, stop.clock())


def repeated(source: Source) -> Captures:
    """A recording again and again; nothing if it is empty. Positions go on where the recording ends."""
    begin, previous, step = 0.0, -1.0, 0.0
    while True:
        with closing(source.captures()) as captures:
            empty = True
            for capture in captures:
                empty = False
                position = begin + capture.position
                step, previous = position - previous, position
                yield Capture(position, capture.data)
        if empty:
            return
        begin = previous + step


def every(captures: Iterator[Capture], count: int) -> Captures:
    """The first of every ``count`` captures."""
    for number, capture in enumerate(captures):
        if number % count == 0:
            yield capture


class Newest:
    """Captures in a thread of their own: who reads them gets the newest one, and others are dropped.

    Parameters
    ----------
    captures : generator of Capture
        What the thread reads.

    Members
    -------
    dropped : int
        Captures that nobody got.
    """

    def __init__(self, captures: Captures):
        self.dropped = 0
        self._captures = captures
        self._changed = Condition()
        self._capture: Capture | None = None
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._read, name="source", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with closing(self._captures) as captures:
                for capture in captures:
                    with self._changed:
                        if self._closed:
                            return
                        self.dropped += self._capture is not None
                        self._capture = capture
                        self._changed.notify()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify()

    def until(self, stop: Stop) -> Iterator[Capture]:
        """The newest capture, whenever there is one, to the end of the source or of the session."""
        while not stop.reached:
            with self._changed:
                if self._capture is None and not self._ended:
                    self._changed.wait(_TICK)
                capture, self._capture = self._capture, None
            if capture is not None:
                yield capture
            elif self._ended:
                if self._error is not None:
                    raise self._error
                return

    def close(self) -> None:
        """End the thread; it lets go of the source."""
        with self._changed:
            self._closed = True
        self._thread.join(_PATIENCE)
