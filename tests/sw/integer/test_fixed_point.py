"""Fixed-point arithmetic of TensorFlow Lite, against what fractions say, near every middle as well."""

import math
from fractions import Fraction

import numpy as np
import pytest

from concord.frontend.errors import Refusal
from concord.integer.tflite.fixed_point import (
    EXP_FRACTION_BITS,
    FixedPointMultiplier,
    checked,
    divided,
    exponentials,
    high_product,
    reciprocals,
)
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from support.frameworks import needs

HALF = Fraction(1, 2)
ENDS = (-(1 << 31), (1 << 31) - 1)


def ints(*values):
    return np.array(values, dtype=np.int64)


def up(number):
    """The nearest integer, halves up."""
    return math.floor(number + HALF)


def away(number):
    """The nearest integer, halves away from zero."""
    return up(number) if number >= 0 else -up(-number)


@pytest.mark.parametrize("bits", range(8))
def test_division_by_powers_of_two(bits):
    values = np.arange(-600, 601)
    assert divided(values, bits).tolist() == [away(Fraction(int(value), 1 << bits)) for value in values]


def test_division_of_large_integers():
    values = ints(*ENDS, *(s * (1 << 30) + d for s in (-1, 1) for d in (-1, 0, 1)))
    for bits in (30, 31):
        assert divided(values, bits).tolist() == [away(Fraction(int(value), 1 << bits)) for value in values]


def test_high_products():
    """A product of an odd number and 2**30 is in the middle."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(*ENDS, (400, 2)).tolist()
    pairs += [(a, b) for a in (*range(-9, 10), *ENDS) for b in (1 << 30, (1 << 30) + 1, -(1 << 30), (1 << 31) - 1)]
    a, b = ints(*pairs).T
    assert high_product(a, b).tolist() == [up(Fraction(x * y, 1 << 31)) for x, y in pairs]


def test_multipliers_are_the_nearest():
    rng = np.random.default_rng(1)
    reals = [*np.exp(rng.uniform(-21, 12, 500)), 1.0, 0.5, 1 - 2.0**-33, 2.0**-32, 2.0**-31, 3.0, 2.0**29]
    reals += [(k + 0.5) * 2.0**-31 for k in (1 << 30, (1 << 30) + 1, (1 << 31) - 1)]
    found = FixedPointMultiplier.of(reals)
    for real, multiplier, shift in zip(reals, found.multiplier.tolist(), found.shift.tolist(), strict=True):
        steps = Fraction(real) / Fraction(2) ** (shift - 31)
        assert 1 << 30 <= multiplier < 1 << 31 and -31 <= shift <= 30
        assert multiplier == up(steps)


@needs("tflite")
def test_multipliers_at_the_ends():
    from concord.frontend.codes.tflite.reading import multiplier_of

    nothing = FixedPointMultiplier.of([0.0, 2.0**-33])
    assert nothing.multiplier.tolist() == nothing.shift.tolist() == [0, 0]
    for real in (-0.5, 2.0**30, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"multipliers must be in 0\.\.2\*\*30, not"):
            FixedPointMultiplier.of(real)
        with pytest.raises(Refusal, match="scales must fit each other"):
            multiplier_of(real)


def twice_rounded(value, multiplier, shift):
    """The product, rounded in front of a shift to the right, and behind it."""
    first = up(Fraction(value * multiplier << max(shift, 0), 1 << 31))
    return away(Fraction(first, 1 << max(-shift, 0)))


def near_the_middle(multiplier, shift, count):
    """Integers whose products are as near to a half as any."""
    scale = Fraction(multiplier, 1) * Fraction(2) ** (shift - 31)
    return [math.floor((k + HALF) / scale) + d for k in range(-count, count) for d in (-1, 0, 1, 2)]


@pytest.mark.parametrize("shift", [3, 1, 0, -1, -2, -5, -9, -12])
def test_products_are_rounded_twice(shift):
    rng = np.random.default_rng(shift + 40)
    for multiplier in (1 << 30, 3 << 29, (1 << 31) - 1, int(rng.integers(1 << 30, 1 << 31)), 5 << 28):
        values = [*near_the_middle(multiplier, shift, 140), *rng.integers(-(1 << 18), 1 << 18, 300).tolist()]
        found = FixedPointMultiplier(np.asarray(multiplier), np.asarray(shift)).times(ints(*values)).tolist()
        assert found == [twice_rounded(value, multiplier, shift) for value in values]


def test_two_roundings_are_not_one():
    """Just below a half, the first one rounds up to it, and the second one away from zero."""
    scale = FixedPointMultiplier(np.asarray((1 << 30) - 1), np.asarray(-2))
    value = 4 * ((1 << 20) + 1)
    once = Fraction(value * ((1 << 30) - 1), 1 << 33)
    assert away(once) + 1 == twice_rounded(value, (1 << 30) - 1, -2) == int(scale.times(ints(value))[0])


@pytest.mark.parametrize("shift", [6, 0, -1, -8, -12])
def test_wide_products_are_rounded_once(shift):
    rng = np.random.default_rng(shift + 40)
    for multiplier in (1 << 30, 0x7FFEFFFF, 0x7FFF0000, (1 << 31) - 1, *rng.integers(1 << 30, 1 << 31, 3).tolist()):
        reduced = min(up(Fraction(multiplier, 1 << 16)), 0x7FFF)
        values = [*near_the_middle(reduced << 16, shift, 60), *rng.integers(-(1 << 40), 1 << 40, 200).tolist()]
        found = FixedPointMultiplier(np.asarray(multiplier), np.asarray(shift)).times_wide(ints(*values)).tolist()
        assert found == [up(Fraction(value * reduced) * Fraction(2) ** (shift - 15)) for value in values]


def test_what_does_not_fit_is_an_error():
    scale = FixedPointMultiplier.of(2.0)
    assert scale.times(ints(1 << 28)).tolist() == [1 << 29]
    with pytest.raises(OverflowError, match=r"integers must fit 32 bits, not be in 4294967296\.\.4294967296"):
        scale.times(ints(1 << 30))
    with pytest.raises(OverflowError, match="accumulators must fit 48 bits"):
        scale.times_wide(ints(1 << 47))
    with pytest.raises(OverflowError, match="integers must fit 32 bits"):
        checked(ints(1 << 31))
    for requantisation in (
        FixedPointRequantisation(FixedPointMultiplier.of(0.5), 0, -128, 127),
        Binary64Requantisation.of(0.5, 0, -128, 127),
    ):
        with pytest.raises(OverflowError, match="accumulators must fit 32 bits"):
            requantisation.apply(ints(1 << 31), 0)
    with pytest.raises(OverflowError, match="accumulators must fit 36 bits"):
        Binary64Requantisation.of(0.5, 0, -128, 127, wide=True).apply(ints(1 << 35), 0)


def test_requantisation_by_channel():
    """Clamped behind the zero point; the channels along the axis that is asked for."""
    scales = FixedPointMultiplier.of([0.5, 0.25])
    requantisation = FixedPointRequantisation(scales, 10, 0, 100)
    assert requantisation.apply(ints([3, 3], [-3, -2], [400, 400]), -1).tolist() == [[12, 11], [9, 9], [100, 100]]
    assert requantisation.apply(ints([3, -99], [3, 2]), 0).tolist() == [[12, 0], [11, 11]]


def in_binary64(total, scale):
    """The product in binary64, and the nearest integer."""
    return away(Fraction(float(Fraction(total) * Fraction(scale))))


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True])
def test_products_of_binary64(wide):
    rng = np.random.default_rng(3)
    most = 1 << (34 if wide else 31)
    for scale in (*np.exp(rng.uniform(-16, 0.5, 40)), 0.5, 1.0, 1.5, 2.0**-8, 1 / 3, 2.0**-70):
        scale = float(scale)
        codes = Fraction(1 << 15) / Fraction(scale)
        near = [math.floor((k + HALF) / Fraction(scale)) + d for k in range(-70, 70) for d in (-1, 0, 1)]
        sums = [t for t in (*near, *rng.integers(-most, most, 200).tolist(), 0, most - 1, 1 - most) if abs(t) < most]
        found = Binary64Requantisation.of(scale, 5, -(1 << 15), (1 << 15) - 1, wide).apply(ints(*sums), 0).tolist()
        want = [min(max(in_binary64(t, scale) + 5, -(1 << 15)), (1 << 15) - 1) for t in sums]
        assert found == want and (codes > most or len(set(found)) > 10)


def test_a_product_of_binary64_that_is_rounded_to_a_half():
    """Sums whose exact products are below a half by less than binary64 can say are rounded up."""
    found = 0
    for odd in range(3, 4000, 2):
        scale = 0.5 / odd
        exact = Fraction(odd) * Fraction(scale)
        if exact < HALF and float(exact) == 0.5:
            requantisation = Binary64Requantisation.of(scale, 0, -128, 127)
            assert requantisation.apply(ints(odd, -odd), 0).tolist() == [1, -1]
            found += 1
    assert found > 100


def test_powers_are_near_those_of_e():
    numbers = -np.unique(np.concatenate([[0], np.geomspace(1, (32 << EXP_FRACTION_BITS) - 1, 4000).astype(np.int64)]))
    found, exact = exponentials(numbers), np.exp(numbers / 2.0**EXP_FRACTION_BITS) * 2.0**31
    assert found.max() == exponentials(ints(0))[0] == (1 << 31) - 1
    assert np.abs(found - exact).max() < 2**31 * 1e-6 and (found >= 0).all()


def test_reciprocals_are_near():
    values = np.unique(np.geomspace(1, (1 << 31) - 1, 5000).astype(np.int64))
    mantissa, exponent = reciprocals(values)
    assert exponent.tolist() == [int(value).bit_length() for value in values]
    products = [Fraction(int(m) * int(v), 1 << 30 + int(e)) for m, v, e in zip(mantissa, values, exponent, strict=True)]
    assert max(abs(product - 1) for product in products) < Fraction(1, 1 << 27)
