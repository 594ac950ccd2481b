"""Requests on the way to a device: sent ahead of their replies, and sent again where the line loses or damages some."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from concord.host.errors import REFUSALS, DamagedError, LinkError, LinkTimeout, SequenceError
from concord.host.frames import Frame, FrameError, FrameReader, line_bytes
from concord.host.transport import Transport
from concord.spec.link import COUNT, HEADER, TARGET, UNSOLICITED, WAIT_CYCLES, Kind, Status
from concord.spec.memmap import REGISTERS, Reg, Region, RegionId

_SEQUENCE = 1 << HEADER["seq"].width
#: Requests on the way at the most, so that numbers tell old ones from new ones.
_MOST_REQUESTS = _SEQUENCE // 4
#: Largest piece asked of a transport at a time.
_CHUNK = 4096


@dataclass
class LineCounts:
    """Counts of what was on the line so far, and of what came to the host, whatever was lost on the way.

    Parameters
    ----------
    sent, received : int
        Bytes of requests and of replies, framing and escapes included.
    requests : int
        Requests, those among them that were sent again.
    """

    sent: int = 0
    received: int = 0
    requests: int = 0


@dataclass(eq=False)
class LinkRequest:
    """A request, and its reply once it has come.

    Parameters
    ----------
    kind : Kind
        What is asked.
    payload : bytes
        Its payload.
    reply_bytes : int
        Bytes of the reply at the most; 0 if that it was carried out is all there is to know.

    Members
    -------
    reply : bytes or None
        Payload of the reply; ``None`` before it has come.
    """

    kind: Kind
    payload: bytes
    reply_bytes: int = 0
    reply: bytes | None = None
    seq: int = 0
    sent: int = 0  #: how often, with its present number
    lost: int = 0  #: replies to it that were lost
    data: bytes = field(default=b"", repr=False)  #: as it is on the line

    @classmethod
    def read(cls, region: Region, addr: int, count: int) -> LinkRequest:
        """A read of words that fit into one reply."""
        payload = _target(region, addr) + COUNT.pack(count=count).to_bytes(COUNT.nbytes, "little")
        return cls(Kind.READ, payload, count * region.nbytes)

    @classmethod
    def write(cls, region: Region, addr: int, data: bytes) -> LinkRequest:
        """A write of words that fit into one request."""
        return cls(Kind.WRITE, _target(region, addr) + data)

    @classmethod
    def wait(cls, cycles: int) -> LinkRequest:
        """Request for the register STATUS as soon as the device is not busy, at the latest after ``cycles``."""
        payload = WAIT_CYCLES.pack(cycles=cycles).to_bytes(WAIT_CYCLES.nbytes, "little")
        return cls(Kind.WAIT, payload, REGISTERS[Reg.STATUS].layout.nbytes)

    @property
    def done(self) -> bool:
        """True if the request was carried out, and its reply is there."""
        return self.reply is not None


class RequestWindow:
    """Sends requests in order, as many ahead of their replies as the device has room for, and takes the replies.

    The device carries out requests in the order of their numbers, each once, and refuses what comes after one that
    was lost (go-back-N). So all that is unanswered is sent again with the same numbers when a reply is damaged or does
    not come, and nothing is done twice. A reply says that all requests before its own were carried out. Where such a
    request has a reply of its own that was lost, it is sent with a new number: whoever posts several requests sees to
    it that those which are read again still have the same answer.

    Parameters
    ----------
    transport : Transport
        Carries the bytes.
    timeout : float
        Seconds to wait for a reply, besides the time on the line, on the clock of the transport.
    retries : int
        How often what is unanswered is sent again before there is a reply.

    Members
    -------
    size : int
        Bytes on the line that may be unanswered at a time; one request may, whatever its size.
    repeated : int
        Requests that were sent again so far.
    counts : LineCounts
        What was on the line.
    """

    def __init__(self, transport: Transport, *, timeout: float, retries: int):
        self.transport, self.timeout, self.retries = transport, timeout, retries
        self.size = 0
        self.repeated = 0
        self.counts = LineCounts()
        self._reader = FrameReader()
        self._next = 0  # number of the next request
        self._queue: deque[LinkRequest] = deque()  # to be sent
        self._flight: deque[LinkRequest] = deque()  # unanswered, with numbers that follow each other
        self._coming = 0  # replies that may still come
        self._failures = 0  # since something was carried out last
        self._patience = self._deadline = 0.0

    # What callers need ---------------------------------------------------------------------------

    def synchronise(self, seq: int) -> None:
        """Forget everything that is on the way, and begin with a number."""
        while self.transport.read(_CHUNK, 0.05):
            pass
        self._reader.reset()
        self._queue.clear()
        self._flight.clear()
        self._next, self._coming, self._failures = seq, 0, 0

    def post(self, request: LinkRequest) -> LinkRequest:
        """Send a request as soon as there is room for it, and return it; replies that come meanwhile are taken.

        Raises
        ------
        RefusedError
            If the device has refused an earlier request, and so everything after it. No request is on the way then.
        LinkError
            If the line does not work.
        """
        self._queue.append(request)
        self._send()
        while self._queue:
            self._collect()
        return request

    def room_for(self, count: int) -> bool:
        """True if a request with so many bytes on the line would be sent at once."""
        unanswered = sum(len(request.data) for request in self._flight)
        return not self._flight or (unanswered + count <= self.size and len(self._flight) < _MOST_REQUESTS)

    def complete(self, request: LinkRequest) -> bytes:
        """The reply to a request that was posted; errors as :meth:`post`."""
        while request.reply is None:
            self._collect()
        return request.reply

    def quiesce(self) -> None:
        """Wait for everything that is on the way, and forget what the device refuses or the line loses."""
        with suppress(LinkError):
            while self._flight or self._queue:
                self._collect()

    # The line ------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what there is room for."""
        while self._queue:
            request = self._queue[0]
            if request.seq != self._next or not request.data:
                request.seq = self._next
                request.data = Frame(request.seq, request.kind, request.payload).encode()
            if not self.room_for(len(request.data)):
                return
            self._queue.popleft()
            self._flight.append(request)
            self._next = (self._next + 1) % _SEQUENCE
            request.sent = 0
            self._transmit(request)
            self._renew()

    def _transmit(self, request: LinkRequest) -> None:
        self.transport.write(request.data)
        self.counts.sent += len(request.data)
        self.counts.requests += 1
        request.sent += 1
        self._coming += 1

    def _renew(self) -> None:
        """The time begins again in which something has to come."""
        on_line = sum(line_bytes(len(request.payload)) + line_bytes(request.reply_bytes) for request in self._flight)
        self._patience = self.timeout + 2 * on_line * self.transport.byte_time  # if every byte were escaped
        self._deadline = self.transport.clock() + self._patience

    def _bodies(self) -> list[bytes | None]:
        """Bodies of the frames that come next, perhaps none; :class:`LinkTimeout` if there is nothing."""
        data = self.transport.read(_CHUNK, self._patience)
        if not data:
            raise LinkTimeout(f"no reply within {self._patience:.2f} s")
        self.counts.received += len(data)
        bodies = list(self._reader.feed(data))
        self._coming = max(0, self._coming - len(bodies))
        return bodies

    def _collect(self) -> None:
        """Take what comes next from the device, and send what there is room for then."""
        trouble: LinkError | None = None
        try:
            for body in self._bodies():
                trouble = self._take(body) or trouble
        except LinkTimeout as error:
            trouble, self._coming = error, 0
        if trouble is None and self._flight and self.transport.clock() > self._deadline:
            trouble = LinkTimeout(f"no complete reply within {self._patience:.2f} s")
        if trouble is not None and self._flight:
            self._go_back(trouble)
        self._send()

    def _take(self, body: bytes | None) -> LinkError | None:
        """Take one frame from the device; return why requests have to be sent again, if so."""
        try:
            reply = Frame.from_body(body or b"")
        except FrameError as error:
            return DamagedError(f"damaged reply: {error}")
        if reply.kind & UNSOLICITED:
            return DamagedError("the request arrived damaged")
        if not self._flight:
            return None
        place = (reply.seq - self._flight[0].seq) % _SEQUENCE
        if place >= len(self._flight):
            return None  # to an earlier request
        request = self._flight[place]
        if reply.kind == Status.BAD_SEQ:
            return self._out_of_order(request, place, int.from_bytes(reply.payload, "little"))
        self._pass(place)
        self._flight.popleft()
        if reply.kind != Status.OK:
            self._refused(request, reply)
        request.reply = reply.payload
        self._failures = 0
        self._renew()
        return None

    def _out_of_order(self, request: LinkRequest, place: int, expected: int) -> LinkError | None:
        """The device expects another number than that of the request: one in front of it, or one after it."""
        passed = (expected - self._flight[0].seq) % _SEQUENCE
        if passed >= _SEQUENCE - _MOST_REQUESTS and request.sent > 1:
            return None  # it was late: what the device expected then has come since
        if passed > len(self._flight) or (passed >= place and request.sent == 1):
            reason = "it was reset, or another host uses it"
            raise SequenceError(f"device must expect sequence number {request.seq}, not {expected}: {reason}")
        self._pass(passed)
        return None if passed > place else DamagedError("a request arrived damaged, or not at all")

    def _pass(self, count: int) -> None:
        """The first requests on the way were carried out, and have no reply."""
        lost = []
        for _ in range(count):
            request = self._flight.popleft()
            if not request.reply_bytes:
                request.reply = b""
                self._failures = 0
                continue
            request.lost += 1
            if request.lost > self.retries:
                raise LinkTimeout(f"{request.kind.name} failed {request.lost} times, at last: its reply was lost")
            lost.append(request)
        self.repeated += len(lost)
        self._queue.extendleft(reversed(lost))

    def _refused(self, request: LinkRequest, reply: Frame) -> None:
        """Raise the error; the device has done nothing of what is after the request."""
        self._queue.clear()
        self._flight.clear()
        self._next = request.seq
        self._drain()
        raise refusal(request.kind, request.payload, reply)

    def _drain(self) -> None:
        """Take replies that are on their way, before their numbers are used again."""
        try:
            while self._coming:
                for body in self._bodies():
                    self._take(body)
        except LinkTimeout:
            self._coming = 0

    def _go_back(self, trouble: LinkError) -> None:
        """Send everything again that is unanswered."""
        self._failures += 1
        if self._failures > self.retries:
            kind = self._flight[0].kind.name
            self._flight.clear()
            self._queue.clear()
            raise type(trouble)(f"{kind} failed {self.retries + 1} times, at last: {trouble}")
        self._drain()
        for request in self._flight:
            self._transmit(request)
        self.repeated += len(self._flight)
        self._renew()


def _target(region: Region, addr: int) -> bytes:
    return TARGET.pack(region=region.id, addr=addr).to_bytes(TARGET.nbytes, "little")


def refusal(kind: Kind, payload: bytes, reply: Frame) -> LinkError:
    """The exception for an error that repetition does not cure."""
    what = kind.name
    if kind in (Kind.READ, Kind.WRITE):
        target = TARGET.unpack(int.from_bytes(payload[: TARGET.nbytes], "little"))
        names = {region.value: region.name for region in RegionId}
        what += f" at {names.get(target['region'], target['region'])} address {target['addr']}"
    if reply.kind not in REFUSALS:
        return LinkError(f"{what}: status must be one of {[status.name for status in Status]}, not {reply.kind}")
    error = REFUSALS[reply.kind]
    return error(f"{what} refused: {error.status.name}. {(error.__doc__ or '').splitlines()[0]}")
