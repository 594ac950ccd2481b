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


@pytest.fixture(params=[False, True], ids=["rows", "pairs"])
def pairs(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0)
    assert multipliers.paired(CONFIG) == request.param
    return request.param


@pytest.mark.parametrize("word", [78, 46], ids=["end of a column", "middle of a column"])
def test_a_queue_that_is_full(pairs, word):
    assert check(memories_of(FULL.replace("narrow, 78", f"narrow, {word}"))).hazard_stalls


@pytest.mark.parametrize("exponents", [[-4], [-4, -3]], ids=["one exponent", "two exponents"])
def test_windows_that_reach_over_the_border(pairs, exponents):
    """Elements outside the image need no steps, also where they are the second ones of their lanes."""
    check(memories_of(BORDERS, exponents))
