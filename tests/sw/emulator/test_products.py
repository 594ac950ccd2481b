"""Which precision a product is computed in, and that it never decides a bit."""

import random
from itertools import permutations

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine, product
from concord.golden import binary16
from concord.image import Memories
from concord.program import Span
from concord.program.assembler import assemble
from concord.spec.formats import Flag
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.program_gen import random_memories, random_program
from support.reference_runs import assert_machines_agree

pytestmark = pytest.mark.usefixtures("both_kernels")

LANES = 64
PATHS = {"single": "_run_single", "columns": "_columns", "double": "_run_double", "golden": "_golden"}
PROGRAMS = {
    "dense": "set_shape cols=3\nv_rd narrow, 0\nmv_mul 0\nv_wr wide, 0\nhalt",
    "depthwise": "set_window kh=1 kw=3 stride_x=1\nv_rd narrow, 0\nmv_mul 0, mode=depthwise\nv_wr wide, 0\nhalt",
}


@pytest.fixture
def taken(monkeypatch):
    """Names of the ways that products went."""
    found = []
    for name, method in PATHS.items():
        original = getattr(product.Product, method)

        def spied(*args, original=original, name=name):
            found.append(name)
            return original(*args)

        monkeypatch.setattr(product.Product, method, spied)
    return found


def machine_with_ones(program):
    """All weights one: a product adds three vectors up."""
    memories = Memories(TINY)
    words = assemble(PROGRAMS[program])
    memories.program[: len(words)] = words
    memories.matrix_exp[:] = 0
    if program == "depthwise":
        memories.matrix_mant[:2] = [[[1, 1]] * 4, [[1, 0]] * 4]
    else:
        for word in range(6):  # the identity, in halves, for each column
            for row in range(2):
                memories.matrix_mant[word, 2 * (word % 2) + row, row] = 1
    return memories


def sums(memories, mant, exp):
    """Results ``[batch, N]`` of the emulator, as numbers."""
    batch = Emulator(memories, workers=1).run_batch({}, [Span(RegionId.WIDE, 0)], narrow={0: (mant, exp)})
    return binary16.decode(batch.outputs[0][:, 0])


def reference(memories, mant, exp):
    """The same by the definition, one by one."""
    found = []
    for codes, exponents in zip(mant, exp, strict=True):
        single = memories.copy()
        single.narrow_mant[: codes.shape[0]], single.narrow_exp[: codes.shape[0]] = codes, exponents
        ReferenceMachine(single).run()
        found.append(binary16.decode(single.wide[0]))
    return np.array(found)


def cancelling(hard):
    """A large vector, a small one and minus the large one; in the hard lanes no float32 holds the sum of two."""
    mant = np.tile(np.array([[127] * 4, [1] * 4, [-127] * 4]), (LANES, 1, 1))
    exp = np.tile(np.array([7, 0, 7]), (LANES, 1))
    exp[hard, 1] = -15
    return mant, exp


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("hard", "want"),
    [
        ([], {"single"}),
        ([17], {"single", "columns"}),
        ([0, 9, 33, 63], {"single", "columns"}),
        (list(range(5)), {"double"}),
        (list(range(LANES)), {"double"}),
    ],
)
def test_what_float32_cannot_hold_goes_another_way(program, hard, want, taken):
    mant, exp = cancelling(hard)
    got = sums(machine_with_ones(program), mant, exp)
    assert set(taken) == want
    assert np.array_equal(got, np.repeat(np.ldexp(1.0, exp[:, 1:2]), 4, axis=1))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_bound_is_needed(program, monkeypatch):
    monkeypatch.setattr(product, "SINGLE_BITS", 1000)
    mant, exp = cancelling([17])
    assert not np.array_equal(sums(machine_with_ones(program), mant, exp), np.ldexp(1.0, exp[:, 1:2]) + np.zeros(4))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("apart", "want"), [(15, "single"), (16, "double")])
def test_the_bound_is_where_it_should_be(program, apart, want, taken):
    """3 * 127 * 2**15 is below 2**24, twice as much is not."""
    mant, exp = cancelling([])
    exp[:, 1] = 7 - apart
    assert np.array_equal(sums(machine_with_ones(program), mant, exp)[:, 0], np.ldexp(1.0, exp[:, 1]))
    assert taken == [want]


@pytest.mark.parametrize("program", PROGRAMS)
def test_vectors_of_zeros_do_not_count(program, taken):
    mant, exp = cancelling([])
    mant[:, 1], exp[:, 1] = 0, -15
    assert not sums(machine_with_ones(program), mant, exp).any()
    assert taken == ["single"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_of_zeros_and_least_weights_do_not_count(program, taken):
    memories = machine_with_ones(program)
    memories.matrix_mant[:] = 0
    memories.matrix_exp[:] = -15
    mant, exp = cancelling([])
    assert not sums(memories, mant, exp).any()
    assert taken == ["single"]


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_any_exponents(program, taken):
    """Exponents all around the bounds, weights of any size; some sums saturate the accumulator."""
    rng = np.random.default_rng(3)
    for seed in range(30):
        memories = random_memories(TINY, random.Random(seed))
        words = assemble(PROGRAMS[program])
        memories.program[: len(words)] = words
        memories.matrix_exp[:] = rng.integers(-rng.integers(1, 16), 1, memories.matrix_exp.shape)
        low, spread = rng.integers(-15, 10), rng.integers(0, 12) if seed % 2 else 0
        exp = rng.integers(low, min(9, low + spread) + 1, (LANES, 3))
        exp[rng.integers(0, LANES, 2), 1] = -15
        mant = rng.integers(-127, 128, (LANES, 3, 4)) * rng.integers(0, 2, (LANES, 3, 1))
        assert np.array_equal(sums(memories, mant, exp), reference(memories, mant, exp), equal_nan=True)
    assert set(taken) == set(PATHS)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [-1000, 12, 18])
def test_random_programs_do_not_depend_on_the_bound(bits, monkeypatch):
    """Less of what float32 could hold is left to it."""
    monkeypatch.setattr(product, "SINGLE_BITS", bits)
    for seed in range(6):
        _, memories = random_program(TINY, random.Random(f"bound {seed}"), 8)
        assert_machines_agree(memories)


#: A grid with 55 bits behind the point.
FINE = TINY.replace(act_mant=12, wgt_mant=16, act_exp_min=-24, wgt_exp_min=-31, acc_width=70)


def columns_machine(program, config, exponents):
    """Every result is the sum of three vectors' elements times powers of two."""
    memories = Memories(config)
    words = assemble(PROGRAMS[program])
    memories.program[: len(words)] = words
    for k, exponent in enumerate(exponents):
        if program == "depthwise":
            memories.matrix_mant[k // 2, :, k % 2] = 1
            memories.matrix_exp[k // 2] = exponent
            continue
        memories.matrix_exp[2 * k : 2 * k + 2] = exponent
        for row in range(4):
            memories.matrix_mant[2 * k + row // 2, row, row % 2] = 1
    return memories


def judged(memories, mant, exp):
    """Results of the emulator and its flags; the reference machine has the same."""
    single = memories.copy()
    single.narrow_mant[:3], single.narrow_exp[:3] = mant, exp
    assert_machines_agree(single)
    batch = Emulator(memories, workers=1)
    found = batch.run_batch({}, [Span(RegionId.WIDE, 0)], narrow={0: (mant[None], exp[None])}).outputs[0]
    assert np.array_equal(found[0, 0], single.wide[0])
    return binary16.decode(single.wide[0]), int(single.flag_union())


@pytest.mark.parametrize("top", range(-17, -8))
def test_one_unit_decides_where_float64_cannot_hold_it(top, taken):
    """2047.5 of some unit is a tie, which would go to 2048; with one unit of the grid less it is 2047."""
    for order in permutations(range(3)):
        mant, exp = np.zeros((3, 4), dtype=int), np.zeros(3, dtype=int)
        mant[list(order)] = [[2047] * 4, [1024] * 4, [-1] * 4]
        exp[list(order)] = top, top, -24
        exponents = [0] * 3
        for place, exponent in zip(order, (0, -11, -31), strict=True):
            exponents[place] = exponent
        results, flags = judged(columns_machine("dense", FINE, exponents), mant, exp)
        assert np.array_equal(results, np.full(4, np.ldexp(2047.0, top))) and not flags
    # The sum is just below 2**53 units of 2**-55 for 2**-13.
    assert ("golden" in taken) == (top > -13)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("sign", "units", "over"), [(1, 0, True), (1, -1, False), (-1, 0, False), (-1, -1, True)])
def test_the_accumulator_saturates_at_its_last_code(program, sign, units, over):
    """At 512 and a unit less, at -512 and a unit less."""
    config = TINY.replace(acc_width=40)
    mant = np.repeat([[sign * 64], [sign * 64], [units]], 4, axis=1)
    results, flags = judged(columns_machine(program, config, (0, 0, -15)), mant, np.array([2, 2, -15]))
    assert results.tolist() == [sign * 512.0] * 4
    assert flags == (1 << Flag.ACC_OVERFLOW if over else 0)


CONVERTED = "set_shape rows=3 cols=1\nv_rd wide, 8, row=1\nv_wr narrow, 0, row=1\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_vectors_of_zeros_that_were_converted_do_not_count(program, taken):
    """Their exponents are the least there is, and say nothing."""
    memories = machine_with_ones(program)
    words = assemble(CONVERTED + "set_shape rows=1 cols=1\n" + PROGRAMS[program])
    memories.program[: len(words)] = words
    numbers = np.tile(np.array([[16000.0] * 4, [0.0] * 4, [-16000.0] * 4]), (LANES, 1, 1))
    batch = Emulator(memories, workers=1).run_batch({}, [Span(RegionId.WIDE, 0)], numbers={(Mem.WIDE, 8): numbers})
    assert not batch.outputs[0].any()
    assert taken == ["single"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_flags_of_columns_are_their_own(program, taken):
    """What is computed another way leaves no flag of the way that it did not go."""
    mant, exp = cancelling([17])
    emulator = Emulator(machine_with_ones(program), workers=1)
    emulator.run_batch({}, [Span(RegionId.WIDE, 0)], narrow={0: (mant, exp)})
    assert set(taken) == {"single", "columns"} and not emulator.memories.flags.any()
