# amaranth: UnusedElaboratable=no
"""Products of magnitudes with several parts."""

import random

import pytest

from concord_rtl.arith.wide_multiplier import WideMultiplier
from support.bench import simulate


@pytest.mark.parametrize("a_bits, b_bits, bits", [(31, 32, 62), (31, 48, 53), (17, 17, 34), (18, 5, 23), (40, 60, 51)])
def test_products(a_bits, b_bits, bits):
    rng, dut = random.Random(bits), WideMultiplier(a_bits, b_bits, bits)
    ends = [((1 << a_bits) - 1, (1 << b_bits) - 1), (0, (1 << b_bits) - 1), (1 << a_bits - 1, 1 << b_bits - 1)]
    pairs = ends + [(rng.getrandbits(a_bits), rng.getrandbits(b_bits)) for _ in range(200)]
    results = []

    async def bench(ctx):
        for a, b in pairs + [(0, 0)] * dut.LATENCY:
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            results.append(ctx.get(dut.o))
            await ctx.tick()

    simulate(dut, bench)
    assert results[dut.LATENCY :] == [a * b % (1 << bits) for a, b in pairs]
