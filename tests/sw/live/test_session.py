"""A session: figures of it, flags with their frames, and threads that wait for its states."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from concord.live.captures import Capture
from concord.live.inference import Classification
from concord.live.session import LiveBoard, LiveSession
from concord.program.flags import FlagDiagnostic

FLAG = FlagDiagnostic("conv1", 3, "v_rd", "SATURATED", "cut off", "calibrate")
RECIPE = SimpleNamespace(seen=lambda data: data, values=lambda seen: seen)


class Network:
    """One that says what its input is, after some time on the clock."""

    def __init__(self, clock, seconds=0.25, flags=()):
        self.clock, self.seconds, self.flags = clock, seconds, flags

    def run(self, values):
        self.clock.now += self.seconds
        best = int(values[0])
        return Classification("ab"[best], best, 1.0, np.eye(2)[best], self.flags)


@pytest.fixture
def clock(monkeypatch):
    """The only clock: it stands still unless the network runs."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    return clock


def captures(clock, *numbers):
    """Captures that were complete 0.125 s ago when they are taken."""
    for k, number in enumerate(numbers):
        yield Capture(0.1 * k, np.array([number]), clock.now - 0.125)


def test_figures_of_a_session(clock):
    session = LiveSession(Network(clock), RECIPE)
    states = list(session.run(captures(clock, 0, 1, 1)))
    assert [state.frames for state in states] == [1, 2, 3]
    assert [state.classification.label for state in states] == ["a", "b", "b"]
    assert [state.rate for state in states] == [0, 4, 4]
    assert [(state.latency, state.median, state.p95) for state in states] == [(0.375, 0.375, 0.375)] * 3
    summary = session.summary
    assert (summary.frames, summary.classes, summary.flags) == (3, {"b": 2, "a": 1}, ())
    assert (summary.seconds, summary.rate, summary.median, summary.p95) == (0.75, 4, 0.375, 0.375)


def test_figures_on_the_way_are_those_of_the_latest_frames(clock):
    session = LiveSession(Network(clock, 4), RECIPE)
    list(session.run(captures(clock, *[0] * 5)))
    session.inference = Network(clock, 0.5)
    *_, last = session.run(captures(clock, *[0] * 60))
    assert (last.rate, last.median, last.p95) == (2, 0.625, 0.625)
    assert session.summary.p95 > 4


def test_a_flag_counts_once_in_a_frame(clock):
    session = LiveSession(Network(clock, flags=(FLAG, FLAG)), RECIPE)
    list(session.run(captures(clock, 0, 0)))
    session.inference = Network(clock)
    *_, last = session.run(captures(clock, 0))
    assert [(count.flag, count.frames) for count in last.flags] == [(FLAG, 2)]
    assert session.summary.flags == last.flags


def test_a_session_without_frames(clock):
    summary = LiveSession(Network(clock), RECIPE).summary
    assert (summary.frames, summary.rate, summary.median) == (0, 0, 0)


def test_a_board_waits_for_what_is_newer(clock):
    board = LiveBoard()
    assert board.newer(0, 0.01) is None
    session = LiveSession(Network(clock), RECIPE, board)
    first, second = session.run(captures(clock, 0, 1))
    assert board.newer(1, 10) is second and board.newer(2, 0.01) is second
    threading.Timer(0.05, board.publish, [first]).start()
    assert board.newer(2, 0.2) is first  # after the time there is what there is
    board.end()
    assert board.newer(5, 10).ended


def test_a_board_without_a_state_ends_without_one():
    board = LiveBoard()
    board.end()
    assert board.state is None


@pytest.mark.parametrize("flags", [(), (FLAG,)])
def test_states_do_not_change_afterwards(clock, flags):
    session = LiveSession(Network(clock, flags=flags), RECIPE)
    first, second = session.run(captures(clock, 0, 1))
    assert first.frames == 1 and [count.frames for count in first.flags] == [1] * len(flags)
    assert [count.frames for count in second.flags] == [2] * len(flags)
