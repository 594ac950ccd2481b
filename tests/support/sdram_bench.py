"""A bench of the external memory: the compiled unit with the part at its pins, and random traffic at its port."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from concord.spec.dram import SdramPart
from concord_rtl.dram.memory import SdramMemory
from support.bench import QUIET, shared, simulate

#: A part with few rows, that is ready soon after power-up.
PART = SdramPart(
    name="small", bank_bits=2, row_bits=11, column_bits=6, width=16, cas=2, cas_hz=100e6, rcd=20.0, rp=20.0, ras=45.0,
    rc=67.0, rrd=15.0, rfc=67.0, wr=15.0, mrd=2, refresh=7812.5, power_up=500.0,
)  # fmt: skip
PHASES = 16


@dataclass
class Traffic:
    """Columns that are read and written at random.

    Parameters
    ----------
    commands : int
        Number of them.
    run : float
        Share of the columns that follow the one before.
    writes : float
        Probability with which a run is one of writes.
    idle : float
        Share of the cycles without a command, and of those in which data to write are not there yet.
    restarts : float
        Share of the cycles in which a refresh is asked for.
    seed : int
    """

    commands: int
    run: float = 0.9
    writes: float = 0.5
    idle: float = 0.0
    restarts: float = 0.0
    seed: int = 0


def memory_of(part=PART, clocks=(80e6, 100e6)):
    """The memory for clocks of a range."""
    return shared(SdramMemory, part, part.timing(*clocks), PHASES)


def search(dut, model):
    """Run the search alone: whether it has an answer, and phase, width and latency."""
    results = []

    async def bench(ctx):
        await started(ctx, dut, model)
        results.extend(int(ctx.get(value)) for value in (dut.works, dut.phase, dut.width, dut.late))

    simulate(dut, bench, cycles=40_000, compiled=True)
    return tuple(results)


def refuses(dut, model, cycles=200):
    """True if no command is accepted after the search, and a refresh cannot be asked for."""
    accepted = []

    async def bench(ctx):
        await started(ctx, dut, model)
        ctx.set(dut.port.cmd.valid, 1)
        ctx.set(dut.restart, 1)
        for _ in range(cycles):
            accepted.append(ctx.get(dut.port.cmd.ready) or ctx.get(dut.idle))
            await edge(ctx, dut, model)

    simulate(dut, bench, cycles=40_000, compiled=True)
    return not any(accepted)


def run_traffic(dut, model, traffic):
    """Start the memory, send traffic, and compare what is read with what was written; cycles from the first command on.

    A refresh goes before.
    """
    cycles = []

    async def bench(ctx):
        await started(ctx, dut, model)
        model.strict = True
        cycles.append(await _exchange(ctx, dut, model, traffic))

    simulate(dut, bench, cycles=40_000 + 16 * traffic.commands, compiled=True)
    model.check_refresh()
    return cycles[0]


async def edge(ctx, dut, model):
    """One cycle of the part."""
    pins = dut.pins
    values = (pins.command, pins.bank, pins.addr, pins.dq_o, pins.oe, pins.mask)
    taken = model.tick(tuple(int(ctx.get(value)) for value in values))
    if ctx.get(dut.step.valid):
        model.step(ctx.get(dut.step.payload))
    ctx.set(dut.step.ready, 1)
    await ctx.tick()
    ctx.set(dut.pins.dq_i, taken)


async def started(ctx, dut, model):
    """Cycles of the search."""
    count = 0
    while ctx.get(dut.busy):
        await edge(ctx, dut, model)
        count += 1
    return count


async def _exchange(ctx, dut, model, traffic):
    rng, port = random.Random(traffic.seed), dut.port
    size, width = dut.part.address_bits, dut.part.width
    expected, due, to_write, issued, count = {}, deque(), deque(), 0, 0
    addr, we = rng.getrandbits(size), int(rng.random() < traffic.writes)
    ctx.set(dut.restart, 1)
    await edge(ctx, dut, model)
    ctx.set(dut.restart, 0)
    while not ctx.get(dut.idle):
        await edge(ctx, dut, model)
    while issued < traffic.commands or due or to_write:
        send = issued < traffic.commands and rng.random() >= traffic.idle
        there = bool(to_write) and rng.random() >= traffic.idle
        ctx.set(port.cmd.valid, send)
        ctx.set(port.cmd.p, {"addr": addr, "we": we})
        ctx.set(port.wdata.valid, there)
        ctx.set(port.wdata.p, {"data": to_write[0][0], "we": to_write[0][1]} if there else {"data": 0, "we": 0})
        ctx.set(dut.restart, rng.random() < traffic.restarts)
        if there and ctx.get(port.wdata.ready):
            to_write.popleft()
        if send and ctx.get(port.cmd.ready):
            old = expected.get(addr, int(model.memory[addr]))
            if we:
                data, chosen = rng.getrandbits(width), rng.choice((3, 3, 3, 0, 1, 2))
                kept = sum(0xFF << 8 * k for k in range(2) if not chosen >> k & 1)
                expected[addr] = old & kept | data & ~kept & 0xFFFF
                to_write.append((data, chosen))
            else:
                due.append(old)
            issued += 1
            follows = rng.random() < traffic.run
            addr = (addr + 1) % (1 << size) if follows else rng.getrandbits(size)
            we = we if follows else int(rng.random() < traffic.writes)
        if ctx.get(port.rdata.valid):
            assert int(ctx.get(port.rdata.payload)) == due.popleft(), f"read in front of command {issued}"
        await edge(ctx, dut, model)
        count += 1
    for _ in range(QUIET):
        assert not ctx.get(port.rdata.valid)
        await edge(ctx, dut, model)
    return count
