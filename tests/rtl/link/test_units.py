# amaranth: UnusedElaboratable=no
import random
import zlib

import pytest

from concord.host.frames import Frame, FrameReader, enclose
from concord.spec.link import ESCAPE, FLAG
from concord.spec.presets import TINY
from concord_rtl.link.crc import PARAMETERS, Crc32
from concord_rtl.link.deframer import Deframer
from concord_rtl.link.framer import Framer
from concord_rtl.link.replier import Replier
from concord_rtl.link.words import WordAssembler, WordSplitter
from support.bench import get, simulate, sink, source

STALLS = [(0, 0), (0.5, 0), (0, 0.5), (0.4, 0.4)]
CORNERS = [FLAG, ESCAPE, FLAG ^ 0x20, ESCAPE ^ 0x20, 0, 255]


def bodies(count=30):
    rng = random.Random(1)
    return [bytes(rng.choices([*CORNERS, rng.getrandbits(8)], k=rng.randint(1, 20))) for _ in range(count)]


def chunks(items):
    for body in items:
        if body is None:
            yield {"end": 1, "damaged": 1}
            continue
        yield from ({"data": byte, "end": 0, "damaged": 0} for byte in body)
        yield {"end": 1, "damaged": 0}


async def receive_chunks(ctx, dut, expected, stall):
    rng = random.Random(2)
    for want in expected:
        while rng.random() < stall:
            await ctx.tick()
        got = await get(ctx, dut.o)
        assert {name: getattr(got, name) for name in want} == want


@pytest.mark.slow
@pytest.mark.parametrize("stalls", STALLS, ids=str)
def test_framer(stalls):
    pieces = [{"data": b, "last": n == len(body) - 1} for body in bodies() for n, b in enumerate(body)]
    dut = Framer()
    want = b"".join(enclose(body) for body in bodies())
    simulate(dut, source(dut.i, pieces, stall=stalls[0]), sink(dut.o, want, stall=stalls[1]))


@pytest.mark.slow
@pytest.mark.parametrize("stalls", STALLS, ids=str)
def test_deframer(stalls):
    line = b"".join(bytes([FLAG] * (n % 3)) + enclose(body) for n, body in enumerate(bodies()))
    dut = Deframer()

    async def check(ctx):
        await receive_chunks(ctx, dut, chunks(bodies()), stalls[1])

    simulate(dut, source(dut.i, line, stall=stalls[0]), check)


def test_deframer_takes_one_byte_per_cycle():
    body = bytes(range(100))
    dut = Deframer()

    async def check(ctx):
        await receive_chunks(ctx, dut, chunks([body]), 0)

    simulate(dut, source(dut.i, enclose(body)), check, cycles=len(enclose(body)) + 4)


def test_deframer_on_arbitrary_bytes():
    """The same frames as the software's reader, whatever is on the line."""
    rng = random.Random(3)
    line = bytes(rng.choices(CORNERS, k=600)) + bytes([0, FLAG])
    got = list(FrameReader().feed(line))
    dut = Deframer()
    seen = []

    async def check(ctx):
        current = bytearray()
        while len(seen) < len(got):
            chunk = await get(ctx, dut.o)
            if chunk.end:
                seen.append(None if chunk.damaged else bytes(current))
                current.clear()
            else:
                current.append(chunk.data)

    simulate(dut, source(dut.i, line), check)
    assert seen == got
    assert None in got


def test_crc():
    rng = random.Random(4)
    dut = Crc32()

    async def check(ctx):
        for length in [0, 1, 2, 3, 4, 5, 30]:
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            data = rng.randbytes(length)
            for byte in data:
                assert not ctx.get(dut.match)
                ctx.set(dut.data, byte)
                ctx.set(dut.valid, 1)
                await ctx.tick()
                ctx.set(dut.valid, rng.getrandbits(1))
                if not ctx.get(dut.valid):
                    await ctx.tick()
            ctx.set(dut.valid, 0)
            assert ctx.get(dut.crc) == PARAMETERS.compute(data) == zlib.crc32(data)
            for byte in zlib.crc32(data).to_bytes(4, "little"):
                assert not ctx.get(dut.match)
                ctx.set(dut.data, byte)
                ctx.set(dut.valid, 1)
                await ctx.tick()
            assert ctx.get(dut.match)
            ctx.set(dut.valid, 0)

    simulate(dut, check)


@pytest.mark.parametrize("stalls", STALLS, ids=str)
def test_replier_and_framer(stalls):
    rng = random.Random(5)
    frames = [Frame(rng.getrandbits(8), n, bytes(rng.choices(CORNERS, k=n))) for n in (0, 1, 2, 20, TINY.max_payload)]
    want = [byte for frame in frames for byte in frame.body()]
    dut = Replier(TINY)

    async def start(ctx):
        for frame in frames:
            ctx.set(dut.header, {"seq": frame.seq, "kind": frame.kind, "length": len(frame.payload)})
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.header, {"seq": 0, "kind": 0, "length": 0})
            while True:
                *_, done = await ctx.tick().sample(dut.done)
                if done:
                    break

    async def check(ctx):
        stalling = random.Random(6)
        ends = []
        for n, byte in enumerate(want):
            while stalling.random() < stalls[1]:
                await ctx.tick()
            piece = await get(ctx, dut.o)
            assert piece.data == byte
            if piece.last:
                ends.append(n + 1)
        assert ends == [sum(len(frame.body()) for frame in frames[: n + 1]) for n in range(len(frames))]

    simulate(dut, start, source(dut.i, b"".join(frame.payload for frame in frames), stall=stalls[0]), check)


@pytest.mark.parametrize("stalls", STALLS, ids=str)
@pytest.mark.parametrize(("width", "size"), [(1, 1), (8, 1), (9, 2), (37, 3), (37, 5), (64, 8)])
def test_assembler_and_splitter(width, size, stalls):
    rng = random.Random(7)
    top = (1 << min(width, 8 * size)) - 1
    items = [0, top, *(rng.getrandbits(64) & top for _ in range(12))]
    data = b"".join(item.to_bytes(size, "little") for item in items)

    def with_size(dut, bench):
        async def run(ctx):
            ctx.set(dut.size, size)
            await bench(ctx)

        return run

    dut = WordAssembler(width)
    simulate(dut, with_size(dut, source(dut.i, data, stall=stalls[0])), sink(dut.o, items, stall=stalls[1]))
    dut = WordSplitter(width)
    simulate(dut, with_size(dut, source(dut.i, items, stall=stalls[0])), sink(dut.o, data, stall=stalls[1]))


@pytest.mark.parametrize("unit", [WordAssembler, WordSplitter])
def test_width_is_checked(unit):
    with pytest.raises(ValueError, match="width must be at least 1, not 0"):
        unit(0)
