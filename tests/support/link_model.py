"""A second, sequential implementation of the device side of the link, for comparison and to test hosts against."""

from __future__ import annotations

from concord.host.frames import Frame, FrameError, FrameReader
from concord.spec.config import SPEC_VERSION
from concord.spec.link import COUNT, TARGET, UNSOLICITED, WAIT_CYCLES, Kind, Status
from concord.spec.memmap import FEEDER_REGIONS, MAGIC, Reg, RegionId, regions

STATUS_WORD = 0b010


class Refused(Exception):
    """A request that is answered with an error."""


class DeviceModel:
    """Bytes in, bytes out; ``memory[region][addr]`` holds words as integers."""

    def __init__(self, config):
        self.config = config
        self.regions = regions(config)
        self.memory = {id: {} for id in self.regions}
        low, high = config.fingerprint & 0xFFFF_FFFF, config.fingerprint >> 32
        constants = {Reg.MAGIC: MAGIC, Reg.VERSION: SPEC_VERSION, Reg.FINGERPRINT: low, Reg.FINGERPRINT_HIGH: high}
        self.memory[RegionId.REGS] |= {int(reg): value for reg, value in constants.items()}
        self.expected = 0
        self.errors = 0
        self.busy = False
        self.writes = []
        #: Has ``room``, ``write(region, addr, word)`` and ``read(addr, count)``, with an inbox.
        self.feeder = None
        self._reader = FrameReader()

    def feed(self, data: bytes) -> list[Frame]:
        """Replies to the frames that end in ``data``."""
        return [self._answer(body) for body in self._reader.feed(data)]

    def word(self, region, addr):
        """The word as the host reads it."""
        return self.memory[region].get(addr, 0)

    def _answer(self, body):
        try:
            frame = Frame.from_body(body or b"")
        except FrameError:
            self.errors += 1
            return Frame(self.expected, Status.BAD_CRC | UNSOLICITED)
        try:
            payload = self._execute(frame)
        except Refused as refusal:
            self.errors += 1
            (status,) = refusal.args
            return Frame(frame.seq, status, bytes([self.expected]) if status == Status.BAD_SEQ else b"")
        self.expected = (frame.seq + 1) % 256
        return Frame(frame.seq, Status.OK, payload)

    def _execute(self, frame):
        kind, payload = frame.kind, frame.payload
        if len(payload) > self.config.max_payload:
            raise Refused(Status.TOO_LONG)
        if kind != Kind.PING and frame.seq != self.expected:
            raise Refused(Status.BAD_SEQ)
        if kind not in list(Kind):
            raise Refused(Status.BAD_KIND)
        if kind == Kind.WRITE:
            fits = len(payload) >= TARGET.nbytes
        else:
            sizes = {Kind.PING: 0, Kind.READ: TARGET.nbytes + COUNT.nbytes, Kind.WAIT: WAIT_CYCLES.nbytes}
            fits = len(payload) == sizes[kind]
        if not fits:
            raise Refused(Status.BAD_LENGTH)
        if kind == Kind.PING:
            return b"".join(self.word(RegionId.REGS, n).to_bytes(4, "little") for n in range(4))
        if kind == Kind.WAIT:
            return STATUS_WORD.to_bytes(4, "little")
        return self._access(kind, payload)

    def _access(self, kind, payload):
        target = TARGET.unpack(int.from_bytes(payload[:4], "little"))
        addr, rest = target["addr"], payload[4:]
        if target["region"] not in self.regions:
            raise Refused(Status.BAD_REGION)
        region = self.regions[target["region"]]
        count = int.from_bytes(rest, "little") if kind == Kind.READ else len(rest) // region.nbytes
        if kind == Kind.READ and not region.readable:
            raise Refused(Status.BAD_REGION)
        if kind == Kind.WRITE and region.id != RegionId.REGS and not region.writable:
            raise Refused(Status.BAD_REGION)
        if kind == Kind.WRITE and region.id == RegionId.REGS and (addr != Reg.CONTROL or count > 1):
            raise Refused(Status.BAD_REGION)
        if kind == Kind.READ and count * region.nbytes > self.config.max_payload:
            raise Refused(Status.BAD_LENGTH)
        if kind == Kind.WRITE and len(rest) % region.nbytes:
            raise Refused(Status.BAD_LENGTH)
        if region.id != RegionId.OUTBOX and addr + count > region.depth:
            raise Refused(Status.BAD_ADDR)
        if self.busy and not region.live:
            raise Refused(Status.BUSY)
        if region.id in FEEDER_REGIONS:
            return self._feed(kind, region, addr, count, rest)
        span = range(addr, addr + count)
        if kind == Kind.READ:
            return b"".join(self.word(region.id, at).to_bytes(region.nbytes, "little") for at in span)
        for n, at in enumerate(span):
            word = int.from_bytes(rest[n * region.nbytes : (n + 1) * region.nbytes], "little")
            word &= (1 << region.word.width) - 1
            self.memory[region.id][at] = word
            self.writes.append((region.id, at, word))
        return b""

    def _feed(self, kind, region, addr, count, rest):
        if kind == Kind.READ:
            return bytes(self.feeder.read(addr, count))
        if region.id == RegionId.INBOX and count > self.feeder.room:
            raise Refused(Status.BUSY)
        for n in range(count):
            word = int.from_bytes(rest[n * region.nbytes : (n + 1) * region.nbytes], "little")
            self.feeder.write(region.id, addr + n, word & (1 << region.word.width) - 1)
        return b""


class ModelTransport:
    """The device model with the calls of a transport."""

    byte_time = 0.0
    wait_cycles = None
    controlled = False
    cycles = None

    def __init__(self, model):
        self.model = model
        self.pending = b""

    def clock(self):
        return 0.0

    def write(self, data):
        self.pending += b"".join(frame.encode() for frame in self.model.feed(data))

    def read(self, count, timeout):
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def close(self):
        pass
