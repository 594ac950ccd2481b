# amaranth: UnusedElaboratable=no
"""Entries of tables, at full rate and with gaps, against :mod:`concord.golden.lookup`."""

import random

import numpy as np
import pytest
from amaranth import Value

from concord.golden.lookup import entry_numbers
from concord.spec import timing
from concord.spec.lookup import BINADE_MIN
from concord_rtl.pipe.integers.table_lookup import TableLookup
from support.bench import simulate
from support.integer_contents import LOSS_LARGE, LOSS_SMALL, LOSS_WHOLE


@pytest.mark.parametrize("config", [LOSS_SMALL, LOSS_WHOLE, LOSS_LARGE], ids=lambda config: config.name)
@pytest.mark.parametrize("exp", [-512, BINADE_MIN - 7, BINADE_MIN - 3, -15, -4, 3, 511])
def test_every_code(config, exp):
    """All codes, the one that none may be among them; a wide word tells its address and the place of each element."""
    rng, native, lanes = random.Random(exp), config.native, config.mfu_lanes
    codes = [*range(-128, 128)]
    rng.shuffle(codes)
    vectors = [codes[k : k + native] for k in range(0, 256, native)]
    base, dut = 40, TableLookup(config)
    binades = rng.choice([1, 5, 21, (config.wide_depth - base) * native // 128])
    gaps = [0 if rng.random() < 0.5 else rng.randint(1, 9) for _ in vectors]
    starts = np.cumsum([native + gap for gap in gaps]).tolist()
    latency, reads, entries = TableLookup.LATENCY, {}, {}

    async def bench(ctx):
        ctx.set(dut.exp, exp)
        ctx.set(dut.base, base)
        ctx.set(dut.binades, binades)
        for cycle in range(starts[-1] + native + latency + 1):
            ctx.set(dut.start, cycle in starts)
            if cycle in starts:
                for element, code in enumerate(vectors[starts.index(cycle)]):
                    ctx.set(dut.codes.mant[element], code)
            reads[cycle] = ctx.get(dut.read_addr) if ctx.get(dut.read_en) else None
            address = reads.get(cycle - timing.VECTOR_READ)
            word = 0 if address is None else sum((address << 6 | k) << 16 * k for k in range(native))
            ctx.set(Value.cast(dut.data), word)
            entries[cycle] = [ctx.get(dut.o[k]) & 0xFFFF for k in range(lanes)], ctx.get(dut.beyond)
            await ctx.tick()

    simulate(dut, bench)
    for start, vector in zip(starts, vectors, strict=True):
        legal = np.array([max(code, -127) for code in vector])
        numbers = entry_numbers(legal, exp, binades, 8)
        for first in range(0, native, lanes):
            got, beyond = entries[start + latency + first + lanes - 1]
            for k in range(lanes):
                code, number = vector[first + k], int(numbers[first + k])
                assert bool(beyond >> k & 1) == (code == -128)
                if code != -128:
                    assert got[k] == ((base + number // native) << 6 | number % native) & 0xFFFF, code
    assert sum(address is not None for address in reads.values()) == 256
