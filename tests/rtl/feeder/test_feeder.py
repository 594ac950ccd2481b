"""The feeder against its golden model: inputs laid out, runs, and results, under random stalls."""

import random

import numpy as np
import pytest

from concord.golden.feeder import Feeder as Model
from concord.image import code_book
from concord.image.feeder_layout import Feed, Feeding
from concord.image.feeder_scripts import FeedError, stream
from concord.image.phases import Phase, PortRange
from concord.image.ports import Port
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.memmap import REGISTERS, Reg, RegionId
from concord.spec.presets import TINY
from concord_rtl.feeder.feeder import Feeder
from support.bench import get, put, shared, simulate

CONFIG = TINY.replace(inbox=128, code_pages=4, narrow_depth=256, wide_depth=256)
#: A wide vector that the feeder does not use.
OWN = 240


def random_feed(rng, name="x"):
    """Geometry with everything in it."""
    while True:
        image = rng.randint(1, 7), rng.randint(1, 6), rng.randint(1, 6)
        kernel = rng.randint(1, 3), rng.randint(1, 3)
        if rng.random() < 0.4:
            kernel = (1, 1)
        single = kernel == (1, 1)
        if rng.random() < 0.3:
            return vectors_in_windows(rng, name)
        stride = (1, 1) if single else (rng.randint(1, 2), rng.randint(1, 3))
        dilation = (1, 1) if single else (rng.randint(1, 2), rng.randint(1, 2))
        pads = (0, 0) if single else (rng.randint(0, 2), rng.randint(0, 2))
        windows = tuple(
            (size + 2 * pad - (k - 1) * d - 1) // s + 1
            for size, pad, k, d, s in zip(image, pads, kernel, dilation, stride, strict=False)
        )
        feed = Feed(
            name,
            image,
            kernel,
            stride,
            dilation,
            (-pads[0], -pads[1]),
            windows,
            0 if single else rng.choice([0, 0xB800]),
        )
        if min(windows) > 0 and feed.order(CONFIG.native).size <= 256 and 3 * 2 * image[1] * image[2] * 2 < 64:
            return feed


def vectors_in_windows(rng, name):
    """Windows that whole native vectors make up, of channels or of neighbours."""
    height, kernel, native = rng.randint(1, 3), rng.randint(1, 2), CONFIG.native
    height = max(height, kernel)
    if rng.random() < 0.5:
        size, step, image = 2 * native, native, (height, 3 * native, 1)
    else:
        kernel, size, step, image = 1, 2, 1, (height, 3, rng.choice([1, 2]) * native)
    windows = height - kernel + 1, (image[1] - size) // step + 1
    return Feed(name, image, (kernel, size), (1, step), (1, 1), (0, 0), windows)


def batch_of(rng, feed, kind, samples):
    """Values of the port: elements that are coded, all together or by channel, or have many values."""
    numbers, channels = np.random.default_rng(rng.randrange(1 << 30)), feed.image[2]
    raw = numbers.normal(0, 3, (samples, feed.elements))
    if kind == "few":
        raw = numbers.integers(-9, 9, (samples, feed.elements)) / 8
    elif kind == "colours":
        codes = numbers.integers(0, 20, (samples, feed.elements // channels, channels))
        raw = ((codes - numbers.normal(0, 5, channels)) / numbers.normal(3, 0.5, channels)).reshape(samples, -1)
    raw = raw.astype(np.float16).astype(np.float64)
    border = float(np.array([feed.border], np.uint16).view(np.float16)[0])
    order = feed.order(CONFIG.native)
    return np.where(order < 0, border, raw[:, order])


#: Address of a result in narrow memory.
RESULT = 250


class Core:
    """Vector memories, and a program that adds one to the bits of a wide vector."""

    def __init__(self, trap_at=None):
        self.memory = {RegionId.NARROW: {RESULT: 0x7F_80_01_FF_7F}, RegionId.WIDE: {k: 7919 * k for k in range(256)}}
        self.writes, self.starts, self.trap_at = [], [], trap_at

    def read(self, region, addr):
        return self.memory[region].get(addr, 0)

    def write(self, region, addr, word):
        self.memory[region][addr] = word
        self.writes.append((region, addr, word))

    def start(self, pc, adds):
        self.starts.append((pc, bool(adds)))
        for addr in range(200, 203):
            self.memory[RegionId.WIDE][addr] += 0x0001000200030005
        self.memory[RegionId.NARROW][RESULT] = self.memory[RegionId.NARROW][RESULT] * 5 % (1 << 40)
        return len(self.starts) != self.trap_at


def core_bench(dut, core, finished, stall, seed):
    """What is behind the bus."""
    control = REGISTERS[Reg.CONTROL].layout

    async def bench(ctx):
        rng = random.Random(seed)
        while not finished:
            ctx.set(dut.core.req.ready, rng.random() >= stall)
            *_, moved, request = await ctx.tick().sample(dut.core.req.valid & dut.core.req.ready, dut.core.req.payload)
            ctx.set(dut.core.req.ready, 0)
            if not moved:
                continue
            region = RegionId(request.region)
            if not request.write:
                for _ in range(rng.randint(0, 3)):
                    await ctx.tick()
                await put(ctx, dut.core.rsp, core.read(region, request.addr))
            elif region is RegionId.REGS:
                fields = control.unpack(request.data & 0xFFFFFFFF)
                assert request.addr == Reg.CONTROL and fields["start"] and not fields["clear_flags"]
                ctx.set(dut.core_busy, 1)
                for _ in range(rng.randint(1, 40)):
                    await ctx.tick()
                ctx.set(dut.core_trapped, not core.start(fields["pc"], fields["adds"]))
                ctx.set(dut.core_busy, 0)
            else:
                core.write(region, request.addr, request.data & (1 << dut.config.wide_word.width) - 1)

    return bench


def image_of(rng, feeds):
    """Ports and schedule of inputs behind each other, and of two outputs."""
    ports, parts, narrow, wide = [], [], 0, 0
    for feed in feeds:
        region = rng.choice([RegionId.NARROW, RegionId.NARROW, RegionId.WIDE])
        vectors = len(feed.order(CONFIG.native))
        address = narrow if region is RegionId.NARROW else wide
        narrow, wide = (narrow + vectors, wide) if region is RegionId.NARROW else (narrow, wide + vectors)
        ports.append(Port(feed.port, region, address, (vectors, CONFIG.native)))
        parts.append(PortRange(feed.port, 0, vectors, address))
    outputs = [Port("y", RegionId.WIDE, 200, (2, 4)), Port("z", RegionId.NARROW, RESULT, (1, 4))]
    out = PortRange("y", 0, 2, 200), PortRange("z", 0, 1, RESULT)
    return (ports, outputs), [Phase(5, tuple(parts), out)]


def in_parts(rng, feeds):
    """Ports and schedule of the first input in parts of whole lines of windows, which overlap or leave lines out."""
    feed = feeds[0]
    del feeds[1:]
    vectors = len(feed.order(CONFIG.native))
    port = Port(feed.port, rng.choice([RegionId.NARROW, RegionId.WIDE]), 0, (vectors, CONFIG.native))
    lines, per_line, address, first, inputs = feed.windows[0], vectors // feed.windows[0], 0, 0, []
    while first < lines and len(inputs) < 4:
        count = min(rng.randint(1, 3), lines - first, (190 - address) // per_line)
        if not count:
            break
        inputs.append(PortRange(feed.port, first * per_line, count * per_line, address))
        address += count * per_line
        first += max(0, count + rng.choice([-2, -1, -1, 0, 1]))
    outputs = [Port("y", RegionId.WIDE, 200, (2, 4)), Port("z", RegionId.NARROW, RESULT, (1, 4))]
    results = PortRange("y", 0, 2, 200), PortRange("z", 0, 1, RESULT)
    last = len(inputs) - 1
    phases = [Phase(5 + k, (part,), results if k == last else ()) for k, part in enumerate(inputs)]
    return ([port], outputs), phases


def read_at(place):
    """Address of a read of the outbox that lets go of what is in front of it."""
    return OUTBOX_ADDRESS.pack(first=place % 64, kept=place % 64)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("seed", range(18))
def test_layout_run_and_results(seed, parts, monkeypatch):
    monkeypatch.setattr(code_book, "PAGE_VALUES", 24)  # so that many values do not need many samples
    rng = random.Random(seed)
    stall = (0.0, 0.3)[seed % 2]
    while True:
        feeds = [random_feed(rng, f"x{k}") for k in range(rng.randint(1, 2))]
        ports, schedule = in_parts(rng, feeds) if parts else image_of(rng, feeds)
        feeding = Feeding(tuple(feeds), {"y": (3, 3), "z": ((1,), (4,))[seed % 3 == 0]})
        samples = 3
        batch = {feed.port: batch_of(rng, feed, rng.choice(["few", "many", "colours"]), samples) for feed in feeds}
        try:
            whole = stream(feeding, schedule, ports, batch, CONFIG)
        except FeedError as error:
            assert "the inbox has 128" in str(error)
        else:
            break
    want, got = Core(), Core()
    model = Model(CONFIG, want.read, want.write, want.start)
    results = []
    for addr, word in enumerate(whole.codes):
        model.write(RegionId.CODES, addr, word)
    for addr, word in enumerate(whole.route.script):
        model.write(RegionId.SCRIPT, addr, word)
    assert len(whole.data) == samples * whole.route.sample_bytes and whole.route.result_bytes == (14, 17)[seed % 3 == 0]
    for byte in whole.data:
        assert model.room > 0
        model.write(RegionId.INBOX, 0, byte)
        while len(model.outbox) - len(results) >= 4:
            results += model.read(read_at(len(results)), 4)
    results += model.read(read_at(len(results)), len(model.outbox) - len(results))
    assert len(results) == samples * whole.route.result_bytes
    assert want.starts == [(phase.pc, k > 0) for k, phase in enumerate(schedule)] * samples
    words = {port.name: port.encode(batch[port.name][-1], CONFIG) for port in ports[0]}
    places = {port.name: want.memory[port.region] for port in ports[0]}
    for part in (part for phase in schedule for part in phase.inputs):  # what the host would have written
        wrote = [places[part.port][part.address + k] for k in range(part.count)]
        assert wrote == words[part.port][part.first : part.first + part.count]

    dut = shared(Feeder, CONFIG)
    finished, own = [], []

    async def write(ctx, region, addr, data):
        await put(ctx, dut.bus.req, {"region": region, "addr": addr, "write": 1, "data": data})

    async def host(ctx):
        for addr, word in enumerate(whole.codes):
            await write(ctx, RegionId.CODES, addr, word)
        for addr, word in enumerate(whole.route.script):
            await write(ctx, RegionId.SCRIPT, addr, word)
        sent = read = 0
        while read < len(results):
            await ctx.tick().repeat(rng.randint(1, 5))
            if rng.random() < 0.2:  # the host's own accesses, between those of the engine
                own.append((RegionId.WIDE, OWN, rng.randrange(1 << 64)))
                await write(ctx, *own[-1])
                await put(ctx, dut.bus.req, {"region": RegionId.WIDE, "addr": OWN, "write": 0, "data": 0})
                assert await get(ctx, dut.bus.rsp) == own[-1][-1]
            room, produced = ctx.get(dut.room), ctx.get(dut.produced)
            if sent < len(whole.data) and room > 0 and rng.random() < 0.7:
                for byte in whole.data[sent : sent + room]:
                    if rng.random() < stall:
                        await ctx.tick().repeat(rng.randint(1, 9))
                    await put(ctx, dut.raw, byte)
                    sent += 1
            elif (produced - read) % 64:
                await ctx.tick()
                count = rng.randint(1, (produced - read) % 64)
                ctx.set(dut.acknowledged, read % 64)
                ctx.set(dut.acknowledge, 1)
                await ctx.tick()
                ctx.set(dut.acknowledge, 0)
                for _ in range(count):
                    await put(ctx, dut.bus.req, {"region": RegionId.OUTBOX, "addr": read % 64, "write": 0, "data": 0})
                    ctx.set(dut.bus.req.payload.addr, read % 64 + 1)  # an address holds as long as its request
                    assert await get(ctx, dut.bus.rsp) & 255 == results[read]
                    read += 1
        await ctx.tick().repeat(200)
        assert not ctx.get(dut.busy)
        finished.append(True)

    simulate(dut, host, core_bench(dut, got, finished, stall, seed), cycles=100_000, compiled=True)
    assert got.starts == want.starts
    assert [access for access in got.writes if access[1] != OWN] == want.writes
    assert [access for access in got.writes if access[1] == OWN] == own and own
