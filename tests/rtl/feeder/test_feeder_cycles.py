"""Cycles of a layout on the RTL, behind a core that takes a word as fast as a host port: those of the timing model."""

import pytest

from concord.host.feeder_clock import FILLING, RUNNING, FeederClock
from concord.image.code_book import Coding
from concord.image.feeder_layout import Feed, Feeding
from concord.image.feeder_scripts import route
from concord.image.phases import Phase, PortRange
from concord.image.ports import Port
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F, TINY
from concord_rtl.feeder.feeder import Feeder
from support.bench import put, shared, simulate

pytestmark = pytest.mark.slow

#: Cycles from a request to the end of it.
HOST_PORT = 3
NATIVE_4 = TINY.replace(inbox=2048, code_pages=1, wide_depth=512, narrow_depth=512)
NATIVE_16 = ECP5_85F.replace(inbox=2048)
#: An input with its windows.
FEEDS = {
    "few elements": Feed("x", (6, 8, 3), windows=(6, 8)),
    "many elements": Feed("x", (4, 5, 37), windows=(4, 5)),
    "columns": Feed("x", (8, 8, 3), (3, 1), origin=(-1, 0), windows=(8, 8)),
    "windows": Feed("x", (7, 7, 3), (3, 3), origin=(-1, -1), windows=(7, 7)),
    "windows with steps": Feed("x", (16, 10, 1), (10, 4), (2, 2), origin=(-4, -1), windows=(8, 5)),
}


@pytest.mark.parametrize("region", [RegionId.WIDE, RegionId.NARROW])
@pytest.mark.parametrize("coded", [False, True], ids=["two bytes", "codes"])
@pytest.mark.parametrize("config", [NATIVE_4, NATIVE_16], ids=["native 4", "native 16"])
@pytest.mark.parametrize("name", FEEDS)
def test_cycles(name, config, coded, region):
    """From the first word of a sample whose bytes are all there to the first one of the next sample."""
    feed = FEEDS[name]
    vectors = len(feed.order(config.native))
    port = Port("x", region, 0, (vectors, config.native))
    phases = [Phase(0, (PortRange("x", 0, vectors, 0),), ())]
    codings = {"x": Coding()} if coded else {}
    chosen = route(Feeding((feed,)), phases, ([port], []), codings, config)
    dut, starts = shared(Feeder, config), []

    async def core(ctx):
        time = 0
        while len(starts) < 2:
            *_, valid, request = await ctx.tick().sample(dut.core.req.valid, dut.core.req.p)
            time += 1
            if not valid:
                continue
            await ctx.tick().repeat(HOST_PORT - 2)
            ctx.set(dut.core.req.ready, 1)
            await ctx.tick()
            ctx.set(dut.core.req.ready, 0)
            time += HOST_PORT - 1
            if RegionId(request.region) is RegionId.REGS:
                starts.append(time)

    async def host(ctx):
        for addr, word in enumerate(chosen.script):
            await put(ctx, dut.bus.req, {"region": RegionId.SCRIPT, "addr": addr, "write": 1, "data": word})
        for k in range(2 * chosen.sample_bytes):
            while not ctx.get(dut.room):
                await ctx.tick()
            await put(ctx, dut.raw, k % 100)
        while len(starts) < 2:
            await ctx.tick()

    simulate(dut, host, core, cycles=60_000, compiled=True)
    clock = FeederClock(chosen, phases, [0], config)
    ((_, _, steps),) = clock._rows
    layout = sum(spent for _, spent, _ in steps)
    within = 0.03 if config is NATIVE_16 else 0.05  # which elements are outside matters more for short vectors
    assert starts[1] - starts[0] == pytest.approx(FILLING + layout + RUNNING, abs=8, rel=within)
