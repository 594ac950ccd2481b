"""Bytes of a run on the link, and their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import linear_regression

import numpy as np

from concord.host.called_line import line_of
from concord.host.feeder import FeederClient
from concord.host.feeder_clock import FeederClock
from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.host.timed_line import Answers, FedCore, LineTimes, RunningCore, TimedLine
from concord.image import Image
from concord.image.code_book import Coding
from concord.image.feeder_scripts import LinkFormat, Route, Stream, outbox_chunk, route
from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE
from concord.spec.memmap import RegionId

#: Bytes of a batch by which the rate is judged, over those of the inbox, and samples at the least.
_INBOXES, _SAMPLES = 16, 4
#: Samples after them at the least.
_STREAM = 40


@dataclass(frozen=True)
class Traffic:
    """Bytes of one run on the line, framing included, escapes left out (0.8 % of random bytes).

    Parameters
    ----------
    sent, received : float
        Bytes to the device, and from it.
    requests : float
        Requests.
    cycles : float
        Clock cycles that it takes: from a run to the next one, where there are several.
    """

    sent: float
    received: float
    requests: float
    cycles: float

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def times(self, count: float) -> Traffic:
        """Traffic of ``count`` such runs, one after the other."""
        return Traffic(*(count * getattr(self, field.name) for field in fields(self)))


def _device(config: NpuConfig, answers: Answers, times: LineTimes) -> tuple[LinkedDevice, TimedLine]:
    """A device at the end of a line on which nothing has happened."""
    line = line_of(config, answers, times)
    device = LinkedDevice(Link(line), config)
    line.sent = line.received = line.requests = 0
    return device, line


def _between(line: TimedLine, before: tuple[int, int, int, float], count: int = 1) -> Traffic:
    """The traffic since then, divided among runs."""
    after = _state(line)
    return Traffic(*((b - a) / count for a, b in zip(before, after, strict=True)))


def _state(line: TimedLine) -> tuple[int, int, int, float]:
    return line.sent, line.received, line.requests, line.now


def traffic(image: Image, phases: Sequence[int] = (0,), times: LineTimes | None = None) -> Traffic:
    """One run of an image with all of its phases, laid out by the host.

    Parameters
    ----------
    image : Image
    phases : sequence of int
        Cycles of the computation in each phase.
    times : LineTimes, optional
        No time at all if left out.
    """
    config = image.config.replace(inbox=0)
    device, line = _device(config, RunningCore(phases), times or LineTimes())
    device.image = image  # as if it had been loaded
    before = _state(line)
    device.run({port.name: np.zeros((1, *port.shape)) for port in image.inputs})
    return _between(line, before)


def call_traffic(image: Image, times: LineTimes | None = None) -> Traffic:
    """Traffic of a call of ``concord.Network.run`` besides its runs: flags are cleared before, and read afterwards."""
    device, line = _device(image.config, RunningCore((0,)), times or LineTimes())
    before = _state(line)
    device.clear_flags()
    device.flags()
    return _between(line, before)


def fed_traffic(image: Image, sample_route: Route, phases: Sequence[int], times: LineTimes) -> Traffic:
    """One run of many through the feeder, without what a batch takes longer because it begins and ends.

    When the last results come depends on how many there are, by the time that a reply is held back. So the time of a
    run is that from its end on the device to the end of the next one, from when on a batch goes on as it has begun: the
    slope of the line with the least squares of errors.

    Parameters
    ----------
    image : Image
        With a feeding.
    sample_route : Route
        How its samples go.
    phases : sequence of int
        Cycles of the computation in each phase.
    times : LineTimes
        Of the line.
    """
    few = few_samples(image, sample_route)
    count, of_a_read = max(few, _STREAM), max(1, outbox_chunk(image.config) // sample_route.result_bytes)
    if of_a_read <= count:
        count = -(-count // of_a_read) * of_a_read
    some, _ = _fed_batch(image, sample_route, phases, times, few)
    more, ends = _fed_batch(image, sample_route, phases, times, few + count)
    sent, received, requests = (
        (getattr(more, name) - getattr(some, name)) / count for name in ("sent", "received", "requests")
    )
    cycles = linear_regression(range(count), ends[few:]).slope
    return Traffic(sent, received, requests, max(cycles, max(sent, received) * times.byte))


def few_samples(image: Image, sample_route: Route) -> int:
    """Samples of a batch after which every further one takes as long as the one before."""
    return max(_SAMPLES, _INBOXES * image.config.inbox // sample_route.sample_bytes)


def fed_latency(image: Image, phases: Sequence[int], times: LineTimes, code_words: int | None = None) -> float:
    """Clock cycles from the first byte of a sample alone to the last one of its results.

    Parameters
    ----------
    image, phases, times
        As for :func:`fed_traffic`.
    code_words : int, optional
        Words of its code book; as many as there may be if left out.

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
    codes = _code_book(image, chosen_route, times, code_words)
    return codes.cycles + fed_batch(image, chosen_route, phases, times, 1).cycles


def _code_book(image: Image, sample_route: Route, times: LineTimes, words: int | None) -> Traffic:
    """Traffic of the code book, which is sent before a sample."""
    device, line = _device(image.config, RunningCore((0,)), times)
    before = _state(line)
    coded = [transfer for transfer in sample_route.input_transfers if transfer.kind is LinkFormat.CODED]
    if coded and words is None:
        elements = sum(transfer.feed.elements for transfer in coded)
        full = max(transfer.coding.pages(transfer.feed.image[2]).stop for transfer in coded) - 1
        words = full * CODE_PAGE + min(elements, CODE_PAGE)
    if words:
        device.write(RegionId.CODES, 0, [0] * words)
    return _between(line, before)


def fed_batch(image: Image, sample_route: Route, phases: Sequence[int], times: LineTimes, size: int) -> Traffic:
    """A batch of ``size`` samples through the feeder, whose script and code book are there already."""
    return _fed_batch(image, sample_route, phases, times, size)[0]


def _fed_batch(
    image: Image, sample_route: Route, phases: Sequence[int], times: LineTimes, size: int
) -> tuple[Traffic, list[float]]:
    """Traffic of a batch of ``size`` samples through the feeder, and when the samples ended on the device."""
    clock = FeederClock(sample_route, image.schedule(), phases, image.config)
    device, line = _device(image.config, FedCore(clock, image.config), times)
    before = _state(line)
    FeederClient(device).exchange(Stream(sample_route, bytes(size * sample_route.sample_bytes), ()), size, None)
    return _between(line, before), clock.ends
