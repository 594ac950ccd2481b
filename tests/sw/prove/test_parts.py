"""What make prove is made of: parts, coverage of random programs, runners of operations."""

import numpy as np
import pytest

from concord.golden import binary16
from concord.prove import machines
from concord.spec.presets import TINY
from prove_everything import coverage_of, table_of
from support import derive_runners, prove_parts
from support.corner_programs import corner_program
from support.derive_flag_numbers import CONDITIONS, prove_condition
from support.derive_numbers import prove
from support.derive_runners import OPERATIONS
from support.derived_modules import image_of_memories, program_rng, random_inputs
from support.program_coverage import covered, required
from support.program_gen import random_program
from support.prove_parts import Found


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["emulator", "numpy"])
def test_operations(backend):
    _, run = derive_runners.runner(backend)
    for name in OPERATIONS[backend]:
        assert prove_condition(name, run) >= 900 if name in CONDITIONS else prove(name, run) >= 65_536


@pytest.mark.parametrize("backend", ["emulator", "numpy"])
def test_a_wrong_operation_is_noticed(backend, monkeypatch):
    _, run = derive_runners.runner(backend)

    def broken(name, attributes, *arrays):
        found = run(name, attributes, *arrays).copy()
        if found.dtype == bool:
            return ~found
        found.reshape(-1)[5] = binary16.decode(binary16.encode(found.reshape(-1)[5:6]) ^ np.uint16(1))[0]
        return found

    for name in OPERATIONS[backend]:
        with pytest.raises(AssertionError, match="differ"):
            (prove_condition if name in CONDITIONS else prove)(name, broken)
    monkeypatch.setattr(derive_runners, "runner", lambda _: ("broken", broken))
    found = prove_parts.operation(backend, "HalfRelu")
    assert found.counts == {"golden model = broken": (1, 1)} and found.differences


@pytest.mark.slow
def test_random_programs_cover_everything():
    found = sum((covered(*program(make, seed)) for make in MAKERS for seed in range(16)), start=prove_parts.Counter())
    missing = required(TINY) - set(found)
    assert len(missing) <= 8, sorted(missing)  # the rest needs more of them: make prove
    assert not [item for item in missing if item[0] not in ("wide", "narrow")]


MAKERS = (lambda rng: random_program(TINY, rng, 12), lambda rng: corner_program(TINY, rng))


def program(make, seed):
    words, memories = make(program_rng(f"coverage {seed}"))
    image = image_of_memories(words, memories)
    return image, random_inputs(image, 2, seed)


def test_coverage_that_is_missing_is_told():
    """Programs of corners have no loops."""
    found = sum((covered(*program(MAKERS[1], seed)) for seed in range(2)), start=prove_parts.Counter())
    assert ("control", "loop") in required(TINY) - set(found)
    one = Found("random programs", "tiny", coverage=found)
    lines = []
    console = type("Lines", (), {"print": lambda self, text: lines.append(str(text))})()
    assert not coverage_of([one], console)
    assert "  not covered: control, loop" in lines


@pytest.mark.slow
def test_a_part(monkeypatch):
    monkeypatch.delitem(machines.MACHINES, "rtl")
    monkeypatch.setattr(prove_parts, "ON_RTL", ())
    monkeypatch.setattr(prove_parts, "there", lambda: ["numpy"])
    found = prove_parts.timed(prove_parts.programs, "tiny", 0, 1)
    assert set(found.counts) == {"emulator = NumPy", "emulator = reference machine"}
    assert not found.differences and found.coverage
    found.count("emulator = NumPy", 5, 2)
    lines = []
    total, wrong = table_of([found], type("Lines", (), {"print": lambda self, text: lines.append(text)})())
    assert (total, wrong) == (sum(values for values, _ in found.counts.values()), 2) and lines
