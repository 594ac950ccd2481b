# amaranth: UnusedElaboratable=no
"""The queue of accumulators: ready while a vector waits, beats after the latency, places free when they are read."""

import random
from collections import deque

import pytest

from concord.spec.presets import TINY
from concord_rtl.mvm.results import ResultQueue
from support.bench import simulate

CONFIGS = [TINY, TINY.replace(name="four-engines", engines=4), TINY.replace(name="one-lane", engines=2, mfu_lanes=1)]


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize(("slots", "pace"), [(1, (1.0, 1.0)), (2, (1.0, 1.0)), (3, (0.9, 0.4)), (4, (0.3, 1.0))])
def test_in_every_cycle(config, slots, pace):
    dut, rng = ResultQueue(config, slots), random.Random(slots)
    left, met = [], set()

    async def bench(ctx):
        waiting, coming, held, rest = deque(), False, 0, 0
        due, freed = {}, set()
        for now in range(300):
            job = None
            accs = [rng.randrange(-1 << 40, 1 << 40) for _ in range(config.rows)]
            count = rng.randrange(config.engines)
            ctx.set(dut.vectors, count)
            for row, acc in enumerate(accs):
                ctx.set(dut.acc[row], acc)
            if coming:
                job = [accs[e * config.native :][: config.native] for e in range(count + 1)]
            assert ctx.get(dut.ready) == bool(waiting)
            launch = bool(waiting) and rest <= 0 and rng.random() < pace[1]
            ctx.set(dut.launch, launch)
            met.add((len(waiting), launch, job is not None))
            rest = config.beats - 1 if launch else rest - 1
            if launch:
                vector = waiting[0].pop(0)
                for k in range(config.beats):
                    due[now + dut.LATENCY + k] = vector[k * config.mfu_lanes :][: config.mfu_lanes]
                if not waiting[0]:
                    waiting.popleft()
                    freed.add(now + config.beats)
            if job is not None:
                waiting.append(job)
            coming = held < slots and rng.random() < pace[0]
            held += coming
            ctx.set(dut.coming, coming)
            *_, o, free = await ctx.tick().sample(dut.o, dut.free)
            assert free == (now in freed)
            held -= free
            if now in due:
                assert list(o) == due[now]
                left.append(now)

    simulate(dut, bench)
    assert len(left) > 50
    assert slots != 2 or (1, True, True) in met, "one leaves as one comes"
