"""The queue with places given away beforehand: order kept, every place usable, one transfer per cycle."""

import random

import pytest

from bench import simulate
from concord_rtl.reserved_queue import ReservedQueue


@pytest.mark.parametrize("depth", [1, 3, 4, 16])
@pytest.mark.parametrize(("pushes", "takes"), [(1.0, 1.0), (0.9, 0.3), (0.3, 0.9)])
def test_against_a_list(depth, pushes, takes):
    rng, dut = random.Random(depth), ReservedQueue(12, depth)
    levels = set()

    async def bench(ctx):
        kept = []
        for cycle in range(400):
            often, seldom = (pushes, takes) if cycle < 200 else (takes, pushes)
            push, take, payload = rng.random() < often and len(kept) < depth, rng.random() < seldom, rng.getrandbits(12)
            ctx.set(dut.push, push)
            ctx.set(dut.p, payload)
            ctx.set(dut.o.ready, take)
            *_, valid, oldest = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            levels.add(len(kept))
            assert valid == bool(kept)
            assert not kept or oldest == kept[0]
            kept = kept[1 if take else 0 :] + [payload] * push

    simulate(dut, bench)
    assert levels >= ({0, depth} if pushes != takes else {1})
