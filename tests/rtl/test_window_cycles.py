"""Cycles of windows that slide, where the queue of the window unit is full and where the image ends."""

import pytest

from concord.emulator import ReferenceMachine
from concord.spec import multipliers
from concord.spec.memmap import Reg
from support.core_bench import execute
from support.window_programs import BORDERS, CONFIG, FULL, memories_of

pytestmark = pytest.mark.slow


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
    ("pairs", "word"), [(False, 78), (True, 78), (True, 46)], ids=["rows", "pairs", "pairs, middle of a column"]
)
def test_a_queue_that_is_full(pairs, word, monkeypatch):
    share(monkeypatch, pairs)
    assert check(memories_of(FULL.replace("narrow, 78", f"narrow, {word}"))).hazard_stalls


@pytest.mark.parametrize(
    ("pairs", "exponents"), [(False, [-4, -3]), (True, [-4])], ids=["rows, two exponents", "pairs, one exponent"]
)
def test_windows_that_reach_over_the_border(pairs, exponents, monkeypatch):
    """Elements outside the image need no steps, also where they are the second ones of their lanes."""
    share(monkeypatch, pairs)
    check(memories_of(BORDERS, exponents))
