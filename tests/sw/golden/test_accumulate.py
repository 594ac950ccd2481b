"""Sums on the accumulator grid against fractions."""

from fractions import Fraction

import numpy as np
import pytest

from concord.golden import binary16
from concord.golden.accumulate import acc_to_binary16, accumulate, round_grid, saturate
from concord.spec.presets import ECP5_85F, PRESETS, TINY
from support import naive

#: Sums of some 70 bits: just too many for int64.
_PLAIN = ECP5_85F.replace(integer_chains=False, writable_matrix=False, code_scaling=False)
OVER_64 = _PLAIN.replace(act_mant=12, wgt_mant=12, wgt_exp_max=8)
WIDEST = _PLAIN.replace(
    act_mant=12, wgt_mant=16, act_exp_min=-24, wgt_exp_min=-31, wgt_exp_max=8, acc_width=100, max_terms=4096
)


def operands(config, rows, cols, batch, seed, extreme=False):
    """Random blocks; extreme ones hold only the greatest mantissas and the ends of the exponent range."""
    rng = np.random.default_rng(seed)

    def mants(fmt, shape):
        if extreme:
            return fmt.q_max * rng.choice([-1, 1, 1, 1], shape)
        return rng.integers(-fmt.q_max, fmt.q_max + 1, shape)

    def exps(fmt, shape):
        if extreme:
            return rng.choice([fmt.exp_min, fmt.exp_max], shape)
        return rng.integers(fmt.exp_min, fmt.exp_max + 1, shape)

    n = config.native
    return (
        mants(config.act, (*batch, cols, n)),
        exps(config.act, (*batch, cols)),
        mants(config.wgt, (rows, cols, n)),
        exps(config.wgt, (rows, cols)),
    )


def exact(xm, xe, wm, we):
    """The sum as a fraction."""
    return sum(
        (sum(int(a) * int(b) for a, b in zip(x, w, strict=True)) * naive.power(int(e) + int(f)))
        for x, e, w, f in zip(xm, xe, wm, we, strict=True)
    )


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("config", [*PRESETS.values(), OVER_64, WIDEST], ids=[*PRESETS, "over 64 bits", "widest"])
def test_sums_are_exact(config, extreme):
    xm, xe, wm, we = operands(config, rows=6, cols=5, batch=(4,), seed=1, extreme=extreme)
    acc = accumulate(xm, xe, wm, we, config.acc_frac)
    assert acc.shape == (4, 6)
    for b in range(4):
        for r in range(6):
            want = exact(xm[b], xe[b], wm[r], we[r])
            assert Fraction(int(acc[b, r])) * naive.power(-config.acc_frac) == want
            assert int(acc[b, r]).bit_length() < config.acc_bits


def test_large_sums_leave_int64():
    acc = accumulate(*operands(WIDEST, 2, 3, (), seed=2, extreme=True), WIDEST.acc_frac)
    assert acc.dtype == object and max(abs(int(a)) for a in acc) > 1 << 64


def test_order_does_not_matter():
    xm, xe, wm, we = operands(TINY, rows=3, cols=7, batch=(2,), seed=3, extreme=True)
    order = np.random.default_rng(3).permutation(7)
    one = accumulate(xm, xe, wm, we, TINY.acc_frac)
    two = accumulate(xm[:, order], xe[:, order], wm[:, order], we[:, order], TINY.acc_frac)
    parts = [accumulate(xm[:, c], xe[:, c], wm[:, c], we[:, c], TINY.acc_frac) for c in (slice(0, 2), slice(2, 7))]
    assert np.array_equal(one, two) and np.array_equal(one, sum(parts))


def test_float64_matrix_product_gives_the_same_bits():
    """Why an emulator may use BLAS: with few enough bits every partial sum is exact in float64."""
    config = PRESETS["ecp5-85f"]
    xm, xe, wm, we = operands(config, rows=8, cols=4, batch=(9,), seed=4)
    xe, we = np.clip(xe, -9, -3), np.clip(we, -9, -4)
    x = np.ldexp(xm.astype(float), xe[..., None]).reshape(9, -1)
    w = np.ldexp(wm.astype(float), we[..., None]).reshape(8, -1)
    bits, _, _ = acc_to_binary16(accumulate(xm, xe, wm, we, config.acc_frac), config)
    assert np.array_equal(bits, binary16.encode(x @ w.T))


def test_below_the_grid_is_refused():
    one = np.ones((1, 4), dtype=int)
    with pytest.raises(ValueError, match=r"must not be below the grid 2\*\*-30, not 1 too small"):
        accumulate(one, [-16], one[None], [[-15]], 30)


def edge_sums(width, frac):
    """Grid integers around every rounding boundary that matters: ties of binary16, powers of two, ends of the width."""
    ties = [pattern for k in range(0, 31) for pattern in (k << 10, (k << 10) + 1, (k << 10) + 0x3FF)]
    for pattern in ties:
        middle = Fraction(naive.UNITS[pattern] + naive.UNITS[pattern + 1], 2) * naive.power(frac - 24)
        yield from (int(middle) + d for d in (-1, 0, 1))
    for k in range(width + 2):
        yield from ((1 << k) - 1, 1 << k, (1 << k) + 1, 3 << k)


@pytest.mark.parametrize(
    "width, frac", [(48, 30), (62, 30), (20, 0), (24, 35), (62, 20), (24, 55), (64, 20), (70, 31), (100, 55)]
)
def test_rounding_and_saturation(width, frac):
    sums = sorted({s * sign for s in edge_sums(width, frac) for sign in (1, -1)})
    low, high = -(1 << width - 1), (1 << width - 1) - 1
    want = [naive.nearest(min(max(s, low), high) * naive.power(-frac), negative_zero=False) for s in sums]
    over = [not low <= s <= high for s in sums]
    bits, acc_overflow, half_overflow = acc_to_binary16(np.array(sums, dtype=object), (width, frac))
    assert bits.tolist() == want
    assert acc_overflow.tolist() == over and any(over)
    assert half_overflow.tolist() == [b & 0x7FFF == naive.INF for b in want]
    small = [k for k, s in enumerate(sums) if -(1 << 63) <= s < 1 << 63]
    assert len(small) > 100
    again = acc_to_binary16(np.array([sums[k] for k in small], dtype=np.int64), (width, frac))
    for got, whole in zip(again, (bits, acc_overflow, half_overflow), strict=True):
        assert np.array_equal(got, whole[small])


def test_int64_extremes():
    ends = np.array([-(1 << 63), (1 << 63) - 1, -(1 << 63) + 1])
    assert binary16.decode(round_grid(ends, 55)).tolist() == [-256, 256, -256]
    limited, over = saturate(ends, 65)
    assert np.array_equal(limited, ends) and not over.any()


def test_zero_is_positive_and_negative_underflow_is_not():
    bits, acc_overflow, half_overflow = acc_to_binary16(np.array([0, -1, 1]), TINY)
    assert bits.tolist() == [0, 0x8000, 0] and not acc_overflow.any() and not half_overflow.any()


def test_one_rounding_only():
    """A sum just above a tie: through float32 it would become the tie and round down."""
    acc = (1 << 40) + (1 << 29) + 1
    assert acc_to_binary16(acc, (48, 30))[0] == binary16.encode(1024.0) + 1
    assert binary16.encode(np.float64(np.float32(acc * 2.0**-30))) == binary16.encode(1024.0)


@pytest.mark.parametrize("frac", [20, 55])
def test_any_bit_below_a_tie_decides(frac):
    """Above or below a tie by any power of two: neither int64 nor Python integers lose it."""
    for shift in range(1, 85):
        tie = (1 << shift + 11) + (1 << shift)  # halfway between two numbers of 11 bits
        sums = [tie, *(tie + sign * (1 << k) for k in range(shift) for sign in (1, -1))]
        want = np.array([naive.nearest(s * naive.power(-frac), negative_zero=False) for s in sums])
        for kind in (object, np.int64) if shift < 51 else (object,):
            found = round_grid(np.array(sums, dtype=kind), frac)
            assert np.array_equal(found, want), shift
            assert np.array_equal(round_grid(-np.array(sums, dtype=kind), frac), want | 0x8000), shift


def test_sums_go_to_python_integers_before_int64_overflows():
    """Two of the greatest terms on both sides of 2**63."""
    for shift in range(56, 66):
        x, w = np.full((2, 1), 1), np.full((1, 2, 1), 1)
        acc = accumulate(x, [shift, shift], w, [[0, 0]], 0)
        assert int(acc[0]) == 2 << shift
        acc = accumulate(127 * x, [shift - 14, shift - 14], -127 * w, [[0, 0]], 0)
        assert int(acc[0]) == -2 * 127 * 127 << shift - 14


def test_flags_are_per_element():
    bits, acc_overflow, half_overflow = acc_to_binary16(np.array([1 << 46, 1 << 47, -(1 << 47)]), (48, 30))
    assert acc_overflow.tolist() == [False, True, False]
    assert half_overflow.tolist() == [True, True, True]
    assert bits.tolist() == [0x7C00, 0x7C00, 0xFC00]


def test_grid_integers_that_have_become_floats_are_refused():
    with pytest.raises(TypeError, match="acc must hold integers, not float64"):
        saturate(np.asarray([1.0]), 48)
