"""The core under pysim, driven over its host bus."""

from __future__ import annotations

from concord.image import Memories
from concord.spec.memmap import REGISTERS, Reg, RegionId, regions
from concord_rtl.core.core import NpuCore
from concord_rtl.core.implementation import Contents
from support.bench import put, simulate, transfer


def contents(memories: Memories) -> Contents:
    """All memories as initial contents of the block RAMs."""
    config = memories.config

    def words(region):
        return memories.read(region, 0, memories.region(region).depth)

    assert config.rows * config.matrix_depth == memories.region(RegionId.MATRIX).depth
    return Contents(
        program=words(RegionId.PROGRAM),
        matrix=words(RegionId.MATRIX),
        narrow=words(RegionId.NARROW),
        wide=words(RegionId.WIDE),
        table=words(RegionId.TABLE),
        slots=words(RegionId.SLOTS),
    )


async def write(ctx, dut, region, addr, word):
    """Write one word."""
    await put(ctx, dut.bus.req, {"region": int(region), "addr": addr, "write": 1, "data": word})


async def read(ctx, dut, region, addr):
    """Read one word, as many bytes as it has on the link."""
    ctx.set(dut.bus.req.p, {"region": int(region), "addr": addr, "write": 0, "data": 0})
    ctx.set(dut.bus.req.valid, 1)
    ctx.set(dut.bus.rsp.ready, 1)
    word = await transfer(ctx, dut.bus.rsp)
    ctx.set(dut.bus.req.valid, 0)
    return word & (1 << 8 * regions(dut.config)[region].nbytes) - 1


async def run(ctx, dut, pc=0):
    """Start a program and wait for its end; returns the registers."""
    await write(
        ctx,
        dut,
        RegionId.REGS,
        Reg.CONTROL,
        REGISTERS[Reg.CONTROL].layout.pack(start=1, clear_flags=0, adds=0, keep_dram=0, reserved=0, pc=pc),
    )
    for _ in range(4):
        await ctx.tick()
    while ctx.get(dut.busy):
        await ctx.tick()
    return {reg: await read(ctx, dut, RegionId.REGS, reg) for reg in Reg}


def execute(memories: Memories, *, pc=0, cycles=60_000, vcd=None):
    """Run the program in ``memories`` on the RTL; returns the registers and the vector memories and flags after it."""
    dut = NpuCore(memories.config, contents(memories))
    after = memories.copy()
    registers = {}

    async def bench(ctx):
        registers.update(await run(ctx, dut, pc))
        for region in (RegionId.NARROW, RegionId.WIDE, RegionId.FLAGS):
            for addr in range(memories.region(region).depth):
                word = await read(ctx, dut, region, addr)
                after.write(region, addr, [word & (1 << memories.region(region).word.width) - 1])

    simulate(dut, bench, cycles=cycles, vcd=vcd)
    return registers, after
