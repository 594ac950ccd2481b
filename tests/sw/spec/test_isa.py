"""The instruction table, and the sequencer that expands programs."""

import random

import numpy as np
import pytest

from concord.program import Address, Pad, Window, trace
from concord.program.assembler import assemble
from concord.program.builder import ProgramBuilder
from concord.spec import isa
from concord.spec.isa import Mem, MvMode, Op, Trap
from concord.spec.presets import TINY, UP5K

HALT = isa.encode(Op.HALT)
RD = isa.encode(Op.V_RD, mem=Mem.WIDE)
RD_NARROW = isa.encode(Op.V_RD, mem=Mem.NARROW)
WR = isa.encode(Op.V_WR, mem=Mem.WIDE, last=1)
WR_MORE = isa.encode(Op.V_WR, mem=Mem.WIDE)
WR_NARROW = isa.encode(Op.V_WR, mem=Mem.NARROW, last=1)
END = isa.encode(Op.END_LOOP)


def loop(count):
    return isa.encode(Op.LOOP, count=count)


@pytest.mark.parametrize("form", isa.INSTRUCTIONS, ids=lambda form: form.mnemonic)
def test_encode_and_decode_are_inverse(form):
    rng = random.Random(form.op)
    for _ in range(200):
        values = {f.name: rng.choice([f.low, f.high, rng.randint(f.low, f.high)]) for f in form.fields.fields}
        for name, low in form.least:
            values[name] = max(values[name], low)
        for name, high in form.most:
            values[name] = min(values[name], high)
        word = isa.encode(form.op, **values)
        assert 0 <= word < 1 << 64
        got, fields = isa.decode(word)
        assert (got, fields) == (form, values)


def test_reserved_bits_and_unknown_codes_trap():
    for form in isa.INSTRUCTIONS:
        if "reserved" in form.layout:
            values = dict(form.least)
            with pytest.raises(isa.IllegalInstruction) as caught:
                isa.decode(isa.encode(form.op, **values) | 1 << 63)
            assert caught.value.trap is Trap.BAD_OPCODE
    unknown = set(range(64)) - set(map(int, Op))
    for code in unknown:
        with pytest.raises(isa.IllegalInstruction) as caught:
            isa.decode(code)
        assert caught.value.trap is Trap.BAD_OPCODE


@pytest.mark.parametrize(
    ("words", "trap", "pc", "chains"),
    [
        ([HALT], Trap.NONE, 0, 0),
        ([], Trap.BAD_OPCODE, 0, 0),
        ([RD, WR], Trap.BAD_OPCODE, 2, 1),
        ([HALT | 1 << 6], Trap.BAD_OPCODE, 0, 0),
        ([int(Op.LOOP)], Trap.BAD_FIELD, 0, 0),
        ([RD, WR, int(Op.SET_ADDR)], Trap.BAD_FIELD, 2, 1),
        ([RD, isa.encode(Op.V_TBL, table=4), WR], Trap.BAD_FIELD, 1, 0),
        ([RD, isa.encode(Op.V_TBL, table=3), WR, HALT], Trap.NONE, 3, 1),
        ([WR], Trap.CHAIN_ORDER, 0, 0),
        ([isa.encode(Op.V_RELU)], Trap.CHAIN_ORDER, 0, 0),
        ([RD, RD], Trap.CHAIN_ORDER, 1, 0),
        ([RD, WR, RD, HALT], Trap.CHAIN_ORDER, 3, 1),
        ([RD, WR_MORE, HALT], Trap.CHAIN_ORDER, 2, 0),
        ([RD, isa.encode(Op.SET_SHAPE, rows=1, cols=1)], Trap.CHAIN_ORDER, 1, 0),
        ([isa.encode(Op.V_RD, mem=Mem.WIDE, last=1)], Trap.CHAIN_ORDER, 0, 0),
        ([RD, isa.encode(Op.V_RELU, last=1)], Trap.CHAIN_ORDER, 1, 0),
        ([RD, isa.encode(Op.MV_MUL), WR], Trap.CHAIN_ORDER, 1, 0),
        ([RD_NARROW, isa.encode(Op.MV_MUL), WR, HALT], Trap.NONE, 3, 1),
        ([RD, isa.encode(Op.V_RELU), isa.encode(Op.VV_ADD), WR], Trap.CHAIN_ORDER, 2, 0),
        ([RD, isa.encode(Op.V_RELU), isa.encode(Op.VV_ADD, unit=1), WR, HALT], Trap.NONE, 4, 1),
        ([RD, isa.encode(Op.VV_ADD), isa.encode(Op.VV_SUB), WR], Trap.CHAIN_ORDER, 2, 0),
        ([RD, isa.encode(Op.V_RELU), isa.encode(Op.V_MAX), WR], Trap.CHAIN_ORDER, 2, 0),
        ([RD, isa.encode(Op.V_MAX), isa.encode(Op.V_REDMAX), WR], Trap.CHAIN_ORDER, 2, 0),
        ([RD, WR_MORE, WR], Trap.CHAIN_ORDER, 2, 0),
        ([RD, WR_MORE, WR_NARROW, HALT], Trap.NONE, 3, 1),
        ([RD, WR_MORE, isa.encode(Op.V_RELU)], Trap.CHAIN_ORDER, 2, 0),
        ([END], Trap.LOOP_STACK, 0, 0),
        ([loop(2), loop(2), loop(2)], Trap.LOOP_STACK, 2, 0),
        ([loop(2), HALT], Trap.NONE, 1, 0),
        ([loop(3), RD, WR, END, HALT], Trap.NONE, 4, 3),
        ([loop(3), loop(2), RD, WR, END, END, HALT], Trap.NONE, 6, 6),
        ([loop(3), RD, WR, END, END], Trap.LOOP_STACK, 4, 3),
        ([loop(3), RD, END], Trap.CHAIN_ORDER, 2, 0),
        ([isa.encode(Op.NOP)] * TINY.program_depth, Trap.PC_RANGE, TINY.program_depth, 0),
        ([isa.encode(Op.NOP)] * (TINY.program_depth - 1) + [RD], Trap.PC_RANGE, TINY.program_depth, 0),
    ],
)
def test_traps(words, trap, pc, chains):
    run = trace(words, TINY)
    assert (run.trap, run.pc, len(run.chains)) == (trap, pc, chains)


def test_stochastic_rounding_traps_where_there_is_no_noise():
    words = assemble("set_quant rounding=stochastic\nhalt")
    assert trace(words, TINY).trap is Trap.NONE
    assert trace(words, UP5K).trap is Trap.BAD_FIELD


def test_start_beyond_the_memory_traps():
    assert trace([HALT], TINY, pc=TINY.program_depth).trap is Trap.PC_RANGE


def test_limits_are_reported():
    with pytest.raises(ValueError, match="program must end within 100 instructions"):
        trace([loop(65535), END, HALT], TINY, limit=100)
    with pytest.raises(ValueError, match="program must have at most 128 words, not 129"):
        trace([HALT] * 129, TINY)


def test_state_is_resolved():
    run = trace(
        assemble(
            """
            set_addr 1, 0x3ffff
            set_addr 2, 100
            set_shape rows=3 cols=2
            set_iters inner=4 outer=5
            set_window kh=2 kw=3 stride_y=10 stride_x=-1 dil_y=1 dil_x=2
            set_pad y0=-1 x0=-2 step_y=2 step_x=1 height=6 width=7
            loop count=2
              v_rd narrow, 1, reg=1, inner=1
              mv_mul 7, reg=2
              v_wr narrow, 16383, reg=2, row=-1
              inc_addr 2, -1
            end_loop
            v_rd wide, 0
            v_wr wide, 1
            halt
            """
        ),
        TINY,
    )
    first, second, plain = run.chains
    assert first.source == Address(0, 0, 1, 0)
    assert (first.matrix, second.matrix) == (107, 106)
    assert first.destination(Mem.NARROW) == Address(99, -1, 0, 0)
    assert first.destination(Mem.WIDE) is None
    assert first.window == Window(2, 3, 10, -1, 1, 2)
    assert (first.rows, first.cols, first.inner, first.outer) == (3, 2, 4, 5)
    assert (plain.cols, plain.window, plain.pad) == (1, Window(), Pad())
    assert (plain.rows, plain.inner, plain.outer) == (3, 4, 5)
    assert plain.pc == 12


def test_indices_follow_the_loops_of_the_definition():
    config = TINY.replace(engines=2, matrix_depth=4096)
    chain = trace(
        assemble(
            """
            set_shape rows=3 cols=2
            set_iters inner=2 outer=4
            set_window kh=2 kw=3 stride_y=9 stride_x=-2 dil_y=1 dil_x=2
            set_pad y0=-1 x0=-2 step_y=1 step_x=3 height=3 width=4
            v_rd narrow, 5, row=7, inner=1, outer=-3
            mv_mul 16
            v_wr wide, 9, row=1, inner=3, outer=6
            halt
            """
        ),
        config,
    ).chains[0]
    sources, inside, matrix = chain.sources(config), chain.inside(), chain.matrix_words(config)
    target = chain.addresses(chain.destination(Mem.WIDE))
    for o, i, r in np.ndindex(*chain.shape):
        assert target[o, i, r] == (9 + r + 3 * i + 6 * o) % 2**14
        for ky, kx, c in np.ndindex(2, 3, 2):
            tap, group = 3 * ky + kx, r // 2
            assert sources[o, i, r, tap, c] == (5 + 2 * group * 7 + i - 3 * o + 9 * ky - 2 * kx + c) % 2**14
            assert inside[o, i, tap] == (0 <= -1 + o + ky < 3 and 0 <= -2 + 3 * i + 2 * kx < 4)
            for part in range(config.steps):
                want = 16 + (((group * 2 + ky) * 3 + kx) * 2 + c) * config.steps + part
                assert matrix[group, tap, c, part] == want
    assert chain.dense_steps(config) == 2 * 4 * 2 * 6 * 2 * 2
    assert chain.depthwise_steps() == 0


def test_depthwise_words_and_counts():
    text = "set_shape rows=3 cols=9\nset_window kh=3 kw=1\n{}\nhalt"
    chain = trace(assemble(text.format("v_rd narrow, 0\nmv_mul 5, mode=depthwise\nv_wr wide, 0")), TINY).chains[0]
    assert chain.mode is MvMode.DEPTHWISE
    assert chain.cols == 1
    assert chain.matrix_words(TINY).tolist() == [[5, 6], [7, 8], [9, 10]]
    assert (chain.depthwise_steps(), chain.dense_steps(TINY), chain.vectors) == (9, 0, 3)


@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_steps_are_counted_by_groups_of_rows(rows, groups):
    config = TINY.replace(engines=2)
    text = f"set_shape rows={rows} cols=3\nset_iters inner=2\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0\nhalt"
    chain = trace(assemble(text), config).chains[0]
    assert chain.dense_steps(config) == 2 * groups * 3 * config.steps
    assert chain.matrix_words(config).shape == (groups, 1, 3, config.steps)


def test_address_registers_have_the_bits_of_a_matrix_address():
    """They count beyond the addresses of vectors, and begin again behind those of the matrix memory."""
    last = (1 << isa.MATRIX_ADDR_BITS) - 1
    text = f"set_addr 1, {last - 1}\ninc_addr 1, 1\nv_rd narrow, 0\nmv_mul 0, reg=1\nv_wr wide, 0\n"
    text += "inc_addr 1, 3\nv_rd narrow, 0\nmv_mul 0, reg=1\nv_wr wide, 0\nhalt"
    assert [chain.matrix for chain in trace(assemble(text), TINY).chains] == [last, 2]


def test_builder_rejects_misplaced_instructions():
    builder = ProgramBuilder()
    builder.v_rd("wide", 3)
    with pytest.raises(ValueError, match="mv_mul must follow a narrow v_rd"):
        builder.mv_mul(0)
    with pytest.raises(ValueError, match="a chain must end with v_wr or m_wr, not with halt"):
        builder.halt()
