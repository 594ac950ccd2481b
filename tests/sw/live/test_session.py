"""A session: figures of it, flags with their frames, and threads that wait for its states."""

import threading
import time
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
    """One that says what its input is, after some time."""

    def __init__(self, delay=0.0, flags=()):
        self.delay, self.flags = delay, flags

    def run(self, values):
        time.sleep(self.delay)
        best = int(values[0])
        return Classification("ab"[best], best, 1.0, np.eye(2)[best], self.flags)


def captures(*numbers):
    for k, number in enumerate(numbers):
        yield Capture(0.1 * k, np.array([number]))


def test_figures_of_a_session():
    session = LiveSession(Network(0.01), RECIPE)
    states = list(session.run(captures(0, 1, 1)))
    assert [state.frames for state in states] == [1, 2, 3]
    assert [state.classification.label for state in states] == ["a", "b", "b"]
    assert states[0].rate == 0 and 20 < states[-1].rate <= 100
    assert all(0.01 <= state.latency < 0.2 for state in states)
    assert states[-1].median == sorted(state.latency for state in states)[1]
    summary = session.summary
    assert (summary.frames, summary.classes, summary.flags) == (3, {"b": 2, "a": 1}, ())
    assert summary.rate == 3 / summary.seconds and 0.03 <= summary.seconds < 0.5
    assert summary.median == states[-1].median <= summary.p95 <= max(state.latency for state in states)


def test_rates_are_those_of_the_latest_frames():
    session, network = LiveSession(Network(), RECIPE), Network(0.02)
    list(session.run(captures(*[0] * 5)))
    session.inference = network
    *_, last = session.run(captures(*[0] * 60))
    assert last.rate <= 50 < session.summary.frames


def test_a_flag_counts_once_in_a_frame():
    session = LiveSession(Network(flags=(FLAG, FLAG)), RECIPE)
    list(session.run(captures(0, 0)))
    session.inference = Network()
    *_, last = session.run(captures(0))
    assert [(count.flag, count.frames) for count in last.flags] == [(FLAG, 2)]
    assert session.summary.flags == last.flags


def test_a_session_without_frames():
    summary = LiveSession(Network(), RECIPE).summary
    assert (summary.frames, summary.rate, summary.median) == (0, 0, 0)


def test_a_board_waits_for_what_is_newer():
    board = LiveBoard()
    assert board.newer(0, 0.01) is None
    session = LiveSession(Network(), RECIPE, board)
    first, second = session.run(captures(0, 1))
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
def test_states_do_not_change_afterwards(flags):
    session = LiveSession(Network(flags=flags), RECIPE)
    first, second = session.run(captures(0, 1))
    assert first.frames == 1 and [count.frames for count in first.flags] == [1] * len(flags)
    assert [count.frames for count in second.flags] == [2] * len(flags)
