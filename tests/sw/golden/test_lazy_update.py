"""The lazy update against the rules in Python integers, and its conservation law."""

from fractions import Fraction
from math import ceil, floor, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.golden.lazy_update import Updated, lazy_update, start
from concord.golden.rounding import round_shift
from concord.golden.training import bits_to_drop, ceil_log2, quantize, quantize_float, shared_exponent
from concord.spec.formats import BLOCK_ROUNDINGS, Rounding
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN, AccumulatorFormat, TrainingFormat, TrainingFormats
from support.property_tests import examples

W8, ACC16 = TrainingFormat(8), AccumulatorFormat()


def away(x):
    """Nearest integer of a fraction, halves away from zero."""
    return floor(x + Fraction(1, 2)) if x >= 0 else ceil(x - Fraction(1, 2))


def by_hand(weight, acc, exp, change, change_exp, fmt, accumulator):
    """The rules for one block, number by number; mantissas, exponent, and what was accepted and refused."""
    shift, top = accumulator.shift, fmt.q_max
    totals, accepted, refused, vanished, beyond = [], [], [], [], False
    for w, a, c in zip(weight, acc, change, strict=True):
        moved = away(Fraction(c) * Fraction(2) ** (change_exp - (exp - shift)))
        held = max(-accumulator.q_max, min(accumulator.q_max, a + moved))
        carry = away(Fraction(held, 1 << shift))
        beyond = beyond or abs(w + carry) > top
        totals.append(((w + carry) << shift, held - (carry << shift)))
        accepted.append(held - a)
        refused.append(held != a + moved)
        vanished.append(c != 0 and moved == 0)
    if not beyond:
        return [(w >> shift, a) for w, a in totals], exp, accepted, refused, vanished
    for grown in range(TRAIN_EXP_MAX - exp + 1):
        halves = [away(Fraction(w + a, 1 << grown)) for w, a in totals]
        pairs = [(w := away(Fraction(t, 1 << shift)), t - (w << shift)) for t in halves]
        if all(abs(w) <= top for w, _ in pairs):
            return pairs, exp + grown, accepted, refused, vanished
    raise AssertionError("block cannot grow as far")


FORMATS = st.tuples(
    st.sampled_from([2, 3, 5, 8, 12, 16]), st.sampled_from([2, 8, 12, 16, 24, 30]), st.sampled_from([None, 0, 1, 3])
).map(lambda f: (TrainingFormat(f[0]), AccumulatorFormat(f[1], f[2] if f[2] is None or f[2] < f[1] else None)))


@st.composite
def updates(draw):
    """A block at a corner or anywhere, and an update of any size against it."""
    fmt, accumulator = draw(FORMATS)
    count, low = draw(st.integers(1, 6)), 1 << max(accumulator.shift - 1, 0)

    def numbers(limit):
        return st.lists(
            st.one_of(st.sampled_from([-limit, limit, 0, 1, -1, limit // 2]), st.integers(-limit, limit)),
            min_size=count,
            max_size=count,
        )

    weight, acc = draw(numbers(fmt.q_max)), draw(numbers(min(low, accumulator.q_max)))
    exp = draw(st.integers(TRAIN_EXP_MIN + accumulator.shift, 90))
    apart = draw(st.one_of(st.integers(-60, 60), st.integers(0, accumulator.bits)))
    return fmt, accumulator, weight, acc, exp, draw(numbers((1 << 31) - 1)), exp - accumulator.shift - apart


@pytest.mark.slow
@examples(120)
@given(case=updates())
def test_every_rule_by_hand(case):
    fmt, accumulator, weight, acc, exp, change, change_exp = case
    got = lazy_update(weight, acc, exp, change, change_exp, fmt, accumulator)
    pairs, new_exp, accepted, refused, vanished = by_hand(weight, acc, exp, change, change_exp, fmt, accumulator)
    assert list(zip(got.weight.tolist(), got.acc.tolist(), strict=True)) == pairs
    assert (int(got.exp), int(got.grown)) == (new_exp, new_exp - exp)
    assert got.accepted.tolist() == accepted
    assert got.refused.tolist() == refused and got.vanished.tolist() == vanished


def conserved(weight, acc, exp, got: Updated, accumulator):
    """Whether W + W_acc has changed by what was accepted, but for the last bit where blocks have grown."""
    shift = accumulator.shift
    unit = np.array([Fraction(2) ** int(e - shift) for e in np.atleast_1d(exp)])[:, None]
    fine = np.array([Fraction(2) ** int(e - shift) for e in np.atleast_1d(got.exp)])[:, None]
    change = ((got.weight << shift) + got.acc) * fine - ((weight << shift) + acc) * unit
    lost = np.abs(change - got.accepted * unit)
    return bool(np.all(lost <= np.where(np.atleast_1d(got.grown)[:, None] > 0, fine / 2, 0)))


@pytest.mark.parametrize("accumulator", [ACC16, AccumulatorFormat(12), AccumulatorFormat(16, 0)], ids=str)
@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
def test_conservation_over_many_random_updates(accumulator, rounding):
    accumulator = AccumulatorFormat(accumulator.bits, accumulator.point, rounding)
    rng = np.random.default_rng(3)
    weight, acc, exp = start(rng.uniform(0.4, 0.99, (5, 9)), W8, accumulator)
    drift, total, grown = 0.0, 0, 0
    for _ in range(60):
        change = rng.integers(-(1 << 29), 1 << 30, weight.shape)  # upwards in the long run
        change_exp = int(exp.max()) - 29 - int(rng.integers(0, 3))
        noise = rng.integers(0, 1 << 16, weight.shape)
        got = lazy_update(weight, acc, exp, change, change_exp, W8, accumulator, noise)
        assert conserved(weight, acc, exp, got, accumulator)
        assert np.abs(got.weight).max() <= W8.q_max and np.abs(got.acc).max() <= (1 << accumulator.shift) // 2
        drift += np.abs(got.accepted).sum()
        total, grown = total + int(got.refused.sum()), grown + int(got.grown.sum())
        weight, acc, exp = got.weight, got.acc, got.exp
    assert drift > 0 and grown > 0 and (total > 0 or not accumulator.shift)  # the corners were there


@pytest.mark.parametrize(
    "broken",
    [
        lambda got: got._replace(acc=got.acc + 1),
        lambda got: got._replace(weight=got.weight - 1),
        lambda got: got._replace(accepted=-got.accepted),
        lambda got: got._replace(exp=got.exp + 1),
    ],
)
def test_the_check_of_conservation_can_fail(broken):
    rng = np.random.default_rng(1)
    weight, acc, exp = start(rng.normal(size=(2, 9)), W8, ACC16)
    got = lazy_update(weight, acc, exp, rng.integers(-(1 << 30), 1 << 30, (2, 9)), -36, W8, ACC16)
    assert conserved(weight, acc, exp, got, ACC16)
    assert not conserved(weight, acc, exp, broken(got), ACC16)


def test_the_signs_of_the_printed_listing_would_lose_updates():
    """W - carry, as the source prints step 3, with its accumulator does not conserve the update."""
    weight, acc, exp = np.array([[10, -10]]), np.array([[0, 0]]), np.array([-7])
    got = lazy_update(weight, acc, exp, [[20000, 20000]], -22, W8, ACC16)
    assert got.weight.tolist() == [[11, -9]]
    printed = got._replace(weight=2 * weight - got.weight)
    assert not conserved(weight, acc, exp, printed, ACC16)


def test_small_updates_add_up_and_smaller_ones_vanish():
    weight, acc, exp = np.zeros((1, 2), int), np.zeros((1, 2), int), np.array([-7])
    for _ in range(16):
        got = lazy_update(weight, acc, exp, [[1 << 10, 1 << 10]], -22, W8, ACC16)
        weight, acc = got.weight, got.acc
    assert weight.tolist() == [[1, 1]] and acc.tolist() == [[-(1 << 14)] * 2]  # half a step rounds away
    got = lazy_update(weight, acc, exp, [[1, 2]], -24, W8, ACC16)
    assert got.vanished.tolist() == [[True, False]] and got.accepted.tolist() == [[0, 1]]


def test_an_update_that_is_too_large_is_refused_in_part():
    got = lazy_update([[0, 0]], [[100, 0]], [-7], [[1 << 20, 5]], -22, W8, ACC16)
    assert got.refused.tolist() == [[True, False]] and got.accepted.tolist() == [[32767 - 100, 5]]
    assert got.weight.tolist() == [[1, 0]] and got.acc.tolist() == [[-1, 5]]


def test_the_shared_exponent_grows_and_moves_everything():
    got = lazy_update([[127, 3]], [[0, 1]], [-7], [[32767, 0]], -22, W8, ACC16)
    assert got.exp.tolist() == [-6] and got.grown.tolist() == [1]
    # 128 * 2**15 - 1 becomes 64 * 2**15 (a half, away), 3 * 2**15 + 1 becomes 1.5 * 2**15 + 1.
    assert got.weight.tolist() == [[64, 2]] and got.acc.tolist() == [[0, -(1 << 14) + 1]]


def test_only_the_block_that_overflows_grows():
    got = lazy_update([[127], [127]], [[0], [0]], [-7, -7], [[32767], [-32767]], -22, W8, ACC16)
    assert got.exp.tolist() == [-6, -7] and got.weight.tolist() == [[64], [126]]


def test_without_growth_a_weight_stays_at_the_end_of_its_range():
    fixed = AccumulatorFormat(growth=False)
    got = lazy_update([[127, 3], [-127, 1]], [[0, 1], [0, 0]], [-7, -7], [[32767, 2], [-32767, 1]], -22, W8, fixed)
    assert got.exp.tolist() == [-7, -7] and got.grown.tolist() == [0, 0]
    assert got.weight.tolist() == [[127, 3], [-127, 1]] and got.acc.tolist() == [[0, 3], [0, 1]]
    assert got.refused.tolist() == [[True, False]] * 2 and got.accepted.tolist() == [[0, 2], [0, 1]]


@pytest.mark.parametrize("room", [0, 1, 3])
def test_weights_saturate_at_the_greatest_exponent(room):
    direct = AccumulatorFormat(16, 0)
    exp = TRAIN_EXP_MAX - room
    got = lazy_update([[100, -100, 0, 7]], [[0] * 4], [exp], [[20000, -20000, 1, 0]], exp, W8, direct)
    assert got.exp.tolist() == [TRAIN_EXP_MAX] and got.refused.tolist() == [[True, True, False, False]]
    assert got.weight[0, :2].tolist() == [127, -127] and got.accepted[0, 0] == (127 << room) - 100
    assert got.weight[0, 2:].tolist() == [round_shift(1, room), round_shift(7, room)]


@pytest.mark.parametrize("apart", [-200, -32, -31, -1, 0, 31, 32, 33, 200])
def test_exponents_far_apart(apart):
    """e_acc - e_ch below 0 shifts to the left, exactly or into saturation; from 33 on nothing is left."""
    top = (1 << 31) - 1
    got = lazy_update([[0] * 4], [[0] * 4], [0], [[top, -top, 1, 0]], -15 - apart, W8, ACC16)
    want = [max(-32767, min(32767, away(Fraction(c) / Fraction(2) ** apart))) for c in (top, -top, 1, 0)]
    assert got.accepted[0].tolist() == want
    assert got.vanished[0].tolist() == [want[0] == 0, want[0] == 0, want[2] == 0, False]


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("left", [0, 1, 15, 16, 17, 18, 30, 31, 32, 33, 200])
def test_updates_far_above_the_accumulator_saturate_on_their_side(left, bits, rounding):
    """A shift to the left is exact for every rounding, or beyond the accumulator, whatever that holds."""
    accumulator = AccumulatorFormat(bits, None, rounding)
    half = 1 << accumulator.shift - 1
    change = [c * s for c in (0, 1, 3, 1 << 20, (1 << 30) + 1, (1 << 31) - 1) for s in (1, -1)]
    for held in (0, half, -half):
        acc = [held] * len(change)
        noise = [(1 << 16) - 1] * len(change)
        got = lazy_update([0] * len(change), acc, 0, change, left - accumulator.shift, W8, accumulator, noise)
        sums = [held + (c << left) for c in change]
        want = [max(-accumulator.q_max, min(accumulator.q_max, s)) for s in sums]
        assert got.accepted.tolist() == [w - held for w in want]
        assert got.refused.tolist() == [w != s for w, s in zip(want, sums, strict=True)]
        assert not got.vanished.any()


@examples(60)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5), st.sampled_from([4, 8, 16]))
def test_pretrained_weights_keep_the_bits_of_both(values, bits):
    fmt = TrainingFormat(bits)
    weight, acc, exp = start(values, fmt, ACC16)
    assert np.abs(weight).max() <= fmt.q_max and np.abs(acc).max() <= ACC16.q_max
    unit = Fraction(2) ** int(exp - ACC16.shift)
    for w, a, value in zip(weight.tolist(), acc.tolist(), values, strict=True):
        error = abs((w * (1 << ACC16.shift) + a) * unit - Fraction(value))
        assert error <= unit / 2 or (abs(w) == fmt.q_max and error <= unit * 3 / 2)  # the greatest may saturate


def test_what_a_format_holds_begins_as_it_is():
    fmt = TrainingFormat(5)
    held = np.array([8, -3, 5, 0]) / 4.0  # the greatest one is a power of two: 16 steps of 1/8, and there are 15
    weight, acc, exp = start(held, fmt, ACC16)
    assert (weight.tolist(), acc.tolist(), int(exp)) == ([8, -3, 5, 0], [0] * 4, -2)
    weight, acc, exp = start([2.0, 0.375], fmt, ACC16)  # the other one needs steps of 1/8
    assert weight.tolist() == [15, 3] and acc.tolist() == [32767, 0] and exp == -3


def test_weights_that_are_not_finite_are_refused():
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="weights must be finite"):
            start([1.0, value], W8, ACC16)
        with pytest.raises(ValueError, match="values must be finite"):
            quantize_float([1.0, value], W8)


def test_shared_exponents_are_exact():
    for power in (-100, -7, 0, 1, 20):
        exact = 2.0**power
        above, below = np.nextafter(exact, np.inf), np.nextafter(exact, 0)
        got = [int(shared_exponent([x], 8)) for x in (exact, above, below, -above)]
        assert got == [power - 7, power - 6, power - 7, power - 6]
    assert int(shared_exponent([0.0, 0.0], 8)) == 0
    assert int(shared_exponent([1e-300], 8)) == TRAIN_EXP_MIN
    assert int(shared_exponent([1e300], 8)) == TRAIN_EXP_MAX
    whole = np.arange(1, 5000)
    assert ceil_log2(whole).tolist() == [ceil(log2(m)) for m in whole.tolist()]
    assert ceil_log2([(1 << 40) - 1, 1 << 40, (1 << 40) + 1]).tolist() == [40, 40, 41]


def test_a_power_of_two_saturates_and_says_so_in_the_rule():
    got = quantize_float([1.0, -1.0, 0.5, 0.25], W8)
    assert got.mant.tolist() == [127, -127, 64, 32] and got.exp == -7


@examples(60)
@given(
    st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1, max_size=5),
    st.integers(-150, 150),
    st.sampled_from([2, 5, 8, 16, 32]),
)
def test_integers_by_hand(values, exp, bits):
    fmt = TrainingFormat(bits)
    got = quantize(values, exp, fmt)
    peak = max(map(abs, values))
    drop = 0 if peak <= fmt.q_max or not peak else max((peak - 1).bit_length() - (bits - 1), 0)
    wanted = min(max(exp + drop, TRAIN_EXP_MIN), TRAIN_EXP_MAX)
    assert got.exp == wanted and (drop == 0) == (bits_to_drop(peak, bits) == 0)
    want = [away(Fraction(v) * Fraction(2) ** (exp - wanted)) for v in values]
    assert got.mant.tolist() == [max(-fmt.q_max, min(fmt.q_max, v)) for v in want]


def test_noise_decides_where_rounding_is_stochastic():
    fmt = TrainingFormat(8, rounding=Rounding.STOCHASTIC)
    noise = np.arange(1 << 16).reshape(-1, 1)
    values = np.broadcast_to([4 * 120 + 1], noise.shape)  # 120.25 of the coarser step
    got = quantize(values, np.zeros(len(noise), int), fmt, noise)
    assert np.bincount(got.mant[:, 0]).tolist()[120:] == [3 << 14, 1 << 14]
    with pytest.raises(ValueError, match="noise must be given"):
        quantize(values, np.zeros(len(noise), int), fmt)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: TrainingFormat(1), "bits must be in 2..32, not 1"),
        (lambda: TrainingFormat(33), "bits must be in 2..32, not 33"),
        (lambda: TrainingFormat(8, -1), "block must be 0"),
        (lambda: TrainingFormat(8, 0, 7), "rounding must be one of"),
        (lambda: AccumulatorFormat(16, 16), "point must be in 0..15, not 16"),
        (lambda: AccumulatorFormat(growth=1), "growth must be true or false, not 1"),
        (lambda: TrainingFormats(intermediate=TrainingFormat(32, 4)), "intermediate must have one exponent"),
        (lambda: TrainingFormats(weight=TrainingFormat(32)), "at most 46 bits together"),
    ],
)
def test_formats_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()
