"""A line on which bytes move only in calls of the host's driver, both ways at once: the times of an SPI."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from concord.host.frames import Frame, line_bytes
from concord.host.spi import CALL_BYTES, MOST_POLL_BYTES, POLL_BYTES, REST
from concord.host.timed_line import Answers, LineTimes, TimedLine
from concord.spec.config import NpuConfig

#: Part of a byte that is none.
_NOTHING = 1e-6


@dataclass
class _Moving:
    """A frame on its way, with the bytes that are still to come and the time from which on they can."""

    frame: Frame
    left: float
    since: float = 0.0


class CalledLine(TimedLine):
    """Calls of :class:`concord.host.spi.SpiTransport`: with what was written, then some that look for a reply.

    Parameters are those of :class:`concord.host.timed_line.TimedLine`.
    """

    def __init__(self, config: NpuConfig, answers: Answers, times: LineTimes):
        super().__init__(config, answers, times)
        self._waiting: deque[_Moving] = deque()  # to be sent
        self._arrived: deque[_Moving] = deque()  # in the device
        self._reply: _Moving | None = None
        self._came = bytearray()
        self._poll = POLL_BYTES

    def read(self, count: int, timeout: float) -> bytes:
        """Replies, as soon as a call has brought one."""
        begun = self.now
        while self._waiting:
            if self._send():
                begun = self.now
        while not self._came:
            if not self._arrived and self._reply is None:
                return b""
            self.now += min(REST * (self.now - begun), self.times.rest)
            if self._call(self._poll):
                begun = self.now
        data = bytes(self._came[:count])
        del self._came[:count]
        return data

    def _request(self, frame: Frame) -> None:
        size = line_bytes(len(frame.payload))
        self.requests += 1
        self.sent += size
        self._waiting.append(_Moving(frame, size))
        while sum(request.left for request in self._waiting) >= CALL_BYTES:
            self._send()

    def _send(self) -> bool:
        """Make one call with what waits, as :meth:`_call`."""
        at = self.now + self.times.call
        count, room = 0.0, float(CALL_BYTES)
        while self._waiting and room:
            request = self._waiting[0]
            moved = min(room, request.left)
            count, room, request.left = count + moved, room - moved, request.left - moved
            if not request.left:
                request.since = at + count * self.times.byte
                self._arrived.append(self._waiting.popleft())
        return self._call(max(count, POLL_BYTES))

    def _call(self, count: float) -> bool:
        """A call with so many bytes: what the device has for the host comes meanwhile; whether there was something."""
        at = self.now + self.times.call
        self.now = at + count * self.times.byte
        begun = came = False
        while self._reply is not None or self._arrived:
            reply = self._reply = self._reply or self._carried_out(self._arrived.popleft())
            at = max(at, reply.since)
            moved = min(reply.left, (self.now - at) / self.times.byte)
            if moved <= 0:
                break
            came = True
            at += moved * self.times.byte
            reply.left -= moved
            if begun := reply.left > _NOTHING:
                break
            self._ready, self._reply = at, None
            self._came += reply.frame.encode()
        self._poll = min(2 * self._poll, MOST_POLL_BYTES) if begun else POLL_BYTES
        return came

    def _carried_out(self, request: _Moving) -> _Moving:
        """The reply to a request."""
        frame = request.frame
        begun = max(request.since, self._ready) + self._taken(frame)
        self.answers.pass_to(begun)
        status, payload, done = self._numbered(frame, begun)
        size = line_bytes(len(payload))
        self.received += size
        return _Moving(Frame(frame.seq, status, payload), size, done)


def line_of(config: NpuConfig, answers: Answers, times: LineTimes) -> TimedLine:
    """The line with such times."""
    return (CalledLine if times.call else TimedLine)(config, answers, times)
