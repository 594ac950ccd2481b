"""The whole NPU over its byte link: random programs, loaded, run and read back in frames, damaged ones among them."""

import random

from concord.emulator import ReferenceMachine
from concord.host.frames import Frame, FrameReader, enclose
from concord.spec.link import COUNT, TARGET, WAIT_CYCLES, Kind, Status
from concord.spec.memmap import REGISTERS, Reg, RegionId, regions
from concord_rtl.core.top import NpuTop
from support import bench
from support.link_model import DeviceModel
from support.program_gen import random_program

LOADED = (RegionId.PROGRAM, RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE, RegionId.SLOTS)
READ_BACK = (RegionId.NARROW, RegionId.WIDE, RegionId.FLAGS)
COUNTERS = (Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.CHAINS, Reg.VECTORS)
PATIENCE = 200_000


class Host:
    """The other end of the link: sends bytes with idle cycles between them, takes replies when it likes."""

    def __init__(self, dut, config, stall, seed):
        self.dut = dut
        self.stall = stall
        self.model = DeviceModel(config)
        self.finished = False
        self._rng = random.Random(seed)
        self._replies = []
        self._seq = 0

    async def receive(self, ctx):
        """Collect the bodies of replies until the bench has finished."""
        reader, rng = FrameReader(), random.Random(1)
        while not self.finished:
            ctx.set(self.dut.tx.ready, rng.random() >= self.stall)
            *_, moved, byte = await ctx.tick().sample(self.dut.tx.valid & self.dut.tx.ready, self.dut.tx.payload)
            if moved:
                self._replies += reader.feed(bytes([byte]))

    async def exchange(self, ctx, data, count):
        """Send bytes and return ``count`` replies to them."""
        for byte in data:
            while self._rng.random() < self.stall:
                await ctx.tick()
            await bench.put(ctx, self.dut.rx, byte)
        for _ in range(PATIENCE):
            if len(self._replies) >= count:
                break
            await ctx.tick()
        got, self._replies = self._replies[:count], self._replies[count:]
        assert len(got) == count, f"{count} replies must come, not {len(got)}"
        return [Frame.from_body(body) for body in got]

    async def request(self, ctx, kind, payload=b""):
        """Send a good request, and return the payload of its reply."""
        frame = Frame(self._seq, kind, payload)
        self._seq = (self._seq + 1) % 256
        (reply,) = await self.exchange(ctx, frame.encode(), len(self.model.feed(frame.encode())))
        assert (reply.seq, reply.kind) == (frame.seq, Status.OK)
        return reply.payload

    async def damaged(self, ctx):
        """Send something that must be refused; it gets the replies of the model."""
        region = self._rng.choice(LOADED)
        data = TARGET.pack(region=region, addr=0).to_bytes(4, "little") + self._rng.randbytes(16)
        body = bytearray(Frame(self._seq, Kind.WRITE, data).body())
        damage = self._rng.randrange(4)
        if damage == 0:
            body[self._rng.randrange(len(body))] ^= 1 << self._rng.randrange(8)
        elif damage == 1:
            del body[self._rng.randrange(1, len(body)) :]
        elif damage == 2:
            body = bytearray(self._rng.randbytes(self._rng.randint(1, 3 * self.model.config.max_payload)))
        else:
            body = bytearray(Frame(self._seq + 7 & 0xFF, Kind.WRITE, data).body())
        line = enclose(bytes(body))
        want = self.model.feed(line)
        assert await self.exchange(ctx, line, len(want)) == want

    async def write(self, ctx, region, addr, words):
        """Write words."""
        nbytes = self.model.regions[region].nbytes
        data = b"".join(word.to_bytes(nbytes, "little") for word in words)
        await self.request(ctx, Kind.WRITE, TARGET.pack(region=region, addr=addr).to_bytes(4, "little") + data)

    async def read(self, ctx, region, addr, count):
        """Read words."""
        target = TARGET.pack(region=region, addr=addr).to_bytes(4, "little")
        data = await self.request(ctx, Kind.READ, target + COUNT.pack(count=count).to_bytes(2, "little"))
        nbytes = self.model.regions[region].nbytes
        return [int.from_bytes(data[k : k + nbytes], "little") for k in range(0, len(data), nbytes)]


def _parts(config, region):
    """Pieces of a region that fit into a frame: first address and count."""
    area = regions(config)[region]
    size = (config.max_payload - 8) // area.nbytes
    return [(start, min(size, area.depth - start)) for start in range(0, area.depth, size)]


async def _run(ctx, host):
    """Start the program, wait for its end, return the registers."""
    start = REGISTERS[Reg.CONTROL].layout.pack(start=1, clear_flags=0, adds=0, keep_dram=0, reserved=0, pc=0)
    await host.write(ctx, RegionId.REGS, Reg.CONTROL, [start])
    while True:
        data = await host.request(ctx, Kind.WAIT, WAIT_CYCLES.pack(cycles=1000).to_bytes(4, "little"))
        status = REGISTERS[Reg.STATUS].layout.unpack(int.from_bytes(data, "little"))
        if not status["busy"]:
            break
    assert status["done"] and not status["trapped"]
    return await host.read(ctx, RegionId.REGS, 0, len(Reg))


def traffic(config, seed, stall):
    """Load, run and read back one random program; what is read is what the reference machine leaves."""
    rng = random.Random(seed)
    _, memories = random_program(config, rng, 4)
    want = memories.copy()
    counted = ReferenceMachine(want).run()
    dut = NpuTop(config)
    host = Host(dut, config, stall, seed)

    async def session(ctx):
        await host.request(ctx, Kind.PING)
        for region in LOADED:
            for start, count in _parts(config, region):
                if rng.random() < 0.2:
                    await host.damaged(ctx)
                await host.write(ctx, region, start, memories.read(region, start, count))
        registers = await _run(ctx, host)
        after = memories.copy()
        for region in READ_BACK:
            for start, count in _parts(config, region):
                after.write(region, start, await host.read(ctx, region, start, count))
        host.finished = True
        assert want.differences(after) == []
        for reg in COUNTERS:
            assert registers[reg] == getattr(counted, reg.name.lower()), reg
        assert registers[Reg.FLAGS_ANY] == want.flag_union()
        assert registers[Reg.LINK_ERRORS] == host.model.errors

    bench.simulate(dut, session, host.receive, cycles=PATIENCE)
