"""Random programs leave the same memories, flags and counters on the RTL and on the reference machine."""

import random

import pytest

from concord.emulator import ReferenceMachine
from concord.spec.config import TINY
from concord.spec.memmap import Reg
from core_bench import execute
from program_gen import random_program

TWO_ENGINES = TINY.replace(engines=2)
WIDE = TINY.replace(native=8, lanes=4, mfu_lanes=2)


def check(config, seed, size=4):
    _, memories = random_program(config, random.Random(seed), size)
    registers, after = execute(memories)
    want = memories.copy()
    run = ReferenceMachine(want).run()
    assert want.differences(after) == []
    for reg in (Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.CHAINS, Reg.VECTORS):
        assert registers[reg] == getattr(run, reg.name.lower()), reg
    assert registers[Reg.TRAP] == 0
    assert registers[Reg.FLAGS_ANY] == want.flag_union()
    return registers


@pytest.mark.parametrize("seed", range(2))
def test_tiny(seed):
    check(TINY, seed)


@pytest.mark.parametrize("seed", range(100, 102))
def test_two_engines(seed):
    check(TWO_ENGINES, seed)


@pytest.mark.parametrize("seed", range(200, 202))
def test_native_eight(seed):
    check(WIDE, seed)


def test_the_comparison_notices_one_wrong_weight():
    _, memories = random_program(TINY, random.Random(0), 4)
    registers, after = execute(memories)
    assert registers[Reg.TRAP] == 0
    memories.matrix_mant ^= 1
    ReferenceMachine(memories).run()
    assert memories.differences(after)
