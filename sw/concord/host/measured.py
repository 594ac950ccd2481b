"""Measured times of a batch on a device behind a link, beside the estimates for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from rich.table import Table

from concord.display.tables import text_table
from concord.host.device import Outputs
from concord.host.linked import LinkedDevice
from concord.host.rates import Rates, batch_traffic, count_text, rates, spoken
from concord.host.traffic import Traffic
from concord.host.window import LineCounts
from concord.image import Image

#: Least length of a stream as a multiple of its begin and its end, and least number of its runs.
STREAM, LEAST_RUNS = 40, 4


@dataclass(frozen=True)
class TimedRun:
    """A call with a batch.

    Parameters
    ----------
    runs : int
        Runs of the program.
    whole : float
        Seconds, those of script and code book among them, if the device did not have them.
    line : Traffic
        From the first byte of the first sample to the last result.
    """

    runs: int
    whole: float
    line: Traffic


def stream_runs(estimate: Rates) -> int:
    """Runs of a batch that are about enough for a stream."""
    ends = (estimate.latency - estimate.period) / estimate.period
    return max(LEAST_RUNS, ceil(STREAM * ends))


def is_simulated(device: LinkedDevice) -> bool:
    """True if time is that of a simulation."""
    return device.link.transport.cycles is not None


def seconds_of(device: LinkedDevice) -> float:
    """Time in seconds: of a simulated device as its clock has it, else of the machine."""
    cycles = device.link.transport.cycles
    return time.monotonic() if cycles is None else cycles / device.config.clock_hz


def timed_run(device: LinkedDevice, batch: Mapping[str, Any]) -> tuple[Outputs, TimedRun]:
    """Results of a batch, as :meth:`concord.host.device.Device.run`, with times and bytes."""
    begins: list[tuple[float, LineCounts]] = []
    device.begun = lambda: begins.append((seconds_of(device), device.link.counts))
    called = seconds_of(device)
    try:
        outputs: Outputs = device.run(dict(batch))
    finally:
        device.begun = None
    done, after = seconds_of(device), device.link.counts
    begun, before = begins[-1]
    line = Traffic(
        after.sent - before.sent,
        after.received - before.received,
        after.requests - before.requests,
        (done - begun) * device.config.clock_hz,
    )
    return outputs, TimedRun(len(next(iter(batch.values()))), done - called, line)


def timed_alone(device: LinkedDevice, batch: Mapping[str, Any]) -> TimedRun:
    """A call with the first run of a batch, of which the device has the script, but not the code book."""
    first, ended = {name: values[:1] for name, values in batch.items()}, device.ended
    device.ended = None
    try:
        while True:
            script = device.feeder.script
            device.feeder.forget_codes()
            _, alone = timed_run(device, first)
            if device.feeder.script == script:
                return alone
    finally:
        device.ended = ended


@dataclass(frozen=True)
class LinkComparison:
    """Measured times of a batch, beside the estimates for it.

    Parameters
    ----------
    run, alone : TimedRun
        The batch, and its first run once more.
    estimate : Rates
        Rates of a run.
    line : Traffic
        What is estimated for the batch.
    cycles : int
        Clock cycles of the computation, as the device has counted them.
    simulated : bool
        Whether seconds are those of a simulation.
    """

    run: TimedRun
    alone: TimedRun
    estimate: Rates
    line: Traffic
    cycles: int
    simulated: bool

    @property
    def period(self) -> float:
        """Cycles from a run to the next one: those of the batch but for one run, which takes as long as one alone."""
        return (self.run.line.cycles - self.alone.line.cycles) / max(1, self.run.runs - 1)

    @property
    def is_stream(self) -> bool:
        """True if there are so many samples that it hardly matters how the first ones and the last ones went."""
        ends = self.alone.line.cycles - self.period
        return self.run.runs >= LEAST_RUNS and self.run.runs * self.period >= STREAM * ends

    @property
    def measured(self) -> Rates:
        """Rates as they were measured; those of the whole batch, if it was too short for a stream."""
        run = self.run
        return replace(
            self.estimate,
            sent=run.line.sent / run.runs,
            received=run.line.received / run.runs,
            requests=run.line.requests / run.runs,
            cycles=self.cycles,
            period=self.period if self.is_stream else run.line.cycles / run.runs,
            latency=self.alone.whole * self.estimate.clock_hz,
            at_default=None,
        )

    @property
    def figures(self) -> dict[str, tuple[float, float]]:
        """Measured figures and their estimates, by name; figures of a stream only if it was one.

        Keys are ``batch`` and ``stream`` (samples per second), ``alone`` (seconds), ``sent``, ``received`` and
        ``requests`` (of a sample of the batch), and ``cycles`` (of the computation of a run).
        """
        measured, estimate = self.measured, self.estimate
        samples = self.run.runs * estimate.batch
        taken = [line.cycles / estimate.clock_hz for line in (self.run.line, self.line)]
        figures = {"batch": (samples / taken[0], samples / taken[1])}
        if self.is_stream:
            figures["stream"] = measured.per_second, estimate.per_second
        figures["alone"] = measured.latency_seconds, estimate.latency_seconds
        for name in ("sent", "received", "requests"):
            figures[name] = getattr(self.run.line, name) / samples, getattr(self.line, name) / samples
        return figures | {"cycles": (measured.cycles, estimate.cycles)}

    @property
    def differences(self) -> dict[str, float]:
        """Excess of the measured figure over the estimate, as a part of the estimate."""
        return {name: measured / estimated - 1 for name, (measured, estimated) in self.figures.items()}

    @property
    def title(self) -> str:
        """Link and clock, and which time is meant."""
        kind = "simulated time" if self.simulated else "wall time"
        return f"Measured over {self.estimate.link.name} {self.estimate.at}, in {kind}"

    @property
    def remark(self) -> str:
        """Reason for which no stream is compared; empty if one is."""
        if self.is_stream:
            return ""
        enough = stream_runs(self.estimate) * self.estimate.batch
        return f"Too few samples for a stream, as begin and end count: about {enough:,} would do."

    def table(self) -> Table:
        """All figures, and what limits, for a terminal."""
        columns = ("measured", "estimated", "difference")
        rows = ((name, *texts) for name, texts in self._texts.items())
        return text_table(self.title, ["", *columns], right=columns, rows=rows, caption=self.remark)

    @property
    def _texts(self) -> dict[str, tuple[str, str, str]]:
        """Measured figure, estimate and difference as texts, by name."""
        samples = self.run.runs * self.estimate.batch
        names: dict[str, tuple[str, Callable[[float], str]]] = {
            "batch": (f"samples/s, this batch of {samples:,}", spoken),
            "stream": ("samples/s in a stream", spoken),
            "alone": ("ms for a run alone", lambda seconds: f"{1e3 * seconds:.4g}"),
            "sent": ("bytes in", count_text),
            "received": ("bytes out", count_text),
            "requests": ("requests", lambda count: f"{count:.3g}"),
            "cycles": ("cycles to compute a run", lambda cycles: f"{cycles:,.0f}"),
        }
        rows = {}
        for name, (measured, estimated) in self.figures.items():
            text, shown = names[name]
            rows[text] = shown(measured), shown(estimated), f"{100 * self.differences[name]:+.1f} %"
        rows["limited by"] = self.measured.bottleneck, self.estimate.bottleneck, ""
        return rows


def as_sent(device: LinkedDevice) -> Image:
    """The image on a device, whose inputs are expected to travel as those of the last batch did."""
    image = device.image
    assert image is not None
    if device.route is None:
        return replace(image, feeding=replace(image.feeding, feeds=(), codings={}))
    return replace(image, feeding=replace(image.feeding, codings=device.route.codings))


def compared_run(
    device: LinkedDevice, batch: Mapping[str, Any], samples: int = 1
) -> tuple[Outputs, LinkComparison | None]:
    """Results of a batch, and what it took beside what is estimated; its first run takes place once more, alone.

    Parameters
    ----------
    device : LinkedDevice
        With an image. There is nothing to compare if bytes take no time on the way to it.
    batch : mapping
        As for :meth:`concord.host.device.Device.run`, by name.
    samples : int
        Samples of a run.
    """
    if device.carrier is None or not len(next(iter(batch.values()))):
        return device.run(dict(batch)), None
    outputs, run = timed_run(device, batch)
    cycles, link, image = device.counters()["CYCLES"] or 0, device.carrier.name, as_sent(device)
    line = batch_traffic(image, run.runs, link)
    alone = timed_alone(device, batch)
    estimate = rates(image, samples, link=link, code_words=len(device.feeder.codes))
    return outputs, LinkComparison(run, alone, estimate, line, cycles, is_simulated(device))
