"""Rows of the matrix memory that programs write: which they are, where ``m_wr`` may stand, what the verifier knows."""

import random

import numpy as np
import pytest

from concord.emulator.reference import ReferenceMachine
from concord.golden import blocks
from concord.image import Memories
from concord.program import Span, trace, verify
from concord.program.access import Access
from concord.program.allocator import Allocator
from concord.program.assembler import assemble, disassemble
from concord.program.matrix_writes import row_words
from concord.spec import isa
from concord.spec.formats import FLAG_BITS
from concord.spec.isa import Mem, Op, Trap
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.program_gen import random_program
from support.rtl_configs import WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS

CONFIGS = [WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS]
READ = isa.encode(Op.V_RD, mem=Mem.NARROW)


def names(config):
    return config.name


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_the_output_row_of_a_product_is_the_product_with_the_vector(config):
    """What the instruction is for: vectors become rows of a matrix, in the order of the output rows."""
    keys, cols, n = 2 * config.rows, 2, config.native
    memories = Memories(config.replace(max_terms=1024))
    draw = np.random.default_rng(5)
    narrow = draw.integers(-9, 10, (cols * (keys + 1), n))  # keys, and one vector to multiply them with
    memories.narrow_mant[: len(narrow)] = narrow
    memories.narrow_exp[: len(narrow)] = -4
    program = assemble(f"""
        set_shape rows={cols} cols=1
        set_iters inner={config.rows} outer=2
        set_quant mode=static exp={max(-5, config.wgt_exp_min)}
        v_rd narrow, 0, row=1, inner={cols}, outer={cols * config.rows}
        m_wr {3 * config.steps}, row={config.rows}, inner=1, outer={cols * config.rows}
        set_shape rows={keys // n} cols={cols}
        set_iters inner=1 outer=1
        v_rd narrow, {cols * keys}
        mv_mul {3 * config.steps}
        v_wr wide, 0, row=1
        halt
    """)
    memories.program[: len(program)] = program
    ReferenceMachine(memories).run()
    values = narrow.reshape(keys + 1, -1) * 2.0**-4
    got = memories.wide[: keys // n].view(np.float16).ravel()
    exact = values[:keys] @ values[keys]
    assert not memories.flags.any() and len(set(exact.tolist())) > keys // 2
    np.testing.assert_array_equal(got, exact.astype(np.float16))


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_rows_are_those_of_the_memory_map(config):
    """A row of a tile is N/L words of the region, T*N apart."""
    memories = Memories(config)
    memories.wide[0] = np.arange(1, config.native + 1, dtype=np.float16).view(np.uint16)
    tile, row = 5, config.rows - 1
    program = assemble(f"""
        set_addr 3, {row + config.rows}
        set_shape 2, 1
        v_rd wide, 0
        m_wr {tile * config.steps}, reg=3, row=-3
        halt
    """)
    memories.program[: len(program)] = program
    before = memories.matrix_mant.copy()
    ReferenceMachine(memories).run()
    changed = np.argwhere((memories.matrix_mant != before).any(axis=2))
    words = range((tile + 1) * config.steps, (tile + 2) * config.steps)
    assert {tuple(place) for place in changed.tolist()} == {(word, row - k) for word in words for k in (0, 3)}
    exponent = memories.matrix_exp[words[0], row]
    mantissas = memories.matrix_mant[list(words), row].ravel()
    block = blocks.quantize(memories.wide[0], config.wgt)
    assert (exponent, mantissas.tolist()) == (block.exp, block.mant.tolist())


@pytest.mark.parametrize(
    "value, mode, exp, want, flag",
    [
        (5.0, "dynamic", 0, -5, "SATURATED"),  # wants -4 and -5 is the greatest
        (3.0, "dynamic", 0, -5, 0),
        (1.0, "dynamic", 0, -6, 0),
        (2.0**-9, "dynamic", 0, -9, 0),
        (1.0, "static", -15, -9, "SATURATED"),  # finer than weights can be
        (1.0, "static", 3, -5, 0),
        (9.0, "static", 3, -5, "SATURATED"),
        (np.inf, "dynamic", 0, -5, "NONFINITE"),
    ],
)
def test_exponents_are_limited_to_those_of_weights(value, mode, exp, want, flag):
    memories = Memories(WRITABLE_ENGINES)
    memories.wide[0] = np.float16(value).view(np.uint16)
    program = assemble(f"set_quant mode={mode} exp={exp}\nv_rd wide, 0\nm_wr 0\nhalt")
    memories.program[: len(program)] = program
    ReferenceMachine(memories).run()
    assert memories.matrix_exp[0, 0] == want
    expected = min(value / 2.0**want, WRITABLE_ENGINES.wgt.q_max) if np.isfinite(value) else WRITABLE_ENGINES.wgt.q_max
    assert memories.matrix_mant[0, 0, 0] == int(np.rint(expected))
    flags = memories.flags[1]
    assert bool(flags & FLAG_BITS[flag]) if flag else not flags


def words(*instructions):
    last = len(instructions) - 1
    body = [isa.encode(op, **values, last=int(k == last)) for k, (op, values) in enumerate(instructions)]
    return [READ, *body, isa.encode(Op.HALT)]


WRITES = {"wide": (Op.V_WR, {"mem": 1}), "narrow": (Op.V_WR, {"mem": 0}), "matrix": (Op.M_WR, {"matrix": 4})}


@pytest.mark.parametrize("names", [["matrix"], ["wide", "matrix"], ["matrix", "wide"]], ids=" ".join)
def test_it_ends_a_chain(names):
    run = trace(words(*(WRITES[name] for name in names)), WRITABLE)
    assert run.trap is Trap.NONE
    (chain,) = run.chains
    assert chain.into_matrix.matrix == 4 and chain.converts
    assert [d.mem for d in chain.destinations] == [Mem.WIDE] * ("wide" in names)


@pytest.mark.parametrize("names", [
    ["matrix", "matrix"], ["matrix", "narrow"], ["narrow", "matrix"], ["wide", "matrix", "wide"],
], ids=" ".join)  # fmt: skip
def test_one_conversion_a_chain(names):
    run = trace(words(*(WRITES[name] for name in names)), WRITABLE)
    assert (run.trap, len(run.chains)) == (Trap.CHAIN_ORDER, 0)


def test_what_traps():
    assert trace(words((Op.M_WR, {"matrix": 4})), TINY).trap is Trap.BAD_OPCODE
    assert trace(words((Op.M_WR, {"matrix": 3})), WRITABLE).trap is Trap.BAD_FIELD
    assert trace([isa.encode(Op.M_WR, matrix=4, last=1)], WRITABLE).trap is Trap.CHAIN_ORDER
    assert trace(words((Op.M_WR, {"matrix": 4}), (Op.V_RELU, {})), WRITABLE).trap is Trap.CHAIN_ORDER


def test_its_text():
    text = "v_rd wide, 3\nv_wr wide, 4\nm_wr 6, reg=2, row=4, inner=-1, outer=16\n"
    assert disassemble(assemble(text)) == text
    with pytest.raises(ValueError, match="a chain must write narrow vectors or rows of matrices at most once"):
        assemble("v_rd wide, 3\nm_wr 6\nv_wr narrow, 0")


WHOLE = "set_iters inner=4\nv_rd wide, 0, inner=1\nm_wr 8, inner=1\nset_iters\n"
PRODUCT = "v_rd narrow, 0\nmv_mul 8\nv_wr wide, 9\nhalt"


@pytest.mark.parametrize("text, constants, message", [
    (WHOLE + PRODUCT, [], ""),
    (WHOLE.replace("inner=4", "inner=3") + PRODUCT, [], "reads matrix 8, 9, which is not loaded or written as a whole"),
    (WHOLE + PRODUCT, [Span(RegionId.MATRIX, 9)], "overwrites the constant matrix 9"),
    ("v_rd narrow, 0\nmv_mul 8\nm_wr 8\nhalt", [Span(RegionId.MATRIX, 8, 4)], "reads matrix 8, which it writes itself"),
    ("v_rd wide, 0\nm_wr 252, row=4, inner=4, reg=1\nhalt", [], ""),
    ("set_addr 1, 8\nv_rd wide, 0\nm_wr 254, reg=1\nhalt", [], "writes row 516 of the tiles, beyond the 512 of the"),
])  # fmt: skip
def test_the_verifier(text, constants, message):
    inputs = [Span(RegionId.WIDE, 0, 4), Span(RegionId.NARROW, 0)]
    problems = verify(assemble(text), WRITABLE, constants=constants, inputs=inputs)
    assert bool(problems) == bool(message)
    assert any(message in problem.message for problem in problems) or not message


def test_rows_of_a_word_may_be_constant():
    """The others must be written before a product reads the word, and only they may be."""
    inputs = [Span(RegionId.WIDE, 0, 4), Span(RegionId.NARROW, 0)]
    three = assemble(WHOLE.replace("inner=4", "inner=3") + PRODUCT)

    def found(program, row, count=4):
        constants = [Span(RegionId.MATRIX, 8, count, row)]
        return [problem.message for problem in verify(program, WRITABLE, constants=constants, inputs=inputs)]

    assert found(three, 3) == []
    assert found(three, 3, 1) == ["reads matrix 9, which is not loaded or written as a whole"]
    assert found(three, 2) == ["overwrites the constant matrix 8, 9"]
    assert found(assemble(WHOLE + PRODUCT), 3) == ["overwrites the constant matrix 8, 9"]
    with pytest.raises(ValueError, match="row must be 0 in the wide memory, not 1"):
        verify(three, WRITABLE, constants=[Span(RegionId.WIDE, 0, 1, 1)])


def test_rows_that_stay_zero_are_loaded():
    """A matrix of five rows in tiles of four: its last three rows, in the words of the second tile."""
    allocator, steps = Allocator(WRITABLE), WRITABLE.steps
    allocator.matrix("weights", np.ones((4, 4)))
    addr = allocator.written_matrix("written", 4 * steps, Span(RegionId.MATRIX, 2 * steps, 2 * steps, 1))
    assert addr == allocator["written"] == steps
    assert allocator.constants["written"] == Span(RegionId.MATRIX, 3 * steps, 2 * steps, 1)
    image = allocator.linked(assemble("halt"))
    (zeros,) = (part for part in image.segments if part.start == 3 * steps * WRITABLE.rows)
    assert zeros.region is RegionId.MATRIX and zeros.count == 2 * steps * WRITABLE.rows
    assert not Memories.of(image).matrix_mant[3 * steps : 5 * steps].any()
    assert "plain" not in allocator.constants and allocator.written_matrix("plain", 3) == 5 * steps
    assert "plain" not in allocator.constants


def test_a_chain_does_not_read_what_it_writes():
    program = assemble("v_rd narrow, 0\nmv_mul 8\nm_wr 8\nhalt")
    (chain,) = trace(program, WRITABLE).chains
    with pytest.raises(ValueError, match="a chain at pc 0 reads matrix 8, which it writes itself"):
        Access.of(chain, WRITABLE)
    memories = Memories(WRITABLE)
    memories.program[: len(program)] = program
    with pytest.raises(ValueError, match="a chain at pc 0 reads matrix 8, which it writes itself"):
        ReferenceMachine(memories).run()


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_random_programs_write_matrices_that_products_read(config):
    """The generator of random programs does what the tests of hardware and emulator rely on."""
    writes = reads = 0
    for seed in range(12):
        program, memories = random_program(config, random.Random(seed), 12)
        written = set()
        for chain in trace(program, config).chains:
            if chain.reduce is Op.MV_MUL:
                reads += bool(written & set(chain.matrix_words(config).ravel().tolist()))
            if chain.into_matrix is not None:
                writes += 1
                written |= set(row_words(chain.written_rows(config), config).ravel().tolist())
        ReferenceMachine(memories).run()
    assert writes > 8 and reads > 4
