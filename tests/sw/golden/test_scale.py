"""Codes of accumulators against fractions."""

from fractions import Fraction

import numpy as np
import pytest

from concord.golden import binary16
from concord.golden.scale import scale_accumulators, scaled
from concord.spec.formats import SCALED_MAX
from concord.spec.presets import TINY
from support.scale_draws import draw_scales

SCALING = TINY.replace(code_scaling=True)


def by_fractions(units, factor, fraction, shift):
    """The same, with floor and round of exact numbers."""
    moved = Fraction(units * factor, 1 << shift)
    total = Fraction(moved.numerator // moved.denominator + fraction, 1 << 16)
    return max(-SCALED_MAX, min(SCALED_MAX, round(total)))  # round() of a fraction is to nearest even


def test_codes_are_those_of_fractions():
    rng = np.random.default_rng(1)
    units, factor, fraction, shift = draw_scales(rng, 20_000, 35)
    expected = [by_fractions(*map(int, row)) for row in zip(units, factor, fraction, shift, strict=True)]
    found = np.empty_like(units)
    for k in range(32):
        here = shift == k
        found[here] = scaled(units[here], factor[here], fraction[here], k)
    assert np.array_equal(found, expected)
    assert {-SCALED_MAX, SCALED_MAX, 0} <= set(expected)


@pytest.mark.parametrize(("whole", "expected"), [(0, 0), (1, 2), (2, 2), (-1, 0), (-2, -2)])
def test_halves_go_to_the_even_code(whole, expected):
    assert scaled(2 * whole + 1, 1 << 15, 0, 0) == expected  # (2n + 1) / 2


def test_a_fraction_decides_at_a_half():
    assert [int(scaled(1, 1 << 15, fraction, 0)) for fraction in (-1, 0, 1)] == [0, 0, 1]
    assert [int(scaled(3, 1 << 15, fraction, 0)) for fraction in (-1, 0, 1)] == [1, 2, 2]


def test_what_lies_below_the_units_is_dropped():
    below = -SCALING.act_exp_min
    acc = np.array([5, 5, -5]) * (1 << below) + np.array([0, (1 << below) - 1, 1])
    bits, over = scale_accumulators(acc, np.full(3, 1 << 15), np.zeros(3), 0, SCALING)
    assert binary16.decode(bits).tolist() == [2.0, 2.0, -2.0]
    assert not over.any()


def test_accumulators_that_leave_their_bits_saturate_and_say_so():
    most = 1 << SCALING.acc_width - 1
    bits, over = scale_accumulators(np.array([most - 1, most, -most, -most - 1]), [1], [0], 31, SCALING)
    assert over.tolist() == [False, True, False, True]
    assert bits[0] == bits[1]
    assert bits[2] == bits[3]


def test_all_results_are_whole_numbers_of_binary16_and_zero_is_positive():
    bits, _ = scale_accumulators(np.arange(-5000, 5000) << 15, [0xFFFF], [0], 0, SCALING)
    assert set(binary16.decode(bits).tolist()) == set(range(-SCALED_MAX, SCALED_MAX + 1))
    assert 0x8000 not in bits


@pytest.mark.parametrize("shift", [-1, 32])
def test_shifts_are_checked(shift):
    with pytest.raises(ValueError, match=r"shift must be in 0\.\.31"):
        scaled(1, 1, 0, shift)


@pytest.mark.parametrize("changes", [{"acc_width": 51}, {"acc_width": 16}])
def test_configurations_without_room_for_the_product_are_refused(changes):
    with pytest.raises(ValueError, match=r"acc_width must be in 17\.\.50 with code_scaling"):
        SCALING.replace(**changes)
