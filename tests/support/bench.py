"""Helpers shared by the pysim tests of the RTL."""

from __future__ import annotations

import random
from functools import cache

import pytest
from amaranth.sim import Simulator

from support import compiled_unit

#: Cycles that a sink goes on watching.
QUIET = 16


def paced(configs, gap):
    """Parameters ``config`` and ``gap``: all without pauses, the first with them; with them, the others are deep."""
    first = next(iter(configs))
    return [
        pytest.param(config, pause, id=f"{name}-{pause}", marks=pytest.mark.deep if pause and name != first else ())
        for name, config in configs.items()
        for pause in (0.0, gap)
    ]


@cache
def shared(component, *arguments):
    """A component that the tests of a process share, so that :func:`simulate` compiles it once."""
    return component(*arguments)


def simulate(dut, *benches, cycles=10_000, vcd=None, compiled=False):
    """Run ``benches`` to completion, or fail after ``cycles``; on the ``compiled`` unit (:mod:`support.compiled_unit`).

    Compiling takes 2 to 10 s of a processor, so it has to be worth it. A component that was simulated before is ready.
    """
    if compiled and vcd is None:
        compiled_unit.simulate(dut, *benches, cycles=cycles)
        return

    async def expire(ctx):
        for _ in range(cycles):  # .repeat() would leave a generator open
            await ctx.tick()
        raise AssertionError(f"still running after {cycles} cycles")

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for bench in benches:
        sim.add_testbench(bench)
    sim.add_testbench(expire, background=True)
    if vcd is None:
        sim.run()
    else:
        with sim.write_vcd(vcd):
            sim.run()


async def transfer(ctx, stream):
    """Wait for the edge at which a payload moves, and return the payload."""
    while True:
        *_, moved, payload = await ctx.tick().sample(stream.valid & stream.ready, stream.payload)
        if moved:
            return payload


async def put(ctx, stream, payload):
    """Send one payload."""
    ctx.set(stream.payload, payload)
    ctx.set(stream.valid, 1)
    await transfer(ctx, stream)
    ctx.set(stream.valid, 0)


async def get(ctx, stream):
    """Receive one payload."""
    ctx.set(stream.ready, 1)
    payload = await transfer(ctx, stream)
    ctx.set(stream.ready, 0)
    return payload


def source(stream, payloads, *, stall=0.0, seed=0):
    """A testbench that sends ``payloads``, idling before each with probability ``stall``."""

    async def bench(ctx):
        rng = random.Random(seed)
        for payload in payloads:
            while rng.random() < stall:
                await ctx.tick()
            await put(ctx, stream, payload)

    return bench


def sink(stream, expected, *, stall=0.0, seed=0):
    """A testbench that receives and compares ``expected``, stalling likewise; nothing may follow soon after."""

    async def bench(ctx):
        rng = random.Random(seed)
        for n, want in enumerate(expected):
            while rng.random() < stall:
                await ctx.tick()
            got = await get(ctx, stream)
            assert got == want, f"transfer {n}: got {got!r}, want {want!r}"
        ctx.set(stream.ready, 1)
        for _ in range(QUIET):
            *_, more = await ctx.tick().sample(stream.valid)
            assert not more, f"transfer {len(expected)}: nothing must follow"
        ctx.set(stream.ready, 0)

    return bench
