"""Copies from the external memory: what they write, which products they are of, what the verifier knows."""

import random

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine
from concord.image import Memories
from concord.program import Span, trace, verify
from concord.program.assembler import assemble
from concord.program.chains import WeightCopy
from concord.program.matrix_copies import left_by, read_by, still_there, write_copy
from concord.spec import isa
from concord.spec.isa import Op, Trap
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from concord.spec.rules import ProgramRule
from support.program_gen import random_program
from support.reference_runs import assert_machines_agree
from support.rtl_configs import COPYING, COPYING_ENGINES, COPYING_LANES

CONFIGS = [COPYING, COPYING_ENGINES, COPYING_LANES]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_emulator_and_reference_agree(config):
    copies = ahead = 0
    for seed in range(12):
        words, memories = random_program(config, random.Random(seed), 12)
        made = trace(words, config).copies
        copies, ahead = copies + len(made), ahead + sum(copy.overlaps for copy in made)
        assert_machines_agree(memories)
    assert copies > 15 and ahead > 5


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_a_copy_writes_what_the_host_would(config):
    draw = np.random.default_rng(3)
    memories, rows = Memories(config), config.rows + 2
    copy = WeightCopy(0, 128, config.steps, rows)
    mant = draw.integers(-config.wgt.q_max, config.wgt.q_max + 1, (rows, config.native))
    exp = draw.integers(config.wgt_exp_min, config.wgt_exp_max + 1, rows)
    columns = []
    for codes, exponent in zip(mant.tolist(), exp.tolist(), strict=True):
        columns.append(exponent - config.wgt_exp_min)
        for k in range(0, config.native, config.column_mantissas):
            bits = 16 // config.column_mantissas
            group = codes[k : k + config.column_mantissas]
            columns.append(sum((code % (1 << config.wgt_mant)) << bits * n for n, code in enumerate(group)))
    memories.write(RegionId.DRAM, 128, columns)
    assert copy.columns(config) == len(columns)
    assert write_copy(copy, memories, memories.matrix_mant, memories.matrix_exp)
    assert not write_copy(copy, memories, memories.matrix_mant, memories.matrix_exp), "nothing changes any more"
    for row in range(rows):
        tile, within = divmod(row, config.rows)
        words = config.steps * (1 + tile) + np.arange(config.steps)
        assert memories.matrix_mant[words, within].ravel().tolist() == mant[row].tolist()
        assert (memories.matrix_exp[words, within] == exp[row]).all()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_the_copies_that_are_left_write_what_all_write(config):
    dropped = 0
    for seed in range(20):
        draw, memories = random.Random(seed), Memories(config)
        memories.dram[:4096] = np.random.default_rng(seed).integers(0, 1 << 16, 4096)
        copies = [
            WeightCopy(n, 64 * draw.randrange(8), draw.randrange(6) * config.steps, draw.randint(1, 3 * config.rows))
            for n in range(8)
        ]
        copies += draw.sample(copies, 2)
        other = memories.copy()
        for each, some in ((memories, copies), (other, left_by(copies, config))):
            for copy in some:
                write_copy(copy, each, each.matrix_mant, each.matrix_exp)
        assert memories.differences(other) == []
        dropped += len(copies) - len(left_by(copies, config))
    assert dropped > 20


def test_products_know_the_copies_of_their_words():
    copies = ()
    for number, (matrix, rows) in enumerate([(0, 8), (8, 4), (2, 4), (0, 2)]):
        copies = still_there(copies, WeightCopy(number, 0, matrix, rows), TINY)
    assert [copy.pc for copy in copies] == [0, 1, 2, 3], "each leaves rows of the ones before"
    copies = still_there(copies, WeightCopy(4, 0, 0, 8), TINY)
    assert [copy.pc for copy in copies] == [1, 4]
    assert [copy.pc for copy in read_by(copies, 4, 4, TINY)] == []
    assert [copy.pc for copy in read_by(copies, 3, 7, TINY)] == [1, 4]
    assert [copy.pc for copy in read_by(copies, (1 << 18) - 1, 2, TINY)] == [4], "addresses go round"


def test_an_address_register_moves_the_source():
    words = assemble("set_addr 1, 5\ncopy 1, 3, 8, 9\ninc_addr 1, -6\ncopy 1, 3, 8, 9\nhalt")
    assert [copy.column for copy in trace(words, COPYING).copies] == [64 * 8, 64 * 2]


@pytest.mark.parametrize("text, trap", [("copy 0, 0, 1, 1", Trap.BAD_FIELD), ("v_rd wide, 0\ncopy 0, 0, 0, 1", None)])
def test_a_copy_at_a_wrong_place(text, trap):
    if trap is None:
        with pytest.raises(ValueError, match="a chain must end"):
            assemble(text)
        return
    assert trace(assemble(f"{text}\nhalt"), COPYING).trap is trap


def test_a_configuration_without_the_memory_has_no_copies():
    words = [isa.encode(Op.COPY, rows=1)]
    assert trace(words, TINY).trap is Trap.BAD_OPCODE
    assert trace(words, COPYING.replace(dram="", dram_refresh=0)).trap is Trap.BAD_OPCODE


def test_columns_must_be_loaded():
    words = assemble("copy 0, 2, 0, 4\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0\nhalt")
    count = 4 * COPYING.row_columns
    known = [Span(RegionId.NARROW, 0, 1), Span(RegionId.DRAM, 128, count)]
    assert verify(words, COPYING, constants=known) == []
    (problem,) = verify(words, COPYING, constants=[known[0], Span(RegionId.DRAM, 128, count - 1)])
    assert problem.message == f"reads columns {128 + count - 1} of the external memory, which are not loaded"
    (problem,) = verify(words, COPYING, constants=[*known, Span(RegionId.MATRIX, 1, 1)])
    assert problem.message == "overwrites the constant matrix 1"


def test_rows_that_a_product_reads_must_be_copied():
    words = assemble("copy 0, 0, 0, 3\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0\nhalt")
    known = [Span(RegionId.NARROW, 0, 1), Span(RegionId.DRAM, 0, 64)]
    (problem,) = verify(words, COPYING, constants=known)
    assert "which is not loaded" in problem.message


AHEAD = "copy 0, 0, 8, 8, 1"
PRODUCT = "v_rd narrow, 0\nmv_mul {}\nv_wr wide, 0"
ROWS = "v_rd wide, 0\nm_wr 16, row=1"


@pytest.mark.parametrize(
    "between, first, message",
    [
        ("", 8, "reads words of matrix that the copy at pc 0 writes, which may go on"),
        ("", 11, "reads words of matrix that the copy at pc 0 writes, which may go on"),
        ("nop\nset_addr 1, 3", 8, "reads words of matrix that the copy at pc 0 writes, which may go on"),
        ("", 6, None),
        ("", 12, None),
        ("fence", 8, None),
        ("copy 0, 2, 16, 4", 8, None),
        ("copy 0, 2, 16, 4, 1", 8, None),
    ],
)
def test_no_product_reads_what_a_copy_beside_it_writes(between, first, message):
    words = assemble("\n".join([AHEAD, *filter(None, [between]), PRODUCT.format(first), "halt"]))
    known = [
        Span(RegionId.NARROW, 0, 1),
        Span(RegionId.DRAM, 0, 512),
        Span(RegionId.MATRIX, 0, 8),
        Span(RegionId.MATRIX, 12, 4),
    ]
    loaded = [span for span in known if span.region is not RegionId.MATRIX]
    problems = verify(words, COPYING, constants=loaded, inputs=known)
    assert [problem.message for problem in problems] == ([] if message is None else [message])
    assert all(problem.rule is ProgramRule.COPIES_AHEAD for problem in problems)


def test_copies_go_on_from_one_turn_of_a_loop_to_the_next():
    """The product in front of the copy is beside it from the second turn on."""
    text = f"loop {{}}\n{PRODUCT.format(8)}\n{AHEAD}\nend_loop\nhalt"
    known = [Span(RegionId.NARROW, 0, 1), Span(RegionId.DRAM, 0, 512), Span(RegionId.MATRIX, 8, 4)]
    assert verify(assemble(text.format(1)), COPYING, inputs=known) == []
    (problem,) = verify(assemble(text.format(2)), COPYING, inputs=known)
    assert problem.rule is ProgramRule.COPIES_AHEAD


def test_no_rows_are_written_beside_a_copy():
    config = COPYING_ENGINES
    known = [Span(RegionId.WIDE, 0, 1), Span(RegionId.DRAM, 0, 512)]
    assert verify(assemble(f"{AHEAD}\nfence\n{ROWS}\nhalt"), config, inputs=known) == []
    (problem,) = verify(assemble(f"{AHEAD}\n{ROWS}\nhalt"), config, inputs=known)
    assert problem.message == "writes rows of the matrix memory while the copy at pc 0 may go on"


def test_what_a_run_leaves_is_there_for_the_next_one():
    """The first product reads what was loaded, in the next run what the copy has left."""
    text = "v_rd narrow, 0\nmv_mul 0\nv_wr wide, 0\ncopy 0, 0, 0, 4\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 1\nhalt"
    memories = Memories(COPYING)
    memories.program[:8] = assemble(text)
    memories.narrow_mant[0], memories.matrix_mant[:2], memories.dram[:12] = 5, 3, 0x0101
    other = memories.copy()
    fast, slow = Emulator(memories), ReferenceMachine(other)
    for _ in range(2):
        fast.run()
        slow.run()
        assert memories.differences(other) == []
    assert (memories.wide[0] == memories.wide[1]).all() and memories.wide[0].any()
