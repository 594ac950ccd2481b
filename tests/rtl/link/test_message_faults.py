"""Frames that are damaged, cut, or surrounded by garbage change nothing, and the next request is served."""

import random
import zlib

import pytest

from concord.host.frames import Frame, enclose
from concord.spec.link import ESCAPE, FLAG, UNSOLICITED, Kind, Status
from concord.spec.memmap import CORE_REGIONS, regions
from concord.spec.presets import TINY
from support.message_bench import R, exchange, read, statuses, words, write

VICTIM = write(0, R.WIDE, 2, bytes([FLAG, ESCAPE, FLAG ^ 0x20, ESCAPE ^ 0x20, 0, 255, FLAG, ESCAPE]))
GOOD = read(0, R.WIDE, 1, 3)


def resume(seq):
    """A good request that does not depend on what happened before."""
    return [Frame(seq, Kind.PING), read(seq + 1, R.WIDE, 1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_bit_flip(part):
    fill = words(TINY, R.WIDE, 4)
    line = VICTIM.encode()
    lines = []
    for bit in range(part, 8 * len(line), 4):
        damaged = bytearray(line)
        damaged[bit // 8] ^= 1 << bit % 8
        lines += [bytes(damaged), bytes([FLAG]), Frame(255, Kind.PING)]
    replies = exchange(TINY, [*lines, GOOD], fill=fill)
    assert statuses(replies).count(Status.BAD_CRC | UNSOLICITED) >= 2 * len(line) - 4
    assert statuses(replies).count(Status.OK) == 2 * len(line) + 1
    assert replies[-1].payload == b"".join(word.to_bytes(8, "little") for _, _, word in fill[1:])


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False])
def test_truncation_at_every_byte(closed):
    """Cut anywhere, with and without a flag after the cut; the flag of the next frame ends what was on the line."""
    fill = words(TINY, R.WIDE, 4)
    line = VICTIM.encode()
    lines = []
    for length in range(2, len(line) - 1):
        lines += [line[:length] + (bytes([FLAG]) if closed else b""), GOOD, Frame(255, Kind.PING)]
    replies = exchange(TINY, lines, fill=fill)
    cuts = len(range(2, len(line) - 1))
    assert statuses(replies) == [Status.BAD_CRC | UNSOLICITED, Status.OK, Status.OK] * cuts


@pytest.mark.slow
def test_bytes_inserted_removed_and_repeated():
    rng = random.Random(4)
    body = VICTIM.body()
    lines = []
    for _ in range(20):
        at = rng.randrange(len(body))
        lines.append(enclose(body[:at] + rng.randbytes(rng.randint(1, 4)) + body[at:]))
        lines.append(enclose(body[:at] + body[at + 1 :]))
        lines.append(enclose(body[:at] + body[at : at + 1] * 2 + body[at + 1 :]))
        lines += resume(rng.randrange(255))
        lines += [Frame(255, Kind.PING)]
    replies = exchange(TINY, lines, fill=words(TINY, R.WIDE, 4))
    assert statuses(replies) == ([Status.BAD_CRC | UNSOLICITED] * 3 + [Status.OK] * 3) * 20


def test_length_that_does_not_agree_is_refused_even_with_a_good_checksum():
    lines = []
    for delta in (-8, -1, 1, 8, 250, 256, 0xFF00):
        head = VICTIM.body()[:2] + (12 + delta).to_bytes(2, "little")
        data = head + VICTIM.payload
        lines.append(enclose(data + zlib.crc32(data).to_bytes(4, "little")))
        lines.append(Frame(255, Kind.PING))
    assert statuses(exchange(TINY, lines)) == [Status.BAD_CRC | UNSOLICITED, Status.OK] * 7


@pytest.mark.slow
def test_garbage_between_frames():
    rng = random.Random(5)
    lines = []
    for _ in range(15):
        garbage = bytes(rng.choices([FLAG, ESCAPE, 0, 255, *range(8)], k=rng.randint(1, 30)))
        lines += [garbage, bytes([FLAG] * rng.randint(1, 4)), *resume(rng.randrange(255))]
    replies = exchange(TINY, lines, stall=0.2, fill=words(TINY, R.WIDE, 4))
    assert statuses(replies).count(Status.OK) == 30


@pytest.mark.slow
def test_random_traffic_with_faults():
    """Requests with corner-weighted fields in random order, one in four damaged, under stalls."""
    rng = random.Random(6)
    lines = []
    for n in range(80):
        region = rng.choice([*CORE_REGIONS, *CORE_REGIONS, 8, 255])
        addr = rng.choice([0, 1, 63, 64, 127, 255, 256, rng.getrandbits(24)])
        seq = n if rng.random() < 0.9 else rng.getrandbits(8)
        size = regions(TINY)[region].nbytes if region in CORE_REGIONS else 3
        payload = bytes(rng.choices([FLAG, ESCAPE, rng.getrandbits(8)], k=size * rng.randint(0, 4)))
        frame = rng.choice(
            [read(seq, region, addr, rng.choice([0, 1, 2, 16, 65535])), write(seq, region, addr, payload)]
        )
        line = bytearray(frame.encode())
        if rng.random() < 0.25:
            line[rng.randrange(len(line))] ^= 1 << rng.randrange(8)
        lines += [Frame((n - 1) % 256, Kind.PING), bytes(line)]
    replies = exchange(TINY, lines, stall=0.1, fill=words(TINY, R.NARROW, 64))
    assert {status & ~UNSOLICITED for status in statuses(replies)} >= {0, 1, 3, 5, 6, 7}
