"""Frames to bytes and back."""

import random
from pathlib import Path
from zlib import crc32

import pytest

from concord.host.frames import Frame, FrameError, FrameReader, PauseFilter, enclose
from concord.spec.link import CRC_BYTES, ESCAPE, FLAG, HEADER, RESUME, Kind, Status
from concord.spec.memmap import RegionId

CORNERS = [FLAG, ESCAPE, FLAG ^ 0x20, ESCAPE ^ 0x20, 0, 255]


def payloads():
    rng = random.Random(1)
    yield b""
    yield bytes(CORNERS)
    yield bytes(range(256))
    for n in range(30):
        yield bytes(rng.choices(CORNERS, k=n))


def test_a_known_frame():
    frame = Frame(1, 2, bytes([FLAG, 5]))
    line = frame.encode()
    assert line.count(FLAG) == 2
    assert line[:8] == bytes([FLAG, 1, 2, 2, 0, ESCAPE, FLAG ^ 0x20, 5])
    assert frame.body()[-4:] == crc32(bytes([1, 2, 2, 0, FLAG, 5])).to_bytes(4, "little")


@pytest.mark.parametrize("piece", [1, 2, 7, 10_000])
def test_round_trip_in_pieces(piece):
    frames = [Frame(n % 256, n % 9, payload) for n, payload in enumerate(payloads())]
    line = b"".join(frame.encode() for frame in frames)
    reader = FrameReader()
    bodies = [body for at in range(0, len(line), piece) for body in reader.feed(line[at : at + piece])]
    assert [Frame.from_body(body) for body in bodies] == frames


def test_frames_may_share_a_flag_and_empty_frames_are_ignored():
    first, second = Frame(1, 0).encode(), Frame(2, 0).encode()
    bodies = list(FrameReader().feed(first[:-1] + second + bytes([FLAG] * 5)))
    assert [Frame.from_body(body).seq for body in bodies] == [1, 2]


def test_cut_off_escape_sequence():
    assert list(FrameReader().feed(bytes([FLAG, 1, 2, ESCAPE, FLAG, 3, FLAG, ESCAPE, FLAG]))) == [None, b"\3", None]
    assert list(FrameReader().feed(bytes([ESCAPE, ESCAPE, FLAG]))) == [bytes([ESCAPE ^ 0x20])]


def test_reset_forgets():
    reader = FrameReader()
    assert not list(reader.feed(b"abc"))
    reader.reset()
    assert list(reader.feed(bytes([FLAG, 1, FLAG]))) == [b"\1"]


def test_every_bit_flip_is_found():
    body = Frame(3, 1, bytes(CORNERS)).body()
    for bit in range(8 * len(body)):
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError, match="checksum must be"):
            Frame.from_body(bytes(damaged))


def test_length_that_does_not_agree():
    good = Frame(0, 0, b"abc").body()
    for length in range(8):
        with pytest.raises(FrameError, match=f"at least 8 bytes, not {length}"):
            Frame.from_body(good[:length])
    data = bytes([0, 0, 4, 0]) + b"abc"
    with pytest.raises(FrameError, match="payload must have 4 bytes, not 3"):
        Frame.from_body(data + crc32(data).to_bytes(4, "little"))


def test_enclose_escapes_what_must_not_appear():
    assert FLAG not in enclose(bytes(range(256)))[1:-1]


def test_the_frames_shown_in_the_documentation():
    text = (Path(__file__).parents[3] / "docs" / "link.md").read_text()
    read = bytes([RegionId.WIDE, FLAG, 0, 0, 2, 0])
    for frame in (Frame(0, Kind.PING), Frame(1, Kind.READ, read), Frame(1, Status.BAD_ADDR)):
        assert f"    {frame.encode().hex(' ')}\n" in text


@pytest.mark.parametrize("more", [-2, -1, 1, 2])
def test_another_length_with_a_good_checksum(more):
    """Longer and shorter than what is there."""
    data = HEADER.pack(seq=1, kind=2, length=5 + more).to_bytes(HEADER.nbytes, "little") + b"abcde"
    with pytest.raises(FrameError, match=f"payload must have {5 + more} bytes, not 5"):
        Frame.from_body(data + crc32(data).to_bytes(CRC_BYTES, "little"))


def test_every_byte_survives_the_line():
    body = bytes(range(256)) + bytes([FLAG, ESCAPE, FLAG, FLAG ^ 0x20, ESCAPE ^ 0x20, ESCAPE, ESCAPE])
    assert list(FrameReader().feed(enclose(body))) == [body]


@pytest.mark.parametrize("piece", [1, 2, 7, 10_000])
def test_pauses_leave_no_trace(piece):
    """In front of any byte within a frame, that of an escape sequence among them, and wherever the line is cut."""
    rng = random.Random(piece)
    plain = b"".join(Frame(n % 256, RESUME, payload).encode() for n, payload in enumerate(payloads()))
    line = bytearray()
    for before, byte in zip(bytes([FLAG]) + plain, plain, strict=False):
        length = rng.choice([0, 0, 1, 2, 5])
        if before == ESCAPE:
            line += bytes([ESCAPE] * length)
        elif before != FLAG and length:
            line += bytes([*[ESCAPE] * length, RESUME])
        line.append(byte)
    assert line.count(RESUME) > plain.count(RESUME)
    pauses = PauseFilter()
    assert b"".join(pauses.feed(bytes(line[at : at + piece])) for at in range(0, len(line), piece)) == plain
