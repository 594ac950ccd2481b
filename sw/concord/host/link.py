"""The host side of :mod:`concord.spec.link` over any transport."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from concord.host.errors import REFUSALS, DamagedError, LinkError, LinkTimeout, SequenceError
from concord.host.frames import Frame, FrameError, FrameReader, line_bytes
from concord.host.transport import Transport
from concord.spec.link import COUNT, FLAG, HEADER, TARGET, UNSOLICITED, WAIT_CYCLES, Kind, Status
from concord.spec.memmap import MAGIC, Reg, Region, RegionId

_REGISTER_BYTES = 4
_SEQUENCE = 1 << HEADER["seq"].width
_MOST_WORDS = COUNT["count"].high
#: Largest piece asked of a transport at a time.
_CHUNK = 4096


@dataclass(frozen=True)
class Identity:
    """What a device says about itself."""

    version: int
    fingerprint: int


class Link:
    """Requests and their replies, one at a time.

    A request whose reply does not come, or comes damaged, is sent again with the same number. The device executes a
    number once, so the refusal of a repetition tells that the first one was executed. A request that a device may carry
    out twice without harm is then sent with a new number (its reply is wanted); a write of registers is not, since it
    may start a run, nor is one to the inbox, which would have the bytes twice.

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
    repeated : int
        Requests that were sent again so far.
    """

    def __init__(self, transport: Transport, *, timeout: float = 1.0, retries: int = 4):
        if timeout <= 0:
            raise ValueError(f"timeout must be positive, not {timeout!r}")
        if retries < 0:
            raise ValueError(f"retries must not be negative, not {retries!r}")
        self.transport = transport
        self.timeout = timeout
        self.retries = retries
        self.max_payload = 64
        self.repeated = 0
        self._seq = 0
        self._reader = FrameReader()

    # Requests ----------------------------------------------------------------------------------

    def synchronise(self) -> Identity:
        """Forget what is on the line, agree on a sequence number and ask who is there."""
        self.transport.write(bytes([FLAG, FLAG]))  # ends what another host may have begun
        while self.transport.read(_CHUNK, 0.05):
            pass
        self._reader.reset()
        self._seq = secrets.randbelow(_SEQUENCE)  # old replies to an old number are ignored
        return self.ping()

    def ping(self) -> Identity:
        """Ask who is there."""
        data = self._request(Kind.PING, b"", reply_bytes=(Reg.FINGERPRINT_HIGH + 1) * _REGISTER_BYTES)
        words = [int.from_bytes(data[n : n + _REGISTER_BYTES], "little") for n in range(0, len(data), _REGISTER_BYTES)]
        if len(words) != Reg.FINGERPRINT_HIGH + 1 or words[Reg.MAGIC] != MAGIC:
            raise LinkError(f"reply to PING must begin with {MAGIC.to_bytes(4, 'little')!r}, not {data[:4]!r}")
        return Identity(words[Reg.VERSION], words[Reg.FINGERPRINT] | words[Reg.FINGERPRINT_HIGH] << 32)

    def read(self, region: Region, addr: int, count: int) -> bytes:
        """Return ``count`` words of a region, as they are on the line."""
        most = min(self.max_payload // region.nbytes, _MOST_WORDS)
        parts = []
        for at in range(addr, addr + count, most):
            words = min(most, addr + count - at)
            payload = _target(region, at) + COUNT.pack(count=words).to_bytes(COUNT.nbytes, "little")
            data = self._request(Kind.READ, payload, reply_bytes=words * region.nbytes)
            if len(data) != words * region.nbytes:
                raise LinkError(f"reply must have {words * region.nbytes} bytes, not {len(data)}")
            parts.append(data)
        return b"".join(parts)

    def write(self, region: Region, addr: int, data: bytes, progress: Callable[[int], None] | None = None) -> None:
        """Write words to a region; ``progress`` is told the bytes of each frame that has arrived."""
        if len(data) % region.nbytes:
            raise ValueError(f"data must be whole words of {region.nbytes} bytes, not {len(data)} bytes")
        most = (self.max_payload - TARGET.nbytes) // region.nbytes * region.nbytes
        for at in range(0, len(data), most):
            part = data[at : at + most]
            payload = _target(region, addr + at // region.nbytes) + part
            self._request(Kind.WRITE, payload, repeatable=region.id not in (RegionId.REGS, RegionId.INBOX))
            if progress:
                progress(len(part))

    def wait(self, cycles: int) -> int:
        """Return the register STATUS as soon as the device is not busy, at the latest after ``cycles``."""
        payload = WAIT_CYCLES.pack(cycles=cycles).to_bytes(WAIT_CYCLES.nbytes, "little")
        return int.from_bytes(self._request(Kind.WAIT, payload, reply_bytes=_REGISTER_BYTES), "little")

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()

    # One request -------------------------------------------------------------------------------

    def _request(self, kind: Kind, payload: bytes, *, repeatable: bool = True, reply_bytes: int = 0) -> bytes:
        """Send a request until there is a reply, and return the payload of the reply."""
        trouble: LinkError = LinkTimeout("no request was sent")
        there_and_back = line_bytes(len(payload)) + line_bytes(reply_bytes)
        on_line = 2 * there_and_back * self.transport.byte_time  # if every byte were escaped
        for attempt in range(self.retries + 1):
            self.repeated += attempt > 0
            request = Frame(self._seq, kind, payload)
            self.transport.write(request.encode())
            try:
                reply = self._reply(self._seq, self.timeout + on_line)
            except (LinkTimeout, DamagedError) as error:
                trouble = error
                continue
            if reply.kind == Status.OK:
                self._seq = (self._seq + 1) % _SEQUENCE
                return reply.payload
            if reply.kind != Status.BAD_SEQ:
                raise _refusal(kind, payload, reply)
            expected = int.from_bytes(reply.payload, "little")
            if attempt == 0 or expected != (self._seq + 1) % _SEQUENCE:
                reason = "it was reset, or another host uses it"
                raise SequenceError(f"device must expect sequence number {self._seq}, not {expected}: {reason}")
            self._seq = expected
            if not repeatable:
                return b""
        raise type(trouble)(f"{kind.name} failed {self.retries + 1} times, at last: {trouble}")

    def _reply(self, seq: int, timeout: float) -> Frame:
        """The reply to the request ``seq``; replies to earlier ones are skipped."""
        end = time.monotonic() + timeout
        while True:
            data = self.transport.read(_CHUNK, timeout)
            if not data:
                raise LinkTimeout(f"no reply within {timeout:.2f} s")
            trouble = None
            for body in list(self._reader.feed(data)):
                try:
                    reply = Frame.from_body(body or b"")
                except FrameError as error:
                    trouble = DamagedError(f"damaged reply: {error}")
                    continue
                if reply.kind & UNSOLICITED:
                    trouble = DamagedError("the request arrived damaged")
                elif reply.seq == seq:
                    return reply
            if trouble:
                raise trouble
            if time.monotonic() > end:
                raise LinkTimeout(f"no complete reply within {timeout:.2f} s")


def _target(region: Region, addr: int) -> bytes:
    return TARGET.pack(region=region.id, addr=addr).to_bytes(TARGET.nbytes, "little")


def _refusal(kind: Kind, payload: bytes, reply: Frame) -> LinkError:
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
