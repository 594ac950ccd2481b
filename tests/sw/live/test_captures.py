"""Recordings keep their pace and lose nothing; live sources drop what is old, and say how many."""

import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from concord.live.captures import Capture, Newest, Stop, every, paced, repeated


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
    begin = time.perf_counter()
    late = [capture.taken - begin - capture.position for capture in paced(iter(numbered(4)), Stop())]
    assert all(0 <= seconds < 0.09 for seconds in late)


def test_a_session_that_ends_does_not_wait_for_the_next_picture():
    stop, begin = Stop(0.1), time.perf_counter()
    assert values(paced(iter(numbered(2, step=30)), stop)) == [0, 1]
    assert stop.reached and time.perf_counter() - begin < 5


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
    def source():
        for capture in numbered(5):
            time.sleep(0.02)
            yield capture

    newest = Newest(source())
    assert values(newest.until(Stop())) == [0, 1, 2, 3, 4] and newest.dropped == 0


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
                time.sleep(0.001)
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
