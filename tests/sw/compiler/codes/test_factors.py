"""Requantisation by factors of 16 bits: nearest factors, what a bias leaves, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from concord.compiler.codes.factors import FactorRequantisation, ScaleError
from concord.compiler.codes.rewriting import nearest_weights
from concord.compiler.lowering.products import divide_weight, largest_weight

CODES = (-128, -128, 127)


def made(scales, terms=None, **options):
    terms = [Fraction(0)] * len(scales) if terms is None else terms
    return FactorRequantisation.of(scales, terms, (-1,), CODES, **options)


def by_fractions(sums, scales, terms):
    """Codes with exact scales, halves to even."""
    wanted = [[round(Fraction(int(a)) * s + t) for a, s, t in zip(row, scales, terms, strict=True)] for row in sums]
    return np.clip(np.array(wanted), 0, 255) - 128


@pytest.mark.slow
@given(
    st.lists(st.fractions(Fraction(1, 1 << 14), Fraction(99, 100)), min_size=1, max_size=4),
    st.fractions(-1500, 1500, max_denominator=1 << 20),
    st.integers(0, 1 << 32),
)
@example([Fraction(3251, 52428800), Fraction(124, 1000)], Fraction(469), 0)
def test_codes_are_those_of_exact_scales_but_next_to_a_half(scales, term, seed):
    terms = [term] * len(scales)
    requantisation = made(scales, terms)
    draw = np.random.default_rng(seed)
    reach = [int(400 / scale) + 1 for scale in scales]
    sums = np.stack([draw.integers(-each, each + 1, 50) for each in reach], axis=1)
    found, wanted = requantisation.apply(sums, -1), by_fractions(sums, scales, terms)
    # A factor is wrong by half a unit, a product is cut off, and a fraction is rounded.
    error = np.abs(sums) / (1 << 17 + requantisation.shift) + 2 / (1 << 16)
    exact = np.array([[float(Fraction(int(a)) * s + term) for a, s in zip(row, scales, strict=True)] for row in sums])
    sure = np.abs(exact - np.floor(exact) - 0.5) > error
    assert (found == wanted)[sure].all()
    assert (np.abs(found - wanted) <= 1 + np.floor(error)).all()
    assert np.abs(found - wanted).max() <= np.ceil(requantisation.largest_error()) + 1


def test_the_greatest_scale_has_all_bits_of_a_factor():
    for scale in (Fraction(1, 3), Fraction(1, 2), Fraction(65535, 65536), Fraction(1, 1000), Fraction(1, 1 << 20)):
        requantisation = made([scale, scale / 3])
        assert 1 << 15 <= requantisation.factor.max() < 1 << 16
        assert 0 < requantisation.factor.min() < 1 << 15


@pytest.mark.parametrize(("term", "whole", "fraction"), [
    (Fraction(0), 0, 0), (Fraction(5), 5, 0), (Fraction(-5, 4), -1, -(1 << 14)), (Fraction(1, 2), 1, -(1 << 15)),
    (Fraction(-1, 2), 0, -(1 << 15)), (Fraction(9, 4), 2, 1 << 14), (1 - Fraction(1, 1 << 20), 1, 0),
])  # fmt: skip
def test_terms_are_whole_codes_and_a_fraction(term, whole, fraction):
    requantisation = made([Fraction(1, 2)], [term])
    assert (requantisation.whole.item(), requantisation.fraction.item()) == (whole, fraction)


def test_how_far_codes_may_be_away():
    requantisation = made([Fraction(1, 2), Fraction(1, 2000)])
    assert requantisation.factor.tolist() == [1 << 15, 33]
    assert requantisation.largest_error() == 255 / 66
    assert requantisation.largest_error(np.array([100, 1000])) == 1000 / (1 << 17)
    for term, furthest in ((450, 450), (Fraction(-901, 4), Fraction(1921, 4)), (Fraction(511, 4), Fraction(511, 4))):
        shifted = made([Fraction(1, 2), Fraction(1, 2000)], [Fraction(term)] * 2)
        assert shifted.largest_error() == float(furthest) / 66, "a term moves products that results are codes of"


def test_halves_go_up_where_the_kernels_round_them_up():
    sums = np.array([[1], [3], [5]])
    assert made([Fraction(1, 2)]).apply(sums, -1).ravel().tolist() == [-128, -126, -126]
    assert made([Fraction(1, 2)], up=True).apply(sums, -1).ravel().tolist() == [-127, -126, -125]


def test_a_channel_whose_scale_is_zero():
    requantisation = made([Fraction(0), Fraction(1, 2)], [Fraction(3), Fraction(0)])
    assert requantisation.apply(np.array([[10**9, 8]]), -1).tolist() == [[-125, -124]]


@pytest.mark.parametrize(("scales", "terms", "reason"), [
    ([Fraction(1)], [Fraction(0)], "scales of accumulators must be below 1, not 1"),
    ([Fraction(-1, 2)], [Fraction(0)], "scales of accumulators must be below 1, not -0.5"),
    ([Fraction(1, 2)], [Fraction(1800)], "terms must leave codes below 2047, not be 1800 codes"),
])  # fmt: skip
def test_what_has_no_factors_is_refused(scales, terms, reason):
    with pytest.raises(ScaleError, match=f"^{reason}$"):
        made(scales, terms)


@pytest.mark.slow
@given(st.fractions(Fraction(1, 1000), 1000), st.fractions(Fraction(1, 1000), 1000))
def test_weights_of_two_tensors_have_nearly_their_quotient(first, second):
    a, b = nearest_weights(first, second, 16319)
    assert 1 <= min(a, b) <= max(a, b) <= 16319
    ratio = min(first, second) / max(first, second)
    if ratio >= Fraction(1, 16319):
        assert abs(Fraction(min(a, b), max(a, b)) - ratio) <= Fraction(1, 16319)
    assert (a >= b) == (first >= second) or a == b


@pytest.mark.parametrize("mant", [3, 8, 9])
def test_weights_are_two_mantissas(mant):
    base, most = 1 << mant - 1, largest_weight(mant)
    for weight in (0, 1, -1, base // 2 - 1, base // 2, -base // 2, base, most, -most):
        upper, rest = divide_weight(weight, mant)
        assert upper * base + rest == weight
        assert max(abs(upper), abs(rest)) < base
    with pytest.raises(ValueError, match=f"weight must have two mantissas of {mant} bits, not be {most + 1}"):
        divide_weight(most + 1, mant)


def test_equal_tensors_have_equal_weights():
    assert nearest_weights(Fraction(3, 7), Fraction(3, 7), 127) == (127, 127)
    assert nearest_weights(Fraction(1), Fraction(0), 127) == (127, 0)


def test_an_accumulator_that_the_npu_does_not_hold_is_an_error():
    """The NPU limits it and raises a flag; what it holds is exact, beyond 32 bits, too."""
    for bits in (12, 32, 35):
        requantisation, end = made([Fraction(1, 1 << bits - 4)], bits=bits), 1 << bits - 1
        assert requantisation.apply(np.array([[-end], [end - 1]]), -1).tolist() == [[-128], [-120]]
        for beyond in (-end - 1, end):
            with pytest.raises(OverflowError, match=rf"^accumulators must fit {bits} bits, not be in .*{beyond}"):
                requantisation.apply(np.array([[0], [beyond]]), -1)
    assert made([Fraction(1, 2)]).limits == (-(1 << 34), (1 << 34) - 1)
