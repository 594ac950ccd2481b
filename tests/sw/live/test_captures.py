"""Recordings keep their pace and lose nothing; live sources drop what is old, and say how many."""

import threading
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from concord.live.captures import Capture, Newest, Stop, every, paced, repeated
from support.simulated_time import SimulatedTime


def numbered(count, step=0.1):
    return [Capture(step * k, np.array([k])) for k in range(count)]


def values(captures):
    return [int(capture.data[0]) for capture in captures]


@dataclass(frozen=True)
class Recording:
    count: int
    text = "a recording"
    live = False

    def captures(self):
        yield from numbered(self.count)


def test_a_recording_keeps_its_pace():
    time = SimulatedTime(5.0)
    captures = list(paced(iter(numbered(4)), Stop(clock=time, sleep=time.sleep)))
    assert values(captures) == [0, 1, 2, 3]
    assert [capture.taken - 5 for capture in captures] == pytest.approx([0, 0.1, 0.2, 0.3])


def test_who_is_late_does_not_wait():
    time = SimulatedTime()
    captures = paced(iter(numbered(4)), Stop(clock=time, sleep=time.sleep))
    next(captures)
    time.now = 0.25
    assert [capture.taken for capture in captures] == pytest.approx([0.25, 0.25, 0.3])


def test_a_session_that_ends_does_not_wait_for_the_next_picture():
    time = SimulatedTime()
    stop = Stop(0.1, clock=time, sleep=time.sleep)
    assert values(paced(iter(numbered(2, step=30)), stop)) == [0, 1]
    assert stop.reached and time.now < 0.2


def test_an_end_that_is_asked_for_ends_a_pause():
    """Without a clock of its own: the pause, of hours, is one of the machine."""
    stop = Stop()
    asking = threading.Timer(0.01, stop.ask)
    asking.start()
    assert values(paced(iter(numbered(2, step=10_000)), stop)) == [0, 1]
    asking.join()


def test_a_recording_begins_again():
    captures = repeated(Recording(3))
    first = [next(captures) for _ in range(7)]
    assert values(first) == [0, 1, 2, 0, 1, 2, 0]
    assert [capture.position for capture in first] == pytest.approx([0.1 * k for k in range(7)])


def test_an_empty_recording_does_not_begin_again():
    assert list(repeated(Recording(0))) == []


def test_some_of_them():
    assert values(every(iter(numbered(7)), 3)) == [0, 3, 6]


def test_what_is_old_is_dropped_and_counted():
    taken, more = threading.Event(), threading.Event()

    def source():
        first, *middle, last = numbered(5)
        yield first
        taken.wait(10)
        yield from middle
        yield last
        more.set()

    newest = Newest(source())
    captures = newest.until(Stop())
    assert values([next(captures)]) == [0]
    taken.set()
    assert more.wait(10)
    assert values(captures) == [4]
    assert newest.dropped == 3
    newest.close()


def test_who_is_in_time_loses_nothing():
    """The next one comes when the last one has been taken."""
    taken = threading.Semaphore(1)

    def source():
        for capture in numbered(5):
            assert taken.acquire(timeout=60)
            yield capture

    newest, found = Newest(source()), []
    for capture in newest.until(Stop()):
        found.append(capture)
        taken.release()
    assert values(found) == [0, 1, 2, 3, 4] and newest.dropped == 0


def test_an_error_of_the_source_arrives():
    def source():
        yield numbered(1)[0]
        raise RuntimeError("unplugged")

    with pytest.raises(RuntimeError, match="unplugged"):
        list(Newest(source()).until(Stop()))


def test_the_source_is_closed_when_the_session_ends():
    state = SimpleNamespace(closed=False)

    def endless():
        try:
            while True:
                yield numbered(1)[0]
        finally:
            state.closed = True

    newest, stop = Newest(endless()), Stop()
    captures = newest.until(stop)
    next(captures)
    stop.ask()
    assert list(captures) == []
    newest.close()
    assert state.closed and not newest._thread.is_alive()
