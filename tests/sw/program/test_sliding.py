"""Sliding depthwise products: what they are, and the rules that the verifier and the emulators hold them to."""

from itertools import product

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine
from concord.image import Memories, pack_depthwise
from concord.program import Span, trace, verify
from concord.program.assembler import assemble, disassemble
from concord.spec.isa import Trap
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY

CONFIG = TINY.replace(lanes=4, window_taps=4)
#: Three rows of five windows of 2 x 2 over an image of 3 x 6, with a row and a column around it.
SOUND = """
set_shape cols=1
set_iters inner=5 outer=3
set_window kh=2 kw=2 stride_y=6 stride_x=1
set_pad y0=-1 x0=-1 height=3 width=6
v_rd narrow, 16377, inner=1, outer=6
mv_mul 1, mode=depthwise, sliding=1
v_wr wide, 8, inner=1, outer=5
v_wr narrow, 18, inner=1, outer=5
halt
"""
PLAIN = SOUND.replace(", sliding=1", "").replace("mv_mul 1", "mv_mul 0")


def problems(text, config=CONFIG):
    spans = [Span(RegionId.NARROW, 0, 18), Span(RegionId.MATRIX, 0, 2)]
    return [str(problem) for problem in verify(assemble(text), config, inputs=spans)]


def memories(text):
    rng = np.random.default_rng(4)
    found, weights = Memories(CONFIG), rng.normal(0, 0.2, (4, 2, 2))
    words = assemble(text)
    found.program[: len(words)] = words
    found.narrow_mant[:18] = rng.integers(-127, 128, (18, 4))
    found.narrow_exp[:18] = rng.integers(-9, -5, 18)
    found.write(RegionId.MATRIX, 0, pack_depthwise(weights, CONFIG) + pack_depthwise(weights, CONFIG, sliding=True))
    return found


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
def test_the_product_is_that_of_a_plain_one(machine):
    assert problems(SOUND) == problems(PLAIN) == []
    sliding, plain = memories(SOUND), memories(PLAIN)
    run = machine(sliding).run()
    assert run.depthwise_steps == 3 * 5 * 2  # the first column of the first window is left of the image
    assert machine(plain).run().depthwise_steps == 15 * 4
    assert plain.wide[8:23].any()
    np.testing.assert_array_equal(sliding.wide, plain.wide)


def test_lanes_of_the_weights():
    """Column by column from the last tap: lanes 0 and 2 are places 0 and 1, lanes 1 and 3 the other two."""
    weights = np.array([[[1.0, 2.0], [3.0, 4.0]]]) / 8
    row = CONFIG.matrix_row.unpack(pack_depthwise(weights, CONFIG, sliding=True)[0])
    top_left, top_right, below_left, below_right = (row["mant"][lane] for lane in (3, 2, 1, 0))
    assert [top_left, top_right, below_left, below_right] == [16, 32, 48, 64]
    with pytest.raises(ValueError, match="windows must have at most window_taps=4 taps, not 6"):
        pack_depthwise(np.ones((4, 2, 3)), CONFIG, sliding=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kw=2", "kw=3", "has a window of 6 taps; window_taps is 4"),
        ("cols=1", "rows=2 cols=1", "has 2 rows; it must have one"),
        ("cols=1", "cols=3", "has 3 new columns per window, of 2"),
        ("v_rd narrow, 16377, inner=1", "v_rd narrow, 16377, inner=2", "moves 2 words per window; 1 columns are 1"),
        ("x0=-1", "x0=-1 step_x=2", "moves 2 positions per window; 1 columns are 1"),
        ("narrow, 18", "narrow, 16", "writes narrow [16], which its own windows read"),
    ],
)
def test_broken_rules_are_found(old, new, message):
    text = SOUND.replace(old, new)
    assert any(f"as a sliding product {message}" in problem for problem in problems(text)), problems(text)
    for machine in (ReferenceMachine, Emulator):
        with pytest.raises(ValueError, match="a sliding product at pc 4 "):
            machine(memories(text)).run()


def test_a_row_of_one_window_and_an_image_without_bounds_may_have_any_steps():
    assert problems(SOUND.replace("inner=5", "inner=1").replace("inner=1, outer=6", "inner=9, outer=6")) == []
    free = SOUND.replace("height=3 width=6", "step_x=7").replace("16377", "0").replace("outer=3", "outer=2")
    assert problems(free) == []


def test_a_configuration_without_windows_traps():
    run = trace(assemble(SOUND), TINY.replace(lanes=4))
    assert (run.trap, run.pc) == (Trap.BAD_OPCODE, 5)


def test_a_dense_product_does_not_slide():
    (chain,) = trace(assemble("v_rd narrow, 0\nmv_mul 0, sliding=1\nv_wr wide, 0\nhalt"), CONFIG).chains
    assert chain.dense and not chain.sliding and chain.fresh == 0


def test_text_comes_back():
    assert assemble(disassemble(assemble(SOUND))) == assemble(SOUND)
    assert "mv_mul 1, mode=depthwise, sliding=1" in disassemble(assemble(SOUND))


@pytest.mark.parametrize("dil_x", [1, 2, 3])
def test_columns_that_are_left_out_are_those_left_of_the_image(dil_x):
    """All of them but the last one of a window, and none where the image has no bounds."""
    for kw, x0, height in product((1, 2, 4), range(-9, 3), (0, 3)):
        text = SOUND.replace("kh=2 kw=2", f"kh=1 kw={kw} dil_x={dil_x}").replace(
            "x0=-1 height=3", f"x0={x0} height={height}"
        )
        (chain,) = trace(assemble(text), CONFIG).chains
        left = [x0 + kx * dil_x < 0 for kx in range(kw - 1)]
        assert chain.skipped == (sum(left) if height else 0)
