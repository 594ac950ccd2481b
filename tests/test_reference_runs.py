"""The comparison of emulator and reference machine that many tests use fails where they differ."""

import random

import pytest

from concord.emulator import Emulator
from concord.program.assembler import assemble
from concord.spec.presets import TINY
from support.program_gen import random_memories
from support.reference_runs import assert_machines_agree


def memories_of(text):
    memories = random_memories(TINY, random.Random(1))
    words = assemble(text)
    memories.program[: len(words)] = words
    return memories


def spoil(monkeypatch, change):
    """Let the emulator leave something else behind."""
    original = Emulator.run

    def run(self, pc=0):
        found = original(self, pc)
        change(self.memories)
        return found

    monkeypatch.setattr(Emulator, "run", run)


PROGRAM = "v_rd wide, 0\nvv_add 1\nv_wr wide, 2\nv_wr narrow, 3\nhalt"


def wide(memories):
    memories.wide[2, 3] ^= 1


def mantissa(memories):
    memories.narrow_mant[3, 0] += 1


def exponent(memories):
    memories.narrow_exp[3] += 1


def flag(memories):
    memories.flags[0] ^= 1


def elsewhere(memories):
    memories.wide[63, 0] ^= 1


@pytest.mark.parametrize("change", [wide, mantissa, exponent, flag, elsewhere])
def test_one_bit_of_any_memory_is_noticed(change, monkeypatch):
    assert_machines_agree(memories_of(PROGRAM))
    spoil(monkeypatch, change)
    with pytest.raises(AssertionError):
        assert_machines_agree(memories_of(PROGRAM))


def test_the_reference_machine_runs_on_the_memories_that_were_given():
    memories = memories_of(PROGRAM)
    before = memories.copy()
    assert_machines_agree(memories)
    assert memories.differences(before)
