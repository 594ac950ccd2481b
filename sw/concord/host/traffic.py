"""Bytes of a run on the link, and their times: the driver itself runs on a line that only counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from concord.host.errors import BusyError
from concord.host.feeder import FeederClient
from concord.host.feeder_clock import FeederClock
from concord.host.frames import line_bytes
from concord.host.link import Identity, Link
from concord.host.linked import LinkedDevice
from concord.image import Image
from concord.image.code_book import Coding
from concord.image.feeder_scripts import LinkFormat, Route, Stream, route
from concord.spec.config import SPEC_VERSION, NpuConfig
from concord.spec.feeder import CODE_PAGE
from concord.spec.link import COUNT, TARGET, WAIT_CYCLES, Kind
from concord.spec.memmap import REGISTERS, Reg, RegionId

#: Bytes of a batch by which the rate is judged, over those of the inbox, and samples at the least.
_INBOXES, _SAMPLES = 16, 4
#: Cycles of a request, beside those of its bytes in the device.
_REQUEST = 30


@dataclass(frozen=True)
class Traffic:
    """What one run puts on the line, framing included, escapes left out (0.8 % of random bytes).

    Parameters
    ----------
    sent, received : float
        Bytes to the device, and from it.
    requests : float
        Requests, of which each waits for its reply.
    cycles : float or None
        From a run to the next one, in clock cycles, where transfers go on while the device computes.
    """

    sent: float
    received: float
    requests: float
    cycles: float | None = None


class _NoLine:
    """A transport that carries nothing."""

    byte_time = 0.0
    wait_cycles: int | None = None

    def write(self, data: bytes) -> None:
        """Lose bytes."""

    def read(self, count: int, timeout: float) -> bytes:
        """Nothing ever comes."""
        return b""

    def close(self) -> None:
        """There is nothing to close."""


class _CountingLink(Link):
    """Every request succeeds; its bytes and those of its reply are counted."""

    def __init__(self, config: NpuConfig):
        super().__init__(_NoLine())
        self.config = config
        self.sent = self.received = self.requests = 0

    def synchronise(self) -> Identity:
        return Identity(SPEC_VERSION, self.config.fingerprint)

    def _request(self, kind: Kind, payload: bytes, *, repeatable: bool = True, reply_bytes: int = 0) -> bytes:
        self.requests += 1
        self.sent += line_bytes(len(payload))
        self.received += line_bytes(reply_bytes)
        return bytes(reply_bytes)


class _FedLink(_CountingLink):
    """A line on which bytes and replies take time, with a feeder behind it."""

    def __init__(self, config: NpuConfig, clock: FeederClock, byte_cycles: float, reply_cycles: float):
        super().__init__(config)
        self.clock, self.byte_cycles, self.reply_cycles = clock, byte_cycles, reply_cycles
        self.now = 0.0

    def _pass(self, count: int) -> None:
        self.now += count * self.byte_cycles

    def _request(self, kind: Kind, payload: bytes, *, repeatable: bool = True, reply_bytes: int = 0) -> bytes:
        self.requests += 1
        self.sent += line_bytes(len(payload))
        self._pass(line_bytes(len(payload)))
        self.now += _REQUEST + len(payload)
        self.clock.advance(self.now)
        try:
            reply = self._answer(kind, payload, reply_bytes)
        except BusyError:
            reply_bytes = 0
            raise
        finally:
            self.received += line_bytes(reply_bytes)
            self._pass(line_bytes(reply_bytes))
            self.now += self.reply_cycles
        return reply

    def _answer(self, kind: Kind, payload: bytes, reply_bytes: int) -> bytes:
        clock = self.clock
        if kind is Kind.WAIT:
            return self._wait(WAIT_CYCLES.unpack(int.from_bytes(payload, "little"))["cycles"])
        target = TARGET.unpack(int.from_bytes(payload[: TARGET.nbytes], "little"))
        count = len(payload) - TARGET.nbytes
        if target["region"] == RegionId.INBOX:
            if count > clock.free_bytes:
                raise BusyError("no room")
            clock.came += count
        elif target["region"] == RegionId.OUTBOX:
            count = COUNT.unpack(int.from_bytes(payload[TARGET.nbytes :], "little"))["count"]
            if clock.taken + count > clock.produced:
                raise BusyError("no results")
            clock.taken += count
        return bytes(reply_bytes)

    def _wait(self, cycles: int) -> bytes:
        """The register STATUS as soon as the feeder waits for the host."""
        end = self.now + cycles
        since = self.clock.advance(end)
        self.now = end if since is None else max(self.now, since)
        layout = REGISTERS[Reg.STATUS].layout
        fields = {field.name: 0 for field in layout.fields} | {"busy": since is None}
        return layout.pack(**fields).to_bytes(layout.nbytes, "little")


def traffic(image: Image) -> Traffic:
    """The bytes of one run of an image with all of its phases, laid out by the host."""
    config = image.config.replace(inbox=0)
    link = _CountingLink(config)
    device = LinkedDevice(link, config)
    device.image = image  # as if it had been loaded
    device.run({port.name: np.zeros((1, *port.shape)) for port in image.inputs})
    return Traffic(link.sent, link.received, link.requests)


def call_traffic(image: Image) -> Traffic:
    """What a call of ``concord.Network.run`` sends besides its runs: flags are cleared before, and read afterwards."""
    link = _CountingLink(image.config)
    device = LinkedDevice(link, image.config)
    device.clear_flags()
    device.flags()
    return Traffic(link.sent, link.received, link.requests)


def fed_traffic(
    image: Image, sample_route: Route, cycles: Sequence[int], byte_cycles: float, reply_cycles: float = 0.0
) -> Traffic:
    """The bytes of one run of many through the feeder, and the time from one to the next.

    Parameters
    ----------
    image : Image
        With a feeding.
    sample_route : Route
        How its samples go.
    cycles : sequence of int
        Of the phases.
    byte_cycles : float
        Clock cycles of a byte on the line.
    reply_cycles : float
        Clock cycles that a request waits for its reply, besides those of the bytes.
    """
    few = max(_SAMPLES, _INBOXES * image.config.inbox // sample_route.sample_bytes)
    times = byte_cycles, reply_cycles
    some, more = (_batch(image, sample_route, cycles, times, size) for size in (few, 2 * few))
    sent, received, requests, now = ((b - a) / few for a, b in zip(some, more, strict=True))
    return Traffic(sent, received, requests, max(now, (sent + received) * byte_cycles))


def fed_latency(image: Image, cycles: Sequence[int], byte_cycles: float, reply_cycles: float = 0.0) -> float:
    """Clock cycles from the first byte of a sample alone to the last one of its results, as :func:`fed_traffic`.

    Raises
    ------
    FeedError
        If the host has to lay out the inputs.
    """
    elements, codings = 0, dict(image.feeding.codings)
    for feed in image.feeding.feeds:  # so few elements have few values, whatever they are
        elements += int(np.prod(feed.image))
        if elements <= CODE_PAGE:
            codings.setdefault(feed.port, Coding())
    chosen_route = route(image.feeding, image.schedule(), (image.inputs, image.outputs), codings, image.config)
    return _batch(image, chosen_route, cycles, (byte_cycles, reply_cycles), 1)[3]


def _batch(
    image: Image, sample_route: Route, cycles: Sequence[int], times: tuple[float, float], size: int
) -> tuple[float, float, float, float]:
    """Bytes sent and received, requests and cycles of a batch whose script is there already, but not its code book."""
    clock = FeederClock(sample_route, image.schedule(), cycles, image.config)
    link = _FedLink(image.config, clock, *times)
    device = LinkedDevice(link, image.config)
    coded = [transfer for transfer in sample_route.input_transfers if transfer.kind is LinkFormat.CODED]
    if coded:
        elements = sum(transfer.feed.elements for transfer in coded)
        full = max(transfer.coding.pages(transfer.feed.image[2]).stop for transfer in coded) - 1
        device.write(RegionId.CODES, 0, [0] * (full * CODE_PAGE + min(size * elements, CODE_PAGE)))
    FeederClient(device).exchange(Stream(sample_route, bytes(size * sample_route.sample_bytes), ()), size, None)
    return link.sent, link.received, link.requests, link.now
