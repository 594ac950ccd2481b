import numpy as np
import pytest

from concord.golden import binary16
from concord_rtl.arith.binary16_add import Binary16Add
from concord_rtl.parts.control import AddOp
from support.halves import CORNERS, SUMS, check, halves, pairs, stream


def compare(a, b, ops):
    """Run one operation per pair and compare value and flag with the golden model."""
    dut = Binary16Add()
    o, overflow = stream(dut, [(dut.a, a), (dut.b, b), (dut.op, ops)], [dut.o, dut.overflow], dut.LATENCY)
    want = np.select([ops == op.value for op in SUMS], [f(a, b) for f in SUMS.values()])
    check(o, want, a, b, ops)
    computed = np.isin(ops, [op.value for op in (AddOp.ADD, AddOp.SUB, AddOp.RSUB)])
    check(overflow, binary16.overflowed(want.astype(np.uint16), a, b) & computed, a, b, ops)


@pytest.mark.slow
@pytest.mark.parametrize("op", [AddOp.ADD, AddOp.SUB, AddOp.RSUB])
def test_sums_and_differences(op):
    a, b = pairs(np.random.default_rng(op.value), 12_000)
    compare(a, b, np.full(len(a), op.value))


@pytest.mark.slow
def test_corners():
    a, b = (x.ravel() for x in np.meshgrid(CORNERS, CORNERS[1::4]))
    rng = np.random.default_rng(10)
    compare(a, b, rng.integers(1, 6, len(a)))


@pytest.mark.slow
def test_cancellation():
    """Neighbours and numbers with exponents that differ by one: every count of cancelled bits."""
    rng = np.random.default_rng(11)
    a = halves(rng, 4_000)
    b = (a.astype(int) + rng.integers(-3, 4, len(a)) * (1 << rng.integers(0, 11, len(a)))) & 0xFFFF
    compare(a, b.astype(np.uint16), np.full(len(a), AddOp.SUB.value))


@pytest.mark.slow
def test_operations_change_every_cycle():
    rng = np.random.default_rng(12)
    a, b = pairs(rng, 6_000)
    compare(a, b, rng.integers(0, 6, len(a)))


def test_the_comparison_can_fail():
    a, b = pairs(np.random.default_rng(13), 200)
    with pytest.raises(AssertionError, match="of 200 differ"):
        check(binary16.sub(a, b), binary16.rsub(a, b), a, b)
