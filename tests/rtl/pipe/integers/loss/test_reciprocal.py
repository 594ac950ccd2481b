# amaranth: UnusedElaboratable=no
"""Reciprocals of sums."""

import random

import pytest

from concord_rtl.pipe.integers.loss.reciprocal import Reciprocal
from support.bench import simulate


@pytest.mark.slow
def test_reciprocals():
    rng, dut = random.Random(4), Reciprocal()
    totals = [1, 2, 3, (1 << 48) - 1, 1 << 47, (1 << 47) + 1, 1 << 30, (1 << 30) + 1, 5 << 30]
    totals += [rng.getrandbits(rng.randint(1, 48)) | 1 for _ in range(150)]

    async def bench(ctx):
        for total in totals:
            ctx.set(dut.total, total)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for _ in range(dut.LATENCY - 1):
                await ctx.tick()
            place = total.bit_length() - 1
            for _ in range(rng.randint(1, 3)):  # it stays
                assert ctx.get(dut.place) == place
                assert ctx.get(dut.o) == ((1 << place + 32) - 1) // total, total
                await ctx.tick()

    simulate(dut, bench)
