"""Cycles of windows that slide, where the queue of the window unit is full and where the image ends."""

import pytest

from concord.emulator import ReferenceMachine
from concord.spec import multipliers
from concord.spec.memmap import Reg
from support.core_bench import execute
from support.window_programs import BORDERS, CONFIG, FULL, memories_of

pytestmark = pytest.mark.slow
DEEP = pytest.mark.deep


def check(memories):
    """Execute a program, and compare everything; returns the run of the reference machine."""
    registers, after = execute(memories)
    want = memories.copy()
    run = ReferenceMachine(want).run()
    assert want.differences(after) == []
    assert (registers[Reg.CYCLES], registers[Reg.HAZARD_STALLS]) == (run.cycles, run.hazard_stalls)
    return run


def share(monkeypatch, pairs):
    """Whether rows share their multipliers."""
    if pairs:
        monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0)
    assert multipliers.paired(CONFIG) == pairs


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        pytest.param(False, 78, id="rows", marks=DEEP),
        pytest.param(True, 78, id="pairs"),
        pytest.param(True, 46, id="pairs, middle of a column", marks=DEEP),
    ],
)
def test_a_queue_that_is_full(pairs, word, monkeypatch):
    share(monkeypatch, pairs)
    assert check(memories_of(FULL.replace("narrow, 78", f"narrow, {word}"))).hazard_stalls


@pytest.mark.parametrize(
    ("pairs", "exponents"),
    [
        pytest.param(False, [-4, -3], id="rows, two exponents"),
        pytest.param(True, [-4], id="pairs, one exponent", marks=DEEP),
    ],
)
def test_windows_that_reach_over_the_border(pairs, exponents, monkeypatch):
    """Elements outside the image need no steps, also where they are the second ones of their lanes."""
    share(monkeypatch, pairs)
    check(memories_of(BORDERS, exponents))
