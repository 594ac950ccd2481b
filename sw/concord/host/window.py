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
#: Bytes of the longest payload of any device, and those to which payloads are shortened at the most.
_LONGEST, _SHORTEST = 4096, 16
#: Bytes that may be unanswered, as a multiple of a payload.
_AHEAD = 4
#: Requests that are carried out in a row, without a failure, before payloads become twice as long again.
_CALM = 16


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
    region : Region or None
        Whose words are read or written.

    Members
    -------
    reply : bytes or None
        Payload of the reply; ``None`` before it has come.
    """

    kind: Kind
    payload: bytes
    reply_bytes: int = 0
    region: Region | None = None
    reply: bytes | None = None
    whole: LinkRequest | None = field(default=None, repr=False)  #: the request of which it is a half
    halves: tuple[LinkRequest, ...] = field(default=(), repr=False)  #: requests that are sent in its place
    seq: int = 0
    sent: int = 0  #: how often, with its present number
    lost: int = 0  #: replies to it that were lost
    data: bytes = field(default=b"", repr=False)  #: as it is on the line

    @classmethod
    def read(cls, region: Region, addr: int, count: int) -> LinkRequest:
        """A read of words that fit into one reply."""
        payload = _target(region, addr) + COUNT.pack(count=count).to_bytes(COUNT.nbytes, "little")
        return cls(Kind.READ, payload, count * region.nbytes, region)

    @classmethod
    def write(cls, region: Region, addr: int, data: bytes) -> LinkRequest:
        """A write of words that fit into one request."""
        return cls(Kind.WRITE, _target(region, addr) + data, region=region)

    @classmethod
    def wait(cls, cycles: int) -> LinkRequest:
        """Request for the register STATUS as soon as the device is not busy, at the latest after ``cycles``."""
        payload = WAIT_CYCLES.pack(cycles=cycles).to_bytes(WAIT_CYCLES.nbytes, "little")
        return cls(Kind.WAIT, payload, REGISTERS[Reg.STATUS].layout.nbytes)

    @property
    def done(self) -> bool:
        """True if the request was carried out, and its reply is there."""
        return self.reply is not None

    @property
    def size(self) -> int:
        """Bytes of the longer of both payloads, that of the request and that of the reply."""
        return max(len(self.payload), self.reply_bytes)

    @property
    def words(self) -> int:
        """Words of the region that it reads or writes."""
        if self.region is None:
            return 0
        data = self.reply_bytes if self.kind == Kind.READ else len(self.payload) - TARGET.nbytes
        return data // self.region.nbytes

    @property
    def carried(self) -> int:
        """Bytes of a write that the device has taken for certain, all of them or those of its first halves."""
        return len(self.payload) - TARGET.nbytes if self.done else sum(half.carried for half in self.halves)

    def halve(self) -> tuple[LinkRequest, ...]:
        """The halves, of a request with several words. Of a read of the outbox the first one is enough.

        Its reply has as many bytes as are there, so whoever reads the outbox asks for the others again.
        """
        assert self.region is not None and self.words > 1
        addr = TARGET.unpack(int.from_bytes(self.payload[: TARGET.nbytes], "little"))["addr"]
        first = self.words // 2
        if self.kind == Kind.WRITE:
            data, cut = self.payload[TARGET.nbytes :], first * self.region.nbytes
            step = 0 if self.region.id is RegionId.INBOX else first  # the inbox is written at its end
            self.halves = self.write(self.region, addr, data[:cut]), self.write(self.region, addr + step, data[cut:])
        elif self.region.id is RegionId.OUTBOX:
            self.halves = (self.read(self.region, addr, first),)
        else:
            rest = self.read(self.region, addr + first, self.words - first)
            self.halves = self.read(self.region, addr, first), rest
        for half in self.halves:
            half.whole = self
        return self.halves

    def answer(self, reply: bytes) -> None:
        """Take the reply; that of a whole is complete with the one of its last half."""
        self.reply = reply
        if self.whole is not None and all(half.done for half in self.whole.halves):
            self.whole.answer(b"".join(half.reply or b"" for half in self.whole.halves))


class RequestWindow:
    """Sends requests in order, as many ahead of their replies as the device has room for, and takes the replies.

    The device carries out requests in the order of their numbers, each once, and refuses what comes after one that
    was lost (go-back-N). So all that is unanswered is sent again with the same numbers when a reply is damaged or does
    not come, and nothing is done twice. A reply says that all requests before its own were carried out. Where such a
    request has a reply of its own that was lost, it is sent with a new number: whoever posts several requests sees to
    it that those which are read again still have the same answer.

    After the second failure in a row the device is asked which number it expects. What it has not carried out is sent
    again in requests of half the length, and later requests are as short: down to 16 bytes of payload or a word. At
    most four times as many bytes are on the way then. After 16 requests without a failure the length doubles.

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
    gave_up : bool
        Whether requests were given up, so that :meth:`resume` has to be called before the next one. The caller sets it
        back.
    payload : int
        Bytes of a payload at the most, as far as a request can be shortened.
    """

    def __init__(self, transport: Transport, *, timeout: float, retries: int):
        self.transport, self.timeout, self.retries = transport, timeout, retries
        self.size = 0
        self.repeated = 0
        self.counts = LineCounts()
        self.gave_up = False
        self.payload = _LONGEST
        self._reader = FrameReader()
        self._next = 0  # number of the next request
        self._queue: deque[LinkRequest] = deque()  # to be sent
        self._flight: deque[LinkRequest] = deque()  # unanswered, with numbers that follow each other
        self._coming = 0  # replies that may still come
        self._failures = 0  # since something was carried out last
        self._calm = 0  # requests that were carried out since the last failure
        self._doubt = 0  # how far in front of the next number the one may be that the device expects
        self._probes = 0  # questions for the expected number so far
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
        self._doubt, self.gave_up = _SEQUENCE - 1, False

    def resume(self) -> None:
        """Go on with the number that the device expects, after requests were given up.

        Raises
        ------
        SequenceError
            If it is none of those that the device can expect after these requests.
        LinkError
            If the line does not work.
        """
        expected = self._expected()
        if (self._next - expected) % _SEQUENCE > self._doubt:
            raise _out_of_step(self._next, expected)
        self._next = expected

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
        if not self._flight:
            return True
        return unanswered + count <= min(self.size, _AHEAD * self.payload) and len(self._flight) < _MOST_REQUESTS

    def complete(self, request: LinkRequest) -> bytes:
        """The reply to a request that was posted; errors as :meth:`post`."""
        while request.reply is None:
            if not self._flight and not self._queue:
                raise LinkError(f"{request.kind.name} must be posted again: it was given up, or one in front refused")
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
            if request.size > self.payload and request.words > 1:
                self._queue.popleft()
                self._queue.extendleft(reversed(request.halve()))
                continue
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
        bodies: list[bytes | None] = []
        try:
            bodies = self._bodies()
        except LinkTimeout as error:
            trouble, self._coming = error, 0
        for body in bodies:
            trouble = self._take(body) or trouble
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
        request.answer(reply.payload)
        self._went_well()
        self._renew()
        return None

    def _went_well(self) -> None:
        """A request was carried out, and that is known."""
        self._failures = self._doubt = 0
        self._calm += 1
        if self._calm == _CALM:
            self._calm, self.payload = 0, min(2 * self.payload, _LONGEST)

    def _out_of_order(self, request: LinkRequest, place: int, expected: int) -> LinkError | None:
        """The device expects another number than that of the request: one in front of it, or one after it."""
        passed = (expected - self._flight[0].seq) % _SEQUENCE
        if passed >= _SEQUENCE - _MOST_REQUESTS and request.sent > 1:
            return None  # it was late: what the device expected then has come since
        if passed > len(self._flight) or (passed >= place and request.sent == 1):
            raise _out_of_step(request.seq, expected)
        self._pass(passed)
        return None if passed > place else DamagedError("a request arrived damaged, or not at all")

    def _pass(self, count: int) -> None:
        """The first requests on the way were carried out, and have no reply."""
        lost = []
        for _ in range(count):
            request = self._flight.popleft()
            if not request.reply_bytes:
                request.answer(b"")
                self._went_well()
                continue
            request.lost += 1
            if request.lost > self.retries:
                text = f"{request.kind.name} failed {request.lost} times, at last: its reply was lost"
                raise self._given_up(LinkTimeout(text))
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
        while self._coming:
            try:
                bodies = self._bodies()
            except LinkTimeout:
                self._coming = 0
                return
            for body in bodies:
                self._take(body)

    def _go_back(self, trouble: LinkError) -> None:
        """Send everything again that is unanswered, after a second failure in shorter requests."""
        self._failed(trouble)
        self._drain()
        if self._failures > 1 and any(request.words > 1 for request in self._flight):
            self._shorten()
            return
        for request in self._flight:
            self._transmit(request)
        self.repeated += len(self._flight)
        self._renew()

    def _failed(self, trouble: LinkError) -> None:
        """Count a failure, and give up if it is one too many."""
        self._failures += 1
        self._calm = 0
        if self._failures > self.retries:
            kind = self._flight[0].kind.name if self._flight else Kind.WAIT.name
            raise self._given_up(type(trouble)(f"{kind} failed {self.retries + 1} times, at last: {trouble}"))

    def _given_up(self, error: LinkError) -> LinkError:
        """The error that says so, with nothing on the way any more."""
        self._lower_payload()
        self._doubt = max(self._doubt, len(self._flight))
        self._flight.clear()
        self._queue.clear()
        self._failures, self.gave_up = 0, True
        return error

    def _lower_payload(self) -> None:
        """Payloads become half as long as the longest that is on the way and can be shortened."""
        longest = max((request.size for request in self._flight if request.words > 1), default=self.payload * 2)
        self.payload = max(_SHORTEST, min(self.payload, longest // 2))

    def _shorten(self) -> None:
        """Have what the device has not carried out sent again, in shorter requests."""
        self._lower_payload()
        expected, first = self._expected(), self._flight[0].seq
        passed = (expected - first) % _SEQUENCE
        if passed > len(self._flight):
            raise _out_of_step(first, expected)
        self._pass(passed)
        again = [*self._flight]
        self._flight.clear()
        self._queue.extendleft(reversed(again))
        self._next = expected
        self.repeated += len(again)

    def _expected(self) -> int:
        """The number that the device expects.

        It answers a request out of order with it, and does nothing else. Replies come in the order of requests, so when
        that one is there no other is on its way.
        """
        while True:
            seq = (self._next + _MOST_REQUESTS + self._probes % _MOST_REQUESTS) % _SEQUENCE  # none of those on the way
            self._probes += 1
            question = LinkRequest.wait(0)
            question.data = Frame(seq, question.kind, question.payload).encode()
            self._patience = self.timeout + 2 * line_bytes(len(question.payload)) * self.transport.byte_time
            self._deadline = self.transport.clock() + self._patience
            self._transmit(question)
            try:
                expected = self._number_told()
            except LinkTimeout as trouble:
                self._failed(trouble)
                continue
            self._coming = 0
            return expected

    def _number_told(self) -> int:
        """The number in the reply to a question for it; :class:`LinkTimeout` if none comes, or a damaged one."""
        while self.transport.clock() <= self._deadline:
            for body in self._bodies():
                with suppress(FrameError):
                    reply = Frame.from_body(body or b"")
                    place = (reply.seq - self._next - _MOST_REQUESTS) % _SEQUENCE
                    if place >= _MOST_REQUESTS or reply.kind & UNSOLICITED:
                        continue  # not to a question
                    if reply.kind == Status.BAD_SEQ:
                        return int.from_bytes(reply.payload, "little")
                    return (reply.seq + 1) % _SEQUENCE  # it was the expected one, by chance
        raise LinkTimeout(f"no complete reply within {self._patience:.2f} s")


def _out_of_step(seq: int, expected: int) -> SequenceError:
    reason = "it was reset, or another host uses it"
    return SequenceError(f"device must expect sequence number {seq}, not {expected}: {reason}")


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
