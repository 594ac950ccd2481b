"""The feeder with frames that end anywhere, and with one script after the other: what the golden feeder does."""

import random
from dataclasses import replace

import pytest

from concord.golden.feeder import Feeder as Model
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.memmap import REGISTERS, Reg, RegionId
from concord_rtl.feeder.feeder import Feeder
from support.bench import get, put, shared, simulate
from support.feeder_cases import CASES, CONFIG, Core, script

pytestmark = pytest.mark.slow

CODES = random.Random(2).choices(range(1 << 15), k=4 * 256)
RING = CONFIG.inbox // 2  # addresses of the outbox
#: Cycles within which the feeder notices bytes.
QUIET = 10


class Beside:
    """The RTL and the golden feeder, each with a core, and what a host does with both."""

    def __init__(self, seed):
        self.dut, self.cores, self.rng = shared(Feeder, CONFIG), (Core(), Core()), random.Random(seed)
        golden = self.cores[1]
        self.model = Model(CONFIG, golden.read, golden.write, golden.start)
        self.fetched, self.ended = 0, False

    async def write(self, ctx, region, addr, word):
        await put(ctx, self.dut.bus.req, {"region": region, "addr": addr, "write": 1, "data": word})
        self.model.write(region, addr, word)

    async def install(self, ctx, words):
        for addr, word in enumerate(words):
            await self.write(ctx, RegionId.SCRIPT, addr, word)
        self.fetched = 0

    async def send(self, ctx, data, room=True):
        """Bytes of a frame, and as long as it takes until the feeder waits for more: both did the same then."""
        for byte in data:
            await put(ctx, self.dut.raw, byte)
            self.model.write(RegionId.INBOX, 0, byte)
        await self.settle(ctx, room)

    async def settle(self, ctx, room=True):
        """Wait for the end; ``room``: what is let go is known to the byte, and not to a window or to an exponent."""
        quiet = 0
        for _ in range(4000):
            await ctx.tick()
            quiet = 0 if ctx.get(self.dut.busy) else quiet + 1
            if quiet == QUIET:
                break
        assert quiet == QUIET, "still busy"
        got, want = self.cores
        assert got.writes == want.writes and got.starts == want.starts
        assert not room or ctx.get(self.dut.room) == self.model.room
        assert ctx.get(self.dut.produced) == len(self.model.outbox) % RING

    async def fetch(self, ctx, count):
        """Results, in front of which all are let go."""
        addr = self.fetched % RING
        ctx.set(self.dut.acknowledged, addr)
        ctx.set(self.dut.acknowledge, 1)
        await ctx.tick()
        ctx.set(self.dut.acknowledge, 0)
        want, got = self.model.read(OUTBOX_ADDRESS.pack(first=addr, kept=addr), count), []
        for k in range(count):
            place = (addr + k) % RING
            await put(ctx, self.dut.bus.req, {"region": RegionId.OUTBOX, "addr": place, "write": 0, "data": 0})
            got.append(await get(ctx, self.dut.bus.rsp) & 255)
        assert got == want
        self.fetched += count

    async def core(self, ctx):
        """What is behind the bus; runs take some cycles."""
        dut, core = self.dut, self.cores[0]
        while not self.ended:
            ctx.set(dut.core.req.ready, 1)
            *_, moved, request = await ctx.tick().sample(dut.core.req.valid, dut.core.req.payload)
            ctx.set(dut.core.req.ready, 0)
            if moved and not request.write:
                await put(ctx, dut.core.rsp, core.read(RegionId(request.region), request.addr))
            elif moved and RegionId(request.region) is RegionId.REGS:
                ctx.set(dut.core_busy, 1)
                await ctx.tick().repeat(self.rng.randint(1, 30))
                fields = REGISTERS[Reg.CONTROL].layout.unpack(request.data & 0xFFFFFFFF)
                core.start(fields["pc"], fields["adds"])
                ctx.set(dut.core_busy, 0)
            elif moved:
                core.write(RegionId(request.region), request.addr, request.data & (1 << 8 * CONFIG.native * 2) - 1)

    def simulate(self, host):
        """Run a host to its end."""

        async def bench(ctx):
            await host(ctx)
            self.ended = True

        simulate(self.dut, bench, self.core, cycles=60_000, compiled=True)


def sample_of(rng, filled):
    return bytes(rng.randrange(112) for _ in range(filled.nbytes(CONFIG.native)))


@pytest.mark.parametrize("name", CASES)
def test_frames_that_end_anywhere(name):
    """In the middle of an element, in front of an exponent, between samples, at the end of the ring of the inbox."""
    filled, lanes = CASES[name]
    both = Beside(name)
    each = len(both.cores[0].results(lanes))

    async def host(ctx):
        for addr, word in enumerate(CODES):
            await both.write(ctx, RegionId.CODES, addr, word)
        await both.install(ctx, script(filled, lanes))
        exact = filled.kernel == (1, 1) and filled.kind != "blocks"
        left = b"".join(sample_of(both.rng, filled) for _ in range(2 + 140 // filled.nbytes(CONFIG.native)))
        while left:
            count = min(both.rng.choice([1, 1, 2, 3, 7, 20, 29]), ctx.get(both.dut.room), both.model.room)
            await both.send(ctx, left[:count], exact or len(left) <= count)
            left = left[count:]
            while len(both.model.outbox) - both.fetched > each * both.rng.randint(0, 1):
                await both.fetch(ctx, both.rng.randint(1, len(both.model.outbox) - both.fetched))
                await both.settle(ctx, exact)
        assert len(both.model.outbox) == len(both.cores[0].starts) * each > 0

    both.simulate(host)


def test_windows_let_go_of_lines():
    """Samples larger than the inbox, which must be taken as far as the lines of a window are in it."""
    filled, lanes = replace(CASES["windows"][0], image=(14, 3, 2), windows=(14, 3)), 4
    both = Beside(5)
    assert filled.nbytes(CONFIG.native) > CONFIG.inbox

    async def host(ctx):
        await both.install(ctx, script(filled, lanes))
        for _ in range(2):
            sample = sample_of(both.rng, filled)
            while sample:
                count = min(ctx.get(both.dut.room), both.model.room, 50)
                assert count > 0
                await both.send(ctx, sample[:count], room=len(sample) <= count)
                sample = sample[count:]
            await both.fetch(ctx, len(both.cores[0].results(lanes)))
            await both.fetch(ctx, 0)

    both.simulate(host)


@pytest.mark.parametrize("first", ["halves", "windows"])
def test_a_second_script_begins_with_nothing_of_the_first(first):
    """The first one is left in the middle of an element, with results that nobody has read."""
    both = Beside(first)

    async def host(ctx):
        for addr, word in enumerate(CODES):
            await both.write(ctx, RegionId.CODES, addr, word)
        for name in (first, "codes", first, "blocks", "windows", "halves"):
            filled, lanes = CASES[name]
            await both.install(ctx, script(filled, lanes))
            await both.settle(ctx)
            await both.send(ctx, sample_of(both.rng, filled) + sample_of(both.rng, filled)[:5], room=False)
            if name != first:
                await both.fetch(ctx, 3)
                await both.fetch(ctx, len(both.cores[0].results(lanes)) - 3)

    both.simulate(host)


def test_a_new_script_takes_back_what_the_last_one_asked_of_the_core():
    """It is written while a vector waits for the bus, which an access of the host has."""
    filled, lanes = CASES["halves"]
    dut, words = Feeder(CONFIG), script(filled, lanes)
    asked = []

    async def host(ctx):
        for addr, word in enumerate(words):
            await put(ctx, dut.bus.req, {"region": RegionId.SCRIPT, "addr": addr, "write": 1, "data": word})
        await put(ctx, dut.bus.req, {"region": RegionId.OUTBOX, "addr": 0, "write": 0, "data": 0})
        for byte in range(4 * CONFIG.native):
            await put(ctx, dut.raw, byte)
        await ctx.tick().repeat(60)
        ctx.set(dut.bus.req.valid, 1)
        ctx.set(dut.bus.req.payload, {"region": RegionId.SCRIPT, "addr": 0, "write": 1, "data": words[0]})
        await get(ctx, dut.bus.rsp)
        while not ctx.get(dut.bus.req.ready):
            await ctx.tick()
        await ctx.tick()
        ctx.set(dut.bus.req.valid, 0)
        for _ in range(60):
            await ctx.tick()
            asked.append(ctx.get(dut.core.req.valid))

    simulate(dut, host)
    assert not any(asked)


def test_results_that_nobody_reads_hold_up_the_next_sample():
    """The outbox is full in the middle of a result, and the inbox behind it; both go on where they stopped."""
    filled, lanes = CASES["halves to blocks"]
    both = Beside(3)

    async def host(ctx):
        await both.install(ctx, script(filled, lanes))
        sent = 0
        while (room := both.model.room) > 0:
            await both.send(ctx, bytes(k % 100 for k in range(sent, sent + min(room, 19))))
            sent += min(room, 19)
        assert len(both.model.outbox) == CONFIG.inbox // 4
        for count in (1, 0, 5, 11, 3, 20, 9, 4):
            await both.fetch(ctx, min(count, len(both.model.outbox) - both.fetched))
            await both.settle(ctx)

    both.simulate(host)
