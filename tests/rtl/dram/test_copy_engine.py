"""Copies from a memory that takes addresses and gives columns when it likes: the same rows, however it waits."""

import random
from dataclasses import replace

import numpy as np
import pytest

from concord.image import Memories
from concord.program.access import REGIONS, depth
from concord.program.chains import VectorCopy, WeightCopy
from concord.program.matrix_copies import write_copy
from concord.program.vector_copies import write_vectors
from concord.spec import timing
from concord.spec.isa import COPY_UNIT, VECTOR_UNIT, Mem
from concord.spec.memmap import RegionId, regions
from concord_rtl.dram.copy_engine import CopyEngine
from support.bench import simulate
from support.program_gen import random_memories
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
            ctx.set(engine.copies.column, copy.column)
            ctx.set(engine.copies.matrix, copy.matrix)
            ctx.set(engine.copies.count, copy.rows)
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


def vector_copies_of(config, rng, count):
    """Copies of vectors within the memories, with columns of their own for each kind."""
    for _ in range(count):
        mem = rng.choice(list(Mem))
        size, words = config.vector_columns(mem), depth(config, mem)
        addr = rng.randrange(words)
        vectors = rng.randint(1, min(words - addr, 12))
        unit = mem * (COLUMNS // VECTOR_UNIT // 2) + size * rng.randrange(8)
        yield VectorCopy(0, unit * VECTOR_UNIT, mem, addr, vectors, rng.random() < 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("ready, gives", [(1.0, 1.0), (0.4, 0.3)])
def test_vectors_do_not_depend_on_the_waits_of_the_memory(config, ready, gives):
    """Words come from a vector memory ``VECTOR_WORD`` cycles after their address, and are unknown before."""
    rng = random.Random(int(100 * ready + gives))
    memories, engine = random_memories(config, rng), CopyEngine(config)
    for copy in vector_copies_of(config, rng, 40):  # columns are those of vectors
        write_vectors(replace(copy, out=True), memories)
    found, asked, ended = memories.copy(), list[tuple[bool, int]](), list[bool]()
    access, cmd, wdata, rdata = engine.access, engine.port.cmd, engine.port.wdata, engine.port.rdata

    async def memory(ctx):
        while not ended:
            writes, give = bool(asked) and asked[0][0], rng.random() < gives
            ctx.set(rdata.valid, bool(asked) and not writes and give)
            reads = ctx.get(rdata.valid)
            ctx.set(rdata.payload, int(found.dram[asked.pop(0)[1]]) if reads else rng.getrandbits(16))
            ctx.set(cmd.ready, rng.random() < ready)
            ctx.set(wdata.ready, writes and give and ctx.get(wdata.valid))
            *_, valid, took, command, sent, column = await ctx.tick().sample(
                cmd.valid, cmd.ready, cmd.payload, wdata.ready, wdata.payload
            )
            if sent:
                assert column.we == 3
                found.dram[asked.pop(0)[1]] = int(column.data)
            if valid and took:
                asked.append((bool(command.we), int(command.addr)))

    async def vectors(ctx):
        addresses = [(Mem.NARROW, 0)] * timing.VECTOR_WORD
        while not ended:
            mem, addr = addresses[0]
            known = addr < depth(config, mem) and all(one == addresses[0] for one in addresses)
            ctx.set(access.word, found.read(REGIONS[mem], addr, 1)[0] if known else rng.getrandbits(64))
            *_, owns, write, wide, addr, data = await ctx.tick().sample(
                access.owns, access.write, access.mem, access.addr, access.data
            )
            addresses = [*addresses[1:], (Mem(int(wide)), int(addr))]
            if write:
                region = REGIONS[Mem(int(wide))]
                assert owns
                found.write(region, int(addr), [int(data) % (1 << regions(config)[region].word.width)])

    async def sequencer(ctx):
        ctx.set(engine.works, 1)
        for copy in vector_copies_of(config, rng, 12):
            for name, value in {"vectors": 1, "column": copy.column, "count": copy.count, "go": 1}.items():
                ctx.set(getattr(engine.copies, name), value)
            ctx.set(engine.copies.place, {"addr": copy.address, "mem": int(copy.mem), "out": int(copy.out)})
            await ctx.tick()
            ctx.set(engine.copies.go, 0)
            while ctx.get(engine.copies.busy):
                await ctx.tick()
            await ctx.tick()  # the last word is on its way
            write_vectors(copy, memories)
            assert found.differences(memories) == [], copy
            assert not asked and not ctx.get(access.busy)
        ended.append(True)

    simulate(engine, memory, vectors, sequencer, cycles=200_000)
