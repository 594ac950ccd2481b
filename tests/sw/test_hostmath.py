"""The arithmetic of the host: accurate, in the order that is stated, and independent of how samples are batched."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from concord.hostmath import EXP_COEFFICIENTS, LN2_HIGH, LN2_LOW, host_exp, host_softmax, host_sum


def exact(x):
    """The exponential function with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Fraction(Decimal(float(x)).exp())


def points():
    rng = np.random.default_rng(1)
    ties = (np.arange(-40, 40) + 0.5) * np.log(2.0)  # where k changes
    wide = np.concatenate([rng.uniform(-745.0, 709.7, 1500), -rng.exponential(3.0, 1500), rng.normal(size=500) * 1e-9])
    return np.concatenate([wide, ties, np.nextafter(ties, 0), [0.0, -0.0, 1.0, -1.0, 709.78, -745.13, -708.4, 5e-324]])


def test_the_exponential_function_is_within_one_ulp():
    x = points()
    found = host_exp(x)
    worst = max(
        abs(Fraction(float(y)) - exact(a)) / Fraction(float(np.spacing(y))) for a, y in zip(x, found, strict=True)
    )
    assert worst < 1
    assert host_exp(np.array([0.0]))[0] == 1.0


def test_its_ends():
    x = np.array([-np.inf, -746.0, -800.0, 709.79, 1e308, np.inf, np.nan])
    with np.errstate(all="ignore"):
        found = host_exp(x)
    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0, np.inf, np.inf, np.inf, np.nan])
    assert not np.signbit(found[:3]).any()


def test_its_constants():
    """ln 2 in two parts: the product of the first one with any k that occurs is exact."""
    assert Fraction(LN2_HIGH).denominator <= 2**33 * 2 and float(LN2_HIGH * 1076) == Fraction(LN2_HIGH) * 1076
    with localcontext() as context:
        context.prec = 60
        rest = Fraction(Decimal(2).ln()) - Fraction(LN2_HIGH)
    assert abs(rest - Fraction(LN2_LOW)) < Fraction(1, 2**86)
    assert EXP_COEFFICIENTS[-3:] == (0.5, 1.0, 1.0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 12, 33])
def test_sums_are_in_the_stated_order(count):
    def tree(values):
        while len(values) > 1:
            half = len(values) // 2
            both = zip(values[:half], values[half : 2 * half], strict=True)
            values = [a + b for a, b in both] + values[2 * half :]
        return values[0]

    x = np.random.default_rng(count).normal(size=(4, count, 3)) * 10.0 ** np.arange(3)
    want = np.array([[[tree([float(v) for v in x[k, :, c]]) for c in range(3)]] for k in range(4)])
    np.testing.assert_array_equal(host_sum(x, 1), want)


def test_softmax_does_not_depend_on_the_batch():
    x = np.random.default_rng(2).normal(size=(33, 7, 5)) * 20
    whole = host_softmax(x, 2)
    for k in range(33):
        np.testing.assert_array_equal(host_softmax(np.asfortranarray(x[k : k + 1]), 2)[0], whole[k])
    np.testing.assert_allclose(whole.sum(axis=2), 1.0, rtol=1e-15)
    powers = np.exp(x - x.max(axis=2, keepdims=True))
    np.testing.assert_allclose(whole, powers / powers.sum(axis=2, keepdims=True), rtol=1e-15)
