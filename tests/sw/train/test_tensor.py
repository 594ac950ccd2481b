"""Tensors in floats that hold integers, against the golden definition and Python integers."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from concord.golden import training
from concord.golden.integers import excess, moved
from concord.golden.rounding import round_shift
from concord.spec.formats import BLOCK_ROUNDINGS, NOISE_BITS, Rounding
from concord.spec.training import BLOCK_SPREAD, TRAIN_EXP_MAX, TRAIN_EXP_MIN, TrainingFormat, TrainingFormats
from concord.train import described
from concord.train.network import batch
from concord.train.noise import NoiseStream, permutation, raw, uniform
from concord.train.parameters import UpdateCounts
from concord.train.products import Outer, exact, total
from concord.train.tensor import (
    Dyadic,
    Tensor,
    added,
    multiplied,
    narrow,
    quantised,
    saturations,
    shift_floats,
    to_format,
    top_of,
)

RNG = np.random.default_rng


def corners(rng, bits, shape):
    """Integers of up to that many bits: anywhere, at halves of coarser steps, and at the ends."""
    top = (1 << bits) - 1
    step = 1 << max(bits - 7, 1)
    halves = rng.integers(-(1 << 7), 1 << 7, shape) * step + rng.choice([-1, 0, 1], shape) + step // 2
    mixed = np.where(rng.random(shape) < 0.5, halves, rng.integers(-top, top + 1, shape))
    return np.clip(
        np.where(rng.random(shape) < 0.05, rng.choice([-top, top, 0, 1, top // 2 + 1], shape), mixed), -top, top
    )


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
@pytest.mark.parametrize(
    "bits, dtype", [(6, "f4"), (8, "f4"), (15, "f4"), (23, "f4"), (24, "f8"), (31, "f8"), (45, "i8")]
)
def test_rounding_is_that_of_the_golden_definition(bits, dtype, rounding):
    rng = RNG(bits)
    for trial in range(12):
        values = corners(rng, bits, (3, 5, 7))
        mant = values.astype(dtype)
        if trial % 2:
            mant = np.ascontiguousarray(mant.transpose(0, 2, 1)).transpose(0, 2, 1)  # another order in memory
        if trial % 3 == 2:
            mant = np.repeat(mant, 2, axis=2)[:, :, ::2]  # gaps in memory
        exp = int(rng.choice([-20, 0, TRAIN_EXP_MIN - 5, TRAIN_EXP_MAX - 2, TRAIN_EXP_MAX + 3]))
        fmt = TrainingFormat(int(rng.choice([2, 5, 8, 16])), rounding=rounding)
        noise = NoiseStream(5, (trial,)) if rounding == Rounding.STOCHASTIC else None
        got = narrow(Tensor(mant, exp, 1 << bits), fmt, noise)
        random = NoiseStream(5, (trial,)).take(values.shape).reshape(1, -1)
        want = training.quantize(values.reshape(1, -1), [exp], fmt, random)
        assert got.exp == want.exp[0] and got.mant.astype(np.int64).ravel().tolist() == want.mant[0].tolist()
        assert top_of(got.mant) <= got.peak <= fmt.q_max


def test_large_tensors_are_rounded_in_chunks():
    values = corners(RNG(0), 22, (3, 40000)).astype("f4")
    got = narrow(Tensor(values, 0, 1 << 22), TrainingFormat(8))
    want = training.quantize(values.astype(int).reshape(1, -1), [0], TrainingFormat(8))
    assert np.array_equal(got.mant.astype(int).reshape(1, -1), want.mant)


@pytest.mark.parametrize("dtype, bits", [("f4", 22), ("f4", 24), ("f8", 32), ("f8", 51)])
def test_halves_are_rounded_away_and_their_neighbours_are_not_moved(dtype, bits):
    rng, top = RNG(bits), 1 << bits
    for right in range(1, 33):
        halves = (rng.integers(-top >> right, top >> right, 500) << right) + (1 << right - 1)
        values = np.concatenate([halves - 1, halves, halves + 1, rng.integers(-top, top + 1, 500), [-top, top, 0]])
        values = np.clip(values, -top, top)
        assert np.array_equal(values.astype(dtype).astype(np.int64), values)
        got = shift_floats(values.astype(dtype), right, top, np.float64, 1 << 60)
        assert np.array_equal(got, round_shift(values, right))


def test_numbers_without_arrays_are_those_of_arrays():
    for top in [*range(1000), *((1 << k) + d for k in range(10, 46) for d in (-1, 0, 1))]:
        for bits in (2, 8, 16, 32):
            assert excess(top, bits) == training.bits_to_drop(top, bits)
            assert moved(top, bits - 4) == round_shift(top, bits - 4)


@pytest.mark.parametrize("g_bits, x_bits", [(3, 8), (15, 7), (15, 11), (16, 8), (31, 7), (31, 15), (24, 24)])
@pytest.mark.parametrize("rows", [3, 700])
def test_sums_over_rows_are_exact(g_bits, x_bits, rows):
    rng = RNG(g_bits + rows)
    ends = [[(1 << bits) - 1] for bits in (g_bits, x_bits)]
    g, x = (np.clip(corners(rng, bits, (2, rows, 3)), -end[0], end[0])
            for bits, end in zip((g_bits, x_bits), ends, strict=True))  # fmt: skip
    g[0], x[0] = ends  # every sum is as large as it can be
    carriers = [np.float32 if bits <= 24 else np.float64 for bits in (g_bits, x_bits)]
    sums = Outer(g.astype(carriers[0]), ends[0][0], ends[1][0])
    for begun in range(0, rows, 256):
        sums.add(begun, x[:, begun : begun + 256].astype(carriers[1]))
    got, peak = sums.total()
    want = g.swapaxes(1, 2).astype(object) @ x.astype(object)
    assert np.array_equal(got.astype(np.int64), want.astype(np.int64)) and abs(want).max() <= peak


def test_halves_of_gradients_are_within_eight_bits():
    g = np.arange(-(1 << 15) + 1, 1 << 15).reshape(1, -1, 1)
    low, high = Outer._split(g.astype(np.float32))
    assert np.array_equal(low + 256 * high, g) and max(abs(low).max(), abs(high).max()) <= 128


def test_sums_over_rows_that_might_not_fit_are_refused():
    with pytest.raises(OverflowError, match="must fit in 63 bits"):
        Outer(np.zeros((1, 4, 1)), 1 << 30, 1 << 31)


@pytest.mark.parametrize("axis, block", [(-1, 4), (1, 3), (-1, 50)])
def test_blocks_have_their_own_exponents_on_one_grid(axis, block):
    rng = RNG(1)
    scale = 2.0 ** -rng.integers(0, BLOCK_SPREAD, (2, 6, 10))
    values = np.round(corners(rng, 30, (2, 6, 10)) * scale)
    fmt = TrainingFormat(8, block)
    got = narrow(Tensor(values, -9, 1 << 30), fmt, axis=axis)
    last = np.moveaxis(values, axis, -1).astype(int)
    have = np.moveaxis(got.values, axis, -1)
    drops = [int(training.bits_to_drop(np.abs(last).max(), 8))]
    for row, out in zip(last.reshape(-1, last.shape[-1]), have.reshape(-1, last.shape[-1]), strict=True):
        for start in range(0, len(row), block):
            part = row[start : start + block]
            drop = max(int(training.bits_to_drop(np.abs(part).max(), 8)), drops[0] - BLOCK_SPREAD)
            want = [max(-127, min(127, away(Fraction(int(v), 1 << drop)))) * 2.0 ** (drop - 9) for v in part]
            assert out[start : start + block].tolist() == want
    assert np.abs(got.mant).max() <= 127 << BLOCK_SPREAD


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
@pytest.mark.parametrize("bits, exp, top", [(8, -9, 20), (16, -140, 30), (3, 5, 52), (5, -9, 22)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_blocks_in_floats_are_those_in_integers(rounding, bits, exp, top, kind):
    rng = RNG(bits)
    values = corners(rng, min(top, 22 if kind is np.float32 else 46), (3, 1, 10, 4)) * 1.0
    values[0, 0, :4] = 0
    values[1] = np.rint(values[1] / 64) * 8 + 4  # halves
    peak = int(np.abs(values).max())
    fmt = TrainingFormat(bits, 4, rounding)
    got = narrow(Tensor(values.astype(kind), exp, peak), fmt, NoiseStream(3, (1, 2)), axis=2)
    last = np.pad(np.moveaxis(values, 2, -1).astype(int), [(0, 0)] * 3 + [(0, 2)]).reshape(3, 1, 4, 3, 4)
    most = max(int(training.bits_to_drop(peak, bits)), -128 - exp)
    drop = training.bits_to_drop(np.abs(last).max(axis=-1, keepdims=True), bits)
    drop = np.clip(drop, max(most - BLOCK_SPREAD, -128 - exp, 0), most)
    noise = NoiseStream(3, (1, 2)).take(last.shape) if rounding == Rounding.STOCHASTIC else None
    want = np.clip(round_shift(last, drop, rounding, noise), -fmt.q_max, fmt.q_max) << drop - drop.min()
    assert np.array_equal(got.mant, np.moveaxis(want.reshape(3, 1, 4, 12)[..., :10], -1, 2))
    assert got.exp == exp + drop.min() and np.abs(got.mant).max() == got.peak <= 127 << 20


def test_a_tensor_of_zeros_has_no_blocks():
    got = narrow(Tensor(np.zeros((2, 5)), -200, 7), TrainingFormat(4, 4))
    assert got.exp == -128 and not got.mant.any()


def away(x):
    return int(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1)


@pytest.mark.parametrize("a_bits, b_bits", [(7, 7), (7, 9), (15, 7), (31, 7), (31, 20), (15, 40)])
def test_products_are_exact(a_bits, b_bits):
    rng = RNG(a_bits)
    a, b = corners(rng, a_bits, (9, 33)), corners(rng, b_bits, (33, 4))
    found, peak = exact(np.matmul, a.astype("f8"), (1 << a_bits) - 1, b.astype("f8"), (1 << b_bits) - 1, 33)
    want = a.astype(object) @ b.astype(object)
    assert [int(v) for v in found.ravel()] == [int(v) for v in want.ravel()]
    assert max(abs(int(v)) for v in want.ravel()) <= peak
    if a_bits + b_bits > 48:
        plain = (a.astype("f8") @ b.astype("f8")).ravel()  # what the parts are for
        assert [int(v) for v in plain] != [int(v) for v in want.ravel()]


@pytest.mark.parametrize("bits", [12, 13, 26, 27, 28])
def test_products_of_odd_numbers_keep_their_last_bit(bits):
    """On both sides of what float32 and float64 hold."""
    odd = (1 << bits) - 1
    for a, b in ((odd, odd), (odd, -odd), (odd, (1 << bits) - 3)):
        found, peak = exact(np.matmul, np.array([[float(a)]]), 1 << bits, np.array([[float(b)]]), 1 << bits, 1)
        assert int(found[0, 0]) == a * b and peak == 1 << 2 * bits


def test_products_that_do_not_fit_are_refused():
    with pytest.raises(OverflowError, match="must fit in 63 bits"):
        exact(np.matmul, np.ones((1, 1)), 1 << 31, np.ones((1, 1)), 1 << 31, 4)


def test_sums_are_exact():
    values = np.full((1 << 12, 2), float((1 << 42) - 1))
    found, peak = total(values, 1 << 42, (0,))
    assert found.tolist() == [((1 << 42) - 1) << 12] * 2 and peak == 1 << 54


def test_addition_aligns_and_rounds_what_is_finer_only_where_it_must():
    fmt = TrainingFormat(32)
    one, other = Tensor(np.array([3.0, -5.0]), -4, 5), Tensor(np.array([1.0, 7.0]), 2, 7)
    got = added([one, other], fmt)
    assert got.exp == -4 and got.mant.tolist() == [3 + 64, -5 + 448]
    assert np.array_equal(added([other, one], fmt).mant, got.mant)
    zero = Tensor(np.zeros(2), -120, 0)
    assert added([zero, one], fmt) is one and added([zero, zero], fmt) is zero
    far = added([one, Tensor(np.array([3.0, 0.0]), 100, 3)], fmt)
    assert far.values.tolist() == [3 * 2.0**100, 0.0]
    wide = added([Tensor(np.array([2.0**31 - 1] * 2), 0, (1 << 31) - 1)] * 2, fmt)
    assert wide.exp == 1 and wide.mant.tolist() == [2.0**31 - 1] * 2


def test_sums_of_several_tensors_are_exact():
    """Each fits into float32 with room for one more, all together do not."""
    most = (1 << 23) - 1
    parts = [Tensor(np.array([most - k], dtype=np.float32), 0, most) for k in (0, 0, 0, 5)]
    for count in (2, 3, 4):
        got = added(parts[:count], TrainingFormat(32))
        assert got.exp == 0 and int(got.mant[0]) == sum(int(t.mant[0]) for t in parts[:count])


@pytest.mark.parametrize("bits", [8, 24, 26, 32])
def test_inputs_are_exact(bits):
    graph = described([{"op": "flatten"}, {"op": "dense", "outputs": 2}], (1, 2, 3))
    values = np.random.default_rng(bits).normal(size=(5, 1, 2, 3))
    fmt = TrainingFormat(bits)
    found, want = batch(values, graph, TrainingFormats(activation=fmt)), training.quantize_float(values.ravel(), fmt)
    assert np.array_equal(found.mant.astype(np.int64).ravel(), want.mant) and found.exp == want.exp
    assert top_of(found.mant) <= found.peak


def test_intermediates_keep_what_fits_and_round_what_does_not():
    fmt = TrainingFormat(16)
    kept = to_format(np.array([32767.0, 3.0]), -7, 1 << 20, fmt)
    assert (kept.exp, kept.peak, kept.mant.tolist()) == (-7, 32767, [32767.0, 3.0])
    cut = to_format(np.array([65535.0, 3.0]), -7, 1 << 20, fmt)
    assert (cut.exp, cut.mant.tolist()) == (-6, [32767.0, 2.0])


@pytest.mark.parametrize(
    "number", [Fraction(1, 10), Fraction(3), Fraction(-1, 3), Fraction(1, 1 << 40), Fraction(65535)]
)
def test_factors_have_sixteen_bits(number):
    got = Dyadic.nearest(number)
    assert abs(got.mant) < 1 << 16 and abs(got.value - number) <= abs(number) / (1 << 16)
    assert Dyadic.nearest(got.value) == got
    assert multiplied(Tensor(np.array([5.0]), 1, 5), got, TrainingFormat(32)).values[0] == float(10 * got.value)


def test_random_numbers_depend_on_seed_and_place_alone():
    first = raw(7, (1, 2, 3), 6)
    # The first block of Philox 4x64-10 is that of the counter plus one.
    assert first.tolist() == np.random.Philox(key=7, counter=[0, 1, 2, 3]).random_raw(6).tolist()
    assert raw(7, (1, 2, 3), 3).tolist() == first[:3].tolist()
    assert len({tuple(raw(s, p, 3)) for s in (7, 8) for p in [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)]}) == 8
    assert sorted(permutation(1, (2, 0), 100)) == list(range(100)) != permutation(1, (2, 0), 100).tolist()
    noise = NoiseStream(1, (3, 9))
    calls = [noise.take((500, 3)), noise.take((500, 3))]
    assert not np.array_equal(*calls) and np.array_equal(NoiseStream(1, (3, 9)).take((500, 3)), calls[0])
    assert 0 <= min(c.min() for c in calls) and max(c.max() for c in calls) < 1 << 16
    assert abs(uniform(1, (1, 1), 4000).mean()) < 0.05 and np.abs(uniform(1, (1, 1), 4000)).max() < 1


@pytest.mark.parametrize("rounding", [Rounding.NEAREST_AWAY, Rounding.NEAREST_EVEN])
@pytest.mark.parametrize("exp", [TRAIN_EXP_MAX - 12, TRAIN_EXP_MAX - 3, TRAIN_EXP_MAX, TRAIN_EXP_MAX + 2, 200])
def test_what_is_beyond_the_greatest_exponent_is_counted(exp, rounding):
    fmt = TrainingFormat(8, rounding=rounding)
    ends = [0, 1, 31, 32, 126, 127, 128, 1015, 1016, 1019, 1020, 1021, 260095, 520191, 520192, 520193, 1 << 21]
    mant = np.array([sign * m for m in ends for sign in (1, -1)], dtype=np.float64)
    counts = UpdateCounts()
    with saturations(counts):
        found = narrow(Tensor(mant, exp, top_of(mant)), fmt)
    assert found.exp == TRAIN_EXP_MAX
    beyond = 0
    for m in mant.tolist():  # in units of two to the power of the greatest exponent, rounded as the format says
        exact = Fraction(int(m)) * Fraction(2) ** (exp - TRAIN_EXP_MAX)
        whole, half = divmod(abs(exact), 1)
        up = half > Fraction(1, 2) or (half == Fraction(1, 2) and (rounding is Rounding.NEAREST_AWAY or whole % 2))
        beyond += int(whole) + up > fmt.q_max
    assert counts.saturated == beyond > 0


def test_what_fits_is_not_counted_as_beyond():
    counts, inner = UpdateCounts(), UpdateCounts()
    with saturations(counts):
        for mant, exp in (
            ([127, -127], TRAIN_EXP_MAX),
            ([255, 1], 126),
            ([1 << 20, 3], TRAIN_EXP_MAX - 13),
            ([0], 300),
        ):
            values = np.array(mant, dtype=np.float64)
            narrow(Tensor(values, exp, top_of(values) + 1000), TrainingFormat(8))
        assert counts.saturated == 0
        with saturations(inner):
            to_format(np.array([5.0]), 150, 5, TrainingFormat(8))
        to_format(np.array([5.0, 3.0, 0.0]), 150, 5, TrainingFormat(8))
    to_format(np.array([5.0]), 150, 5, TrainingFormat(8))
    assert (counts.saturated, inner.saturated) == (2, 1)


def test_blocks_beyond_the_greatest_exponent_are_refused():
    values = np.full((1, 8), 300.0)
    with pytest.raises(OverflowError, match="exponents must be at most 127, not 128"):
        narrow(Tensor(values, 126, 300), TrainingFormat(8, block=4))


@pytest.mark.parametrize("scale, count", [(2.0**127, 0), (2.0**128, 1), (2.0**130, 2)])
def test_inputs_beyond_the_greatest_exponent_are_counted(scale, count):
    counts = UpdateCounts()
    with saturations(counts):
        found = quantised(np.array([128.0, -60.0, 3.0, 0.0]) * scale, TrainingFormat(8))
    assert counts.saturated == count and found.exp == TRAIN_EXP_MAX


@pytest.mark.parametrize("excess", [2, 5, 12, 16])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_stochastic_rounding_may_pass_the_nearest_number(bits, sign, excess):
    """Just above a whole number the greatest noise rounds up, which the bound of magnitudes allows for."""
    fmt = TrainingFormat(bits, rounding=Rounding.STOCHASTIC)
    for whole in (fmt.q_max // 2 + 1, fmt.q_max - 1, fmt.q_max):
        most = SimpleNamespace(take=lambda shape: np.full(shape, (1 << NOISE_BITS) - 1))
        values = np.array([[sign * ((whole << excess) + 1), 0]])
        found = narrow(Tensor(values.astype(np.float64), 0, 1 << 50), fmt, most)
        assert found.exp == excess and found.mant.tolist() == [[sign * min(whole + 1, fmt.q_max), 0]]
        assert found.peak == min(whole + 1, fmt.q_max)
