"""A chain with a product waits for rows that it may read, and for nothing else."""

import random

import pytest

from concord_rtl.pipe.row_gate import RowGate
from support.bench import simulate
from support.rtl_configs import WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS

#: Words of a product go on with the first one behind the last one.
WRAPPING = WRITABLE.replace(name="tiny-writable-wrapping", matrix_depth=1 << 18)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS, WRAPPING], ids=lambda config: config.name
)
def test_a_chain_waits_for_rows(config):
    rng, dut = random.Random(7), RowGate(config)
    kinds = set()

    async def bench(ctx):
        last, left, waits = 0, 0, False
        for _ in range(4000):
            start = left == 0 and rng.random() < 0.03
            issued = left < 4 * config.inflight and not start and rng.random() < rng.choice([0.1, 0.4])
            written = left > 0 and rng.random() < 0.3
            load = rng.random() < 0.3
            product, row = rng.random() < 0.7, rng.randrange(min(config.matrix_rows, 6 * config.rows))
            word = min(config.matrix_depth - 1, rng.randrange(7 * config.steps))
            for name, value in (("start", start), ("issued", issued), ("row", row), ("written", written)):
                ctx.set(getattr(dut, name), value)
            for name, value in (("load", load), ("product", product), ("matrix", word)):
                ctx.set(getattr(dut, name), value)
            assert ctx.get(dut.waits) == waits
            tile = row // config.rows
            if load:
                top = max(last, tile) if issued else last
                near = word < (top + 1) * config.steps or config is WRAPPING
                waits = product and near and (issued or left > 0)
                kinds.add((product, near, issued, left > 0, issued and tile > last))
            else:
                waits = waits and left > 0
            left += issued - written
            last = 0 if start else max(last, tile) if issued else last
            await ctx.tick()

    simulate(dut, bench)
    assert len(kinds) > (10 if config is WRAPPING else 20)  # of 12 and 24
