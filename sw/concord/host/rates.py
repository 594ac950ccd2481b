"""How many samples per second a user gets, and whether link or computation limits them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concord.cycles import ASSUMED_STEPS, counts_of
from concord.host.traffic import fed_traffic, traffic
from concord.image import Image
from concord.image.feeder_scripts import FeedError, route
from concord.program import trace
from concord.spec.boards import baud_of
from concord.spec.link import BYTE_BITS

#: Share of the time that a link is busy if it is what limits.
_BUSY = 0.95


@dataclass(frozen=True)
class Rates:
    """Times of one run of a program: of many in a row where inputs go through the feeder.

    Without a feeder everything is one after the other: inputs over the link, computation, outputs over the link. With
    one, the next inputs and the last outputs travel while the device computes, as far as its memory goes.

    Parameters
    ----------
    sent, received : float
        Bytes to the device and from it, framing included (:class:`concord.host.traffic.Traffic`).
    requests : float
        Requests, each of which waits for its reply.
    cycles : int
        Of the computation, as the hardware counts them (:mod:`concord.cycles`).
    batch : int
        Samples of a run.
    clock_hz, baud : int
        Of the board: cycles, and bits on the line, per second.
    input_route : str
        How inputs travel: raw, or laid out by the host, and why.
    period : float or None
        Cycles from a run to the next one, where they overlap with transfers.
    latency : float or None
        Cycles from the first byte to the last one of a run alone, where it is not the sum of the times.
    assumed : bool
        Values decide about cycles, and were not known: every window that slides is taken to need
        :data:`concord.cycles.ASSUMED_STEPS` steps.
    """

    sent: float
    received: float
    requests: float
    cycles: int
    batch: int
    clock_hz: int
    baud: int
    input_route: str = ""
    period: float | None = None
    latency: float | None = None
    assumed: bool = False

    @property
    def assumption(self) -> str:
        """What was assumed for the cycles, as a text behind them."""
        return f", assuming {ASSUMED_STEPS} steps per sliding window" if self.assumed else ""

    @property
    def bytes_in(self) -> float:
        """Bytes to the device for a sample."""
        return self.sent / self.batch

    @property
    def bytes_out(self) -> float:
        """Bytes from the device for a sample."""
        return self.received / self.batch

    @property
    def link_seconds(self) -> float:
        """Time of a sample on the link, without the latency of the host's drivers."""
        return (self.sent + self.received) * BYTE_BITS / self.baud / self.batch

    @property
    def compute_seconds(self) -> float:
        """Time of computation for a sample."""
        return self.cycles / self.clock_hz / self.batch

    @property
    def per_second(self) -> float:
        """Samples per second, of many."""
        if self.period is None:
            return 1 / (self.link_seconds + self.compute_seconds)
        return self.clock_hz / self.period * self.batch

    @property
    def allowed(self) -> float:
        """Samples per second if bytes on the link were all that takes time."""
        return 1 / self.link_seconds

    @property
    def latency_seconds(self) -> float:
        """Time of one run alone, from the first byte to the last one."""
        if self.latency is None:
            return (self.link_seconds + self.compute_seconds) * self.batch
        return self.latency / self.clock_hz

    @property
    def limit(self) -> str:
        """What takes longer: ``"link"`` or ``"computation"``, with the layout of inputs on the device."""
        if self.period is None:
            return "link" if self.link_seconds > self.compute_seconds else "computation"
        return "link" if self.per_second > _BUSY * self.allowed else "computation"

    @property
    def at(self) -> str:
        """Clock and bit rate in words."""
        return f"at {self.clock_hz / 1e6:g} MHz and {self.baud / 1e6:g} Mbit/s"

    @property
    def text(self) -> str:
        """Everything in one line."""
        alone = "" if self.period is None else f"; one alone takes {1e3 * self.latency_seconds:.3g} ms"
        together = "" if self.period is None else " meanwhile"
        times = f"{1e3 * self.link_seconds:.3g} ms on the link and {1e3 * self.compute_seconds:.3g} ms to compute"
        return (
            f"{self.at}, a sample takes {self.bytes_in:,.0f} bytes in and {self.bytes_out:,.0f} out, "
            f"{times}{together}: {self.per_second:,.{self.per_second < 100:d}f} samples/s, "
            f"limited by the {self.limit}{alone}"
        )


def rates(image: Image, batch: int = 1, steps: Sequence[Sequence[NDArray[np.int64]]] | None = None) -> Rates:
    """Rates of an image on the board that its configuration is for.

    Parameters
    ----------
    image : Image
        Its program must end with ``halt``.
    batch : int
        Samples of a run.
    steps : sequence, optional
        For every phase the steps of the windows of its sliding products, as for :func:`concord.cycles.count`.
    """
    config, line, baud = image.config, traffic(image), baud_of(image.config.name)
    traces = [trace(image.program, config, phase.pc) for phase in image.schedule()]
    known = steps if steps is not None else [None] * len(traces)
    phases = [counts_of(found, config, one).cycles for found, one in zip(traces, known, strict=True)]
    assumed = steps is None and any(found.slides for found in traces)
    fixed = sum(phases), batch, config.clock_hz, baud
    try:
        feeding = route(image.feeding, image.schedule(), (image.inputs, image.outputs), image.feeding.few, config)
    except FeedError as reason:
        return Rates(
            line.sent, line.received, line.requests, *fixed, f"laid out by the host: {reason}", assumed=assumed
        )
    fed = fed_traffic(image, feeding, phases, BYTE_BITS * config.clock_hz / baud)
    alone = fed.latency
    if len(phases) > 1:  # one alone does without the feeder
        alone = (line.sent + line.received) * BYTE_BITS / baud * config.clock_hz + sum(phases)
    text = f"raw: {feeding.text}"
    return Rates(fed.sent, fed.received, fed.requests, *fixed, text, fed.cycles, alone, assumed)
