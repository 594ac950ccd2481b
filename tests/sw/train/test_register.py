"""Sums in a register of few bits, and weights whose sums fit one: against Python integers."""

import numpy as np
import pytest

from concord.spec.training import AccumulatorFormat, TrainingFormat
from concord.sums.reach import radius
from concord.sums.register import ProductOperands, limited
from concord.train.bound import bind, bounded, projected, rounded, row_norms
from concord.train.parameters import Parameter
from support import naive

CASES = [(8, 1, 1, 3, False), (9, 4, 3, 2, False), (10, 2, 5, 4, True), (12, 8, 8, 3, False), (12, 8, 20, 2, True)]


def corner(rng, low, high, shape):
    """Numbers of a range, its ends as often as everything else."""
    return rng.choice([low, high, 0, *rng.integers(low, high + 1, 3)], shape).astype(np.float64)


def reference(of, lanes, bits):
    """Every sum by itself: terms of lanes within a tap, added in a register."""
    rows, groups, depth = of.rows.shape
    found = np.empty((rows, groups, of.weights.shape[2]), dtype=object)
    for n, g, o in np.ndindex(*found.shape):
        products = [int(a) * int(b) for a, b in zip(of.rows[n, g], of.weights[g, :, o], strict=True)]
        taps = [products[k : k + of.channels] for k in range(0, depth, of.channels)]
        terms = [sum(tap[k : k + lanes]) for tap in taps for k in range(0, of.channels, lanes)]
        found[n, g, o] = naive.register_sum(terms, bits)
    return found


@pytest.mark.parametrize(("bits", "lanes", "channels", "taps", "positive"), CASES)
def test_sums_end_where_the_register_says(bits, lanes, channels, taps, positive):
    rng = np.random.default_rng(bits + channels)
    most = (1 << bits - 1) - 1
    left = 0
    for size in (3, 9, 40):
        rows = corner(rng, 0 if positive else -size, size, (9, 2, taps * channels))
        of = ProductOperands(rows, corner(rng, -size, size, (2, taps * channels, 4)), channels)
        exact = np.einsum("ngk,gko->ngo", of.rows, of.weights)
        found, count = limited(exact, of, lanes, bits)
        wanted = reference(of, lanes, bits)
        assert np.array_equal(found.astype(np.int64), wanted.astype(np.int64))
        assert count == np.count_nonzero((wanted > most) | (wanted < -most - 1))
        left += count
    assert left


def test_examples_of_the_source():
    """100 products of 127 by 127 leave 16 bits with the third; one leaves 10 bits by itself."""
    hundred = ProductOperands(np.full((1, 1, 100), 127.0), np.full((1, 100, 1), 127.0), 100)
    exact = np.full((1, 1, 1), 100 * 127 * 127.0)
    for bits, lanes, wanted in (
        (16, 1, (1 << 15, 1)),
        (22, 1, (1612900, 0)),
        (21, 1, (1 << 20, 1)),
        (16, 8, (1 << 15, 1)),
    ):
        found, count = limited(exact, hundred, lanes, bits)
        assert (int(found[0, 0, 0]), count) == wanted
    one = ProductOperands(np.full((1, 1, 1), 127.0), np.full((1, 1, 1), -127.0), 1)
    found, count = limited(np.full((1, 1, 1), -16129.0), one, 1, 10)
    assert (int(found[0, 0, 0]), count) == (-513, 1)


def test_a_projection_is_the_nearest_row_with_that_norm():
    rng = np.random.default_rng(2)
    for limit in (1, 7, 100, 5000):
        values = corner(rng, -300, 300, (30, 12)).astype(np.int64)
        values[0] = 0
        found = projected(values, limit)
        assert np.all(np.abs(found).sum(axis=1) <= limit)
        for before, after in zip(values.tolist(), found.tolist(), strict=True):
            if sum(map(abs, before)) <= limit:
                assert before == after
                continue
            cut = [max(abs(a) - abs(b), 0) for a, b in zip(before, after, strict=True)]
            off = max(cut)  # all that are left lost the same, the least that is enough
            assert all(abs(b) == max(abs(a) - off, 0) and a * b >= 0 for a, b in zip(before, after, strict=True))
            assert sum(max(abs(a) - off + 1, 0) for a in before) > limit


def test_rounding_within_a_norm():
    rng = np.random.default_rng(3)
    for shift, limit in ((4, 9), (15, 40), (0, 50)):
        total = projected(rng.integers(-8 << shift, (8 << shift) + 1, (40, 9)), limit << shift)
        found = rounded(total, shift, limit)
        nearest = np.sign(total) * ((np.abs(total) + (1 << shift >> 1)) >> shift)
        assert np.all(np.abs(found).sum(axis=1) <= limit)
        assert np.all((np.abs(found) == np.abs(total) >> shift) | (found == nearest))
        fits = np.abs(nearest).sum(axis=1) <= limit
        assert np.array_equal(found[fits], nearest[fits])
        spare = ~fits & (np.abs(found).sum(axis=1) < limit)
        assert not spare.any()  # as many as the norm allows are rounded up


def test_of_equal_fractions_the_first_are_rounded_up():
    assert rounded(np.array([[24, -24, 24, 8]]), 4, 3).tolist() == [[1, -1, 1, 0]]
    assert rounded(np.array([[24, -24, 24, 8]]), 4, 5).tolist() == [[2, -2, 1, 0]]
    assert rounded(np.array([[23, 24, 25, 8]]), 4, 4).tolist() == [[1, 1, 2, 0]]


@pytest.mark.parametrize("apart", [False, True], ids=["any input", "none negative"])
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_no_input_leaves_a_register_within_the_bound(bits, apart):
    rng = np.random.default_rng(bits)
    largest = 15
    limit = radius(bits, largest)
    total = rng.integers(-300 << 15, 300 << 15, (6, 40))
    kept, weight = bounded(total, 15, limit, apart)
    assert np.any(kept != total)
    weights = weight.T[None].astype(np.float64)
    signs = np.sign(weight).astype(np.float64)
    worst = [largest * np.maximum(signs, 0), largest * np.maximum(-signs, 0)]
    rows = np.concatenate([*worst, *([] if apart else [largest * signs, -largest * signs])])[:, None]
    for order in (np.arange(40), rng.permutation(40)):
        of = ProductOperands(rows[..., order], weights[:, order], 40)
        exact = np.einsum("ngk,gko->ngo", of.rows, of.weights)
        assert limited(exact, of, 1, bits)[1] == 0
    # One more would not fit: the bound is no tighter than it must be.
    over = ProductOperands(np.full((1, 1, limit + 1), float(largest)), np.ones((1, limit + 1, 1)), 1)
    assert limited(np.full((1, 1, 1), float(largest * (limit + 1))), over, 1, bits)[1] == 1


@pytest.mark.parametrize("apart", [False, True])
def test_a_parameter_within_the_bound_keeps_its_total(apart):
    rng = np.random.default_rng(5)
    parameter = Parameter.begin("w", rng.normal(0, 1, (5, 3, 2, 2)), TrainingFormat(8), AccumulatorFormat())
    before = (parameter.weight.astype(np.int64) << 15) + parameter.acc
    assert row_norms(parameter, apart).max() > 150
    assert bind(parameter, 150, apart) > 0
    assert row_norms(parameter, apart).max() <= 150
    after = ((parameter.weight.astype(np.int64) << 15) + parameter.acc).reshape(5, -1)
    wanted, _ = bounded(before.reshape(5, -1), 15, 150, apart)
    assert np.array_equal(after, wanted) and parameter.weight.shape == (1, 60)
    assert bind(parameter, 150, apart) == 0
