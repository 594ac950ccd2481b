"""Counters of small programs, worked out by hand from the units' latencies."""

from itertools import pairwise

import pytest

from concord.cycles import count
from concord.program.assembler import assemble
from concord.spec import timing
from concord.spec.presets import ECP5_85F, TINY, UP5K


def cycles(text, config=TINY):
    return count(assemble(text), config).cycles


def test_a_word_takes_a_cycle_behind_the_first():
    assert cycles("halt") == timing.LOOP_JUMP
    assert cycles("nop\n" * 5 + "halt") == timing.LOOP_JUMP + 5


def test_a_jump_takes_as_long_as_the_start():
    turns = [cycles(f"loop {n}\nnop\nend_loop\nhalt") for n in (1, 2, 3)]
    assert [b - a for a, b in pairwise(turns)] == [timing.LOOP_JUMP + 1] * 2


def test_vectors_leave_one_every_n_over_p_cycles():
    few, many = (
        cycles(f"set_iters {n}\nv_rd wide, 0, inner=1\nv_wr wide, 32, inner=1\nhalt", ECP5_85F) for n in (10, 20)
    )
    assert many - few == 10 * ECP5_85F.beats


def test_steps_of_a_product_follow_each_other():
    few, many = (
        cycles(f"set_shape 1, {n}\nset_iters 10\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0, inner=1\nhalt", ECP5_85F)
        for n in (4, 8)
    )
    assert many - few == 10 * 4 * ECP5_85F.steps


def test_a_read_waits_for_the_write_it_depends_on():
    apart = count(assemble("v_rd wide, 0\nv_wr wide, 8\nv_rd wide, 1\nv_wr wide, 9\nhalt"), TINY)
    close = count(assemble("v_rd wide, 0\nv_wr wide, 8\nv_rd wide, 8\nv_wr wide, 9\nhalt"), TINY)
    assert apart.hazard_stalls == 0 < close.hazard_stalls < close.cycles - apart.cycles + 2


def test_an_illegal_word_ends_the_run_behind_what_is_under_way():
    text = "v_rd wide, 0\nv_wr wide, 8\n"
    with_halt, illegal = count(assemble(text + "halt"), TINY), count([*assemble(text), 0], TINY)
    assert with_halt.vectors == illegal.vectors == 1
    assert with_halt.cycles == illegal.cycles


def test_nothing_overlaps_in_an_element_serial_configuration():
    none, one, two = (cycles("v_rd wide, 0\nv_wr wide, 8\n" * n + "halt", UP5K) for n in range(3))
    assert two - one == one - none


@pytest.mark.parametrize("config", [TINY, UP5K], ids=lambda config: config.name)
def test_other_counters(config):
    text = "set_shape 2, 3\nset_iters 5\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0, row=1, inner=2\nhalt"
    counts = count(assemble(text), config)
    assert (counts.dense_steps, counts.depthwise_steps) == (5 * 2 * 3 * config.steps, 0)
    assert (counts.chains, counts.vectors) == (1, 10)


def test_windows_that_slide_are_estimated():
    """Three steps per window, or as many as it has new vectors, whichever is more; other counters are exact."""
    config = ECP5_85F.replace(lanes=16, mfu_lanes=8, matrix_depth=1024, window_taps=9)

    def slide(inner, kh):
        text = f"set_iters {inner}\nset_window {kh}, 3, 40, 1\nv_rd narrow, 0, inner=1\n"
        return count(assemble(text + "mv_mul 0, mode=depthwise, sliding=1\nv_wr wide, 0, inner=1\nhalt"), config)

    for kh in (1, 3):
        few, many = slide(20, kh), slide(40, kh)
        assert many.cycles - few.cycles == 20 * 3
        assert many.depthwise_steps == kh * (3 + 39)
