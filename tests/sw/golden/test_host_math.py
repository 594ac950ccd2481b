"""The arithmetic of the host: accurate, in the order that is stated, and independent of how samples are batched."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from concord.golden.host_math import (
    EXP_COEFFICIENTS,
    LN2_HIGH,
    LN2_LOW,
    host_exp,
    host_log,
    host_log_softmax,
    host_mean,
    host_softmax,
    host_sum,
)


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


def positive():
    """Numbers of all sizes, near 1, at the ends of mantissas, subnormal ones, and the greatest."""
    rng = np.random.default_rng(2)
    powers = np.ldexp(1.0, np.arange(-1074, 1024, 30))
    roots = np.sqrt(0.5) * powers[3:]
    near = 1 + rng.normal(size=200) * 10.0 ** rng.integers(-16, 0, 200)
    x = np.concatenate([near, np.exp(rng.uniform(-744, 709, 100)), rng.uniform(0.6, 1.6, 300), powers, roots])
    x = np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, np.inf), [np.finfo(np.float64).max]])
    return x[x > 0]


def test_the_logarithm_is_within_one_ulp():
    x = positive()
    worst = 0
    with localcontext() as context:
        context.prec = 60
        for a, y in zip(x, host_log(x), strict=True):
            want = Fraction(Decimal(float(a)).ln())
            worst = max(worst, abs(Fraction(float(y)) - want) / Fraction(float(np.spacing(abs(y)))))
    assert 0.5 < worst < 1
    assert host_log(np.array([1.0]))[0] == 0.0


def test_its_own_ends():
    x = np.array([0.0, -0.0, -5e-324, -1.0, -np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(host_log(x), [-np.inf] * 5 + [np.inf, np.nan])


def test_the_logarithm_of_shares_keeps_what_shares_lose():
    """A share that is no number of float64 still has a logarithm; and a batch changes no bit."""
    x = np.array([[0.0, -800.0, -1e6], [3.0, 3.0, 3.0]])
    found = host_log_softmax(x, 1)
    np.testing.assert_array_equal(found[0], [0.0, -800.0, -1e6])
    np.testing.assert_allclose(found[1], -np.log(3.0), rtol=1e-15)
    x = np.random.default_rng(4).normal(size=(33, 7, 5)) * 20
    whole = host_log_softmax(x, 1)
    for k in range(33):
        np.testing.assert_array_equal(host_log_softmax(np.asfortranarray(x[k : k + 1]), 1)[0], whole[k])
    np.testing.assert_allclose(np.exp(whole), host_softmax(x, 1), rtol=1e-13)


@pytest.mark.parametrize("axes", [(1,), (2, 3), (1, 2, 3), ()])
def test_means_do_not_depend_on_the_batch(axes):
    x = np.random.default_rng(5).normal(size=(9, 3, 5, 7))
    whole = host_mean(x, axes)
    np.testing.assert_allclose(whole, x.mean(axis=axes, keepdims=True), rtol=1e-12, atol=1e-15)
    for k in range(9):
        np.testing.assert_array_equal(host_mean(np.asfortranarray(x[k : k + 1]), axes)[0], whole[k])


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
