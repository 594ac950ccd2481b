"""The message processor between a host that sends frames and a memory behind its bus, and its model."""

import random

from concord.host.frames import Frame
from concord.spec.link import Kind
from concord.spec.memmap import RegionId, regions
from concord_rtl.link.message_processor import MessageProcessor
from support.bench import put, shared, simulate, sink, source
from support.link_model import STATUS_WORD, DeviceModel

R = RegionId


def read(seq, region, addr, count):
    return Frame(seq, Kind.READ, bytes([region]) + addr.to_bytes(3, "little") + count.to_bytes(2, "little"))


def write(seq, region, addr, data):
    return Frame(seq, Kind.WRITE, bytes([region]) + addr.to_bytes(3, "little") + bytes(data))


def wait(seq, cycles):
    return Frame(seq, Kind.WAIT, cycles.to_bytes(4, "little"))


def bus_target(dut, model, writes, finished, *, stall, seed=3):
    """Memory behind the bus: starts with what the model holds and records what is written."""
    cells = {region: dict(held) for region, held in model.memory.items()}

    def access(request):
        region = RegionId(request.region)
        if not request.write:
            return cells[region].get(request.addr, 0)
        assert request.data >> 8 * model.regions[region].nbytes == 0
        word = request.data & (1 << model.regions[region].word.width) - 1
        cells[region][request.addr] = word
        writes.append((region, request.addr, word))
        return None

    async def bench(ctx):
        rng = random.Random(seed)
        while not finished:
            ctx.set(dut.bus.req.ready, rng.random() >= stall)
            *_, moved, request = await ctx.tick().sample(dut.bus.req.valid & dut.bus.req.ready, dut.bus.req.payload)
            ctx.set(dut.bus.req.ready, 0)
            if moved and (word := access(request)) is not None:
                while rng.random() < stall:
                    await ctx.tick()
                await put(ctx, dut.bus.rsp, word)

    return bench


def exchange(config, lines, *, stall=0.0, busy=False, fill=(), cycles=200_000):
    """Send ``lines`` (frames or bytes) to device and model; replies, writes and errors agree. Return the replies."""
    model = DeviceModel(config)
    model.busy = busy
    for region, addr, word in fill:
        model.memory[region][addr] = word
    dut = shared(MessageProcessor, config)
    writes, finished = [], []
    target = bus_target(dut, model, writes, finished, stall=stall)
    sent = b"".join(line.encode() if isinstance(line, Frame) else line for line in lines)
    replies = model.feed(sent)
    expected = b"".join(reply.encode() for reply in replies)

    async def check(ctx):
        ctx.set(dut.busy, busy)
        ctx.set(dut.status, STATUS_WORD)
        await sink(dut.tx, expected, stall=stall, seed=2)(ctx)
        assert ctx.get(dut.errors) == model.errors
        finished.append(True)

    simulate(dut, check, source(dut.rx, sent, stall=stall, seed=1), target, cycles=cycles, compiled=True)
    assert writes == model.writes
    return replies


def words(config, region, count, seed=0):
    rng = random.Random(seed)
    width = regions(config)[region].word.width
    return [(region, n, rng.getrandbits(width)) for n in range(count)]


def statuses(replies):
    return [reply.kind for reply in replies]
