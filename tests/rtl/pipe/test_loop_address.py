"""Addresses of three nested loops."""

import random

import pytest

from concord_rtl.pipe.loop_address import LoopAddress
from support.bench import simulate

WIDTH = 7


def addresses(start, turns, distances):
    """Of every turn of loop 0, with the bits ``last``."""
    for outer in range(turns[2]):
        for inner in range(turns[1]):
            for turn in range(turns[0]):
                last = (turn == turns[0] - 1) | (inner == turns[1] - 1) << 1
                addr = start + sum(k * d for k, d in zip((turn, inner, outer), distances, strict=True))
                yield addr % (1 << WIDTH), last


@pytest.mark.parametrize("with_shift", [False, True])
def test_turns_begin_a_distance_further(with_shift):
    dut, rng = LoopAddress(WIDTH, with_shift=with_shift), random.Random(4)

    async def bench(ctx):
        for _ in range(30):
            turns, start = [rng.randint(1, 3) for _ in range(3)], rng.getrandbits(WIDTH)
            distances = [rng.getrandbits(WIDTH) for _ in range(3)]
            ctx.set(dut.load, 1)
            ctx.set(dut.start, start)
            await ctx.tick()
            ctx.set(dut.load, 0)
            ctx.set(dut.start, rng.getrandbits(WIDTH))
            ctx.set(dut.distances, distances)
            moved = 0
            for addr, last in addresses(start, turns, distances):
                while rng.random() < 0.3:  # nothing moves without a strobe
                    ctx.set(dut.last, rng.getrandbits(2))
                    if with_shift and rng.random() < 0.5:
                        ctx.set(dut.offset, offset := rng.getrandbits(WIDTH))
                        ctx.set(dut.shift, 1)
                        moved += offset
                    await ctx.tick()
                    if with_shift:
                        ctx.set(dut.shift, 0)
                assert ctx.get(dut.addr) == (addr + moved) % (1 << WIDTH)
                ctx.set(dut.last, last)
                ctx.set(dut.step, 1)
                await ctx.tick()
                ctx.set(dut.step, 0)
                moved = 0 if last & 1 else moved

    assert ("shift" in dut.signature.members) == with_shift
    simulate(dut, bench, cycles=20_000)
