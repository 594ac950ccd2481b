"""Counters of small programs, worked out by hand from the units' latencies."""

import random
from itertools import pairwise

import numpy as np
import pytest

from concord.cycles import ASSUMED_STEPS, count, window_steps
from concord.emulator import ReferenceMachine
from concord.program import trace
from concord.program.assembler import assemble
from concord.spec import multipliers, timing
from concord.spec.presets import ECP5_85F, ECP5_85F_256, TINY, UP5K
from concord.spec.windows import place_of
from support.window_programs import FULL, memories_of


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


def test_vectors_that_leave_early_wait_for_those_in_front():
    """Alone they save the way through the second unit; behind others they leave right behind them."""
    late, early = "v_rd wide, 0\nv_relu unit=1\nv_wr wide, 8\n", "v_rd wide, 1\nv_relu\nv_wr wide, 9\n"
    saved = timing.mfu_latency(early=False) - timing.mfu_latency(early=True)
    assert cycles(late + "halt") - cycles(early + "halt") == saved
    for many in (1, 2, 3):
        assert cycles(late + early * many + "halt") == cycles(late + "halt") + many * TINY.beats
    assert cycles(early + late + "halt") == cycles(late + late + "halt")


def test_nothing_overlaps_in_an_element_serial_configuration():
    none, one, two = (cycles("v_rd wide, 0\nv_wr wide, 8\n" * n + "halt", UP5K) for n in range(3))
    assert two - one == one - none


@pytest.mark.parametrize("config", [TINY, UP5K], ids=lambda config: config.name)
def test_other_counters(config):
    text = "set_shape 2, 3\nset_iters 5\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0, row=1, inner=2\nhalt"
    counts = count(assemble(text), config)
    assert (counts.dense_steps, counts.depthwise_steps) == (5 * 2 * 3 * config.steps, 0)
    assert (counts.chains, counts.vectors) == (1, 10)


#: Rows that share their multipliers: places 0 and 8 of a window are in neighbouring lanes.
PAIRED = ECP5_85F_256.replace(mfu_lanes=8)
#: Rows with multipliers of their own: mantissas are too wide to share them.
APART = TINY.replace(native=16, lanes=16, window_taps=9, wgt_mant=9)


def slide(inner, kh, steps=None, pad=""):
    """Counters of one row of windows; ``steps`` of each of them, or of all."""
    text = f"{pad}set_iters {inner}\nset_window {kh}, 3, 40, 1\nv_rd narrow, 0, inner=1\n"
    words = assemble(text + "mv_mul 0, mode=depthwise, sliding=1\nv_wr wide, 0, inner=1\nhalt")
    return count(words, PAIRED, steps=None if steps is None else [np.broadcast_to(steps, (1, inner))])


@pytest.mark.parametrize("kh", [1, 3])
def test_steps_of_windows_that_slide_are_assumed(kh):
    """As many as are assumed, or as many as a window has new vectors, whichever is more; other counters are exact."""
    few, many = slide(20, kh), slide(40, kh)
    assert many.cycles - few.cycles == 20 * ASSUMED_STEPS
    assert many.depthwise_steps == kh * (3 + 39)


def test_no_more_steps_are_assumed_than_there_are_taps():
    text = "set_iters 20\nset_window 1, 1, 40, 1\nv_rd narrow, 0, inner=1\nmv_mul 0, mode=depthwise, sliding=1\n"
    words = assemble(text + "v_wr wide, 0, inner=1\nhalt")
    assert count(words, PAIRED) == count(words, PAIRED, steps=[np.ones((1, 20), dtype=int)])


@pytest.mark.parametrize(("kh", "steps", "each"), [(1, 3, 3), (1, 4, 4), (3, 1, 3), (3, 3, 3), (3, 5, 5)])
def test_steps_of_windows_that_slide_are_given(kh, steps, each):
    """A window takes its new vectors or its steps, whichever is more."""
    few, many = slide(20, kh, steps), slide(40, kh, steps)
    assert many.cycles - few.cycles == 20 * each


def test_vectors_that_wait_enter_their_window_one_by_one():
    """Behind a window that took long, of which the queue is full, each takes as many cycles as it has new vectors."""
    few, many = (slide(n, 3, np.array([[60] + [1] * (n - 1)])) for n in (4, 14))
    assert many.cycles - few.cycles == 10 * 3


def test_only_first_windows_leave_out_columns():
    """Those behind them come one every N/P cycles, however much of the first one was left of the image."""
    few, many = (slide(n, 1, 1, "set_pad 0, -2, 1, 1, 8, 99\n") for n in (20, 40))
    assert many.cycles - few.cycles == 20 * PAIRED.beats


def test_a_product_that_runs_on_waits_for_a_later_write():
    """Its first word has been waited for; steps follow each other until the last one, which is written later."""
    text = "v_rd wide, 0\nv_wr narrow, 0\nset_iters 7\nv_rd wide, 0\nv_relu unit=1\nv_wr narrow, {}\n"
    text += "set_iters 1\nset_shape cols=8\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 8\nhalt"
    last, none = (count(assemble(text.format(place)), ECP5_85F) for place in (7, 9))
    assert last.hazard_stalls > none.hazard_stalls > 0
    assert last.cycles > none.cycles


def test_a_full_queue_holds_up_reads():
    """Vectors wait in front of windows that take long, until there is no place left."""
    short, long = (slide(40, 1, steps) for steps in (2, 30))
    assert long.cycles > short.cycles + 38 * 28


@pytest.mark.parametrize(("places", "stalls"), [(15, 94), (16, 95), (17, 96)])
def test_every_place_of_the_queue_counts(places, stalls, monkeypatch):
    """A read that waits for a write comes later the shorter the queue; with 16 places as the RTL counts."""
    assert timing.WINDOW_PLACES == 16
    monkeypatch.setattr(timing, "WINDOW_PLACES", places)
    assert ReferenceMachine(memories_of(FULL)).run().hazard_stalls == stalls


def test_windows_are_read_column_by_column():
    """A read of the middle of a column waits a cycle longer than one of its end, with words of the same chain."""
    end, middle = (
        ReferenceMachine(memories_of(text)).run() for text in (FULL, FULL.replace("narrow, 78", "narrow, 46"))
    )
    assert middle.hazard_stalls - end.hazard_stalls == 1


def naive_steps(chain, exponents, config):
    """Steps of every window, element by element: a step takes those of an exponent, one of every pair of lanes."""
    kh, kw = chain.window.kh, chain.window.kw
    found = np.zeros((chain.outer, chain.inner), dtype=int)
    for o, i in np.ndindex(*found.shape):
        steps = []
        for tap in range(kh * kw):
            if not chain.inside()[o, i, tap]:
                continue
            pair = place_of((tap // kw, tap % kw), (kh, kw))
            if multipliers.paired(config):
                pair %= config.lanes // 2
            key = exponents[o, i, tap]
            fitting = next((pairs for exp, pairs in steps if exp == key and pair not in pairs), None)
            if fitting is None:
                steps.append((key, {pair}))
            else:
                fitting.add(pair)
        found[o, i] = max(1, len(steps))
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("pairs", [False, True], ids=["rows", "pairs"])
def test_steps_of_random_windows(seed, pairs):
    """With up to as many taps as lanes, some of them outside the image."""
    rng = random.Random(seed)
    config = TINY.replace(native=16, lanes=16, window_taps=16, **({} if pairs else {"wgt_mant": 9}))
    assert multipliers.paired(config) == pairs
    kh, kw = rng.choice([(1, 1), (3, 3), (2, 4), (4, 4), (3, 5), (16, 1), (5, 3)])
    pad = f"set_pad {rng.randint(-3, 1)}, {rng.randint(-3, 1)}, 1, 1, {rng.randint(1, 6)}, {rng.randint(1, 6)}\n"
    text = f"set_iters 4, 3\nset_window {kh}, {kw}, 4, 1\n{pad}v_rd narrow, 0, inner=1\n"
    (chain,) = trace(assemble(text + "mv_mul 0, mode=depthwise, sliding=1\nv_wr wide, 0\nhalt"), config).chains
    exponents = np.random.default_rng(seed).integers(-5, -5 + rng.randint(1, 5), (3, 4, kh * kw))
    np.testing.assert_array_equal(window_steps(chain, exponents, config), naive_steps(chain, exponents, config))


def windows(config, exponents, pad=""):
    """Steps of the windows of a chain with these exponents ``[taps]`` of all its elements."""
    text = f"set_window 3, 3, 40, 1\n{pad}v_rd narrow, 0\nmv_mul 0, mode=depthwise, sliding=1\nv_wr wide, 0\nhalt"
    (chain,) = trace(assemble(text), config).chains
    return window_steps(chain, np.array(exponents).reshape(1, 1, 9), config).item()


def test_a_window_takes_a_step_for_each_exponent():
    assert windows(APART, [-3] * 9) == 1
    assert windows(APART, [-3, -3, 0, -4, 0, 0, -3, -15, 2]) == 5
    assert windows(APART, range(9)) == 9


def test_elements_outside_the_image_do_not_count():
    outside = [0, 1, 2, 3, -4, -4, 4, -4, -5]  # the first row and the first column
    assert windows(APART, outside, "set_pad -1, -1, 1, 1, 8, 8\n") == 2
    assert windows(APART, outside, "set_pad 20, 20, 1, 1, 8, 8\n") == 1


def test_two_elements_of_a_pair_of_lanes_take_two_steps():
    """The first tap is in place 8, the last one in place 0."""
    assert windows(PAIRED, [-3] * 9) == 2
    assert windows(PAIRED, [-3] * 8 + [-2]) == 2
    assert windows(PAIRED, [-3, *[-4] * 7, -3]) == 3
    assert windows(PAIRED, [-3] * 9, "set_pad -1, 0, 1, 1, 8, 8\n") == 1
