"""Bounds in float64 contain the exact values, are tight, and never decide wrongly."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.functions import FUNCTIONS, function, intervals
from concord.functions.interval_bounds import resolve
from concord.functions.intervals import Interval, constant, exact

SIZES = [0.0, 5e-324, 1e-300, 1e-9, 0.5, 1.0, 2.5, 3.0, 5.999, 6.0, 6.001, 12.5, 36.0, 59.9, 60.0, 60.1, 88.0, 500.0]
SIZES += [707.9, 708.0, 709.0, 800.0, 1001.0, 65504.0, 1e300]
POINTS = np.array([sign * size for size in SIZES for sign in (1, -1)])
finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1000, 1000)


def contains(bounds, value, k=()):
    """Whether a value (with the 10**-45 that exact evaluation may err) lies in an interval."""
    low, high = float(bounds.low[k]), float(bounds.high[k])
    if isinstance(value, float):
        return low <= value <= high
    slack = abs(Fraction(value)) / 10**45
    above = low == -math.inf or (low < math.inf and Fraction(low) <= Fraction(value) + slack)
    return above and (high == math.inf or (high > -math.inf and Fraction(value) - slack <= Fraction(high)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_contain_the_function(name):
    rng = np.random.default_rng(7)
    x = np.concatenate([POINTS, rng.normal(0, 1, 60), rng.normal(0, 30, 60), rng.normal(0, 1e-4, 20)])
    bounds, curve = function(name).bounds_with()(exact(x)), function(name).exact_with()
    for k, point in enumerate(x):
        assert contains(bounds, curve(Fraction(point)), k), f"{name}({point})"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_of_intervals_contain_the_function_in_between(name):
    rng = np.random.default_rng(8)
    ends = np.sort(rng.normal(0, 4, (60, 2)), axis=1)
    ends[::3] /= 1000
    bounds, curve = function(name).bounds_with()(Interval(ends[:, 0], ends[:, 1])), function(name).exact_with()
    for k, (low, high) in enumerate(ends):
        for part in (0, Fraction(1, 3), Fraction(4, 5), 1):
            x = Fraction(low) + part * (Fraction(high) - Fraction(low))
            assert contains(bounds, curve(x), k), f"{name}({float(x)})"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_are_tight(name):
    """Else the exact path would be taken often."""
    x = np.linspace(0.01, 20, 500) * np.where(function(name).constant_below_zero, 1, np.tile([1, -1], 250))
    bounds = function(name).bounds_with()(exact(x))
    width = (bounds.high - bounds.low) / np.maximum(np.abs(bounds.high), 1)
    assert np.all(width < 2.0**-38)


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("leaky_relu", {"alpha": -0.3}),
        ("elu", {"alpha": Fraction(7, 3)}),
        ("hardsigmoid", {"alpha": 0.7, "beta": -0.1}),
        ("celu", {"alpha": Fraction(7, 3)}),
        ("celu_ratio", {"alpha": 0.3}),
        ("linear", {"slope": -2, "offset": Fraction(1, 3)}),
    ],
)
def test_parameters_reach_the_bounds(name, parameters):
    x = np.linspace(-5, 5, 101)
    record = function(name)
    bounds, curve = record.bounds_with(**parameters)(exact(x)), record.exact_with(**parameters)
    assert all(contains(bounds, curve(Fraction(point)), k) for k, point in enumerate(x))


def test_the_derived_error_bounds_hold():
    """The kernels are far better than what the intervals allow for: 2**-50 and 2**-43 as derived."""
    rng = np.random.default_rng(9)
    x = np.concatenate([rng.uniform(-708, 709, 2000), rng.uniform(-1, 1, 500), [-708.0, 709.0]])
    with localcontext() as context:
        context.prec = 60
        for point, got in zip(x, intervals._exp_of(x), strict=True):
            want = Decimal(point).exp()
            assert abs(Decimal(got) - want) < want * Decimal(2) ** -50
        x = np.concatenate([rng.uniform(0, 6, 200), rng.uniform(0, 1e-3, 50), [6.0, 5e-300]])
        erf = function("erf").exact_with()
        for point, got in zip(x, intervals._erf_of(x), strict=True):
            want = Decimal(erf(Fraction(point)))
            assert abs(Decimal(got) - want) < want * Decimal(2) ** -43


@pytest.mark.parametrize("error", [1.0, 0.3, 1e-3, -0.45, -3.0, math.inf, math.nan])
def test_a_wrong_logarithm_of_the_platform_does_not_matter(error, monkeypatch):
    """The guess only makes bounds wider, never wrong."""
    log, x = np.log, np.array([1e-5, 0.3, 1.0, 7.0, 1e9])
    monkeypatch.setattr(np, "log", lambda value: log(value) + error)
    bounds, curve = intervals.log(exact(x)), function("log").exact_with()
    assert all(contains(bounds, curve(Fraction(point)), k) for k, point in enumerate(x))


@pytest.mark.slow
@given(finite, finite, finite, finite)
def test_arithmetic_contains_exact_results(a, b, c, d):
    x, y = (Interval(np.asarray(min(p)), np.asarray(max(p))) for p in ((a, b), (c, d)))
    for p in (a, b):
        for q in (c, d):
            p_, q_ = Fraction(p), Fraction(q)
            assert contains(x + y, p_ + q_) and contains(x - y, p_ - q_) and contains(x * y, p_ * q_)
            assert not q_ or contains(x / y, p_ / q_)


@given(st.fractions())
def test_constants(value):
    bounds = constant(value)
    assert contains(bounds, value)
    assert bounds.high - bounds.low <= 4 * np.spacing(abs(float(value)))


def test_corners_of_constants():
    for value in (Fraction(10) ** 400, -(Fraction(10) ** 400), Fraction(1, 10**400), Fraction(1, 3), Fraction(0)):
        assert contains(constant(value), value)
    assert constant(0.1).low == constant(0.1).high == 0.1


@given(moderate, moderate)
def test_unknown_is_the_whole_line(a, b):
    around_zero = Interval(np.asarray(-abs(b)), np.asarray(abs(b)))
    quotient = exact(np.asarray(a)) / around_zero
    assert quotient.low == -math.inf and quotient.high == math.inf


def test_only_what_differs_is_evaluated():
    seen = []

    def evaluate(k):
        seen.append(k)
        return 9

    assert resolve(np.array([1, 2, 3]), np.array([1, 5, 3]), evaluate).tolist() == [1, 9, 3]
    assert seen == [1]
