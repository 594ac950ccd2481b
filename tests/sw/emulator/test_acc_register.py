"""A register that is narrower than the greatest sum: golden model, reference machine and emulator."""

import random

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine, product
from concord.golden import accumulate
from concord.spec.formats import Flag
from concord.spec.presets import ECP5_85F, TINY
from support import naive
from support.program_gen import random_program
from support.reference_runs import assert_machines_agree
from support.register_cases import CASES, blocks_of, machine_of, wanted

pytestmark = pytest.mark.usefixtures("both_kernels")

CONFIGS = {bits: TINY.replace(acc_width=kept, acc_register=bits) for bits, kept in ((20, 20), (24, 24), (30, 28))}
#: Sums of more than 64 bits.
WIDE = TINY.replace(act_mant=12, wgt_mant=12, act_exp_min=-24, wgt_exp_min=-31, wgt_exp_max=8, acc_register=70)


@pytest.mark.parametrize("bits", CONFIGS)
@pytest.mark.parametrize("name", CASES)
def test_where_a_sum_ends(name, bits):
    config = CONFIGS[bits]
    found = accumulate.accumulate(*blocks_of(config, name), config.acc_frac, bits)
    assert found.tolist() == [wanted(config, name)]
    whole = accumulate.accumulate(*blocks_of(config, name), config.acc_frac)
    assert (whole.tolist() == found.tolist()) == (CASES[name][1] == 0 or name in ONLY_AT_THE_END)


#: Sums that would be the same number with a wider register: they are just beyond at the end.
ONLY_AT_THE_END = (
    "one more than that", "out with the last term", "below with the last term", "a term alone",
)  # fmt: skip


@pytest.mark.parametrize("config", [*CONFIGS.values(), WIDE], ids=lambda config: f"{config.acc_register} bits")
def test_random_sums_against_python(config):
    rng = np.random.default_rng(config.acc_register)
    q = config.act.q_max, config.wgt.q_max
    span = (config.acc_register - 12) // 2
    ended = 0
    for _ in range(60):
        xm, wm = (rng.choice([-m, m, 0, 1, rng.integers(-m, m + 1)], (6, 5, 2)) for m in q)
        xe = config.act_exp_min + rng.integers(0, min(span, config.act.exp_max - config.act_exp_min) + 1, 5)
        we = config.wgt_exp_min + rng.integers(0, min(span, config.wgt_exp_max - config.wgt_exp_min) + 1, (6, 5))
        found = accumulate.accumulate(xm[0], xe, wm, we, config.acc_frac, config.acc_register)
        for row in range(6):
            dots = [int(xm[0, k] @ wm[row, k]) for k in range(5)]
            terms = [d << int(xe[k] + we[row, k] + config.acc_frac) for k, d in enumerate(dots)]
            assert int(found[row]) == naive.register_sum(terms, config.acc_register)
            ended += int(found[row]) != sum(terms)
    assert 20 < ended < 340


def test_sums_that_are_just_too_long_are_looked_at():
    """Three terms of 18 bits have 20 bits and a sign: as many as the register has, without the sign."""
    x, ones = np.full((3, 1), 127), np.ones((1, 3, 1), dtype=int)
    found = [accumulate.accumulate(x, [11] * 3, ones, [[0] * 3], 0, bits).tolist() for bits in (21, 20)]
    assert found == [[3 * 127 << 11], [1 << 19]]


@pytest.mark.parametrize("bits", CONFIGS)
@pytest.mark.parametrize("depthwise", [False, True], ids=["dense", "depthwise"])
def test_machines(depthwise, bits):
    config = CONFIGS[bits]
    memories = machine_of(config, CASES, depthwise)
    assert_machines_agree(memories)
    sums = [wanted(config, name) for name in CASES]
    halves, over, _ = accumulate.acc_to_binary16(sums, config)
    assert memories.wide[: len(CASES), 0].tolist() == halves.tolist()
    assert all(over[k] for k, (_, side) in enumerate(CASES.values()) if side)
    flags = memories.flags[memories.flags != 0]
    assert set(flags) == {1 << Flag.ACC_OVERFLOW} and len(flags) == np.count_nonzero(over)


SMALL_85F = ECP5_85F.replace(integer_chains=False, narrow_depth=64, wide_depth=64, matrix_depth=256)
MACHINES = {
    "20 bits": CONFIGS[20],
    "24 bits": CONFIGS[24],
    "44 bits": TINY.replace(acc_width=30, acc_register=44, engines=2, lanes=4, mfu_lanes=1),
    "ecp5-85f, 40 bits": SMALL_85F.replace(
        acc_width=40, acc_register=40, narrow_depth=64, wide_depth=64, matrix_depth=256
    ),
    "12 bits": TINY.replace(act_mant=5, wgt_mant=5, acc_width=12, acc_register=12),
    "beyond float64": WIDE,
}


@pytest.mark.slow
@pytest.mark.parametrize("config", MACHINES.values(), ids=MACHINES)
def test_random_programs(config):
    raised = 0
    for seed in range(6):
        _, memories = random_program(config, random.Random(f"register {seed}"), 8)
        assert_machines_agree(memories)
        raised += bool(memories.flag_union() >> Flag.ACC_OVERFLOW & 1)
    assert raised


def test_the_emulator_looks_for_sums_that_leave(monkeypatch):
    """Without it some results would be others."""
    monkeypatch.setattr(product.Product, "_may_leave", lambda self, lanes, columns: np.zeros(len(columns), bool))
    memories = machine_of(CONFIGS[24], ["out and back"], False)
    copy = memories.copy()
    ReferenceMachine(memories).run()
    Emulator(copy).run()
    assert copy.differences(memories)


def test_configurations():
    config = TINY.replace(acc_register=61)
    assert (config.register_bits, config.acc_bits) == (61, 62)
    assert (TINY.register_bits, TINY.acc_bits, TINY.full_bits) == (62, 62, 62)
    assert len({TINY.fingerprint, config.fingerprint, TINY.replace(acc_register=60).fingerprint}) == 3


def test_a_file_without_the_parameter_means_what_it_did():
    values = TINY.to_dict()
    del values["acc_register"]
    assert type(TINY).from_dict(values) == TINY
    assert TINY.fingerprint == 0x6B587262762192CF  # of images made before there was one
