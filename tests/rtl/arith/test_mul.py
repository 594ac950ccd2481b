import numpy as np
import pytest

from concord.golden import binary16
from concord_rtl.arith.binary16_mul import Binary16Mul
from support.halves import CORNERS, check, pairs, stream


def run(a, b, skip=None):
    dut = Binary16Mul()
    inputs = [(dut.a, a), (dut.b, b), (dut.skip, np.zeros(len(a), int) if skip is None else skip)]
    return stream(dut, inputs, [dut.o, dut.overflow], dut.LATENCY)


@pytest.mark.slow
def test_products():
    a, b = pairs(np.random.default_rng(1), 22_000)
    o, overflow = run(a, b)
    want = binary16.mul(a, b)
    check(o, want, a, b)
    check(overflow, binary16.overflowed(want, a, b), a, b)


@pytest.mark.slow
def test_corners():
    a, b = (x.ravel() for x in np.meshgrid(CORNERS, CORNERS[::3]))
    o, overflow = run(a, b)
    want = binary16.mul(a, b)
    check(o, want, a, b)
    check(overflow, binary16.overflowed(want, a, b), a, b)


def test_ties_of_subnormal_results():
    # One half of the least subnormal number rounds to even, zero; a little more rounds up.
    a = np.array([0x0001, 0x0001, 0x0003, 0x8001, 0x0400, 0x03FF, 0x0001])
    b = np.array([0x3800, 0x3801, 0x3800, 0x3800, 0x1000, 0x3C01, 0x7BFF])
    o, _ = run(a, b)
    check(o, binary16.mul(a.astype(np.uint16), b.astype(np.uint16)), a, b)
    assert list(o[:4]) == [0x0000, 0x0001, 0x0002, 0x8000]


@pytest.mark.slow
def test_skip_keeps_the_bits():
    a, b = pairs(np.random.default_rng(2), 2_000)
    skip = np.random.default_rng(3).integers(0, 2, len(a))
    o, overflow = run(a, b, skip)
    want = np.where(skip, a, binary16.mul(a, b))
    check(o, want, a, b)
    check(overflow, binary16.overflowed(binary16.mul(a, b), a, b) & (skip == 0), a, b)


def test_the_comparison_can_fail():
    a, b = pairs(np.random.default_rng(4), 50)
    o, _ = run(a, b)
    with pytest.raises(AssertionError, match="1 of 50 differ"):
        check(o, binary16.mul(a, b) ^ (np.arange(50) == 20), a, b)
