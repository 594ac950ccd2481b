"""What the terminal shows: figures, classes with bars, flags, and the end."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from concord.live.captures import Capture
from concord.live.inference import Classification
from concord.live.session import FlagCount, LiveState, LiveSummary
from concord.live.terminal import line, milliseconds, panel, score_text, shares, shown_classes, summary_lines
from concord.program.flags import FlagDiagnostic

FLAG = FlagCount(FlagDiagnostic("conv1", 3, "v_rd", "SATURATED", "values are cut off", "calibrate"), 7)
VERDICT = Classification("dog", 1, 0.75, np.array([0.25, 0.75]), ())
STATE = LiveState(
    1234, Capture(1.5, np.zeros(1)), np.zeros(1), VERDICT, 29.97, 0.0123, 0.011, 0.0149, 0, ()
)  # fmt: skip


def text(state, label=("cat", "dog").__getitem__):
    console = Console(file=io.StringIO(), width=100)
    console.print(panel(state, label))
    return console.file.getvalue()


def test_a_panel():
    lines = [part.rstrip() for part in text(STATE).splitlines()]
    assert lines[:2] == ["frame 1,234  30.0 frames/s  latency 12.3 ms (median 11 ms, 95 % 14.9 ms)", "class dog  0.750"]
    cat, dog = lines[2:]
    assert cat.startswith("cat  0.250  ") and dog.startswith("dog  0.750  ")
    assert 0 < cat.count("━") < dog.count("━") <= 30


def test_a_panel_with_flags_and_dropped_frames():
    shown = text(replace(STATE, dropped=5, flags=(FLAG,)))
    assert "5 dropped" in shown and "conv1: SATURATED, values are cut off (in 7 frames)" in shown


def test_a_panel_in_front_of_the_first_frame():
    assert text(None) == "waiting for the source\n"


def test_names_cannot_move_the_cursor():
    shown = text(replace(STATE, classification=replace(VERDICT, label="\x1b[2J")), lambda k: "\x1b[2J[bold]")
    assert "\x1b" not in shown and "\\x1b[2J[bold]" in shown


def test_a_frame_as_a_line():
    assert line(STATE) == "1.50 s  dog  0.750  12.3 ms"
    classification = replace(VERDICT, score=None, flags=(FLAG.flag,))
    assert line(replace(STATE, classification=classification)) == "1.50 s  dog  12.3 ms  conv1 SATURATED"


@pytest.mark.parametrize(
    ("scores", "want"),
    [([0.25, 0.75], [0.25, 0.75]), ([-2, 0, 2], [0, 0.5, 1]), ([4, 2], [1, 0.5]), ([], []), ([0, 0], [0, 0]),
     ([-np.inf, np.inf], [0, 1])],
)  # fmt: skip
def test_lengths_of_bars(scores, want):
    assert shares(np.array(scores, dtype=float)).tolist() == want


def test_classes_that_are_shown():
    assert shown_classes(np.arange(12.0)) == list(range(12))
    assert shown_classes(np.arange(13.0)) == list(range(12, 2, -1))


def test_numbers_as_texts():
    assert [score_text(x) for x in (0.12345, -12.3456, 12345.6, None)] == ["0.123", "-12.346", "1.23e+04", ""]
    assert [milliseconds(x) for x in (0.0001234, 0.01234, 1.234)] == ["0.123 ms", "12.3 ms", "1.23 s"]


def test_a_summary():
    summary = LiveSummary(1200, 1, 60.0, 0.0123, 0.0149, {"dog": 1000, "cat": 200}, ())
    assert list(summary_lines(summary)) == [
        "1,200 frames in 60 s, 20.0 per second; latency: median 12.3 ms, 95 % within 14.9 ms; 1 frame dropped",
        "classes: dog 1,000, cat 200",
        "no flags were raised",
    ]
    *_, flags = summary_lines(replace(summary, flags=(FLAG,)))
    assert flags == "conv1: SATURATED, values are cut off; what helps: calibrate (in 7 frames of 1,200)"
    assert list(summary_lines(replace(summary, frames=0))) == ["no frame has run"]
