"""Copies from a memory that takes addresses and gives columns when it likes: the same rows, however it waits."""

import random

import numpy as np
import pytest

from concord.image import Memories
from concord.program.chains import WeightCopy
from concord.program.matrix_copies import write_copy
from concord.spec.isa import COPY_UNIT
from concord.spec.memmap import RegionId
from concord_rtl.dram.copy_engine import CopyEngine
from support.bench import simulate
from support.rtl_configs import COPYING, COPYING_ENGINES, COPYING_LANES

CONFIGS = [COPYING, COPYING_ENGINES, COPYING_LANES]
#: Columns that copies read.
COLUMNS = 1 << 12


def copies_of(config, rng, count):
    """Copies within the memories."""
    tiles = config.matrix_depth // config.steps
    for _ in range(count):
        tile = rng.randrange(tiles)
        rows = rng.choice([1, config.rows, rng.randint(1, min((tiles - tile) * config.rows, 3 * config.rows))])
        unit = rng.randint(0, (COLUMNS - rows * config.row_columns) // COPY_UNIT)
        yield WeightCopy(0, unit * COPY_UNIT, tile * config.steps, rows)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("ready, gives", [(1.0, 1.0), (0.5, 0.5), (0.95, 0.1), (0.1, 1.0)])
def test_rows_do_not_depend_on_the_waits_of_the_memory(config, ready, gives):
    rng, draw = random.Random(int(100 * ready + gives)), np.random.default_rng(3)
    memories, engine = Memories(config), CopyEngine(config)
    memories.dram[:COLUMNS] = draw.integers(0, 1 << 16, COLUMNS)
    found, asked, ended = memories.copy(), list[int](), list[bool]()

    async def memory(ctx):
        while not ended:
            give = bool(asked) and rng.random() < gives
            ctx.set(engine.port.rdata.valid, give)
            ctx.set(engine.port.rdata.payload, int(memories.dram[asked.pop(0)]) if give else rng.getrandbits(16))
            ctx.set(engine.port.cmd.ready, rng.random() < ready)
            *_, valid, took, command = await ctx.tick().sample(
                engine.port.cmd.valid, engine.port.cmd.ready, engine.port.cmd.payload
            )
            if valid and took:
                assert not command.we
                asked.append(int(command.addr))

    async def rows(ctx):
        while not ended:
            *_, en, addr, row, data = await ctx.tick().sample(
                engine.write.en, engine.write.addr, engine.write.row, engine.write.data
            )
            if en:
                found.write(RegionId.MATRIX, int(addr) * config.rows + int(row), [int(data)])

    async def sequencer(ctx):
        ctx.set(engine.works, 1)
        for copy in copies_of(config, rng, 6):
            ctx.set(engine.copies.go, 1)
            ctx.set(engine.copies.dram, copy.column // COPY_UNIT)
            ctx.set(engine.copies.matrix, copy.matrix)
            ctx.set(engine.copies.rows, copy.rows)
            await ctx.tick()
            ctx.set(engine.copies.go, 0)
            while ctx.get(engine.copies.busy):
                await ctx.tick()
            await ctx.tick()  # the last row is on its way
            write_copy(copy, memories, memories.matrix_mant, memories.matrix_exp)
            assert found.differences(memories) == [], copy
            assert not asked
        ended.append(True)

    simulate(engine, memory, rows, sequencer, cycles=200_000)
