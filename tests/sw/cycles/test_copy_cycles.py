"""Cycles of copies; the RTL has them, too (``tests/rtl/test_copies_rtl.py``)."""

import random

import pytest

from concord.cycles import count, dram
from concord.program.assembler import assemble
from concord.program.chains import WeightCopy
from concord.spec.dram import SDRAM_32MB
from concord.spec.isa import Mem
from concord.spec.presets import ECP5_85F
from support.rtl_configs import COPYING

TIMES = SDRAM_32MB.timing(60e6, 100e6)


class Slow(dram._Controller):
    """The controller, command by command."""

    def _columns_in_a_row(self):
        return 0


def test_columns_in_a_row_take_the_same_cycles():
    rng = random.Random(1)
    for _ in range(60):
        first, columns = 64 * rng.randrange(32), rng.choice([1, 2, rng.randrange(1, 3000)])
        settle, word = rng.randrange(20, 60), rng.choice([0, 3, 4, 9, 16])
        fast, slow = (kind(SDRAM_32MB, TIMES, first, columns, settle, word) for kind in (dram._Controller, Slow))
        for controller in (fast, slow):
            while controller.left:
                controller.tick()
        assert fast.now == slow.now, (first, columns, settle, word)


def test_copies_of_a_megabyte_take_nearly_the_whole_bus():
    columns = 1 << 19
    assert columns / dram.last_access(SDRAM_32MB, TIMES, 0, columns, 31) > 0.95


@pytest.mark.parametrize(
    "mem, out, share", [("narrow", 0, 0.95), ("wide", 0, 0.95), ("narrow", 1, 0.77), ("wide", 1, 0.85)]
)
def test_copies_of_vectors_take_most_of_the_bus(mem, out, share):
    """A word takes two cycles to come from a vector memory."""
    text, kind = f"v_copy 0, 0, 0, 4000, {mem}, {out}\nhalt", Mem[mem.upper()]
    columns = 4000 * ECP5_85F.vector_columns(kind)
    assert share < columns / count(assemble(text), ECP5_85F).cycles < share + 0.05


@pytest.mark.parametrize("rows", [1, 16, 2000])
def test_a_copy_waits_for_chains_and_the_next_word_for_the_copy(rows):
    """Its cycles add to those of a fence in its place."""
    chain = "v_rd wide, 0\nv_wr wide, 1\n"
    fence = count(assemble(f"{chain}fence\n{chain}halt"), ECP5_85F).cycles
    copy = count(assemble(f"{chain}copy 0, 0, 0, {rows}\n{chain}halt"), ECP5_85F).cycles
    (item,) = (item for item in [WeightCopy(0, 0, 0, rows)])
    assert copy - fence == dram.copy_cycles(item, ECP5_85F) - 1
    assert dram.copy_cycles(item, ECP5_85F) > rows * ECP5_85F.row_columns


@pytest.mark.parametrize("end", ["fence", "copy 0, 0, 64, 1"])
def test_chains_run_beside_a_copy_ahead(end):
    """What waits for it comes when it is over; short chains take no time of their own then."""
    chain, rows = "v_rd wide, 0\nv_wr wide, 1\n", 400
    (alone,) = (count(assemble(f"{text}halt"), ECP5_85F).cycles for text in (f"{chain}copy 0, 0, 0, {rows}\n{end}\n",))
    ahead = count(assemble(f"{chain}copy 0, 0, 0, {rows}, 1\n{chain * 3}{end}\nhalt"), ECP5_85F).cycles
    assert alone == ahead, "the chains take fewer cycles than the copy"
    many = count(assemble(f"copy 0, 0, 0, 1, 1\n{chain * 40}halt"), ECP5_85F).cycles
    assert many - count(assemble(f"nop\n{chain * 40}halt"), ECP5_85F).cycles == 0, "the copy ends in between"


def test_a_trap_waits_for_a_copy_ahead():
    cycles = count(assemble("copy 0, 0, 0, 400, 1\nend_loop"), ECP5_85F).cycles
    assert cycles == count(assemble("copy 0, 0, 0, 400, 1\nhalt"), ECP5_85F).cycles


def test_cycles_do_not_depend_on_the_row_of_the_memory():
    near, far = (WeightCopy(0, column, 0, 100) for column in (1 << 9, (1 << 9) + (1 << 20)))
    assert dram.copy_cycles(near, COPYING) == dram.copy_cycles(far, COPYING)
