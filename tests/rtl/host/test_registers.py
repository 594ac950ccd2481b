"""Registers and flag memory by themselves; the core's tests see them at work."""

import random

import pytest

from concord.spec.formats import Flag
from concord.spec.memmap import REGISTERS, Reg
from concord.spec.presets import TINY, UP5K
from concord_rtl.core.flags import FlagMemory
from concord_rtl.host.registers import Registers
from support.bench import simulate
from support.rtl_configs import COPYING

CONFIGS = [TINY, UP5K]
CONTROL = REGISTERS[Reg.CONTROL].layout


async def control(ctx, dut, **fields):
    """Write CONTROL; the strobes and PC that follow."""
    ctx.set(dut.addr, Reg.CONTROL)
    ctx.set(
        dut.w_data,
        CONTROL.pack(**{"start": 0, "clear_flags": 0, "adds": 0, "keep_dram": 0, "reserved": 0, "pc": 0, **fields}),
    )
    ctx.set(dut.write, 1)
    await ctx.tick()
    ctx.set(dut.write, 0)
    return ctx.get(dut.run.start), ctx.get(dut.clear_flags), ctx.get(dut.run.pc)


async def value(ctx, dut, reg):
    """Read a register when all events have been counted."""
    for _ in range(64):
        await ctx.tick()
    ctx.set(dut.addr, reg)
    for _ in range(dut.HOST_LATENCY):
        await ctx.tick()
    return ctx.get(dut.r_data)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_nothing_starts_while_something_goes_on(config):
    dut = Registers(config, banked=config.serial)

    async def bench(ctx):
        for fields, strobes in (({"clear_flags": 1}, (0, 1, 5)), ({"start": 1}, (1, 0, 5))):
            assert ctx.get(dut.status) & 1 == 0
            assert await control(ctx, dut, pc=5, **fields) == strobes
            await ctx.tick()
            assert ctx.get(dut.status) & 1, "busy from the cycle of the strobe on, before anything has begun"
            assert (ctx.get(dut.run.start), ctx.get(dut.clear_flags)) == (0, 0)
            await ctx.tick()
        for going_on in (dut.run.busy, dut.clearing):
            ctx.set(going_on, 1)
            assert await control(ctx, dut, start=1, clear_flags=1, pc=9) == (0, 0, 5)
            await ctx.tick()
            assert (ctx.get(dut.run.start), ctx.get(dut.clear_flags)) == (0, 0)
            assert ctx.get(dut.status) & 1
            ctx.set(going_on, 0)
        assert await control(ctx, dut, clear_flags=1, pc=7) == (0, 1, 7)
        assert await control(ctx, dut, pc=8) == (0, 0, 8)
        ctx.set(dut.addr, Reg.STATUS)
        ctx.set(dut.write, 1)
        ctx.set(dut.w_data, 1)
        await ctx.tick()
        assert ctx.get(dut.run.start) == 0

    simulate(dut, bench)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("cycles", [1, 2, 37])
def test_events_of_a_run_are_counted_exactly(config, cycles):
    """From zero at every start, or from the counts of the run before."""
    dut = Registers(config, banked=config.serial)

    async def bench(ctx):
        cycle = vectors = stalls = 0
        for turn, adds in enumerate((0, 0, 1, 1, 0)):
            await control(ctx, dut, start=1, adds=adds)
            await ctx.tick()
            for k in range(cycles + turn):
                ctx.set(dut.run.busy, 1)
                ctx.set(dut.events.vector, k % 2 == 0)
                ctx.set(dut.events.stalled, k % 3 == 0)
                await ctx.tick()
            for port in (dut.run.busy, dut.events.vector, dut.events.stalled):
                ctx.set(port, 0)
            count = cycles + turn
            cycle, vectors, stalls = (
                adds * before + more
                for before, more in ((cycle, count), (vectors, -(-count // 2)), (stalls, -(-count // 3)))
            )
            assert await value(ctx, dut, Reg.CYCLES) == cycle
            assert await value(ctx, dut, Reg.CYCLES_HIGH) == 0
            assert await value(ctx, dut, Reg.VECTORS) == vectors
            assert await value(ctx, dut, Reg.HAZARD_STALLS) == stalls
            assert await value(ctx, dut, Reg.CHAINS) == 0

    simulate(dut, bench)


def flags_as_expected(config, seed, *, steps=150):
    """Vectors, writes of the host and clears at random; what the host reads is what a list of words holds."""
    dut = FlagMemory(config, held=True) if config.serial else FlagMemory(config)
    rng = random.Random(seed)
    full, (held, apart) = (1 << len(Flag)) - 1, (3, 4) if config.serial else (1, 2)
    words, union = [0] * config.program_depth, [0]
    reads = []

    async def ticks(ctx, count):
        for _ in range(count):
            await ctx.tick()

    async def vector(ctx):
        pc, flags = rng.choice([3, 3, 4, config.program_depth - 1]), 1 << rng.randrange(len(Flag)) & rng.getrandbits(8)
        ctx.set(dut.retired.valid, 1)
        ctx.set(dut.retired.pc, pc)
        ctx.set(dut.retired.flags, flags)
        await ctx.tick()
        ctx.set(dut.retired.valid, 0)
        await ticks(ctx, held - 1)
        ctx.set(dut.retired.pc, 0)
        ctx.set(dut.retired.flags, full)
        await ticks(ctx, apart - held + rng.choice([0, 0, 1, 2]))
        words[pc] |= flags
        union[0] |= flags

    async def host(ctx):
        await ticks(ctx, 6)
        at, word = rng.choice([3, 4, 5]), rng.randint(0, full)
        ctx.set(dut.host_addr, at)
        if rng.random() < 0.5:
            ctx.set(dut.host_w_data, word)
            ctx.set(dut.host_en, 1)
            await ctx.tick()
            ctx.set(dut.host_en, 0)
            words[at] = word
            await ticks(ctx, rng.randrange(3))

    async def clear(ctx):
        await ticks(ctx, 6)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        busy = 0
        while ctx.get(dut.clearing):
            busy += 1
            await ctx.tick()
        assert busy == config.program_depth
        words[:], union[0] = [0] * config.program_depth, 0

    async def check(ctx):
        await ticks(ctx, 6)
        for at in (3, 4, 5, 0, config.program_depth - 1):
            ctx.set(dut.host_addr, at)
            await ticks(ctx, dut.HOST_LATENCY)
            reads.append((ctx.get(dut.host_data), words[at]))
        reads.append((ctx.get(dut.union), union[0]))

    async def bench(ctx):
        for _ in range(steps):
            kind = rng.choices([vector, host, check, clear], [12, 2, 1, 0.3])[0]
            await kind(ctx)
        await check(ctx)

    simulate(dut, bench)
    return reads


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("seed", range(3))
def test_flags_of_vectors_writes_and_clears(config, seed):
    reads = flags_as_expected(config, seed)
    assert [got for got, _ in reads] == [want for _, want in reads]
    assert len({want for _, want in reads}) > 2


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("how", ["write", "clear"])
def test_what_the_host_writes_or_clears_is_forgotten(config, how):
    """Also right behind a vector of the same instruction, and before another one."""
    dut = FlagMemory(config, held=config.serial)

    async def bench(ctx):
        async def vector(flags):
            ctx.set(dut.retired.valid, 1)
            ctx.set(dut.retired.pc, 9)
            ctx.set(dut.retired.flags, flags)
            await ctx.tick()
            ctx.set(dut.retired.valid, 0)
            for _ in range(5):
                await ctx.tick()

        await vector(1)
        ctx.set(dut.host_addr, 9)
        ctx.set(dut.host_w_data, 0)
        strobe = dut.clear if how == "clear" else dut.host_en
        ctx.set(strobe, 1)
        await ctx.tick()
        ctx.set(strobe, 0)
        while ctx.get(dut.clearing):
            await ctx.tick()
        await vector(2)
        for _ in range(dut.HOST_LATENCY):
            await ctx.tick()
        assert ctx.get(dut.host_data) == 2

    simulate(dut, bench)


def test_contents_of_the_external_memory_are_kept_until_the_host_writes():
    dut = Registers(COPYING)

    async def bench(ctx):
        async def state():
            await ctx.tick().repeat(3)
            return REGISTERS[Reg.STATUS].layout.unpack(ctx.get(dut.status))["dram_kept"]

        assert not await state(), "after reset nothing is"
        for _ in range(2):
            await control(ctx, dut, keep_dram=1)
            assert await state()
            await control(ctx, dut, clear_flags=1, pc=3)
            assert await state()
            ctx.set(dut.dram.written, 1)
            await ctx.tick()
            ctx.set(dut.dram.written, 0)
            assert not await state()
        ctx.set(dut.run.busy, 1)
        await control(ctx, dut, keep_dram=1)
        assert not await state(), "not while a program runs"

    simulate(dut, bench)
