"""Codes of accumulators in hardware are those of the golden model."""

import numpy as np
import pytest

from concord.golden import binary16
from concord.golden.scale import scaled
from concord.spec.presets import TINY
from concord_rtl.arith.acc_scale import AccScale
from support.halves import check, stream
from support.scale_draws import draw_scales

#: One multiplier, two with as few bits as that, those of the presets, and as many as there can be.
WIDTHS = [17, 18, 19, 33, 35]


def run(bits, units, factor, fraction, shift):
    dut = AccScale(TINY.replace(code_scaling=True, acc_width=bits - TINY.act_exp_min))
    late = [np.zeros(dut.FRACTION_DELAY, np.int64)]
    inputs = [(port, np.concatenate([values, *late])) for port, values in
              ((dut.units, units), (dut.factor, factor), (dut.shift, shift))]  # fmt: skip
    inputs.append((dut.fraction, np.concatenate([*late, fraction])))
    (results,) = stream(dut, inputs, [dut.o], dut.LATENCY)
    return results[: len(units)]


def expected(units, factor, fraction, shift):
    numbers = [scaled(*map(int, row)) for row in zip(units, factor, fraction, shift, strict=True)]
    return binary16.encode(np.array(numbers, dtype=np.float64))


@pytest.mark.slow
@pytest.mark.parametrize("bits", WIDTHS)
def test_codes(bits):
    units, factor, fraction, shift = draw_scales(np.random.default_rng(bits), 6_000, bits)
    check(run(bits, units, factor, fraction, shift), expected(units, factor, fraction, shift), units, factor)


def test_codes_change_in_every_cycle():
    units, factor, fraction, shift = draw_scales(np.random.default_rng(5), 300, 33)
    check(run(33, units, factor, fraction, shift), expected(units, factor, fraction, shift), units, factor)


@pytest.mark.slow
def test_the_comparison_can_fail():
    units, factor, fraction, shift = draw_scales(np.random.default_rng(6), 50, 33)
    wrong = expected(units, factor, fraction, shift) ^ (np.arange(50) == 20)
    with pytest.raises(AssertionError, match="1 of 50 differ"):
        check(run(33, units, factor, fraction, shift), wrong, units, factor)
