"""Requests through the register in front of the core: all of them, once, and no way through without a clock edge."""

import random

import pytest

from concord.spec.presets import TINY
from concord_rtl.host.bus_register import BusRegister
from support.bench import put, simulate, sink, source

REQUESTS = [
    {"region": rng.randrange(8), "addr": rng.getrandbits(24), "write": rng.getrandbits(1), "data": rng.getrandbits(64)}
    for rng in [random.Random(3)]
    for _ in range(100)
]


def fields(payload):
    return {name: getattr(payload, name) for name in ("region", "addr", "write", "data")}


@pytest.mark.parametrize("stalls", [(0.0, 0.0), (0.6, 0.0), (0.0, 0.6), (0.5, 0.5)])
def test_requests_under_stalls(stalls):
    dut, rng = BusRegister(TINY), random.Random(1)
    seen = []

    async def core(ctx):
        while len(seen) < len(REQUESTS):
            ctx.set(dut.o.req.ready, rng.random() >= stalls[1])
            *_, valid, ready, payload = await ctx.tick().sample(dut.o.req.valid, dut.o.req.ready, dut.o.req.p)
            if valid and ready:
                seen.append(fields(payload))

    simulate(dut, source(dut.i.req, REQUESTS, stall=stalls[0]), core, cycles=3_000)
    assert seen == REQUESTS


def test_a_request_is_released_a_cycle_after_it_was_taken():
    dut = BusRegister(TINY)
    trace = []

    async def bench(ctx):
        ctx.set(dut.i.req.valid, 1)
        for ready in (0, 0, 1, 0, 0):
            ctx.set(dut.o.req.ready, ready)
            *_, valid, released = await ctx.tick().sample(dut.o.req.valid, dut.i.req.ready)
            trace.append((valid, released))

    simulate(dut, bench)
    assert trace == [(0, 0), (1, 0), (1, 0), (0, 1), (0, 0)]


def test_answers_pass_at_once():
    dut = BusRegister(TINY)
    words = [5, 1 << 40, 7]
    simulate(dut, source(dut.o.rsp, words, stall=0.3), sink(dut.i.rsp, words, stall=0.3))


def test_the_host_may_wait_between_requests():
    dut, seen = BusRegister(TINY), []

    async def host(ctx):
        for request in REQUESTS[:5]:
            await put(ctx, dut.i.req, request)
            await ctx.tick().repeat(4)

    async def core(ctx):
        ctx.set(dut.o.req.ready, 1)
        while len(seen) < 5:
            *_, valid, payload = await ctx.tick().sample(dut.o.req.valid, dut.o.req.p)
            if valid:
                seen.append(fields(payload))

    simulate(dut, host, core)
    assert seen == REQUESTS[:5]
