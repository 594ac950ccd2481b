"""Rules of programs: each has an example that breaks it and no other, which the verifier and the machines refuse."""

import pytest

from concord.emulator import Emulator, ReferenceMachine
from concord.image import Memories
from concord.program import Span, verify
from concord.program.assembler import assemble
from concord.spec import docs
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY
from concord.spec.rules import ProgramRule
from support.integer_contents import TRAIN_SMALL
from support.rtl_configs import COPYING, COPYING_ENGINES, WRITABLE

WINDOWS = TINY.replace(lanes=4, window_taps=4)
#: Rows of tiles of the matrix memory of ``WRITABLE``.
TILE_ROWS = WRITABLE.matrix_rows
#: Five windows of 2 x 2 that slide, in which a test changes one thing.
SLIDING = """
set_shape cols=1
set_iters inner=5
set_window kh=2 kw=2 stride_y=6 stride_x=1
set_pad height=3 width=9
v_rd narrow, 0, inner=1
mv_mul 0, mode=depthwise, sliding=1
v_wr narrow, 18, inner=1
"""


def changed(text, old, new):
    assert text.count(old) == 1
    return text.replace(old, new)


#: Of every rule a configuration and a program that breaks it.
EXAMPLES = {
    ProgramRule.ADDRESSES: (TINY, "v_rd wide, 64\nv_wr wide, 0"),
    ProgramRule.TERMS: (TINY, "set_window kh=5 kw=13\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0"),
    ProgramRule.SOME_TAP: (TINY, "set_pad y0=2 height=2 width=2\nv_rd wide, 0\nv_max\nv_wr wide, 1"),
    ProgramRule.WINDOW_TAPS: (WINDOWS, changed(SLIDING, "kw=2", "kw=3")),
    ProgramRule.ONE_ROW: (WINDOWS, changed(SLIDING, "cols=1", "rows=2 cols=1")),
    ProgramRule.NEW_COLUMNS: (WINDOWS, changed(SLIDING, "cols=1\nset_iters inner=5", "cols=3\nset_iters inner=1")),
    ProgramRule.SOURCE_STEP: (WINDOWS, changed(SLIDING, "narrow, 0, inner=1", "narrow, 0, inner=2")),
    ProgramRule.PAD_STEP: (WINDOWS, changed(SLIDING, "height=3", "step_x=2 height=3")),
    ProgramRule.OWN_WINDOWS: (WINDOWS, changed(SLIDING, "narrow, 18", "narrow, 11")),
    ProgramRule.ROWS_INSIDE: (WRITABLE, f"set_addr 1, {TILE_ROWS}\nv_rd wide, 0\nm_wr 0, reg=1"),
    ProgramRule.OWN_TILES: (WRITABLE, "v_rd narrow, 0\nmv_mul 0\nm_wr 0"),
    ProgramRule.COPIES_INSIDE: (COPYING, f"copy 0, 0, {COPYING.matrix_depth - COPYING.steps}, {COPYING.rows + 1}"),
    ProgramRule.COPIED_ROWS: (COPYING_ENGINES, "copy 0, 0, 0, 1\nv_rd wide, 0\nm_wr 0"),
    ProgramRule.COPIES_AHEAD: (COPYING, "copy 0, 0, 0, 1, 1\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0"),
    ProgramRule.VECTORS_INSIDE: (COPYING, f"v_copy 0, 0, {COPYING.wide_depth - 1}, 2, wide, 1"),
    ProgramRule.VECTORS_APART: (COPYING, "v_copy 0, 0, 0, 1, wide, 1\nv_copy 0, 0, 0, 1, narrow, 1"),
    ProgramRule.INTERVAL: (TRAIN_SMALL, "i_run 3, peak=1"),
    ProgramRule.ONE_OPERAND: (TRAIN_SMALL, "i_run 4, add=1, mask=1, peak=1"),
    ProgramRule.NARROW_OPERAND: (TRAIN_SMALL, "i_opd wide, 0, 4\ni_run 4, mask=1, peak=1"),
    ProgramRule.SCALED_PRODUCT: (TRAIN_SMALL, "i_src product\ni_run 4, scale=1, peak=1"),
    ProgramRule.PRODUCT_OPERAND: (TRAIN_SMALL, "i_src product\ni_opd wide, 0, 4\ni_run 4, add=1, peak=1"),
    ProgramRule.UPDATE: (TRAIN_SMALL, "i_src wide\ni_opd narrow, 0, 8\ni_run 4, update=1"),
    ProgramRule.UPDATE_DIGITS: (
        TRAIN_SMALL, "i_planes 2, col=1\ni_src wide\ni_opd narrow, 0, 8\ni_run 4, update=1, round1=1, to_column=1",
    ),
    ProgramRule.RESULT: (TRAIN_SMALL, "i_run 4"),
    ProgramRule.VALID: (TRAIN_SMALL, "i_run 4, peak=1, valid=9"),
    ProgramRule.ROW_DIGITS: (TRAIN_SMALL, "i_planes 2\ni_run 4, to_row=1"),
    ProgramRule.WIDE_DIGITS: (TRAIN_SMALL, "i_planes 2\ni_dst wide, 0, 4\ni_run 4, to_vector=1"),
    ProgramRule.INTEGER_ADDRESSES: (TRAIN_SMALL, "i_src wide, 0, 511\ni_run 4, peak=1"),
    ProgramRule.FIRST_TILE: (TRAIN_SMALL, f"set_addr 1, {(1 << 18) - 1}\ni_planes 1, reg=1\ni_run 4, to_column=1"),
    ProgramRule.INTEGER_TERMS: (TRAIN_SMALL, "set_window kh=57 kw=9\ni_src product\ni_run 4095, peak=1"),
    ProgramRule.OTHER_VECTORS: (
        TRAIN_SMALL, "set_shape rows=2\ni_src narrow, row=1\ni_dst narrow, 0, 1, row=1\ni_run 4, to_vector=1",
    ),
    ProgramRule.COLUMNS_AND_ROWS: (TRAIN_SMALL, "i_col 5\ni_row 6\ni_run 4, to_row=1, to_column=1"),
}  # fmt: skip
#: What machines execute nevertheless, as the page says.
EXECUTED = (ProgramRule.TERMS, ProgramRule.SOME_TAP)


def everything(config):
    """All words of the memories that programs read."""
    ids = (RegionId.NARROW, RegionId.WIDE, RegionId.TENSORS, RegionId.FACTORS, RegionId.DRAM)
    spans = [Span(id, 0, region.depth) for id, region in regions(config).items() if id in ids]
    return [*spans, Span(RegionId.MATRIX, 0, config.matrix_depth)]


def broken(config, text):
    """Rules of what the verifier finds."""
    return [problem.rule for problem in verify(assemble(f"{text}\nhalt"), config, inputs=everything(config))]


@pytest.mark.parametrize("rule", ProgramRule, ids=lambda rule: rule.name)
def test_an_example_breaks_its_rule_alone(rule):
    config, text = EXAMPLES[rule]
    assert broken(config, text) == [rule]
    words = assemble(f"{text}\nhalt")
    memories = Memories(config)
    memories.program[: len(words)] = words
    for machine in (Emulator, ReferenceMachine):
        if rule in EXECUTED:
            machine(memories.copy()).run()
        else:
            with pytest.raises(ValueError):
                machine(memories.copy()).run()


def test_what_examples_begin_with_breaks_none():
    assert broken(WINDOWS, SLIDING) == broken(TRAIN_SMALL, "i_run 4, peak=1") == []


def test_what_depends_on_contents_has_no_rule():
    assert [problem.rule for problem in verify(assemble("v_rd wide, 0\nv_wr wide, 1\nhalt"), TINY)] == [None]


def test_the_page_has_every_rule():
    page = (docs.ROOT / "isa.md").read_text(encoding="utf-8")
    for rule in ProgramRule:
        assert f"* {rule.text}\n" in page
        assert f"For {rule.of}:\n" in page
