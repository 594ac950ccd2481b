"""The host side of :mod:`concord.spec.link` over any transport."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from concord.host.errors import LinkError
from concord.host.frames import line_bytes
from concord.host.transport import Transport
from concord.host.window import LineCounts, LinkRequest, RequestWindow
from concord.spec.link import COUNT, FLAG, HEADER, TARGET, Kind
from concord.spec.memmap import MAGIC, Reg, Region, RegionId

_REGISTER_BYTES = 4
_SEQUENCE = 1 << HEADER["seq"].width
_MOST_WORDS = COUNT["count"].high


@dataclass(frozen=True)
class Identity:
    """Version and fingerprint that a device reports of itself."""

    version: int
    fingerprint: int


class Link:
    """Requests and their replies.

    A read or a write of many words takes several requests, which are on the way together as far as the device has room
    for them (:class:`concord.host.window.RequestWindow`). A request whose reply does not come, or comes damaged, is
    sent again with the same number. The device executes a number once, so nothing is written twice, no run is started
    twice, and the inbox has no bytes twice.

    After requests were given up the next call asks the device which number it expects, and goes on with that one. What
    was given up may have been carried out or not, each request as a whole.

    Parameters
    ----------
    transport : Transport
        Carries the bytes; closed with the link.
    timeout : float
        Seconds to wait for a reply, besides the time on the line.
    retries : int
        Repetitions of a request.

    Members
    -------
    max_payload : int
        Greatest payload of the device, to be set when its configuration is known.
    resumed : callable or None
        Told who is there when the link goes on after requests were given up, in front of the next request; may use the
        link. If it raises, the next call tells it once more.
    """

    def __init__(self, transport: Transport, *, timeout: float = 1.0, retries: int = 4):
        if timeout <= 0:
            raise ValueError(f"timeout must be positive, not {timeout!r}")
        if retries < 0:
            raise ValueError(f"retries must not be negative, not {retries!r}")
        self.transport = transport
        self.max_payload = 64
        self.resumed: Callable[[Identity], None] | None = None
        self._resuming = False
        self._requests = RequestWindow(transport, timeout=timeout, retries=retries)

    @property
    def window(self) -> int:
        """Bytes of requests that may be unanswered, to be set when the configuration of the device is known."""
        return self._requests.size

    @window.setter
    def window(self, size: int) -> None:
        self._requests.size = size

    @property
    def repeated(self) -> int:
        """Requests that were sent again so far."""
        return self._requests.repeated

    @property
    def counts(self) -> LineCounts:
        """Counts of what was on the line so far."""
        return replace(self._requests.counts)

    # Requests ----------------------------------------------------------------------------------

    def synchronise(self) -> Identity:
        """Forget what is on the line, agree on a sequence number and ask who is there."""
        self.transport.write(bytes([FLAG, FLAG]))  # ends what another host may have begun
        self._requests.synchronise(secrets.randbelow(_SEQUENCE))  # old replies to an old number are ignored
        return self.ping()

    def ping(self) -> Identity:
        """Ask who is there."""
        data = self._request(Kind.PING, b"", (Reg.FINGERPRINT_HIGH + 1) * _REGISTER_BYTES)
        words = [int.from_bytes(data[n : n + _REGISTER_BYTES], "little") for n in range(0, len(data), _REGISTER_BYTES)]
        if len(words) != Reg.FINGERPRINT_HIGH + 1 or words[Reg.MAGIC] != MAGIC:
            raise LinkError(f"reply to PING must begin with {MAGIC.to_bytes(4, 'little')!r}, not {data[:4]!r}")
        return Identity(words[Reg.VERSION], words[Reg.FINGERPRINT] | words[Reg.FINGERPRINT_HIGH] << 32)

    def read(self, region: Region, addr: int, count: int) -> bytes:
        """Return ``count`` words of a region, as they are on the line; of the outbox those that are there."""
        most = min(self.max_payload // region.nbytes, _MOST_WORDS)
        pieces = [(at, min(most, addr + count - at)) for at in range(addr, addr + count, most)]
        requests = [self.post(LinkRequest.read(region, at, words)) for at, words in pieces]
        parts = [self.complete(request) for request in requests]
        for part, (_, words) in zip(parts, pieces, strict=True):
            if len(part) != words * region.nbytes and region.id is not RegionId.OUTBOX:
                raise LinkError(f"reply must have {words * region.nbytes} bytes, not {len(part)}")
        return b"".join(parts)

    def write(self, region: Region, addr: int, data: bytes, progress: Callable[[int], None] | None = None) -> None:
        """Write words to a region; ``progress`` is told the bytes of each frame that has arrived."""
        waiting: deque[LinkRequest] = deque()
        for request in self._writes(region, addr, data):
            waiting.append(self.post(request))
            while waiting and waiting[0].done:
                _report(waiting.popleft(), progress)
        for request in waiting:
            self.complete(request)
            _report(request, progress)

    def wait(self, cycles: int) -> int:
        """Return the register STATUS as soon as the device is not busy, at the latest after ``cycles``."""
        return int.from_bytes(self.complete(self.post(LinkRequest.wait(cycles))), "little")

    # Requests ahead of their replies ---------------------------------------------------------------

    def post(self, request: LinkRequest) -> LinkRequest:
        """Send a request as soon as the device has room for it, and return it for :meth:`complete`; same errors."""
        if self._requests.gave_up and not self._resuming:
            self._resume()
        return self._requests.post(request)

    def room_for(self, request: LinkRequest) -> bool:
        """True if a request would be sent at once, if nothing of it had to be escaped."""
        return self._requests.room_for(line_bytes(len(request.payload)))

    def post_write(self, region: Region, addr: int, data: bytes) -> list[LinkRequest]:
        """Send words of a region, in as many requests as it takes."""
        return [self.post(request) for request in self._writes(region, addr, data)]

    def complete(self, request: LinkRequest) -> bytes:
        """The payload of the reply to a request.

        Raises
        ------
        RefusedError
            If the device has refused it, or one in front of it; then those after that are not carried out either.
        LinkError
            If the line does not work.
        """
        return self._requests.complete(request)

    def quiesce(self) -> None:
        """Wait for what is on the way, whatever becomes of it."""
        self._requests.quiesce()

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()

    # Parts ---------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Go on after requests were given up."""
        self._resuming = True
        try:
            self._requests.resume()
            identity = self.ping()
            if self.resumed is not None:
                self.resumed(identity)
            self._requests.gave_up = False
        finally:
            self._resuming = False

    def _request(self, kind: Kind, payload: bytes, reply_bytes: int) -> bytes:
        return self.complete(self.post(LinkRequest(kind, payload, reply_bytes)))

    def _writes(self, region: Region, addr: int, data: bytes) -> Iterator[LinkRequest]:
        if len(data) % region.nbytes:
            raise ValueError(f"data must be whole words of {region.nbytes} bytes, not {len(data)} bytes")
        most = (self.max_payload - TARGET.nbytes) // region.nbytes * region.nbytes
        for at in range(0, len(data), most):
            yield LinkRequest.write(region, addr + at // region.nbytes, data[at : at + most])


def _report(request: LinkRequest, progress: Callable[[int], None] | None) -> None:
    if progress:
        progress(len(request.payload) - TARGET.nbytes)
