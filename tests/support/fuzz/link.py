"""The link: bytes for the device, and a line between host and device that changes what passes."""

from __future__ import annotations

import random
from pathlib import Path

from concord.host import DeviceError, Link, LinkError, MismatchError
from concord.host.frames import Frame, FrameReader, enclose
from concord.spec.link import ESCAPE, FLAG, Kind
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY
from support.fuzz.commands import damaged
from support.fuzz.ends import End, of_message
from support.link_model import DeviceModel
from support.noisy_line import Line


def frames(rng: random.Random, folder: Path, given: Path) -> End:
    """Frames with headers, sizes and bytes of all kinds: every one that ends has one reply, and a good one follows."""
    device, reader = DeviceModel(TINY), FrameReader()
    refused = 0
    for _ in range(rng.randrange(1, 12)):
        body = Frame(
            rng.choice((device.expected, rng.randrange(256))), rng.choice((*Kind, 9, 255)), _payload(rng)
        ).body()
        line = enclose(damaged(rng, body) if rng.random() < 0.3 else body)
        line = damaged(rng, line) if rng.random() < 0.3 else line
        wanted = len(list(reader.feed(line)))
        replies = device.feed(line)
        if len(replies) != wanted:
            return End("finding", f"{len(replies)} replies to {wanted} frames: {line.hex()}")
        for reply in replies:
            if Frame.from_body(reply.body()) != reply:
                return End("finding", f"a reply that is no frame: {reply}")
            refused += reply.kind != 0
    list(reader.feed(bytes([FLAG])))
    device.feed(bytes([FLAG]))
    (reply,) = device.feed(Frame(rng.randrange(256), Kind.PING).encode())
    if reply.kind:
        return End("finding", f"a device that does not answer a good request any more: {reply}")
    return End("message" if refused else "result")


def _payload(rng: random.Random) -> bytes:
    target = bytes([rng.choice((*RegionId, 77)), *rng.choice((b"\0\0\0", b"\1\0\0", b"\xff\0\0", b"\xff\xff\xff"))])
    rest = rng.choice(
        (b"", b"\1\0", b"\0\0", b"\xff\xff", rng.randbytes(rng.choice((1, 2, 4, 8, 16, 64, 127, 128, 129, 300))))
    )
    return rng.choice((target + rest, rest, bytes([FLAG, ESCAPE]) * rng.randrange(40)))


class Noise:
    """Changes pieces of traffic now and then."""

    def __init__(self, rng: random.Random, rate: float):
        self.rng, self.rate = rng, rate

    def __call__(self, data: bytes) -> bytes:
        if self.rng.random() >= self.rate:
            return data
        kind = self.rng.randrange(4)
        if kind == 0:
            return b""
        if kind == 1:
            return data + data
        return damaged(self.rng, data) if kind == 2 else self.rng.randbytes(3) + data


def line(rng: random.Random, folder: Path, given: Path) -> End:
    """A host over a bad line: what it reads and has written is right, or it says that it is not."""
    device = DeviceModel(TINY)
    rate = rng.choice((0.02, 0.1, 0.3, 0.7))
    noisy = Line(device, Noise(rng, rate), Noise(rng, rate), rng.choice((1, 7, 4096)))
    table = regions(TINY)
    try:
        link = Link(noisy, timeout=0.001, retries=rng.choice((0, 2, 4)))
        link.max_payload = TINY.max_payload
        for _ in range(rng.randrange(1, 6)):
            region = table[rng.choice((RegionId.PROGRAM, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE))]
            count = rng.randrange(1, min(region.depth, 40))
            addr = rng.randrange(region.depth - count + 1)
            data = b"".join(rng.getrandbits(region.word.width).to_bytes(region.nbytes, "little") for _ in range(count))
            link.write(region, addr, data)
            there = b"".join(device.word(region.id, addr + k).to_bytes(region.nbytes, "little") for k in range(count))
            if there != data:
                return End("finding", f"{region.id.name} {addr}: written as {data.hex()}, but there is {there.hex()}")
            if (found := link.read(region, addr, count)) != data:
                return End("finding", f"{region.id.name} {addr}: read as {found.hex()}, but there is {data.hex()}")
    except (LinkError, DeviceError, MismatchError) as error:
        return of_message(str(error))
    return End("result")
