"""Integer chains in software: the fast executor against the reference machine, corners, traps, rules."""

import random
from dataclasses import replace

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine
from concord.emulator.run import ended_by
from concord.golden.integers import digits
from concord.image import Memories
from concord.program import Chain, Span, trace, verify
from concord.program.access import broken_chain_rules
from concord.program.assembler import assemble
from concord.program.integers import IntegerChain
from concord.spec import docs
from concord.spec.isa import Op, Trap
from concord.spec.memmap import RegionId
from concord.spec.operations import TENSOR_OPS
from support.integer_contents import CONFIGS, EVERYTHING, TRAIN_LARGE, TRAIN_SMALL, filled
from support.integer_programs import random_case

N = TRAIN_SMALL.native
LIMIT = (1 << 47) - 1
MOST = (1 << 31) - 1


def names(config):
    return config.name


def wide(memories, address):
    return memories.wide[address : address + 2].reshape(-1).view("<i4").astype(np.int64)


def run(text, memories):
    """The memories behind a program, and its run; emulator and reference machine agree about both."""
    words = assemble(f"{text}\nhalt")
    memories.program[: len(words)] = words
    other = memories.copy()
    got, want = Emulator(memories).run(), ReferenceMachine(other).run()
    assert got == want and not memories.differences(other)
    return memories, got


def trapped(text, memories):
    """Run a program that traps in its last word but ``halt``; nothing but registers of earlier steps may change."""
    before = memories.copy()
    after, got = run(text, memories)
    assert (got.trap, got.pc) == (Trap.INTEGER_RANGE, len(assemble(text)) - 1)
    before.program[:] = after.program
    return [line for line in after.differences(before) if not line.startswith("tensor")]


# Random programs -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_the_emulator_is_the_reference_machine(config, seed):
    _, memories = random_case(random.Random(f"{config.name} {seed}"), config, traps=seed % 3 == 0)
    other = memories.copy()
    got, want = Emulator(memories).run(), ReferenceMachine(other).run()
    assert got == want and got.trap in (Trap.NONE, Trap.INTEGER_RANGE)
    assert memories.differences(other) == []


@pytest.mark.parametrize("seed", range(6))
def test_what_was_executed_ends_with_what_trapped(seed):
    """Whatever item is the last: chains are those before it, and what the sequencer did ends with its word."""
    words, _ = random_case(random.Random(seed), TRAIN_SMALL)
    whole = trace(words, TRAIN_SMALL)
    for number, item in enumerate(whole.items):
        if isinstance(item, Chain):
            continue
        found = ended_by(whole, number)
        assert (found.trap, found.pc, found.items) == (Trap.INTEGER_RANGE, item.pc, whole.items[: number + 1])
        assert list(found.chains) == [each for each in found.items if isinstance(each, Chain)]
        executed = sum(event.chain or event.item is not None for event in found.events)
        assert found.events == whole.events[: len(found.events)] and executed == number + 1
        assert found.events[-1].item is item


@pytest.mark.slow
def test_random_programs_have_everything():
    seen, traps, grown, ops = set(), set(), 0, set()
    for seed in range(48):
        words, memories = random_case(random.Random(seed), TRAIN_SMALL, traps=seed % 2 == 0)
        trace_of = trace(words, TRAIN_SMALL)
        ops |= {Op(word % 64) for word in words}
        for item in trace_of.integers:
            if isinstance(item, IntegerChain):
                assert item.vectors <= 40
                seen |= {name for name, value in vars(item.steps).items() if value}
                seen |= {item.kind, item.operand.mem.name if item.steps.add else None, item.planes.count}
                if item.taps.digits > 1 and item.product_steps(TRAIN_SMALL):
                    seen.add(f"digits of {item.taps.of}")
                if item.product_steps(TRAIN_SMALL) and not item.inside().all():
                    seen.add("padding")
        counted = memories.updates[2]
        traps.add(Emulator(memories).run().trap)
        grown += memories.updates[2] != counted
    assert {
        "scale", "round0", "add", "peak", "round1", "relu", "mask", "valid", "update", "to_vector", "to_column",
        "to_row", "NARROW", "WIDE", 0, 1, 2, 3, 5, "digits of 0", "digits of 1", "padding",
    } <= seen  # fmt: skip
    assert {*TENSOR_OPS, Op.LOOP, Op.INC_ADDR, Op.SET_ADDR, Op.V_RD, Op.MV_MUL} <= ops
    assert traps == {Trap.NONE, Trap.INTEGER_RANGE} and grown > 2


# What a step does ------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("k", [9, 17, 30])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_tensors_of_exact_powers_of_two_saturate(bits, k, more):
    """A magnitude of exactly 2**k loses no bit for itself: it saturates."""
    top = (1 << k) + more
    after, _ = run(
        f"""
        t_set 1, -5
        i_src wide, 0, 0
        i_run 4, peak=1, tensor=1
        t_fit 2, 1, {bits}, 1
        i_dst wide, 0, 10
        i_run 4, round1=1, to_vector=1
        """,
        filled(wide={0: [top, -top, 0, 1, top // 2, -top // 3]}),
    )
    excess = max((top - 1).bit_length() - (bits - 1), 0)
    limit = (1 << bits - 1) - 1
    half = (1 << excess) >> 1
    want = [min((abs(v) + half) >> excess, limit) * (1 if v > 0 else -1) for v in (top, -top, 0, 1)]
    assert wide(after, 10)[:4].tolist() == want
    assert (after.tensor_exp[2], after.tensor_top[2], after.tensor_top[1]) == (-5 + excess, want[0], top)


def test_zeros_keep_their_exponent():
    after, _ = run(
        """
        t_set 1, -5
        i_src wide, 0, 0
        i_dst wide, 0, 10
        i_run 4, peak=1, tensor=1
        t_fit 2, 1, 8, 1
        i_run 4, round1=1, to_vector=1
        """,
        filled(tensors={1: (0, 77)}),
    )
    assert not wide(after, 10).any() and (after.tensor_exp[2], after.tensor_top[1], after.tensor_top[2]) == (-5, 0, 0)


@pytest.mark.parametrize("count, low, high", [(1, -127, 127), (2, -8256, 8127), (3, -1056832, 1040319)])
def test_digits_reach_the_ends_of_their_range(count, low, high):
    text = f"""
        i_planes {count}, 3, 0, 0
        i_src wide, 0, 0
        i_dst narrow, 0, 10
        i_run 5, to_vector=1
        """
    values = [low, high, 0, -1, 63, 64 if count > 1 else 0, -64, -65 if count > 1 else 0]
    after, _ = run(text, filled(wide={0: values}, narrow=dict.fromkeys(range(20), 99)))
    got = after.narrow_mant[10 : 10 + 3 * count : 3]
    assert got.tolist() == digits(values, count).tolist()
    assert (got * 128 ** np.arange(count)[:, None]).sum(axis=0).tolist() == values
    assert not trapped(text, filled(wide={0: [low - 1, 0]}))
    assert not trapped(text, filled(wide={0: [0, high + 1]}))


def test_five_digits_hold_wide_integers():
    text = """
        i_planes 5, 1, 0, 0
        i_src wide, 0, 0
        i_dst narrow, 0, 10
        i_run 5, to_vector=1
        """
    values = [(1 << 31) - 1, 1 - (1 << 31), 1 << 28, -(1 << 28), (1 << 27) - 1, 0, -1, 12345]
    after, _ = run(text, filled(wide={0: values}))
    got = after.narrow_mant[10:15].astype(np.int64)
    assert (got * 128 ** np.arange(5)[:, None]).sum(axis=0).tolist() == values
    assert np.abs(got[:4]).max() <= 64 and got.min() >= -64


@pytest.mark.parametrize("of", [0, 1])
def test_digits_of_either_operand_give_the_exact_product(of):
    """The same integers of 32 bits times the same of 8, with the digits in the vectors and in the tiles."""
    draw = np.random.default_rng(of)
    long, short = draw.integers(-(1 << 28), 1 << 28, N), draw.integers(-127, 128, (N, N))
    memories = Memories(TRAIN_SMALL)
    parts, steps = digits(long, 5), TRAIN_SMALL.steps
    if of:  # digits of one row
        for p in range(5):
            memories.matrix_mant[p * steps : (p + 1) * steps, 0] = parts[p].reshape(steps, -1)
        memories.narrow_mant[:N] = short
        loops, taps = f"set_iters inner={N}", f"matrix_digit={steps}, digits=5, of=1"
    else:
        memories.narrow_mant[:5] = parts
        memories.matrix_mant[:steps] = short.reshape(N, steps, -1).swapaxes(0, 1)
        loops, taps = "set_iters inner=1", "vector_digit=1, digits=5"
    text = f"""
        {loops}
        t_fit 1, 2, 32, 1
        i_src product, 0, 0, inner=1
        i_taps {taps}
        i_dst wide, 0, 20, inner=2
        i_run 20, round1=1, to_vector=1
        """
    memories.tensor_top[2] = 1 << 40
    after, _ = run(text, memories)
    exact = short @ long
    want = np.sign(exact) * ((np.abs(exact) + 256) >> 9)
    got = [wide(after, 20 + 2 * k)[0] for k in range(N)] if of else wide(after, 20)
    assert list(got) == want.tolist()


def test_rows_and_columns_are_transposes_of_each_other():
    config = TRAIN_LARGE
    draw = np.random.default_rng(3)
    memories = filled(config, narrow={k: draw.integers(-127, 128, config.native) for k in range(config.native)})
    memories.matrix_exp[:] = -1  # stored as 14: its bits are beside the lanes 1, 2 and 3
    after, _ = run(
        f"""
        set_shape rows={config.native}
        i_src narrow, 0, 0, row=1
        i_col first={config.native}, row=1
        i_row first={3 * config.native}, row=1
        i_run 4, to_column=1, to_row=1
        """,
        memories,
    )
    tiles = after.matrix_mant.reshape(-1, config.steps, config.native, config.lanes)
    rows, columns = (tiles[k].swapaxes(0, 1).reshape(config.native, -1) for k in (3, 1))
    assert np.array_equal(rows, after.narrow_mant[: config.native])
    assert np.array_equal(columns, rows.T)
    exps = after.matrix_exp.reshape(-1, config.steps, config.native)
    assert (exps[[1, 3]] == config.wgt_exp_min).all() and (np.delete(exps, [1, 3], axis=0) == -1).all()


def test_a_column_clears_the_bit_of_the_exponent_beside_it():
    memories = filled(narrow={0: 5})
    memories.matrix_exp[:] = TRAIN_SMALL.wgt_exp_min + 0b1011
    after, _ = run("i_src narrow, 0, 0\ni_col first=5\ni_run 4, to_column=1", memories)
    word, lane = divmod(5, TRAIN_SMALL.lanes)
    assert lane == 1 and (after.matrix_mant[word, :, lane] == 5).all()
    assert (after.matrix_exp[word] == TRAIN_SMALL.wgt_exp_min + 0b1001).all()
    assert (after.matrix_exp[0] == TRAIN_SMALL.wgt_exp_min + 0b1011).all()


def test_narrow_results_have_the_exponent_zero():
    memories = filled(narrow={0: 9})
    memories.narrow_exp[:] = -3
    after, _ = run("i_src narrow, 0, 0\ni_dst narrow, 0, 4\ni_run 4, to_vector=1", memories)
    assert after.narrow_exp[[0, 4]].tolist() == [-3, 0] and (after.narrow_mant[4] == 9).all()


def test_elements_that_do_not_count_are_zero_in_the_last_row_alone():
    after, _ = run(
        """
        set_shape rows=2
        set_iters inner=2
        t_set 3, 4
        i_src narrow, 0, 0
        i_dst narrow, 0, 10, row=1, inner=2
        i_run 4, valid=3, to_vector=1, peak=1, tensor=3
        """,
        filled(narrow={0: [1, 2, 3, 4, 5, 6, 7, -88]}),
    )
    whole, cut = [1, 2, 3, 4, 5, 6, 7, -88], [1, 2, 3, 0, 0, 0, 0, 0]
    assert after.narrow_mant[10:14].tolist() == [whole, cut, whole, cut]
    assert after.tensor_top[3] == 88  # the peak counts all of them


def test_masks_and_relu():
    after, _ = run(
        """
        i_src narrow, 0, 0
        i_opd narrow, 0, 1
        i_dst narrow, 0, 10
        i_run 4, mask=1, to_vector=1
        i_dst narrow, 0, 11
        i_run 4, relu=1, to_vector=1
        """,
        filled(narrow={0: [5, -6, 7, -8, 9, 0, -1, 1], 1: [1, 127, 0, 0, -1, -127, 64, -64]}),
    )
    assert after.narrow_mant[10].tolist() == [5, -6, 0, 0, 0, 0, -1, 0]
    assert after.narrow_mant[11].tolist() == [5, 0, 7, 0, 9, 0, 0, 1]


# Sums ------------------------------------------------------------------------------------------


def test_a_grid_of_46_bits():
    """The operand with the greater exponent keeps 46 bits, the other one is rounded onto its grid."""
    top = MOST
    after, _ = run(
        """
        t_add 3, 1, 2
        i_src wide, 0, 0
        i_opd wide, 0, 2
        t_fit 4, 5, 32, 1
        i_dst wide, 0, 10
        i_run 4, add=1, peak=1, tensor=3, round1=1, to_vector=1
        """,
        filled(wide={0: [top, -top, 0, 0], 2: [24, -24, 23, -23]},
               tensors={1: (20, top), 2: (0, 24), 5: (0, 1 << 46)}),
    )  # fmt: skip
    grid = 20 + 31 - 46
    assert after.tensor_exp[3] == grid
    exact = [(top << 15) + 1, -(top << 15) - 1, 1, -1]  # 24 / 32 is rounded to 1, and so is 23 / 32
    assert after.tensor_top[3] == exact[0] < 1 << 46
    right = (exact[0] - 1).bit_length() - 31
    assert wide(after, 10)[:2].tolist() == [min(exact[0] + (1 << right - 1) >> right, MOST)] * 1 + [
        -min(exact[0] + (1 << right - 1) >> right, MOST)
    ]


@pytest.mark.parametrize("value, want", [(3, 1), (2, 1), (1, 0), (-2, -1), (-1, 0), (-6, -2), (6, 2)])
def test_halves_move_away_from_zero(value, want):
    after, _ = run(
        """
        t_bias 3, 1, 2
        i_src wide, 0, 0
        i_opd narrow, 0, 2
        i_dst wide, 0, 10
        i_run 4, add=1, to_vector=1
        """,
        filled(wide={0: 100}, narrow={2: value}, tensors={1: (2, 0), 2: (0, 99)}),
    )
    assert (wide(after, 10) == 100 + want).all() and after.tensor_exp[3] == 2


@pytest.mark.parametrize("left, fits", [(39, True), (40, False), (60, False)])
def test_a_bias_beyond_the_grid_traps(left, fits):
    memories = filled(tensors={1: (-left, 0), 2: (0, 127)})
    if fits:
        after, _ = run("t_bias 3, 1, 2", memories)
        assert after.tensor_exp[3] == -left
    else:
        assert not trapped("t_bias 3, 1, 2", memories)


def test_a_bias_of_zeros_is_never_beyond_the_grid():
    after, _ = run("t_bias 3, 1, 2\ni_run 4, add=1, peak=1, tensor=3", filled(tensors={1: (-400, 0), 2: (100, 0)}))
    assert after.tensor_exp[3] == -400


# Updates ---------------------------------------------------------------------------------------

UPDATE = """
    t_upd 1, 2, 100
    t_fit 3, 4, 32, 1
    set_shape rows=2
    i_src wide, 0, 0, row=2
    i_opd narrow, 0, 10, row=1
    i_col first=0, row=1
    i_row first=32, row=1
    i_run 4, round1=1, update=1, to_column=1, to_row=1
"""


def accumulators(memories):
    return memories.wide[110:112].view(np.int16)


def test_an_update_counts_what_is_refused_and_what_vanishes():
    """The update is in units of a 16th of the accumulator."""
    memories = filled(
        wide={0: [8, 7, -8, -7, 0, 16 * 32767, -16 * 32767, 16], 2: 0},
        narrow={10: [1, 2, 3, 4, 5, 6, 7, 8], 11: [-100, 100, 0, 0, 0, 0, 0, 0]},
        tensors={1: (3, 0), 2: (3 - 15 - 4, 0)},
    )
    memories.wide[110].view(np.int16)[:] = [0, 0, 0, 0, 9, 1, -1, -32767]
    memories.updates[:] = [5, (1 << 32) - 1, 6]
    after, _ = run(UPDATE, memories)
    assert after.updates.tolist() == [7, 1, 6]  # two refused, two vanished, and the counter wraps
    assert after.narrow_mant[10].tolist() == [1, 2, 3, 4, 5, 7, 6, 7]  # of 32767 and of -32766 the carry is 1
    assert accumulators(after)[0].tolist() == [1, 0, -1, 0, 9, -1, 1, 2]
    assert (after.tensor_exp[1], after.tensor_top[1]) == (3, 100)
    assert after.matrix_mant[0, :, 0].tolist() == after.narrow_mant[10].tolist()
    tile = after.matrix_mant[4 * TRAIN_SMALL.steps : 5 * TRAIN_SMALL.steps, 1]
    assert tile.ravel().tolist() == after.narrow_mant[11].tolist()


def grows(exp):
    """Memories in which one weight of two vectors leaves 8 bits."""
    memories = filled(
        wide={0: [0] * 7 + [3], 2: 0},
        narrow={10: [1, -1, 2, -2, 3, 0, 5, 127], 11: [-127, 126, 4, 0, 0, 0, 0, 7]},
        tensors={1: (exp, 99), 2: (exp - 15, 0)},
    )
    memories.wide[110].view(np.int16)[:] = [0, 0, 1, -1, 16383, 0, 16383, 16383]
    return memories


def test_an_update_lets_the_exponent_of_all_vectors_grow():
    after, _ = run(UPDATE, grows(5))
    assert after.updates.tolist() == [0, 0, 1]
    assert (after.tensor_exp[1], after.tensor_top[1]) == (6, 64)
    assert after.narrow_mant[10].tolist() == [1, -1, 1, -1, 2, 0, 3, 64]
    assert after.narrow_mant[11].tolist() == [-64, 63, 2, 0, 0, 0, 0, 4]
    before = grows(5)
    for row in range(2):
        total = before.narrow_mant[10 + row].astype(int) * 32768 + before.wide[110 + row].view(np.int16)
        total = total + (wide(before, 0) if row == 0 else 0)
        want = np.sign(total) * ((np.abs(total) + 1) >> 1)
        assert (after.narrow_mant[10 + row].astype(int) * 32768 + accumulators(after)[row]).tolist() == want.tolist()


def test_an_exponent_beyond_127_traps_before_anything_is_written():
    after, _ = run(UPDATE, grows(126))
    assert after.tensor_exp[1] == 127
    memories = grows(127)
    assert not trapped(UPDATE, memories)
    assert (memories.tensor_exp[1], memories.tensor_top[1]) == (127, 99)


@pytest.mark.parametrize("register, exp", [(1, 128), (1, -129), (2, 128), (2, -129)])
def test_exponents_of_an_update_are_those_of_training(register, exp):
    memories = filled(tensors={1: (0, 0), 2: (0, 0)})
    memories.tensor_exp[register] = exp
    assert not trapped(UPDATE, memories)


def test_an_update_reads_its_exponents_when_the_chain_begins():
    """A second update with the same registers goes on from the exponent that the first one has left."""
    text = UPDATE + "i_run 4, round1=1, update=1, to_column=1, to_row=1"
    after, _ = run(text, grows(5))
    once, _ = run(UPDATE, grows(5))
    again, _ = run(UPDATE, once)
    assert not [line for line in after.differences(again) if not line.startswith("program")]


# Traps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, memories",
    [
        ("t_mul 1, 2, 3", {"tensors": {2: (300, 0), 3: (212, 0)}}),
        ("t_fit 1, 2, 8", {"tensors": {2: (127, 128)}, "narrow": {}, "wide": {}}),
        ("t_fit 1, 2, 8", {"tensors": {2: (-128, 1)}}),
        ("t_scale 1, 2, 0", {"tensors": {2: (0, 1 << 46)}, "factors": {0: (2, 0)}}),
        ("i_src wide\ni_run 4, scale=1, peak=1", {"wide": {0: -MOST - 1}, "factors": {0: (-(1 << 16), 0)}}),
        ("i_src narrow\ni_run 4, scale=1, to_row=1", {"narrow": {0: 64}, "factors": {0: (2, 0)}}),
        ("i_src narrow\ni_run 4, scale=1, to_column=1", {"narrow": {0: -64}, "factors": {0: (2, 0)}}),
        (
            "i_src wide\nt_add 1, 2, 3\ni_opd wide\ni_run 4, add=1, peak=1",
            {"wide": {0: MOST}, "tensors": {2: (0, 1), 3: (17, 1)}},
        ),
    ],
)
def test_what_traps(text, memories):
    if text == "t_fit 1, 2, 8" and "wide" in memories:  # 128 is 2**7 and needs no bit more; one above does
        run(text, filled(tensors={2: (127, 128)}))
        memories = {"tensors": {2: (127, 129)}}
    assert not trapped(text, filled(**memories))


def test_sums_of_47_bits_and_a_sign_are_kept():
    """(2**31 - 1) * 2**16 is moved, and one more of it is too much."""
    text = "i_src wide\nt_add 1, 2, 3\ni_opd wide, 0, 2\nt_set 1, 0\ni_run 4, add=1, peak=1, tensor=1"
    after, _ = run(text, filled(wide={0: [(1 << 16) - 1], 2: [MOST]}, tensors={2: (0, 1), 3: (16, 1)}))
    assert after.tensor_top[1] == LIMIT
    assert not trapped(text, filled(wide={0: [1 << 16], 2: [MOST]}, tensors={2: (0, 1), 3: (16, 1)}))


def test_a_peak_of_more_than_32_bits_is_no_trap_where_nothing_is_written():
    text = "i_src wide\nt_set 1, 0\ni_run 4, scale=1, peak=1, tensor=1"
    after, _ = run(text, filled(wide={0: MOST}, factors={0: (5, 0)}))
    assert after.tensor_top[1] == 5 * MOST
    assert not trapped(text.replace("i_run 4", "i_dst wide, 0, 8\ni_run 4, to_vector=1"),
                       filled(wide={0: MOST}, factors={0: (5, 0)}))  # fmt: skip


def test_a_peak_is_that_of_all_chains_since_the_register_was_set():
    text = (
        "t_set 1, 0\ni_src narrow, addr={}\ni_run 4, peak=1, tensor=1\ni_src narrow, addr={}\ni_run 4, peak=1, tensor=1"
    )
    for first, second in ((0, 1), (1, 0)):
        after, _ = run(text.format(first, second), filled(narrow={0: 99, 1: -5}))
        assert after.tensor_top[1] == 99


def test_a_trap_ends_the_run_there():
    memories = filled(tensors={2: (400, 0)}, narrow={0: 3})
    text = """
        v_rd narrow, 0
        v_wr wide, 9
        t_set 7, 5
        loop 3
        t_mul 2, 2, 2
        t_set 8, 5
        end_loop
        v_rd narrow, 0
        v_wr wide, 10
        """
    after, got = run(text, memories)
    assert (got.trap, got.pc, got.chains) == (Trap.INTEGER_RANGE, 4, 1)
    assert (after.tensor_exp[7], after.tensor_exp[8]) == (5, 0)
    assert after.wide[9].any() and not after.wide[10].any()


def test_a_run_begins_without_what_another_has_left():
    """Roundings, moves and updates are those of the run; registers stay."""
    emulator = Emulator(filled(wide={0: 1000}, tensors={1: (0, 1000)}))
    first = assemble("t_fit 1, 1, 8, 1\nhalt")
    second = assemble("i_src wide\ni_dst wide, 0, 4\ni_run 4, round1=1, to_vector=1\nhalt")
    emulator.write(RegionId.PROGRAM, 0, first + second)
    assert emulator.run(0).trap is emulator.run(len(first)).trap is Trap.NONE
    assert (wide(emulator.memories, 4) == 1000).all() and emulator.memories.tensor_top[1] == 125


# Rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, rule",
    [
        ("i_run 3, peak=1", "must have an interval of at least 4 cycles, not 3"),
        ("i_run 4", "must write something, or have a peak"),
        ("i_src wide, 0, 511\ni_run 4, peak=1", "must stay below word 512 of the wide memory, not touch 512"),
        ("set_shape 1, 600\ni_src product\ni_run 4095, peak=1", "must add up at most 512 native products, not 600"),
        (
            "set_shape rows=2\ni_src narrow, 0, 0, row=1\ni_dst narrow, 0, 1, row=1\ni_run 4, to_vector=1",
            "must not read narrow 1 in a vector, which another vector of it writes",
        ),
        (
            "set_shape rows=2\ni_src wide, 0, 2, row=2\ni_dst wide, 0, 1, row=1\ni_run 4, to_vector=1",
            "must not read wide 2 in a vector, which another vector of it writes",
        ),
        (
            "set_shape rows=2\ni_src product, 0, 0, row=1\ni_mat 0, row=2\ni_row 0, row=8\ni_run 4, to_row=1",
            "",  # each vector writes the tile that it has read
        ),
        (
            "set_shape rows=2\ni_src product, 0, 0, row=1\ni_mat 0, row=2\ni_row 8, row=8\ni_run 4, to_row=1",
            "must not read matrix 2 in a vector, which another vector of it writes",
        ),
        (
            "i_src narrow\ni_col 5\ni_row 6\ni_run 4, to_row=1, to_column=1",
            "must not write matrix 1 both as columns and as rows",
        ),
        (
            "t_upd 0, 0, 505\ni_src wide\ni_opd narrow, 0, 8\ni_run 4, update=1, round1=1",
            "must stay below word 512 of the wide memory, not touch 513",
        ),
        ("i_src narrow\ni_dst narrow\ni_run 4, relu=1, to_vector=1", ""),  # in place
    ],
)
def test_rules_of_chains(text, rule):
    memories = filled()
    words = assemble(f"{text}\nhalt")
    memories.program[: len(words)] = words
    machines = Emulator(memories.copy()), ReferenceMachine(memories.copy())
    problems = [
        str(problem) for problem in verify(words, TRAIN_SMALL, inputs=[*EVERYTHING, Span(RegionId.MATRIX, 0, 512)])
    ]
    if not rule:
        assert not problems and all(machine.run().trap is Trap.NONE for machine in machines)
        return
    for machine in machines:
        with pytest.raises(ValueError, match=rf"^an integer chain at pc {len(words) - 2} {rule}$"):
            machine.run()
    assert len(problems) == 1 and problems[0].endswith(rule)


def test_tiles_of_products_have_the_least_exponent():
    memories = filled()
    memories.matrix_exp[1, 3] += 1
    words = assemble("i_src product\ni_run 4, peak=1\nhalt")
    memories.program[: len(words)] = words
    for machine in (Emulator(memories.copy()), ReferenceMachine(memories.copy())):
        with pytest.raises(
            ValueError, match=r"^an integer chain at pc 1 must multiply tiles with the exponent -15, not -14$"
        ):
            machine.run()


def test_chains_that_read_what_another_vector_writes_are_noticed_wherever_it_is():
    text = "set_shape rows=3\ni_src narrow, 0, 0, row=1\ni_opd narrow, 0, 9\ni_dst narrow, 0, 8, row=1\n"
    for steps, broken in (("add=1", True), ("peak=1", False)):
        (chain,) = trace(assemble(f"{text}i_run 4, to_vector=1, {steps}\nhalt"), TRAIN_SMALL).integers
        assert bool(broken_chain_rules(chain, TRAIN_SMALL)) == broken
        assert not broken_chain_rules(replace(chain, rows=1), TRAIN_SMALL)


# The page ------------------------------------------------------------------------------------


def test_the_example_of_the_page():
    """A layer as docs/isa.md has it: product and bias, rounded to 8 bits by its greatest magnitude, and ReLU."""
    page = (docs.ROOT / "isa.md").read_text(encoding="utf-8").partition("### An example")[2]
    text = "\n".join(line for line in page.partition("## Traps")[0].splitlines() if line.startswith("    "))
    config, draw = TRAIN_LARGE, np.random.default_rng(8)
    x, w, bias = (draw.integers(-127, 128, shape) for shape in ((8, 32), (16, 32), 16))
    memories = filled(config, tensors={1: (-7, 127), 2: (-9, 127), 3: (-12, 127)})
    memories.narrow_mant[:16], memories.narrow_mant[100] = x.reshape(16, 16), bias
    memories.matrix_mant[:4] = w.reshape(16, 4, 8).swapaxes(0, 1)
    words = assemble(text)
    loaded = [
        Span(RegionId.NARROW, 0, 16), Span(RegionId.NARROW, 100), Span(RegionId.MATRIX, 0, 4),
        Span(RegionId.TENSORS, 1, 3),
    ]  # fmt: skip
    assert verify(words, config, inputs=loaded, outputs=[Span(RegionId.NARROW, 40, 8)]) == []
    after, got = run(text.replace("halt", ""), memories)
    exact = x @ w.T + bias * 16
    assert got.trap is Trap.NONE and after.tensor_top[11] == np.abs(exact).max()
    right = int(after.tensor_exp[12]) + 16
    want = np.maximum(np.minimum(exact + (1 << right - 1) >> right, 127), 0)
    assert np.array_equal(after.narrow_mant[40:48], want) and want.max() > 60 and right > 8
