"""The registers between two sides of a stream: nothing lost, nothing doubled, no cycle wasted, no way through."""

import random

import pytest
from amaranth.sim import Simulator

from concord_rtl.parts.register_slice import RegisterSlice
from support.bench import simulate, sink, source

PAYLOADS = random.Random(5).choices(range(1 << 12), k=300)


@pytest.mark.slow
@pytest.mark.parametrize("stalls", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.4, 0.4), (0.9, 0.1), (0.1, 0.9)])
def test_transfers_under_stalls(stalls):
    dut = RegisterSlice(12)
    simulate(dut, source(dut.i, PAYLOADS, stall=stalls[0]), sink(dut.o, PAYLOADS, stall=stalls[1], seed=1))


def test_one_transfer_per_cycle():
    dut = RegisterSlice(8)
    seen = []

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        for n in range(20):
            ctx.set(dut.i.payload, n)
            *_, taken, moved, payload = await ctx.tick().sample(dut.i.ready, dut.o.valid, dut.o.payload)
            assert taken
            if moved:
                seen.append((n, payload))

    simulate(dut, bench)
    assert seen == [(n, n - RegisterSlice.LATENCY) for n in range(RegisterSlice.LATENCY, 20)]


@pytest.mark.slow
def test_neither_side_sees_the_other_in_the_same_cycle():
    """Without a clock edge in between, inputs of one side change nothing on the other, in every state."""
    rng = random.Random(3)
    dut = RegisterSlice(4)
    states = set()

    async def bench(ctx):
        for _ in range(200):
            seen = set()
            for inputs in range(1 << 6):
                ctx.set(dut.i.payload, inputs & 15)
                ctx.set(dut.i.valid, inputs >> 4 & 1)
                ctx.set(dut.o.ready, inputs >> 5)
                seen.add((ctx.get(dut.i.ready), ctx.get(dut.o.valid), ctx.get(dut.o.payload)))
            assert len(seen) == 1
            states.update((ready, valid) for ready, valid, _ in seen)
            ctx.set(dut.i.valid, rng.random() < 0.5)
            ctx.set(dut.o.ready, rng.random() < 0.5)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    assert states == {(1, 0), (1, 1), (0, 1)}
