"""Requests that the message processor serves or refuses."""

import random

import pytest

from concord.host.frames import Frame, enclose
from concord.spec.link import ESCAPE, FLAG, UNSOLICITED, Kind, Status
from concord.spec.memmap import Reg, regions
from concord.spec.presets import ECP5_25F, TINY
from concord_rtl.link.message_processor import MessageProcessor
from support.bench import simulate, sink, source
from support.link_model import STATUS_WORD, DeviceModel
from support.message_bench import R, bus_target, exchange, read, statuses, wait, words, write


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, ECP5_25F.replace(inbox=0)], ids=lambda config: config.name)
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_every_region_is_written_and_read_back(config, stall):
    rng = random.Random(1)
    lines = [Frame(77, Kind.PING)]
    seq = 78
    for region in regions(config).values():
        if region.id == R.REGS:
            continue
        addr = region.depth - 3
        lines.append(write(seq, region.id, addr, rng.randbytes(3 * region.nbytes)))
        seq += 1
        if region.id != R.SLOTS:
            lines.append(read(seq, region.id, addr, 3))
            seq += 1
    lines += [write(seq, R.REGS, Reg.CONTROL, b"\1\0\5\0"), wait(seq + 1, 9), read(seq + 2, R.REGS, 0, 16)]
    replies = exchange(config, lines, stall=stall)
    assert set(statuses(replies)) == {Status.OK}
    assert replies[0].payload[:4] == b"CNCD"


def test_wide_words_are_kept_to_the_last_bit():
    region = regions(TINY)[R.WIDE]
    full = (1 << region.word.width) - 1
    fill = [(R.WIDE, n, value) for n, value in enumerate([0, full, 1, 1 << region.word.width - 1])]
    replies = exchange(TINY, [read(0, R.WIDE, 0, 4)], fill=fill)
    assert replies[0].payload == b"".join(value.to_bytes(region.nbytes, "little") for *_, value in fill)


@pytest.mark.slow
def test_one_byte_per_cycle():
    """A full frame takes its own bytes, the words one cycle each, and little else."""
    region = regions(TINY)[R.WIDE]
    count = (TINY.max_payload - 4) // region.nbytes
    frames = [write(n, R.WIDE, 0, bytes(count * region.nbytes)) for n in range(4)]
    sent = sum(len(frame.encode()) for frame in frames)
    exchange(TINY, frames, cycles=sent + 4 * (count * (region.nbytes + 1) + 60) + 40)


DAMAGED = Status.BAD_CRC | UNSOLICITED
REFUSED = {
    "bad_seq": (read(3, R.WIDE, 0, 1), Status.BAD_SEQ),
    "bad_kind": (Frame(0, 4), Status.BAD_KIND),
    "bad_kind_high": (Frame(0, 255, b"abcdefg"), Status.BAD_KIND),
    "ping_with_payload": (Frame(9, Kind.PING, b"x"), Status.BAD_LENGTH),
    "read_short": (Frame(0, Kind.READ, b"\4\0\0\0\1"), Status.BAD_LENGTH),
    "read_long": (Frame(0, Kind.READ, b"\4\0\0\0\1\0\0"), Status.BAD_LENGTH),
    "wait_short": (Frame(0, Kind.WAIT, b"\0\0\0"), Status.BAD_LENGTH),
    "wait_long": (Frame(0, Kind.WAIT, bytes(5)), Status.BAD_LENGTH),
    "write_short": (Frame(0, Kind.WRITE, b"\4\0\0"), Status.BAD_LENGTH),
    "write_empty": (Frame(0, Kind.WRITE), Status.BAD_LENGTH),
    "write_half_word": (write(0, R.WIDE, 0, bytes(12)), Status.BAD_LENGTH),
    "write_one_byte": (write(0, R.WIDE, 0, bytes(1)), Status.BAD_LENGTH),
    "reply_too_long": (read(0, R.WIDE, 0, 17), Status.BAD_LENGTH),
    "reply_far_too_long": (read(0, R.WIDE, 0, 0xFFFF), Status.BAD_LENGTH),
    "no_region": (read(0, 8, 0, 1), Status.BAD_REGION),
    "no_region_aliased": (write(0, 0x84, 0, bytes(8)), Status.BAD_REGION),
    "read_slots": (read(0, R.SLOTS, 0, 1), Status.BAD_REGION),
    "write_status": (write(0, R.REGS, Reg.STATUS, bytes(4)), Status.BAD_REGION),
    "write_beyond_control": (write(0, R.REGS, Reg.CONTROL, bytes(8)), Status.BAD_REGION),
    "read_beyond": (read(0, R.WIDE, 60, 5), Status.BAD_ADDR),
    "read_far_beyond": (read(0, R.WIDE, 0xFFFFFF, 1), Status.BAD_ADDR),
    "read_legal_low_bits": (read(0, R.WIDE, 1 << 20, 1), Status.BAD_ADDR),
    "write_legal_low_bits": (write(0, R.WIDE, 1 << 20, bytes(8)), Status.BAD_ADDR),
    "write_highest_bit": (write(0, R.NARROW, 1 << 23 | 5, bytes(regions(TINY)[R.NARROW].nbytes)), Status.BAD_ADDR),
    "write_lowest_bit_beyond": (write(0, R.WIDE, 1 << 11, bytes(8)), Status.BAD_ADDR),
    "write_beyond": (write(0, R.WIDE, 63, bytes(16)), Status.BAD_ADDR),
    "registers_beyond": (read(0, R.REGS, 15, 2), Status.BAD_ADDR),
    "too_long": (write(0, R.WIDE, 0, bytes(TINY.max_payload - 3)), Status.TOO_LONG),
    "far_too_long": (write(0, R.WIDE, 0, bytes(3 * TINY.max_payload)), Status.TOO_LONG),
    "escape_before_its_end": (write(0, R.WIDE, 0, bytes(8)).encode()[:-1] + bytes([ESCAPE, FLAG]), DAMAGED),
    "endless": (enclose(bytes(700)), DAMAGED),
}


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "status"), REFUSED.values(), ids=REFUSED)
def test_refused_and_usable_afterwards(bad, status):
    fill = words(TINY, R.WIDE, 4)
    good = [read(0, R.WIDE, 0, 4), write(1, R.WIDE, 1, bytes(range(16))), read(2, R.WIDE, 0, 3)]
    replies = exchange(TINY, [bad, *good], fill=fill)
    assert statuses(replies) == [status, *[Status.OK] * 3]
    if status == Status.BAD_SEQ:
        assert replies[0].payload == b"\0"


LIMITS = [
    write(0, R.WIDE, 0, bytes(range(TINY.max_payload - 8))),
    write(0, R.WIDE, 64, b""),
    read(0, R.WIDE, 48, 16),
    read(0, R.WIDE, 64, 0),
    read(0, R.REGS, 15, 1),
    read(0, R.FLAGS, 0, TINY.max_payload),
    write(0, R.REGS, Reg.CONTROL, b""),
]


@pytest.mark.parametrize("request_frame", LIMITS, ids=lambda frame: frame.payload[:6].hex())
def test_limits_that_are_allowed(request_frame):
    assert statuses(exchange(TINY, [request_frame, read(1, R.REGS, 0, 1)])) == [Status.OK, Status.OK]


def test_busy_regions():
    live = [region for region in regions(TINY).values() if region.live]
    halted = [region for region in regions(TINY).values() if not region.live]
    assert {region.id for region in live} == {R.REGS, R.NARROW, R.WIDE}
    lines = [write(0, region.id, 0, bytes(region.nbytes)) for region in halted]
    lines += [read(n, region.id, 0, 1) for n, region in enumerate(live)]
    lines += [wait(len(live), 40), write(len(live) + 1, R.WIDE, 0, bytes(8))]
    replies = exchange(TINY, lines, busy=True)
    assert statuses(replies) == [Status.BUSY] * len(halted) + [Status.OK] * (len(live) + 2)


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [0, 1, 300])
def test_wait_ends_when_the_program_does_or_patience_does(cycles):
    """The reply starts when ``busy`` falls, or after ``cycles``."""
    dut = MessageProcessor(TINY)
    for ends_after in (None, 100):
        reply = Frame(0, Status.OK, STATUS_WORD.to_bytes(4, "little")).encode()
        seen = []

        async def check(ctx, reply=reply, ends_after=ends_after, seen=seen):
            ctx.set(dut.busy, 1)
            ctx.set(dut.status, STATUS_WORD)
            await source(dut.rx, wait(0, cycles).encode())(ctx)
            ctx.set(dut.tx.ready, 1)
            got = b""
            while len(got) < len(reply):
                *_, moved, byte = await ctx.tick().sample(dut.tx.valid, dut.tx.payload)
                seen.append(moved)
                if ends_after is not None and len(seen) == ends_after:
                    ctx.set(dut.busy, 0)
                got += bytes([byte]) if moved else b""
            assert got == reply

        simulate(dut, check)
        awaited = seen.index(1)
        due = cycles if ends_after is None else min(cycles, ends_after)
        assert due <= awaited <= due + 20


def test_every_wait_has_its_own_patience():
    """Each ends after its own cycles, however many the ones before have counted."""
    replies = exchange(TINY, [wait(0, 80), wait(1, 60), wait(2, 80), wait(3, 5)], busy=True, cycles=1000)
    assert statuses(replies) == [Status.OK] * 4


def test_sequence_numbers_wrap_and_ping_sets_them():
    lines = [Frame(254, Kind.PING), *(read(n % 256, R.REGS, 0, 1) for n in range(255, 258))]
    lines += [read(0, R.REGS, 0, 1), Frame(7, Kind.PING), Frame(7, Kind.PING), read(8, R.REGS, 0, 1)]
    expected = [Status.OK] * 4 + [Status.BAD_SEQ] + [Status.OK] * 3
    assert statuses(exchange(TINY, lines)) == expected


def test_error_replies_that_repeat_the_number_or_the_expected_one():
    damaged = bytearray(read(5, R.WIDE, 0, 1).encode())
    damaged[7] ^= 1
    replies = exchange(TINY, [Frame(41, Kind.PING), bytes(damaged), read(9, R.WIDE, 0, 1)])
    assert [reply.seq for reply in replies] == [41, 42, 9]
    assert replies[2].payload == bytes([42])


def test_the_comparison_notices_an_applied_write():
    """The harness fails when the model holds something else than the device reads."""
    with pytest.raises(AssertionError, match="transfer"):
        simulate_wrong()


def write_elsewhere(self, frame, original=DeviceModel._execute):
    payload = original(self, frame)
    if frame.kind == Kind.WRITE:
        self.writes[-1] = (*self.writes[-1][:2], self.writes[-1][2] ^ 1)
    return payload


def count_twice(self, body, original=DeviceModel._answer):
    reply = original(self, body)
    self.errors *= 2
    return reply


@pytest.mark.slow
@pytest.mark.parametrize(("method", "wrong"), [("_execute", write_elsewhere), ("_answer", count_twice)])
def test_the_comparison_notices_what_only_one_side_does(method, wrong, monkeypatch):
    """Another word written, another number of errors: the replies are the same."""
    lines = [write(0, R.WIDE, 1, bytes(8)), read(7, R.WIDE, 0, 1)]
    exchange(TINY, lines)
    monkeypatch.setattr(DeviceModel, method, wrong)
    with pytest.raises(AssertionError):
        exchange(TINY, lines)


def simulate_wrong():
    model = DeviceModel(TINY)
    dut = MessageProcessor(TINY)
    finished = []
    target = bus_target(dut, model, [], finished, stall=0)
    model.memory[R.WIDE][0] = 1
    expected = model.feed(read(0, R.WIDE, 0, 1).encode())[0].encode()
    simulate(dut, sink(dut.tx, expected), source(dut.rx, read(0, R.WIDE, 0, 1).encode()), target)
