# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from concord.golden import accumulate, blocks
from concord.spec.presets import ECP5_85F, TINY, UP5K
from concord_rtl.arith.acc_to_binary16 import AccToBinary16
from concord_rtl.arith.narrow_to_binary16 import NarrowToBinary16
from support.halves import check, stream

GRIDS = {
    "ecp5-85f": ECP5_85F,
    "up5k": UP5K,
    "narrow accumulator": TINY.replace(acc_width=24),
    "full width": TINY.replace(acc_width=TINY.acc_bits),
    "fine grid": TINY.replace(wgt_exp_min=-31, act_exp_min=-20, acc_width=30),
    "coarse grid": TINY.replace(wgt_exp_min=-1, act_exp_min=-1, acc_width=22),
    "whole numbers": TINY.replace(wgt_exp_min=4, wgt_exp_max=4, act_exp_min=0, acc_width=20),
}


def sums(rng, config, count):
    """Grid integers of every size, with few bits (ties) and next to the limits of W bits and of binary16."""
    bits = config.acc_bits - 1
    values = []
    for _ in range(count):
        size = int(rng.integers(0, bits + 1))
        value = int.from_bytes(rng.bytes(16), "little") & (1 << size) - 1
        if rng.random() < 0.5:  # twelve bits at most, perhaps one more far below
            value = value >> max(0, size - 12) << max(0, size - 12)
            value |= int(rng.random() < 0.5) << int(rng.integers(0, size + 1))
        if rng.random() < 0.2:
            edge = rng.choice([config.acc_width - 1, max(1, config.acc_frac + 16), max(1, config.acc_frac - 14)])
            value = (1 << min(int(edge), bits)) + int(rng.integers(-3, 3))
        value = max(0, min(value, (1 << bits) - 1))
        values.append(-value if rng.random() < 0.5 else value)
    return [*values, 0, 1, -1, (1 << bits) - 1, -(1 << bits)]


@pytest.mark.slow
@pytest.mark.parametrize("config", GRIDS.values(), ids=GRIDS.keys())
def test_acc_to_binary16(config):
    acc = sums(np.random.default_rng(1), config, 4_000)
    dut = AccToBinary16(config)
    o, over, half_over = stream(dut, [(dut.acc, acc)], [dut.o, dut.acc_overflow, dut.half_overflow], dut.LATENCY)
    want, want_over, want_half_over = accumulate.acc_to_binary16(np.array(acc, dtype=object), config)
    wide = [a & (1 << config.acc_bits) - 1 for a in acc]
    check(o, want, wide)
    check(over, want_over, wide)
    check(half_over, want_half_over, wide)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [TINY, TINY.replace(act_mant=3), TINY.replace(act_mant=12, act_exp_min=-24)], ids=lambda c: c.act_mant
)
def test_narrow_to_binary16(config):
    rng = np.random.default_rng(2)
    fmt = config.act
    q, e = (x.ravel() for x in np.meshgrid(range(-fmt.q_max, fmt.q_max + 1), range(fmt.exp_min, fmt.exp_max + 1)))
    chosen = rng.permutation(len(q))[:12_000]  # all of them for 8 bits
    q, e = q[chosen], e[chosen]
    dut = NarrowToBinary16(config)
    (o,) = stream(dut, [(dut.mant, q), (dut.exp, e)], [dut.o], dut.LATENCY)
    check(o, blocks.to_binary16(q[:, None], e)[:, 0], q & 0xFFF, e & 0xFF)
