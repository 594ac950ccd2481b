"""Reads wait for exactly the older writes to their address."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from concord.spec.presets import TINY
from concord_rtl.pipe.hazard import HazardGate, HazardTracker
from support.bench import simulate


class Harness(wiring.Component):
    """A gate with two trackers."""

    def __init__(self, config):
        self.trackers = [HazardTracker(config) for _ in range(2)]
        self.gate = HazardGate(config, memories=2, payload=range(1 << 16))
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.gate = self.gate
        for k, tracker in enumerate(self.trackers):
            m.submodules[f"tracker{k}"] = tracker
            m.d.comb += [
                self.gate.entries[k].eq(tracker.entries),
                self.gate.head[k].eq(tracker.head),
                self.gate.pop[k].eq(tracker.pop),
            ]
        return m


def run(seed, *, forget=False, requests=300):
    """Random writes and reads; returns the cycles in which each read went and the model's earliest ones."""
    config = TINY
    dut = Harness(config)
    rng = random.Random(seed)
    pending = [[], []]  # per memory: [address, entry number] still to be written
    fresh = [0, 0]  # per memory: entries of the cycle before, whose writes are not done so soon
    pushed, popped = [0, 0], [0, 0]
    waiting, violations, passed, stalls = [], [], [], [0]

    async def bench(ctx):
        queue, sent, number = [], None, 0
        while len(passed) < requests:
            # Writes: at most one push and one pop per memory and cycle.
            for k, tracker in enumerate(dut.trackers):
                push = rng.random() < 0.4 and ctx.get(tracker.room)
                pop = len(pending[k]) > fresh[k] and rng.random() < 0.3
                addr = rng.randrange(6)
                ctx.set(tracker.push, push)
                ctx.set(tracker.addr, addr)
                ctx.set(tracker.pop, pop)
                ops = (push, pop, addr)
                queue.append((k, ops))
            # A read that belongs to a vector issued now, before this cycle's push.
            if sent is None and number < requests and rng.random() < 0.8:
                k, addr, check = rng.randrange(2), rng.randrange(6), rng.random() < 0.9
                older = {n for a, n in pending[k] if a == addr} if check else set()
                sent = (k, addr, older, number)
                number += 1
                ctx.set(dut.gate.i.valid, 1)
                before = pushed[k] if not forget else pushed[k] - 1
                ctx.set(
                    dut.gate.i.p,
                    {
                        "addr": addr,
                        "memory": k,
                        "before": before % (2 * config.inflight),
                        "check": check,
                        "payload": sent[3],
                    },
                )
            ctx.set(dut.gate.o.ready, rng.random() < 0.7)
            gate = dut.gate
            *_, taken, moved, payload, stalled = await ctx.tick().sample(
                gate.i.valid & gate.i.ready, gate.o.valid & gate.o.ready, gate.o.p.payload, gate.stalled
            )
            stalls[0] += stalled
            if moved:
                k, _, older, which = waiting.pop(0)
                assert which == payload
                left = older & {n for _, n in pending[k]}
                passed.append(which)
                if left:
                    violations.append(which)
            if taken:
                waiting.append(sent)
                sent = None
                ctx.set(gate.i.valid, 0)
            for k, (push, pop, addr) in queue:
                if pop:
                    pending[k].pop(0)
                    popped[k] += 1
                fresh[k] = int(push)
                if push:
                    pending[k].append((addr, pushed[k]))
                    pushed[k] += 1
            queue.clear()

    simulate(dut, bench, cycles=60 * requests)
    return violations, stalls[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_read_overtakes_a_write(seed):
    violations, stalls = run(seed)
    assert not violations
    assert stalls > 0


@pytest.mark.slow
def test_the_bench_notices_a_forgotten_write():
    violations, _ = run(1, forget=True)
    assert violations


def test_reads_pass_at_full_rate_when_nothing_is_pending():
    dut = Harness(TINY)
    cycles = []

    async def bench(ctx):
        ctx.set(dut.gate.i.valid, 1)
        ctx.set(dut.gate.i.p, {"addr": 1, "check": 1})
        ctx.set(dut.gate.o.ready, 1)
        for n in range(20):
            *_, moved = await ctx.tick().sample(dut.gate.o.valid)
            if moved:
                cycles.append(n)

    simulate(dut, bench)
    assert cycles == list(range(HazardGate.LATENCY, 20))


@pytest.mark.parametrize("late", [False, True])
def test_the_queue_is_never_overrun(late):
    """Pushed as long as there was room, in the cycle of the push or the one before: every address is kept."""
    dut = HazardTracker(TINY)
    rng = random.Random(1)

    async def bench(ctx):
        held, before = [], False
        for turn in range(300):
            room = ctx.get(dut.room)
            assert bool(room) == (len(held) <= TINY.inflight - 2)
            push, pop = before if late else room, turn > 40 and len(held) > 1 and rng.random() < 0.5
            before, addr = room, rng.randrange(64)
            ctx.set(dut.push, push)
            ctx.set(dut.addr, addr)
            ctx.set(dut.pop, pop)
            await ctx.tick()
            held = held[int(pop) :] + [addr] * push
            assert len(held) <= TINY.inflight
            ctx.set(dut.push, 0)
            ctx.set(dut.pop, 0)
            await ctx.tick()
            assert [ctx.get(dut.entries[k]) for k in range(len(held))] == held
            assert (ctx.get(dut.tail) - ctx.get(dut.head)) % (2 * TINY.inflight) == len(held)

    simulate(dut, bench)


READS = {
    "the oldest": ({"addr": 5, "before": 1}, True),
    "an older one": ({"addr": 6, "before": 2}, True),
    "a younger one": ({"addr": 6, "before": 1}, False),
    "its own": ({"addr": 5, "before": 0}, False),
    "another address": ({"addr": 7, "before": 2}, False),
    "the other memory": ({"addr": 5, "before": 2, "memory": 1}, False),
    "no check": ({"addr": 5, "before": 2, "check": 0}, False),
}


@pytest.mark.parametrize(("read", "waits"), READS.values(), ids=READS)
def test_only_older_writes_to_the_same_place_hold_a_read(read, waits):
    """Writes to 5 and 6 are under way; a read waits for them or takes as long as if there were none."""
    dut = Harness(TINY)
    gate, tracker = dut.gate, dut.trackers[0]

    async def bench(ctx):
        for addr in (5, 6):
            ctx.set(tracker.push, 1)
            ctx.set(tracker.addr, addr)
            await ctx.tick()
        ctx.set(tracker.push, 0)
        await ctx.tick()
        ctx.set(gate.o.ready, 1)
        ctx.set(gate.i.p, {"check": 1, **read})
        ctx.set(gate.i.valid, 1)
        await ctx.tick()
        ctx.set(gate.i.valid, 0)
        valid = []
        for _ in range(20):
            *_, now = await ctx.tick().sample(gate.o.valid)
            valid.append(now)
        assert valid == [not waits and k == HazardGate.LATENCY - 1 for k in range(20)]
        if waits:
            for addr in (5, 6):
                assert not ctx.get(gate.o.valid)
                ctx.set(tracker.pop, 1)
                await ctx.tick()
                if addr == read["addr"]:
                    break
            assert ctx.get(gate.o.valid)

    simulate(dut, bench)
