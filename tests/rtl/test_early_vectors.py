"""Vectors that leave the multifunction units early, between others that do not: contents, flags and cycles."""

from itertools import product

import numpy as np
import pytest

from concord.cycles import count
from concord.emulator import ReferenceMachine
from concord.golden import binary16
from concord.image import Memories
from concord.program import trace
from concord.program.assembler import assemble
from concord.spec.formats import Flag
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.back_door import connected
from support.device_runs import after, load

pytestmark = pytest.mark.slow

#: Products whose sums are beyond the accumulator and binary16, beyond binary16 alone, and small.
SATURATED, INFINITE, SMALL = "v_rd narrow, 0\nmv_mul 0\n", "v_rd narrow, 1\nmv_mul 0\n", "v_rd narrow, 2\nmv_mul 0\n"
#: A sum that is infinite in the first unit, and in the second one.
FIRST, SECOND = "v_rd wide, 0\nvv_add 0\n", "v_rd wide, 0\nvv_add 0, unit=1\n"
QUIET = "v_rd wide, 1\n"
#: By name: what a chain computes, and the flags that it raises.
EARLY = {
    "saturated": (SATURATED, {Flag.ACC_OVERFLOW, Flag.HALF_OVERFLOW}),
    "infinite": (INFINITE, {Flag.HALF_OVERFLOW}),
    "small": (SMALL, set()),
    "first": (FIRST, {Flag.HALF_OVERFLOW}),
    "quiet": (QUIET, set()),
    "rectified": (QUIET + "v_relu\n", set()),
}
LATE = {
    "saturated": (SATURATED + "v_relu unit=1\n", {Flag.ACC_OVERFLOW, Flag.HALF_OVERFLOW}),
    "infinite": (INFINITE + "v_relu unit=1\n", {Flag.HALF_OVERFLOW}),
    "second": (SECOND, {Flag.HALF_OVERFLOW}),
    "table": (QUIET + "v_tbl 0\n", set()),
    "clamped": ("v_rd wide, 2\nv_tbl 0\n", {Flag.TABLE_CLAMPED}),
    "small": (SMALL + "vv_mul 1, unit=1\n", set()),
}


@pytest.fixture(scope="module")
def device():
    with connected(TINY) as device:
        yield device


def program(vectors, some):
    """Late chains of ``some`` kinds and early ones in turn, every pair of them once; and the flags of every chain."""
    text, flags, place = f"set_iters {vectors}\n", [], 8
    for late in map(LATE.__getitem__, some):
        for early in EARLY.values():
            for chain, raised in (late, early):
                text += f"{chain}v_wr wide, {place}, inner=1\n"
                flags.append(raised)
                place = place + vectors if place + 2 * vectors <= TINY.wide_depth else 8
    return text + "halt", flags


def memories_of(text):
    """Memories that a program starts from."""
    memories = Memories(TINY)
    words = assemble(text)
    memories.program[: len(words)] = words
    numbers = np.array([60000.0, -1.5, 300.0, 60000.0])
    memories.wide[:4] = binary16.encode(numbers)[:, None]
    memories.table[:9] = binary16.encode(np.linspace(-2, 2, 9))
    slot = {"low": -4, "high": 4, "offset": 4, "scale": 0, "settled_low": 0, "settled_high": 0}
    memories.write(RegionId.SLOTS, 0, [TINY.table_slot.pack(**slot)])
    memories.narrow_mant[:3] = np.array([[127], [50], [3]])
    memories.narrow_exp[:3] = [9, 9, -9]
    memories.matrix_mant[:2, :2], memories.matrix_exp[:2] = 1, 0  # the first beat decides about exponents
    return memories


def check(device, text, flags):
    """Execute a program; returns its chains."""
    memories = memories_of(text)
    load(device, memories)
    device.start(0)
    device.wait()
    want, left = memories.copy(), after(device, memories)
    ReferenceMachine(want).run()
    assert want.differences(left) == []
    words = memories.program.tolist()
    chains = trace(words, TINY).chains
    for chain, raised in zip(chains, flags, strict=True):
        assert left.flags[chain.pc] == sum(1 << flag for flag in raised)
    assert device.counters()["CYCLES"] == count(words, TINY).cycles
    return chains


@pytest.mark.parametrize("vectors", [1])
def test_early_ones_behind_others(device, vectors):
    """In three programs, as the memory has no room for all."""
    kinds = list(LATE)
    for some in zip(kinds[::2], kinds[1::2], strict=True):
        text, flags = program(vectors, some)
        assert [chain.early for chain in check(device, text, flags)] == [False, True] * (len(flags) // 2)


@pytest.mark.parametrize("loud", ["saturated", "infinite", "first"])
def test_many_that_are_at_both_exits(device, loud):
    """While vectors without flags are written, others with flags are at the other exit or would have been there."""
    late = {"first": (FIRST + "v_relu unit=1\n", {Flag.HALF_OVERFLOW}), **LATE}
    text, flags = "set_iters 14\n", []
    for number, (kind, name) in enumerate(product((late, EARLY), ("small", loud, "small"))):
        chain, raised = kind[name]
        text += f"{chain}v_wr wide, {8 + 14 * (number % 4)}, inner=1\n"
        text += f"v_wr narrow, {4 + 14 * number // 2}, inner=1\n" if name == "small" else ""
        flags.append(raised)
    assert [chain.early for chain in check(device, text + "halt", flags)] == [False] * 3 + [True] * 3
