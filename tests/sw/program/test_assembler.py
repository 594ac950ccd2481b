"""Assembler and disassembler."""

import random

import pytest

from concord.program.assembler import AssemblyError, assemble, disassemble
from concord.program.builder import ProgramBuilder
from concord.spec import isa
from concord.spec.isa import Mem, MvMode, Op

PROGRAM = """
weights = 0x40          # constants may be expressions
result = (weights >> 1) - 2 * 6
set_shape rows=4 cols=16
loop count=8
  v_rd narrow, 0, reg=1, row=0, inner=2
  mv_mul weights + 1, mode=depthwise
  vv_add 12, row=1
  v_sigm
  vv_mul_inc 13, outer=-1
  v_relu
  v_wr_inc wide, result, row=1
  v_wr narrow, 40, row=1
end_loop
set_quant mode=static exp=-3, rounding=nearest_away
halt
"""
WORDS = [
    isa.encode(Op.SET_SHAPE, rows=4, cols=16),
    isa.encode(Op.LOOP, count=8),
    isa.encode(Op.V_RD, mem=Mem.NARROW, reg=1, inner=2),
    isa.encode(Op.MV_MUL, matrix=65, mode=MvMode.DEPTHWISE),
    isa.encode(Op.VV_ADD, addr=12, row=1),
    isa.encode(Op.V_TBL, table=2),
    isa.encode(Op.VV_MUL, addr=13, outer=-1, unit=1),
    isa.encode(Op.V_RELU, unit=1),
    isa.encode(Op.V_WR, mem=Mem.WIDE, addr=20, row=1),
    isa.encode(Op.V_WR, mem=Mem.NARROW, addr=40, row=1, last=1),
    isa.encode(Op.END_LOOP),
    isa.encode(Op.SET_QUANT, mode=1, exp=-3, rounding=1),
    isa.encode(Op.HALT),
]


def test_text_becomes_words():
    assert assemble(PROGRAM, {"sigm": 2}) == WORDS
    assert assemble(PROGRAM.replace("v_sigm", "v_tbl sigm"), {"sigm": 2}) == WORDS


def test_the_builder_gives_the_same_words():
    b = ProgramBuilder()
    b.set_shape(rows=4, cols=16)
    assert b.loop(8) == 1
    b.v_rd("narrow", 0, reg=1, inner=2)
    b.mv_mul(matrix=65, mode="depthwise")
    b.vv_add(12, row=1)
    b.emit(Op.V_TBL, table=2)
    b.vv_mul(13, outer=-1)
    b.v_relu()
    b.v_wr(mem=Mem.WIDE, addr=20, row=1)
    b.v_wr(Mem.NARROW, 40, row=1)
    b.end_loop()
    b.set_quant("static", -3, "nearest_away")
    b.halt()
    assert b.words() == WORDS
    assert len(b) == len(WORDS)


def test_disassembly_is_the_inverse():
    text = disassemble(WORDS)
    assert ".word" not in text
    assert assemble(text) == WORDS
    unusual = assemble("v_rd wide, 0\nv_relu unit=1\nv_wr wide, 1\nhalt")
    assert assemble(disassemble(unusual)) == unusual


@pytest.mark.slow
def test_any_words_survive_disassembly():
    rng = random.Random(5)
    words = [rng.getrandbits(64) if rng.random() < 0.2 else rng.choice(WORDS) for _ in range(3000)]
    text = disassemble(words)
    assert ".word" in text
    assert assemble(text) == words


def test_fields_left_out_have_their_initial_values():
    assert assemble("set_window kh=3") == [isa.encode(Op.SET_WINDOW, kh=3, kw=1, dil_y=1, dil_x=1)]
    assert assemble("set_pad y0=-1") == [isa.encode(Op.SET_PAD, y0=-1, step_y=1, step_x=1)]
    still = [isa.encode(Op.SET_PAD, y0=-1)]
    assert assemble(disassemble(still)) == still


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("halt\nfoo 1", 2, "mnemonic must be one of .*, not 'foo'"),
        ("v_sigm", 1, "mnemonic must be one of"),
        ("halt_inc", 1, "mnemonic must be one of"),
        ("loop count=0", 1, "count must be at least 1, not 0"),
        ("loop 1, 2", 1, "operands of loop must be at most"),
        ("loop 1 count=2", 1, "count must be given once"),
        ("loop many", 1, "operand must be a number or a known name, not 'many'"),
        ("loop 1 +", 1, "operand must be an integer expression"),
        ("loop 1 / 2", 1, "operand must be an integer expression"),
        ("x = 1 // 0", 1, ".*division"),
        ("set_shape rows=1024", 1, r"rows must be in 0\.\.1023, not 1024"),
        ("v_relu", 1, "v_relu must stand in a chain"),
        ("v_rd wide, 0\nhalt", 2, "a chain must end with v_wr or m_wr, not with halt"),
        ("v_rd wide, 0\nv_rd wide, 0", 2, "a chain must end with v_wr or m_wr, not with v_rd"),
        ("v_rd wide, 0\nv_relu", 2, "a chain must end with v_wr or m_wr, not with the end of the program"),
        ("v_rd wide, 0\nv_wr wide, 0\nv_wr wide, 1", 3, "a chain must write wide vectors at most once"),
        ("v_rd wide, 0\nmv_mul 0", 2, "mv_mul must follow a narrow v_rd"),
        ("v_rd wide, 0\nv_relu\nv_relu\nv_relu", 4, "v_relu must stand before ACT1 in the chain"),
        ("v_rd wide, 0\nvv_add 0 unit=1\nvv_add 0", 3, "vv_add must stand before ADD1"),
        ("v_rd wide, 0\nv_wr wide, 0\nv_relu", 3, "v_relu must stand before WRITE"),
        ("v_rd wide, 0 last=1", 1, "last is set by the builder"),
        ("v_rd wide, 0 size=1", 1, "fields of v_rd must be among"),
        ("v_rd", 1, "operands of v_rd must include mem"),
        ("v_rd wide, 0\n.word 1", 2, "a chain must end with v_wr or m_wr, not with a raw word"),
        (".word -1", 1, "word must be in"),
    ],
)
def test_errors_name_the_line(text, line, message):
    with pytest.raises(AssemblyError, match=f"line {line}: {message}") as caught:
        assemble(text)
    assert caught.value.line == line


def test_builder_errors():
    b = ProgramBuilder()
    with pytest.raises(AttributeError, match=r"mnemonic must be one of .*, not 'v_foo'"):
        b.v_foo()
    with pytest.raises(TypeError, match="operands of loop must be at most"):
        b.loop(1, 2)
    with pytest.raises(TypeError, match="operands of loop must be given once"):
        b.loop(1, count=2)
    with pytest.raises(ValueError, match="mem must be an integer or narrow, wide, not 'deep'"):
        b.v_rd("deep", 0)
    b.v_rd("wide", 0)
    with pytest.raises(ValueError, match="unit must be 0 or 1, not 2"):
        b.v_relu(unit=2)
    with pytest.raises(ValueError, match="a chain must end with v_wr"):
        b.words()
