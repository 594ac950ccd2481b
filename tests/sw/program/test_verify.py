"""The verifier: a sound program passes, and every kind of damage is found."""

import pytest

from concord.program import Span, verify
from concord.program.assembler import assemble
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY

SOUND = """
set_shape rows=2 cols=2
v_rd wide, 0, row=1
v_wr narrow, 0, row=1
set_window kh=2 kw=1 stride_y=0
v_rd narrow, 0
mv_mul 8
vv_add 10, row=1
v_tbl 1
v_wr wide, 20, row=1
halt
"""
SPANS = {
    "inputs": [Span(RegionId.WIDE, 0, 2)],
    "constants": [Span(RegionId.WIDE, 10, 2), Span(RegionId.MATRIX, 8, 16), Span(RegionId.SLOTS, 1)],
    "outputs": [Span(RegionId.WIDE, 20, 2)],
}


def messages(text, **changes):
    return [str(problem) for problem in verify(assemble(text), TINY, **(SPANS | changes))]


def test_a_sound_program_passes():
    assert messages(SOUND) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("halt", "", "pc 9: (end of program): traps with BAD_OPCODE"),
        ("v_rd narrow, 0\n", "v_rd narrow, 63\n", "source reads narrow 64, beyond its 64 words"),
        ("v_rd narrow, 0\n", "v_rd narrow, 1\n", "source reads narrow 2 before it is written"),
        ("vv_add 10", "vv_add 63", "vv_add reads wide 64, beyond its 64 words"),
        ("vv_add 10", "vv_add 11", "vv_add reads wide 12 before it is written"),
        ("wide, 20", "wide, 63", "writes wide 64, beyond its 64 words"),
        ("wide, 20", "wide, 11", "overwrites the constant wide 11"),
        ("mv_mul 8", "mv_mul 7", "reads matrix 7, which is not loaded"),
        ("mv_mul 8", "mv_mul 250", "reads matrix 256, 257, 258, 259, ... (10 in all), beyond its 256 words"),
        ("v_tbl 1", "v_tbl 2", "uses table 2, which is not loaded"),
        ("kh=2 kw=1", "kh=33 kw=1", "adds up 66 native products; max_terms is 64"),
        ("wide, 20", "wide, 22", "never writes the output wide 20, 21"),
        ("set_shape", "set_quant static exp=-16\nset_shape", "traps with BAD_FIELD"),
        ("v_tbl 1", "v_tbl 4", "traps with BAD_FIELD"),
    ],
)
def test_damage_is_found(old, new, message):
    found = messages(SOUND.replace(old, new))
    assert any(message in problem for problem in found), found


def test_a_pooling_window_needs_a_tap():
    text = "set_pad y0=2 height=2 width=1\nv_rd wide, 0\nv_max\nv_wr wide, 20\nv_rd wide, 0\nv_wr wide, 21\nhalt"
    assert "the maximum of a window that lies outside the image" in messages(text)[0]
    assert messages(text.replace("y0=2", "y0=1")) == []


def test_a_pooling_window_needs_a_tap_at_every_position():
    text = "set_iters inner={}\nset_pad step_x=1 height=1 width=2\nv_rd wide, 0\nv_max\nv_wr wide, 20, inner=1\nhalt"
    assert messages(text.format(2), outputs=[]) == []
    assert "the maximum of a window that lies outside the image" in messages(text.format(3), outputs=[])[0]


def test_one_constant_among_others_is_found():
    text = "set_shape rows=3\nv_rd wide, 0\nv_wr wide, {}, row=1\nhalt"
    assert messages(text.format(7), outputs=[]) == []
    for at in (8, 11):
        (found,) = messages(text.format(at), outputs=[])
        assert f"overwrites the constant wide {max(at, 10)}" in found


def test_taps_outside_the_image_are_not_read():
    text = SOUND.replace("v_rd narrow, 0\n", "set_pad y0=-1 height=1 width=1\nv_rd narrow, 62\n")
    text = text.replace("stride_y=0", "stride_y=-62").replace("set_window", "set_window dil_x=1 dil_y=1 ")
    assert messages(text) == []


def test_vectors_may_read_what_earlier_ones_of_the_chain_wrote():
    running = "set_shape rows=4 cols=1\nv_rd wide, {}, row=1\nvv_add 10\nv_wr wide, {}, row=1\nhalt"
    assert messages(running.format(1, 2), outputs=[]) == []
    assert "source reads wide 2, 3, 4 before it is written" in messages(running.format(1, 1), outputs=[])[0]


def test_loops_are_unrolled():
    text = "loop count={}\nv_rd wide, 0\nv_wr wide, 20, reg=1\ninc_addr 1, 1\nend_loop\nhalt"
    assert messages(text.format(44)) == []
    assert "writes wide 64" in messages(text.format(45))[0]


def test_spans_must_lie_in_their_region():
    with pytest.raises(ValueError, match="span must lie in the 64 words of wide"):
        messages(SOUND, inputs=[Span(RegionId.WIDE, 63, 2)])
    with pytest.raises(ValueError, match="span must lie in the 0 words of regs"):
        messages(SOUND, inputs=[Span(RegionId.REGS, 0, 1)])
