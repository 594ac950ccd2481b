"""Counters whose outcome is known from a register: turns of a loop, places at a receiver."""

import random

import pytest

from concord_rtl.pipe.counters import Countdown, Credits
from support.bench import simulate


@pytest.mark.parametrize("places", [1, 2, 3, 8])
def test_credits_are_never_overdrawn(places):
    """There is room exactly as long as a place is left, also when one is taken and given at once."""
    dut, rng, seen = Credits(places), random.Random(1), set()

    async def bench(ctx):
        taken = 0
        for _ in range(300):
            assert bool(ctx.get(dut.room)) == (taken < places)
            seen.add(taken)
            take, give = taken < places and rng.random() < 0.6, taken > 0 and rng.random() < 0.5
            ctx.set(dut.take, take)
            ctx.set(dut.give, give)
            await ctx.tick()
            taken += take - give

    simulate(dut, bench)
    assert seen == set(range(places + 1))


@pytest.mark.parametrize("held", [False, True])
def test_turns_begin_again_after_the_last(held):
    dut, rng = Countdown(3, held=held), random.Random(2)

    async def bench(ctx):
        for _ in range(60):
            turns, once = rng.randint(1, 7), rng.random() < 0.2
            ctx.set(dut.turns, turns)
            ctx.set(dut.once, once)
            ctx.set(dut.load, 1)
            await ctx.tick()
            ctx.set(dut.load, 0)
            if not held:
                ctx.set(dut.turns, rng.randint(0, 7))
                ctx.set(dut.once, rng.randint(0, 1))
            count = 1 if once else turns
            for k in range(rng.randint(1, 3 * count)):
                assert ctx.get(dut.last) == (k % count == count - 1)
                assert once or ctx.get(dut.left) == count - k % count
                for _ in range(rng.randrange(2)):
                    await ctx.tick()
                ctx.set(dut.step, 1)
                await ctx.tick()
                ctx.set(dut.step, 0)

    simulate(dut, bench)
