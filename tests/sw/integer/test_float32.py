"""Arithmetic of binary32 in integers, against NumPy's and against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.integer.float32 import Binary32, bit_length, shifted_right
from concord.integer.operations import CodeSum
from concord.integer.requantise import Requantisation
from support.property_tests import examples

#: Accumulators at which rounding to 24 bits, or the sign, is decided.
CORNERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**24 + 1, 2**24 + 3, 2**25 + 2, 2**25 + 6, -(2**24) - 1, 2**30 + 64]
FLOATS = st.floats(2.0**-60, 2.0**60, width=32)


def nearest(x):
    """The nearest fraction of 24 bits, of two the even one."""
    if not x:
        return Fraction(0)
    exponent = 0
    while abs(x) * Fraction(2) ** -exponent >= 2**24:
        exponent += 1
    while abs(x) * Fraction(2) ** -exponent < 2**23:
        exponent -= 1
    return round(x * Fraction(2) ** -exponent) * Fraction(2) ** exponent


def fraction(number):
    return int(number.mantissa.item()) * Fraction(2) ** int(number.exponent.item())


def accumulators():
    rng = np.random.default_rng(5)
    spread = [rng.integers(-(2**bits), 2**bits, 4000) for bits in (8, 16, 22, 25, 27, 31)]
    return np.concatenate([np.array(CORNERS), *spread])


@pytest.mark.parametrize("zero, low, high", [(0, -128, 127), (-128, -128, 127), (131, 0, 255), (7, 0, 65535)])
def test_requantisation_is_that_of_float32(zero, low, high):
    """Many products are near a middle between two codes; powers of two give the middle itself."""
    sums = accumulators()
    for scale in np.float32([0.5, 0.25, 2**-20, 1 / 3, 0.0123, 7.7e-6, 1.9999999, 3e-12, 1.5e7]):
        product = sums.astype(np.int32).astype(np.float32) * scale
        want = np.clip(np.rint(product.astype(np.float64)) + zero, low, high)
        got = Requantisation(np.asarray(scale), zero, low, high).apply(sums, -1)
        assert np.array_equal(got, want)


def test_scales_of_channels():
    sums = accumulators()[:4000].reshape(10, 4, 100)
    scale = np.float32([0.1, 0.2, 0.003, 1e-6])
    want = np.rint((sums.astype(np.float32) * scale[:, None]).astype(np.float64)).clip(-128, 127)
    assert np.array_equal(Requantisation(scale, 0, -128, 127).apply(sums, 1), want)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_an_accumulator_beyond_32_bits_is_refused(value):
    with pytest.raises(OverflowError, match=f"must fit 32 bits, not be in .*{value}"):
        Requantisation(np.float32([1]), 0, 0, 255).apply(np.array([0, value]), 0)


@pytest.mark.slow
@examples(200)
@given(a=st.integers(-(2**31), 2**31 - 1), b=FLOATS)
def test_a_product_is_rounded_twice(a, b):
    got = Binary32.of_integers(np.array([a])) * Binary32.of(np.float32([b]))
    assert fraction(got) == nearest(nearest(Fraction(a)) * Fraction(b))


@pytest.mark.slow
@examples(400)
@given(factor=st.integers(-(2**17) + 1, 2**17 - 1), b=FLOATS, c=FLOATS, negative=st.booleans(), near=st.integers(-3, 3))
def test_a_sum_with_a_product_is_rounded_once(factor, b, c, negative, near):
    """Also where the two cancel but for the last bits."""
    for term in (np.float32(-c if negative else c), np.float32(-factor * b * (1 + near * 2.0**-23))):
        got = Binary32.of(term[None]).plus_product(np.array([factor]), Binary32.of(np.float32([b])))
        assert fraction(got) == nearest(factor * Fraction(b) + Fraction(float(term)))


def test_bits_and_shifts():
    values = np.array([0, 1, -1, 2**53 - 1, 2**53, 2**54 - 1, 2**61 - 1, -(2**61)])
    assert bit_length(values).tolist() == [int(value).bit_length() for value in values]
    halves = np.array([1, 3, 5, -1, -3, 2, 7, 0])
    assert shifted_right(halves, np.full(8, 1)).tolist() == [0, 2, 2, 0, -2, 1, 4, 0]
    assert shifted_right(halves, np.full(8, 99)).tolist() == [0] * 8


def test_numbers_must_be_finite():
    with pytest.raises(ValueError, match="must be finite"):
        Binary32.of(np.float32([np.inf]))


@pytest.mark.parametrize("seed", range(4))
def test_codes_of_accumulators(seed):
    """NumPy's binary32 and that in integers give the same codes, also where a product is in the middle between two."""
    rng = np.random.default_rng(seed)
    ends = [0, 1, -1, (1 << 24) + 1, -(1 << 24) - 1, (1 << 31) - 1, -(1 << 31)]
    sums = np.concatenate([ends, rng.integers(-(1 << 31), 1 << 31, 3000), rng.integers(-9999, 9999, 3000)])
    scales = np.float32([*np.exp(rng.uniform(-20, 1, 30)), 0.5, 0.25, 1.5, 1e-38, 1e-44, 3e38, 0.1])
    halves = (rng.integers(-400, 400, 30) + 0.5) / scales[:30]  # products near the middle between two codes
    sums = np.concatenate([sums, np.clip(np.rint(halves), -(1 << 31), (1 << 31) - 1).astype(np.int64)])
    for scale in scales:
        for zero, low, high in ((0, -128, 127), (3, 0, 255), (40000, 0, 65535)):
            got = Requantisation(np.asarray(scale), zero, low, high).apply(sums, 0)
            want = (Binary32.of_integers(sums) * Binary32.of(scale)).integers() + zero
            assert np.array_equal(got, np.clip(want, low, high))


def code_sum(ratios, zeros=(118, 131), zero_point=90):
    return CodeSum(name="sum", inputs=("a", "b"), output="y", ratios=tuple(map(np.float32, ratios)), zeros=zeros,
                   zero_point=zero_point, low=0, high=255)  # fmt: skip


@pytest.mark.slow
def test_sums_on_a_grid(monkeypatch):
    """Sums in integers on a grid, and in binary32 made of integers."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (2, 40, 500))
    made = []
    for _ in range(40):
        ratios = rng.integers(1, 9, 2) / 4 + rng.integers(-9, 10, 2) * 2.0**-24
        made.append(code_sum(ratios * np.exp2(rng.integers(-6, 3, 2)), tuple(map(int, rng.integers(0, 256, 2)))))
    assert all(one.on_grid(swapped) for one in made for swapped in (False, True))
    for shapes in (slice(None), slice(None, 1)):  # the operands change places for a single number of a row
        got = [one.run(a[:, shapes], b) for one in made]
        with monkeypatch.context() as patch:
            patch.setattr(CodeSum, "on_grid", lambda self, swapped: None)
            assert all(np.array_equal(one.run(a[:, shapes], b), codes) for one, codes in zip(made, got, strict=True))


def test_sums_of_scales_far_apart():
    """They do not fit a grid, and are added up all the same."""
    one = code_sum(((1 + 2.0**-23) * 2.0**-30, 1 + 2.0**-23), (0, 0), 3)
    assert one.on_grid(False) is None
    codes = np.arange(256)[None]
    assert np.array_equal(one.run(codes, codes), np.clip(codes + 3, 0, 255))
