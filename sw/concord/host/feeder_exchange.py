"""The bytes of a batch to the inbox of the feeder, and its results from the outbox, while the device computes."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from concord.host.errors import BusyError, DeviceError, RunTimeout
from concord.host.link import Link
from concord.host.window import LinkRequest
from concord.image.feeder_scripts import Stream, outbox_chunk
from concord.spec.config import NpuConfig
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.memmap import Region, RegionId

#: Before a second look at the outbox, at the clock of the configuration; twice as long before every one that follows.
_PAUSE_SECONDS = 0.5e-3


class FedDevice(Protocol):
    """Device as the feeder's side of the host needs it, such as :class:`concord.host.linked.LinkedDevice`."""

    config: NpuConfig
    regions: dict[RegionId, Region]
    link: Link
    wait_cycles: int

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of a run."""

    def idle(self, status: int) -> bool:
        """True if a word of STATUS says that nothing is going on; raises if the last run has ended with a trap."""

    def report_written(self, count: int) -> None:
        """Tell a progress bar how many bytes more have arrived."""

    def report_progress(self, samples: int) -> None:
        """Tell a progress bar how many samples more have ended."""


@dataclass(eq=False)
class _Posted:
    """A request of an exchange: ``count`` bytes of the batch or of the results from ``first`` on, or a wait."""

    request: LinkRequest
    region: RegionId
    first: int = 0
    count: int = 0


class Exchange:
    """Sends a batch and collects its results, with as many requests on the way as the device has room for.

    Bytes go out as long as the inbox takes them, which waits for room as long as the device can make some. Once it has
    refused some, because it waits for the host to take results, they only go out when results tell that there is room,
    so that nothing is sent in vain. Results are
    asked for when a part has been sent after their sample, since they should be there by then; the device sends those
    that are.

    Parameters
    ----------
    device : FedDevice
        Whose script is the one of the stream.
    raw_stream : Stream
        The batch.
    size : int
        Samples.
    timeout : float or None
        Seconds in which there must be a result.
    first : int
        Address of the first result in the outbox.
    """

    def __init__(self, device: FedDevice, raw_stream: Stream, size: int, timeout: float | None, first: int):
        config, route = device.config, raw_stream.route
        self._device, self._link = device, device.link
        self._inbox, self._outbox = device.regions[RegionId.INBOX], device.regions[RegionId.OUTBOX]
        self._batch, self._chunk, self._sample = raw_stream.data, route.chunk, route.sample_bytes
        self._result, self._total, self._origin = route.result_bytes, size * route.result_bytes, first
        self._capacity, self._ring = config.inbox - 1, config.outbox_depth
        most = min(outbox_chunk(config), self._total)
        self._most = max(most // self._result * self._result, min(most, self._result))  # of whole samples, if it can be
        self._first_pause = max(1, int(_PAUSE_SECONDS * config.clock_hz))
        self._timeout = timeout
        self._results = bytearray()
        self._posted: deque[_Posted] = deque()
        self._sent = self._asked = 0  # bytes of the batch, and results, that requests are on the way for or through
        self._due = 0  # results that should be there
        self._patient = False  # the inbox has refused bytes
        self._refused = -1, 0  # byte of the batch that the inbox has refused last, and how many results there were
        self._hold = 0  # results that must have come before more bytes are sent
        self._pause = 0  # cycles to wait before results are asked for
        self._waited = False  # since the last part was sent
        self._idle = False  # said the last wait, after which nothing has been read
        self._kept = 0  # result in front of which the device has been told to let go
        self._silent = 0  # waits that ended because the device was idle, and after which there was no result
        self._renew()

    @property
    def addr(self) -> int:
        """Address of the next result in the outbox."""
        return (self._origin + len(self._results)) % (2 * self._ring)

    def run(self) -> bytes:
        """The results of all samples.

        Raises
        ------
        TrapError
            If a run has ended with a trap.
        DeviceError
            If there are fewer results than there should be, or the inbox never has room.
        RunTimeout
            If no result comes.
        """
        while len(self._results) < self._total:
            try:
                self._go_on()
            except BusyError:
                self._go_back()
        if len(self._results) - self._kept > self._ring // 2:  # the next batch needs room, too
            self._read(0)
        return bytes(self._results)

    def _go_on(self) -> None:
        """Send the next request, or wait for a reply."""
        self._take()
        if self._posted and len(self._results) - self._kept >= self._ring // 2:
            self._read(0)
        may_send, wanted = self._may_send(), self._wanted()
        ready = self._link.room_for(LinkRequest.write(self._inbox, 0, self._part() if may_send else b""))
        if self._posted and not (ready and (may_send or wanted)):  # what is sent depends on what has come
            self._link.complete(self._posted[0].request)
        elif may_send:
            self._send()
        elif wanted:
            self._ask(wanted)

    # What is next ----------------------------------------------------------------------------------

    def _needed(self) -> int:
        """Results that must have come before the next part is sent, because it has no room before."""
        laid_out = self._laid_out()
        kept = (laid_out - 1) * self._result - self._ring  # the last one may wait with its results
        if self._patient:
            kept = max(kept, min(laid_out, self._sent // self._sample) * self._result)
        return max(self._hold, kept)

    def _laid_out(self) -> int:
        """Samples that must have been laid out before the inbox takes the next part."""
        return -(-(self._sent + len(self._part()) - self._capacity) // self._sample)

    def _part(self) -> bytes:
        """The next bytes to be sent."""
        return self._batch[self._sent : self._sent + self._chunk]

    @property
    def _blocked(self) -> bool:
        """True if nothing is sent before there are results."""
        return len(self._results) < self._needed()

    def _may_send(self) -> bool:
        if self._sent == len(self._batch) or self._due - self._asked >= self._most:
            return False
        return not self._blocked

    def _wanted(self) -> int:
        """Number of results to ask for now."""
        if self._sent == len(self._batch):
            target = self._total
        else:
            target = max(self._needed(), self._asked + (self._due - self._asked) // self._most * self._most)
        kept = self._kept if self._posted else len(self._results)  # more than that has no room until the device is told
        free = self._ring - (self._asked - kept)
        count = max(0, min(target - self._asked, self._most, free))
        if self._result <= self._most:  # of whole samples: what is read after a part that is not there, is read again
            count = max(0, (self._asked + count) // self._result * self._result - self._asked)
        return count

    # Requests --------------------------------------------------------------------------------------

    def _send(self) -> None:
        part = self._part()
        if self._kept < (self._laid_out() - 1) * self._result - self._ring:
            self._read(0)
        self._due = self._sent // self._sample * self._result
        posted = _Posted(LinkRequest.write(self._inbox, 0, part), RegionId.INBOX, self._sent, len(part))
        self._sent += len(part)
        self._waited = False
        self._post(posted)

    def _ask(self, count: int) -> None:
        """Ask for results, if need be as soon as the device has nothing more to do."""
        reading = any(posted.region is RegionId.OUTBOX for posted in self._posted)
        through = self._sent == len(self._batch)
        first = self._link.window > 0 and not self._waited  # both travel together
        if not reading and (through or self._blocked) and (self._pause or first):
            self._waited = True
            alone = through and self._total - len(self._results) <= self._result
            cycles = self._device.wait_cycles if alone else self._pause or self._first_pause
            if self._sent // self._sample * self._result - self._kept > self._ring:  # the outbox may be full
                self._read(0)
            self._post(_Posted(LinkRequest.wait(cycles), RegionId.REGS))
        self._read(count)

    def _read(self, count: int) -> None:
        address = OUTBOX_ADDRESS.pack(first=(self._origin + self._asked) % (2 * self._ring), kept=self.addr)
        self._kept = len(self._results)
        posted = _Posted(LinkRequest.read(self._outbox, address, count), RegionId.OUTBOX, self._asked, count)
        self._asked += count
        self._post(posted)

    def _post(self, posted: _Posted) -> None:
        self._posted.append(posted)
        self._link.post(posted.request)

    # Replies ---------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take replies in order, as far as they are there."""
        while self._posted and self._posted[0].request.reply is not None:
            posted = self._posted.popleft()
            reply = posted.request.reply or b""
            if posted.region is RegionId.INBOX:
                self._device.report_written(posted.count)
            elif posted.region is RegionId.REGS:
                self._idle = self._device.idle(int.from_bytes(reply, "little"))
            else:
                self._take_results(posted, reply)

    def _take_results(self, posted: _Posted, data: bytes) -> None:
        idle, self._idle = self._idle, False
        if posted.first != len(self._results):
            return  # what is in front of it was not there yet, and is asked for again
        before = len(self._results) // self._result
        self._results += data
        self._device.report_progress(len(self._results) // self._result - before)
        self._asked = max(self._asked, len(self._results))
        if data:
            self._pause = self._silent = 0
            self._renew()
        if len(data) == posted.count:
            return
        self._asked = len(self._results)
        if self._sent < len(self._batch) and not self._blocked:
            self._due = min(self._due, self._asked)  # asked for again after the next part
        if data:
            return
        self._silent += idle
        if self._silent > 1:
            raise DeviceError(f"device must have {posted.count} bytes of results after its run, but has less")
        self._pause = 2 * self._pause or self._first_pause
        if self._end is not None and time.monotonic() > self._end:
            raise RunTimeout(f"the device is still busy after {self._timeout} s")

    def _go_back(self) -> None:
        """The inbox had no room: what it has refused, and everything after that, has to be sent again."""
        self._take()
        writes = [posted for posted in self._posted if posted.region is RegionId.INBOX]
        refused_part = next(posted for posted in writes if not posted.request.done)
        self._sent = refused_part.first + refused_part.request.carried
        self._posted.clear()
        self._asked = len(self._results)
        self._patient = True
        there = self._sent // self._sample * self._result
        self._due = min(self._due, there)
        if (ready := there - len(self._results)) > 0:
            self._hold = len(self._results) + min(self._most, ready, self._result)
            return
        refused = self._sent, len(self._results)
        if refused == self._refused:
            raise DeviceError(f"device must take byte {self._sent} of the inputs when it is idle, but refuses it")
        self._refused = refused
        self._device.wait(self._timeout)
        self._read(min(self._most, self._total - len(self._results)))  # of a sample that is not there as a whole
        self._link.complete(self._posted[-1].request)  # these results make room for what is sent next

    def _renew(self) -> None:
        """The time begins again in which a result must come."""
        self._end = None if self._timeout is None else time.monotonic() + self._timeout
