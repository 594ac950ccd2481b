"""A line on which bytes and replies take time, with what answers at its end: the driver itself runs on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from concord.host.feeder_clock import FeederClock
from concord.host.frames import Frame, FrameReader, line_bytes
from concord.host.spi import CALL_BYTES, MOST_REST
from concord.host.usb_host import BIT_HZ, TRANSFER_BYTES
from concord.spec.config import SPEC_VERSION, NpuConfig
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.fields import Layout
from concord.spec.link import COUNT, HEADER, ROOM_CYCLES, TARGET, WAIT_CYCLES, Kind, Status
from concord.spec.links import LinkKind, LinkSpec
from concord.spec.memmap import MAGIC, REGISTERS, Reg, RegionId, regions

#: Cycles of a request, and of each of its words, beside those of its bytes in the device.
REQUEST_CYCLES, WORD_CYCLES = 30, 2
#: Seconds between two bytes from a USB device that end what the host's driver gives away
#: (:mod:`concord.host.usb_rtl`).
USB_PAUSE = 16 / BIT_HZ
#: Cycles after which a write to the inbox looks for room again.
_LOOK = 16


@dataclass(frozen=True)
class LineTimes:
    """Times of bytes and replies, in clock cycles.

    Parameters
    ----------
    byte : float
        Of a byte on the line.
    reply : float
        That a reply waits in the drivers of the host, besides the time of its bytes.
    controlled : bool
        Whether bytes wait on the way while the device takes none (:class:`concord.spec.links.LinkSpec`).
    shared : bool
        Whether both directions share the line.
    pause : float
        Between two replies that the host sees one by one; those that follow each other faster it sees together. 0: it
        sees all of them one by one.
    call : float
        Of a call of the driver besides its bytes, where bytes move only in calls (:mod:`concord.host.spi`).
    rest : float
        Between two such calls, at the most.
    """

    byte: float = 0.0
    reply: float = 0.0
    controlled: bool = False
    shared: bool = False
    pause: float = 0.0
    call: float = 0.0
    rest: float = 0.0

    @classmethod
    def of(cls, link: LinkSpec, clock_hz: float, reply_seconds: float) -> LineTimes:
        """Times of a link to a device with a clock, where a reply is held back, or a call takes, so long."""
        if link.kind is LinkKind.SPI:
            call, rest = reply_seconds * clock_hz, MOST_REST * clock_hz
            return cls(clock_hz / link.bytes_per_second - call / CALL_BYTES, call=call, rest=rest)
        pause = USB_PAUSE * clock_hz if link.kind is LinkKind.USB else 0.0
        return cls(clock_hz / link.bytes_per_second, reply_seconds * clock_hz, link.controlled, link.shared, pause)


@dataclass(frozen=True)
class TimedReply:
    """A reply as it is on the line, from its first byte to its last one."""

    begin: float
    end: float
    data: bytes


class Answers(Protocol):
    """Device, as far as time and the sizes of replies depend on it."""

    def pass_to(self, now: float) -> None:
        """Work until a time in cycles."""

    def write(self, region: RegionId, data: bytes, now: float) -> tuple[float, bool]:
        """Take words: when, and whether they are taken."""

    def read(self, region: RegionId, addr: int, count: int) -> int:
        """Words that are there, of those that are asked for."""

    def wait(self, now: float, cycles: int) -> tuple[float, bool]:
        """Time at which nothing more is to be done, after ``cycles`` at most, and whether the device is busy then."""


class RunningCore:
    """A core whose inputs the host lays out: every start of the program takes its time.

    Parameters
    ----------
    cycles : sequence of int
        Of the starts, in turn.
    """

    def __init__(self, cycles: Sequence[int]):
        self._runs = self._forever(cycles)
        self._end = 0.0

    @staticmethod
    def _forever(cycles: Sequence[int]) -> Iterator[int]:
        while True:
            yield from cycles

    def pass_to(self, now: float) -> None:
        """Do nothing: no answer depends on the time."""

    def write(self, region: RegionId, data: bytes, now: float) -> tuple[float, bool]:
        """A start of the program, or words that change nothing."""
        control = REGISTERS[Reg.CONTROL].layout
        if region is RegionId.REGS and control.unpack(int.from_bytes(data, "little"))["start"]:
            self._end = now + next(self._runs)
        return now, True

    def read(self, region: RegionId, addr: int, count: int) -> int:
        """All words are there."""
        return count

    def wait(self, now: float, cycles: int) -> tuple[float, bool]:
        """The end of the run."""
        return min(max(now, self._end), now + cycles), self._end > now + cycles


class FedCore:
    """A core behind a feeder.

    Parameters
    ----------
    clock : FeederClock
        At its begin.
    config : NpuConfig
        Of the device.
    """

    def __init__(self, clock: FeederClock, config: NpuConfig):
        self.clock, self._size = clock, config.outbox_depth

    def pass_to(self, now: float) -> None:
        """The feeder goes on."""
        self.clock.advance(now)

    def write(self, region: RegionId, data: bytes, now: float) -> tuple[float, bool]:
        """Bytes for the inbox, as soon as it has room for them."""
        if region is not RegionId.INBOX:
            return now, True
        end = now + ROOM_CYCLES
        rests = False  # it waits for the host
        while len(data) > self.clock.free_bytes:
            if rests or now > end:
                return now, False
            now += _LOOK
            rests = self.clock.advance(now) is not None
        self.clock.came += len(data)
        return now, True

    def read(self, region: RegionId, addr: int, count: int) -> int:
        """Results of the outbox, as many as there are."""
        if region is not RegionId.OUTBOX:
            return count
        clock, address = self.clock, OUTBOX_ADDRESS.unpack(addr)
        there = (clock.produced - address["first"]) % (2 * self._size)
        level = (clock.produced - address["kept"]) % (2 * self._size)
        if level <= self._size:
            clock.taken = clock.produced - level
        return min(count, there) if there <= self._size else 0

    def wait(self, now: float, cycles: int) -> tuple[float, bool]:
        """Time at which the device waits for the host, and whether it is busy then."""
        end = now + cycles
        since = self.clock.advance(end, passes=False)
        return (end, True) if since is None else (max(now, since), False)


class TimedLine:
    """A transport that knows what time it is, in cycles of the device: the host itself takes none.

    Both directions are in use at the same time; on a shared line replies hold up the requests after them. The device
    carries out one request after the other, and begins with the next when the reply has left. Where the line holds
    bytes back and the device has no buffer for requests, a request goes on the line then, too. Escapes are left out,
    which is 0.8 % of random bytes.

    Parameters
    ----------
    config : NpuConfig
        Of the device.
    answers : Answers
        The device.
    times : LineTimes
        Of the line.

    Members
    -------
    sent, received, requests : int
        Bytes to the device and from it, framing included, and requests.
    now : float
        Time at the host.
    """

    byte_time = 0.0

    def __init__(self, config: NpuConfig, answers: Answers, times: LineTimes):
        self.config, self.answers, self.times = config, answers, times
        self.wait_cycles: int | None = None
        self.controlled = times.controlled
        self.sent = self.received = self.requests = 0
        self.now = 0.0
        self._regions = regions(config)
        self._reader = FrameReader()
        self._expected = 0  # number of the next request
        self._there = self._back = self._ready = 0.0  # from when on the line there and back, and the device, are free
        self._replies: deque[TimedReply] = deque()
        self._seen = 0.0  # when what was seen last had come

    @property
    def cycles(self) -> int:
        """Time at the host, in whole cycles."""
        return round(self.now)

    def clock(self) -> float:
        """Time in seconds, which stands: nothing is lost, so nothing is late."""
        return 0.0

    def write(self, data: bytes) -> None:
        """Requests, which the device answers in time."""
        for body in self._reader.feed(data):
            self._request(Frame.from_body(body or b""))

    def read(self, count: int, timeout: float) -> bytes:
        """The next reply, as soon as it is there."""
        if not self._replies:
            return b""
        reply = self._replies.popleft()
        self._seen = max(self._seen, self._together(reply))
        self.now = max(self.now, self._seen + self.times.reply)
        return reply.data

    def close(self) -> None:
        """Do nothing: a line in time has nothing to close."""

    def _together(self, reply: TimedReply) -> float:
        """Time of the last byte of the replies that the host sees with one: those without a pause between."""
        end, size = reply.end, len(reply.data)
        for later in self._replies:
            if later.begin - end >= self.times.pause or size >= TRANSFER_BYTES:
                break
            end, size = later.end, size + len(later.data)
        return end

    def _request(self, frame: Frame) -> None:
        size = line_bytes(len(frame.payload))
        self.requests += 1
        self.sent += size
        free = self._ready if self.controlled and not self.config.request_buffer else self._there
        self._there = max(self.now, self._there, free) + size * self.times.byte
        begun = max(self._there, self._ready) + self._taken(frame)
        self.answers.pass_to(begun)
        status, payload, done = self._numbered(frame, begun)
        size = line_bytes(len(payload))
        self.received += size
        self._back = self._ready = max(done, self._back) + size * self.times.byte
        if self.times.shared:
            self._there += size * self.times.byte
        begin = self._back - size * self.times.byte
        self._replies.append(TimedReply(begin, self._back, Frame(frame.seq, status, payload).encode()))

    def _taken(self, frame: Frame) -> float:
        """Cycles of a request in the device once it is there."""
        words = 0
        if frame.kind == Kind.WRITE:
            target = _unpacked(TARGET, frame.payload[: TARGET.nbytes])
            words = (len(frame.payload) - TARGET.nbytes) // self._regions[RegionId(target["region"])].nbytes
        return REQUEST_CYCLES + len(frame.payload) + WORD_CYCLES * words

    def _numbered(self, frame: Frame, now: float) -> tuple[Status, bytes, float]:
        """Status, payload and begin of a reply; requests after a refused one have an unexpected number."""
        if frame.kind != Kind.PING and frame.seq != self._expected:
            return Status.BAD_SEQ, bytes([self._expected]), now
        status, payload, done = self._answer(frame, now)
        self._expected = (frame.seq + (status is Status.OK)) % (1 << HEADER["seq"].width)
        return status, payload, done

    def _answer(self, frame: Frame, now: float) -> tuple[Status, bytes, float]:
        """Status and payload of the reply, and when it begins."""
        if frame.kind == Kind.PING:
            low, high = self.config.fingerprint & 0xFFFF_FFFF, self.config.fingerprint >> 32
            return Status.OK, b"".join(n.to_bytes(4, "little") for n in (MAGIC, SPEC_VERSION, low, high)), now
        if frame.kind == Kind.WAIT:
            done, busy = self.answers.wait(now, _unpacked(WAIT_CYCLES, frame.payload)["cycles"])
            layout = REGISTERS[Reg.STATUS].layout
            fields = {field.name: 0 for field in layout.fields} | {"busy": busy}
            return Status.OK, layout.pack(**fields).to_bytes(layout.nbytes, "little"), done
        target, rest = _unpacked(TARGET, frame.payload[: TARGET.nbytes]), frame.payload[TARGET.nbytes :]
        region = self._regions[RegionId(target["region"])]
        if frame.kind == Kind.READ:
            words = self.answers.read(region.id, target["addr"], _unpacked(COUNT, rest)["count"])
            return Status.OK, bytes(words * region.nbytes), now
        done, taken = self.answers.write(region.id, rest, now)
        return (Status.OK if taken else Status.BUSY), b"", done


def _unpacked(layout: Layout, data: bytes) -> dict[str, int]:
    fields: dict[str, int] = layout.unpack(int.from_bytes(data, "little"))
    return fields
