# amaranth: UnusedElaboratable=no
"""Placement on the accumulator grid: every value with every shift, against shifts of Python's integers."""

from itertools import product

import pytest

from concord_rtl.mvm.align import Align
from support.bench import simulate

WIDTH, MAX_SHIFT = 4, 9
#: Every value with every shift. The bits of -1 are alike: where it does not fit, only the zeros after them show it.
OPERANDS = list(product(range(-(1 << WIDTH - 1), 1 << WIDTH - 1), range(MAX_SHIFT + 1)))


def outputs(dut):
    """For every operand the result, and with a check whether the value did not fit, and its sign."""
    results, checks = [], []

    async def bench(ctx):
        for value, shift in OPERANDS + (dut.LATENCY + 1) * OPERANDS[:1]:
            results.append(ctx.get(dut.o))
            checks.append((ctx.get(dut.over), ctx.get(dut.negative)) if dut.checked else (0, 0))
            ctx.set(dut.i, value)
            ctx.set(dut.shift, shift)
            await ctx.tick()

    simulate(dut, bench)
    count = len(OPERANDS)
    return list(zip(results[dut.LATENCY :][:count], checks[dut.LATENCY + 1 :][:count], strict=True))


@pytest.mark.parametrize("keep", [None, WIDTH, 6, WIDTH + MAX_SHIFT])
def test_every_value_with_every_shift(keep):
    """Where 4 or 6 bits are kept, the greatest shifts move every bit of a value out of the result."""
    dut = Align(WIDTH, MAX_SHIFT, keep)
    half = 1 << (keep or WIDTH + MAX_SHIFT) - 1
    expected = []
    for value, shift in OPERANDS:
        exact = value << shift
        fits = -half <= exact < half
        check = (not fits, value < 0) if dut.checked else (False, False)
        expected.append(((exact + half) % (2 * half) - half, check))
    assert outputs(dut) == expected
    assert any(over for _, (over, _) in expected) == (keep in (WIDTH, 6))


def test_fewer_bits_than_a_value_has_are_refused():
    with pytest.raises(ValueError, match="keep must be at least width=4, not 3"):
        Align(WIDTH, MAX_SHIFT, WIDTH - 1)
