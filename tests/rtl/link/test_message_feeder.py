"""Requests to the regions of the feeder: the message processor agrees with the model about every one."""

import random
from itertools import count

import pytest

from concord.host.frames import Frame
from concord.spec.link import Kind, Status
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from concord_rtl.link.message_processor import MessageProcessor
from support.bench import shared, simulate, sink, source
from support.link_model import STATUS_WORD, DeviceModel
from support.message_bench import bus_target, read, wait, write

CONFIG = TINY.replace(inbox=128)
R = RegionId


class Stub:
    """A feeder that does nothing: bytes of the outbox are their addresses."""

    def __init__(self, model, room, produced):
        self.model, self.room, self.produced = model, room, produced
        self.taken, self.acknowledged = [], []

    def read(self, addr, count):
        first, kept = addr & 63, addr >> 12 & 63
        self.acknowledged.append(kept)
        there = (self.produced - first) % 64
        return [at & 255 for at in range(first, first + min(count, there if there <= 32 else 0))]

    def write(self, region, addr, word):
        if region is R.INBOX:
            self.taken.append(word)
        else:
            self.model.writes.append((region, addr, word))


def exchange(lines, *, room=60, produced=40, busy=False, stall=0.0):
    """Replies of the model, which those of the hardware are compared with, and what reached the feeder."""
    model = DeviceModel(CONFIG)
    model.busy = busy
    model.feeder = stub = Stub(model, room, produced)
    model.memory[R.OUTBOX] = {at: at & 255 for at in range(128)}
    dut = shared(MessageProcessor, CONFIG)
    writes, finished, taken, acknowledged = [], [], [], []
    sent = b"".join(line.encode() if isinstance(line, Frame) else line for line in lines)
    replies = model.feed(sent)

    async def check(ctx):
        ctx.set(dut.busy, busy)
        ctx.set(dut.status, STATUS_WORD)
        ctx.set(dut.room, room)
        ctx.set(dut.produced, produced)
        await sink(dut.tx, b"".join(reply.encode() for reply in replies), stall=stall, seed=2)(ctx)
        assert ctx.get(dut.errors) == model.errors
        finished.append(True)

    async def feeder(ctx):
        rng = random.Random(5)
        while not finished:
            ctx.set(dut.raw.ready, rng.random() >= stall)
            *_, moved, byte, ack, addr = await ctx.tick().sample(
                dut.raw.valid & dut.raw.ready, dut.raw.payload, dut.acknowledge, dut.acknowledged
            )
            if moved:
                taken.append(byte)
            if ack:
                acknowledged.append(addr)

    target = bus_target(dut, model, writes, finished, stall=stall)
    simulate(dut, check, feeder, target, source(dut.rx, sent, stall=stall, seed=1), cycles=100_000, compiled=True)
    assert (writes, taken, acknowledged) == (model.writes, stub.taken, stub.acknowledged)
    return replies, stub


@pytest.mark.slow
def test_bytes_reach_the_inbox_only_if_there_is_room():
    data = bytes(range(100, 160))
    damaged = bytearray(write(1, R.INBOX, 0, data).encode())
    damaged[20] ^= 1
    lines = [write(0, R.INBOX, 0, data), bytes(damaged), write(1, R.INBOX, 0, [*data, 1]), write(1, R.INBOX, 0, [])]
    replies, stub = exchange(lines)
    assert [reply.kind & 0x7F for reply in replies] == [Status.OK, Status.BAD_CRC, Status.BUSY, Status.OK]
    assert bytes(stub.taken) == data


@pytest.mark.slow
def test_results_are_read_only_if_they_are_there():
    places = [(8, 8, 32), (8, 8, 33), (30, 20, 33), (40, 40, 0), (40, 8, 5), (41, 33, 5), (60, 60, 44), (39, 7, 9)]
    lines = [read(seq, R.OUTBOX, kept << 12 | first, count) for seq, (first, kept, count) in enumerate(places)]
    replies, stub = exchange(lines)
    assert [reply.kind for reply in replies] == [Status.OK] * len(places)
    payloads = [bytes(range(8, 40))] * 2 + [bytes(range(30, 40))] + [b""] * 4 + [bytes([39])]
    assert [reply.payload for reply in replies] == payloads
    assert stub.acknowledged == [kept for _, kept, _ in places]


def test_script_and_codes_are_written_while_nothing_goes_on():
    lines = [
        write(0, R.CODES, 254, [1, 2, 3, 4]),
        write(1, R.SCRIPT, 63, [5, 4, 3, 2, 1]),
        write(2, R.SCRIPT, 64, [0] * 5),
        read(2, R.CODES, 0, 1),
        read(2, R.INBOX, 0, 1),
        write(2, R.OUTBOX, 0, [1]),
    ]
    kinds = [reply.kind for reply in exchange(lines)[0]]
    assert kinds == [Status.OK, Status.OK, Status.BAD_ADDR, *[Status.BAD_REGION] * 3]
    kinds = [reply.kind for reply in exchange(lines[:2], busy=True)[0]]
    assert kinds == [Status.BUSY, Status.BAD_SEQ]


@pytest.mark.slow
def test_random_requests_under_stalls():
    rng = random.Random(3)
    lines = []
    for _ in range(25):
        seq = len(lines)
        region = rng.choice([R.INBOX, R.INBOX, R.OUTBOX, R.CODES, R.SCRIPT, R.WIDE, R.REGS])
        addr, count = rng.choice([0, 1, 30, 62, 127, 38 << 12 | 39, 62 << 12 | 20]), rng.randint(0, 70)
        body = bytes(rng.randrange(256) for _ in range(count))
        lines.append(rng.choice([read(seq, region, addr, count), write(seq, region, addr, body), wait(seq, 10)]))
    lines.append(write(len(lines), R.INBOX, 0, bytes(61)))
    pings = [line for request in lines for line in (Frame(request.seq - 1 & 255, Kind.PING, b""), request)]
    replies, stub = exchange(pings, stall=0.2)
    assert {Status.OK, Status.BUSY, Status.BAD_REGION} <= {reply.kind for reply in replies} and stub.taken


@pytest.mark.parametrize("room", [True, False])
def test_a_write_waits_for_room_as_long_as_something_goes_on(room):
    """The device makes room, or comes to its end without: only then the write is refused."""
    dut = shared(MessageProcessor, CONFIG)
    taken, ends = [], []

    async def host(ctx):
        ctx.set(dut.busy, 1)
        ctx.set(dut.room, 3)
        reply = Frame(0, Status.OK if room else Status.BUSY, b"").encode()
        await sink(dut.tx, reply, stall=0.0, seed=1)(ctx)
        ends.append(True)
        assert bytes(taken) == (b"abcd" if room else b"") and ctx.get(dut.errors) == (not room)

    async def feeder(ctx):
        ctx.set(dut.raw.ready, 1)
        for cycle in count():
            if ends:
                assert cycle > 1000
                return
            if cycle in (700, 750):  # for a moment nothing goes on, as between two samples
                ctx.set(dut.busy, cycle != 700)
            if cycle == 1000:
                ctx.set(dut.room if room else dut.busy, 4 if room else 0)
            *_, moved, byte = await ctx.tick().sample(dut.raw.valid & dut.raw.ready, dut.raw.payload)
            if moved:
                taken.append(byte)

    simulate(
        dut, host, feeder, source(dut.rx, write(0, R.INBOX, 0, b"abcd").encode(), stall=0.0, seed=1), compiled=True
    )
