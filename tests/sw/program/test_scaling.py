"""Where codes of accumulators can be made, and what a chain knows of it."""

import pytest

from concord.program import trace, verify
from concord.program.assembler import assemble
from concord.program.builder import ProgramBuilder
from concord.spec import isa
from concord.spec.isa import Mem, Op, Trap
from concord.spec.presets import TINY
from support.rtl_configs import SCALING

FORMS = {"read": (Op.V_RD, {"mem": 0}), "product": (Op.MV_MUL, {}), "scale": (Op.VV_SCALE, {"addr": 3}),
         "maximum": (Op.V_MAX, {}), "times": (Op.VV_MUL, {}), "add": (Op.VV_ADD, {}), "add 1": (Op.VV_ADD, {"unit": 1}),
         "relu": (Op.V_RELU, {})}  # fmt: skip


def words(*names):
    body = [isa.encode(op, **values) for op, values in (FORMS[name] for name in names)]
    return [*body, isa.encode(Op.V_WR, mem=1, last=1), isa.encode(Op.HALT)]


@pytest.mark.parametrize("names", [
    ("read", "product", "scale"), ("read", "product", "scale", "relu"), ("read", "product", "scale", "add 1"),
], ids=" ".join)  # fmt: skip
def test_chains_with_codes(names):
    run = trace(words(*names), SCALING)
    assert run.trap is Trap.NONE
    (chain,) = run.chains
    assert chain.scale is not None and chain.scale.operand.base == 3 and chain.scale.shift == 0
    assert [(read.op, read.port, read.address.base) for read in chain.operands][:2] == [
        (Op.VV_SCALE, 0, 3), (Op.VV_SCALE, 1, 4),
    ]  # fmt: skip
    assert all(step.op is not Op.VV_SCALE for step in chain.mfu_ops)


@pytest.mark.parametrize("names", [
    ("read", "scale"), ("read", "maximum", "scale"), ("read", "product", "times", "scale"),
    ("read", "product", "scale", "scale"), ("read", "product", "scale", "add"), ("read", "product", "scale", "times"),
], ids=" ".join)  # fmt: skip
def test_where_no_codes_can_be_made(names):
    run = trace(words(*names), SCALING)
    assert run.trap is Trap.CHAIN_ORDER and not run.chains


@pytest.mark.parametrize("word", [isa.encode(Op.SET_SCALE, shift=1), isa.encode(Op.VV_SCALE, addr=1)])
def test_other_configurations_do_not_know_them(word):
    assert trace([word], TINY).trap is Trap.BAD_OPCODE


def test_the_shift_is_that_of_the_state():
    text = "set_scale 7\nv_rd narrow, 0\nmv_mul 0\nvv_scale 16383, row=2\nv_wr wide, 0\nhalt"
    (chain,) = trace(assemble(text), SCALING).chains
    assert chain.scale.shift == 7
    factors, fractions = chain.scale.operands
    assert (factors.base, factors.row, fractions.base, fractions.row) == (16383, 2, 0, 2)


def test_the_builder_refuses_what_traps():
    builder = ProgramBuilder()
    builder.v_rd(Mem.NARROW, 0)
    with pytest.raises(ValueError, match="vv_scale must follow mv_mul"):
        builder.vv_scale(0)
    builder.mv_mul(0)
    builder.vv_scale(0)
    with pytest.raises(ValueError, match="vv_mul must stand before ADD0 in the chain"):
        builder.vv_mul(0, unit=0)


def test_fractions_that_are_not_loaded_are_found():
    problems = verify(words("read", "product", "scale"), SCALING)
    assert any("vv_scale reads wide 3 before it is written" in str(problem) for problem in problems)
    assert any("vv_scale reads wide 4 before it is written" in str(problem) for problem in problems)
