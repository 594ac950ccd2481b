"""Bits that integers need, counted fast and by definition."""

import numpy as np
import pytest

from concord.operations.float32 import Pool
from concord.sums.histogram import STORAGE_WIDTHS, WIDEST, Histogram, Tally, check_width, needed_bits
from concord.sums.pairs import Pairs, countable


def fits(value, width):
    """The definition: two's complement."""
    return -(1 << width - 1) <= value < 1 << width - 1


def needed(value):
    return next(width for width in range(1, WIDEST) if fits(value, width))


def corners(bits):
    """Integers around powers of two of both signs."""
    powers = [sign * (1 << k) + d for k in range(bits) for sign in (1, -1) for d in (-1, 0, 1)]
    return [0, 1, -1, *powers, 1 << bits, -(1 << bits)]


def test_widths_of_all_small_integers():
    values = np.arange(-300, 300)
    assert needed_bits(values).tolist() == [needed(v) for v in values.tolist()]


def test_widths_of_large_integers():
    ends = [(1 << 63) - 1, -(1 << 63)]
    values = [v for v in corners(62) if fits(v, 64)] + ends
    assert needed_bits(np.array(values, dtype=np.int64)).tolist() == [needed(v) for v in values]
    values = corners(100)
    assert needed_bits(np.array(values, dtype=object)).tolist() == [needed(v) for v in values]


@pytest.mark.parametrize("values", [[0.5], [True], np.array([1], np.uint64)])
def test_what_is_no_integer_is_refused(values):
    with pytest.raises(TypeError, match="values must be integers"):
        needed_bits(values)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("frac", [0, 5, 30])
@pytest.mark.parametrize("extra", [0, 1])
def test_floats_are_counted_as_their_integers(kind, frac, extra):
    limit, rng = Tally.LIMITS[kind], np.random.default_rng(frac)
    values = np.array(corners(limit) + rng.integers(-1 << limit, 1 << limit, 500 + extra).tolist())
    want = Histogram()
    want.count(values)
    floats = np.ldexp(values.astype(kind), -frac).astype(kind)
    tally = Tally(kind, frac, Pool())
    for _ in range(2):  # counts begin again
        for part in np.split(floats, [3, 10]):
            tally.add(part)
        assert np.array_equal(tally.counts(), want.counts)
    tally.add(np.array([-0.0, 0.0, -0.0], kind))
    assert tally.counts()[1] == 3


@pytest.mark.slow
def test_more_floats_than_are_collected():
    rng = np.random.default_rng(5)
    parts = [rng.integers(-1000, 1000, n) for n in (400_001, 300_001, 1, 1_200_003, 7)]
    tally, want = Tally(np.float32, 0, Pool()), Histogram()
    for part in parts:
        tally.add(part.astype(np.float32))
        want.count(part)
    assert np.array_equal(tally.counts(), want.counts)


def test_curves_never_rise():
    histogram = Histogram()
    histogram.count(np.random.default_rng(2).integers(-(1 << 40), 1 << 40, 1000))
    curve = list(histogram.curve().values())
    assert len(curve) == len(STORAGE_WIDTHS) == 64 and curve == sorted(curve, reverse=True)
    assert histogram.beyond(0) == histogram.total == 1000
    assert histogram.beyond(histogram.bits) == 0 < histogram.beyond(histogram.bits - 1)


def test_an_empty_histogram_needs_nothing():
    assert Histogram().bits == 0 and Histogram().total == 0


@pytest.mark.parametrize("width", [0, 65, -1, 8.0, True])
def test_widths_are_from_1_to_64(width):
    with pytest.raises(ValueError, match=r"width must be an integer in 1\.\.64, not"):
        check_width("width", width)


@pytest.mark.parametrize("seed", range(5))
def test_products_by_pairs_of_codes(seed):
    rng = np.random.default_rng(seed)
    x_max, w_max = rng.integers(1, 128, 2).tolist()
    assert countable(x_max, w_max)
    w = rng.integers(-w_max, w_max + 1, (5, 3))
    pairs, want = Pairs(w, x_max), Histogram()
    for _ in range(2):
        x = rng.integers(-x_max, x_max + 1, (5, 7))
        pairs.add(x.astype(np.float32))
        want.count(x[:, None, :] * w[:, :, None])
    assert np.array_equal(pairs.counts(), want.counts)
