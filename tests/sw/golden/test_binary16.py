"""binary16 on bit patterns against the definition of rounding to nearest."""

import numpy as np
import pytest

from concord.golden import binary16
from support import naive

ALL = np.arange(1 << 16, dtype=np.uint16)
FINITE = np.arange(0x7C00, dtype=np.uint16)
CORNERS = naive.corners()
# All pairs of corners, and random pairs, a quarter of them corners.
PAIRS = [(a, b) for a in CORNERS[::3] for b in CORNERS] + list(
    zip(naive.sample(8000, seed=1), naive.sample(8000, seed=2), strict=True)
)
LEFT = np.array([a for a, _ in PAIRS], dtype=np.uint16)
RIGHT = np.array([b for _, b in PAIRS], dtype=np.uint16)


def check(got, want):
    want = np.array(want, dtype=np.uint16)
    wrong = np.flatnonzero(got != want)
    if wrong.size:
        k = wrong[0]
        pytest.fail(f"{wrong.size} wrong, first {LEFT[k]:#06x} {RIGHT[k]:#06x}: got {got[k]:#06x}, want {want[k]:#06x}")


def test_decode_is_exact():
    values = binary16.decode(FINITE)
    assert [v * 2**24 for v in values] == naive.UNITS[:-1]
    assert np.array_equal(binary16.decode(FINITE | 0x8000), -values)


def test_encode_returns_every_pattern_and_one_nan():
    assert np.array_equal(binary16.encode(binary16.decode(ALL)), np.where(binary16.is_nan(ALL), naive.NAN, ALL))


def test_encode_rounds_once_at_every_tie():
    """At each midpoint of two neighbours, and one float64 step beside it: where double rounding would show."""
    edges = np.array(naive.UNITS, dtype=np.float64) * 2.0**-24
    low, middle = FINITE.astype(np.int64), (edges[:-1] + edges[1:]) / 2
    assert np.array_equal(binary16.encode(middle), low + (low & 1))
    for sign, flag in ((1, 0), (-1, 0x8000)):
        assert np.array_equal(binary16.encode(sign * np.nextafter(middle, np.inf)), low + 1 | flag)
        assert np.array_equal(binary16.encode(sign * np.nextafter(middle, 0)), low | flag)
        float32_step = middle * (1 + 2.0**-26)  # lost if rounded to float32 first
        assert np.array_equal(binary16.encode(sign * float32_step), low + 1 | flag)


@pytest.mark.parametrize("value", [5e-324, 1e-300, 2.0**-25, 65519.99, 65520.0, 1e300, 3.14159, 2.0**-14 - 2.0**-26])
def test_encode_agrees_with_the_definition(value):
    from fractions import Fraction

    assert binary16.encode(value) == naive.nearest(Fraction(value))
    assert binary16.encode(-value) == naive.nearest(-Fraction(value), negative_zero=True)


@pytest.mark.slow
def test_add():
    check(binary16.add(LEFT, RIGHT), [naive.add(a, b) for a, b in PAIRS])


@pytest.mark.slow
def test_sub_and_rsub():
    def negated(b):
        return b if naive.is_nan(b) else b ^ 0x8000

    want = [naive.add(a, negated(b)) for a, b in PAIRS]
    check(binary16.sub(LEFT, RIGHT), want)
    assert np.array_equal(binary16.rsub(RIGHT, LEFT), binary16.sub(LEFT, RIGHT))


@pytest.mark.slow
def test_mul():
    check(binary16.mul(LEFT, RIGHT), [naive.mul(a, b) for a, b in PAIRS])


def test_maximum_and_minimum_use_the_total_order():
    def rank(p):
        size = 1 << 41 if naive.is_inf(p) else naive.UNITS[p & 0x7FFF]
        return (-size, 0) if p & 0x8000 else (size, 1)

    def pick(best, a, b):
        return naive.NAN if naive.is_nan(a) or naive.is_nan(b) else best(a, b, key=rank)

    check(binary16.maximum(LEFT, RIGHT), [pick(max, a, b) for a, b in PAIRS])
    check(binary16.minimum(LEFT, RIGHT), [pick(min, a, b) for a, b in PAIRS])
    assert binary16.maximum(0x8000, 0x0000) == binary16.maximum(0x0000, 0x8000) == 0x0000
    assert binary16.minimum(0x8000, 0x0000) == binary16.minimum(0x0000, 0x8000) == 0x8000


def test_relu_of_every_pattern():
    want = np.where(binary16.is_nan(ALL), naive.NAN, np.where(ALL & 0x8000, 0, ALL))
    assert np.array_equal(binary16.relu(ALL), want)


def test_overflow_needs_finite_operands():
    assert binary16.overflowed(binary16.add(0x7BFF, 0x7BFF), 0x7BFF, 0x7BFF)
    assert not binary16.overflowed(binary16.add(0x7C00, 0x3C00), 0x7C00, 0x3C00)
    assert not binary16.overflowed(binary16.add(0x7BFF, 0x0001), 0x7BFF, 0x0001)
    assert not binary16.overflowed(binary16.mul(0x7C00, 0), 0x7C00, 0)


def test_the_comparison_can_fail():
    wrong = binary16.add(LEFT, RIGHT)
    wrong[7] ^= 1
    with pytest.raises(pytest.fail.Exception, match="1 wrong"):
        check(wrong, binary16.add(LEFT, RIGHT))


@pytest.mark.parametrize("bits", [-1, 0x10000, 1.5, [0, 70000]])
def test_patterns_have_16_bits(bits):
    with pytest.raises(ValueError, match=r"must be integers in 0\.\.65535"):
        binary16.decode(bits)
