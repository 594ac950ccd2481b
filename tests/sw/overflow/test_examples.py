"""The worked examples of the source [overflow]."""

from fractions import Fraction

import numpy as np
import pytest

from concord.overflow import IntegerSettings, codes_of_range
from concord.overflow.scaling import Excess
from concord.spec.formats import Rounding
from concord.sums.counting import ProductBlock, count


def products_of_127(n):
    """n products of 127 * 127, added up one after the other."""
    return count([ProductBlock(np.full((1, n, 1), 127), np.full((1, 1, n), 127))])


def test_a_hundred_products_overflow_16_bits():
    found = products_of_127(100)
    assert (found["product"].total, found["sum"].total, found["output"].total) == (100, 99, 1)
    assert found["product"].beyond(16) == 0  # 16129 fits
    assert found["sum"].beyond(16) == 98  # from the third product on: 3 * 16129 > 32767
    assert found["output"].beyond(16) == 1 and found["output"].bits == 22  # 1612900


def test_one_product_overflows_10_bits():
    found = products_of_127(1)
    assert found["product"].beyond(10) == 1 and found["product"].beyond(15) == 0
    assert found["sum"].total == 0


def test_both_storages_have_a_width_of_their_own():
    found = products_of_127(100)
    excess = {
        widths: Excess.of(found, IntegerSettings(width=widths[0], output_width=widths[1])).count
        for widths in ((16, 16), (16, 32), (32, 16), (32, 32), (64, 1))
    }
    assert excess == {(16, 16): 99, (16, 32): 98, (32, 16): 1, (32, 32): 0, (64, 1): 1}


def test_steps_of_eight_bits():
    eight, four = codes_of_range(-1.0, 1.0, 8), codes_of_range(-1.0, 1.0, 8, 4.0)
    assert eight.scale == Fraction(1, 128) and eight.ends == (-128, 127)
    assert eight.codes_of([-1.0, 1.0, 0.0]).tolist() == [-128, 127, 0]
    assert four.scale == Fraction(1, 32) and four.ends == (-32, 31)


def test_numbers_without_a_sign():
    eight, six = codes_of_range(0.0, 255.0, 8), codes_of_range(0.0, 255.0, 6)
    values = np.arange(256.0)
    assert np.array_equal(eight.codes_of(values), values)
    assert round(eight.scale) == 1 and round(six.scale) == 4
    assert six.ends == (0, 63) and six.codes_of(np.linspace(252, 255, 50)).tolist() == [63] * 50


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rounding", [Rounding.FLOOR, Rounding.NEAREST_EVEN])
def test_larger_factors_give_smaller_integers(seed, rounding):
    rng = np.random.default_rng(seed)
    low, high = sorted(rng.normal(0, 3, 2))
    values = np.array([0.0, *rng.uniform(low, high, 200)])
    bits = int(rng.integers(1, 12))
    before = None
    for factor in (0.5, 1.0, 1.7, 4.0, 30.0):
        codes = codes_of_range(low, high, bits, factor, rounding)
        whole, step = codes.codes_of(values), codes.steps
        assert codes.low <= whole.min() and whole.max() <= codes.high and codes.count <= 2**bits
        assert whole[0] == 0
        if factor >= 1.0:  # nothing is cut off but the upper end of the last step
            assert np.abs(whole * step - values).max() <= step * (1 + 1e-9)
        spread = np.abs(whole).max()
        assert before is None or spread <= before + 1 or factor <= 1.0
        before = spread


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 2.0, "high": 1.0}, "range must be two finite numbers"),
        ({"high": np.inf}, "range must be two finite numbers"),
        ({"bits": 0}, r"bits must be an integer in 1\.\.64, not 0"),
        ({"factor": 0.0}, "factor must be a number above 0, not 0.0"),
    ],
)
def test_ranges_that_are_not_possible(change, message):
    with pytest.raises(ValueError, match=message):
        codes_of_range(**{"low": -1.0, "high": 1.0, "bits": 8} | change)
