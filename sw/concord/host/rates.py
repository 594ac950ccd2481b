"""Samples per second that a user gets, and whether link or computation limits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from concord.cycles import ASSUMED_STEPS, counts_of
from concord.host.feeder_clock import FeederClock
from concord.host.timed_line import LineTimes
from concord.host.traffic import Traffic, call_traffic, fed_batch, fed_latency, fed_traffic, few_samples, traffic
from concord.image import Image
from concord.image.feeder_scripts import FeedError, Route, route
from concord.program import trace
from concord.spec.boards import link_of, links_of
from concord.spec.builds import in_brackets
from concord.spec.links import LinkSpec
from concord.spec.presets import note_of
from concord.utils.arrays import Ints

#: Share of the time that the device is busy if it is what limits.
_BUSY = 0.95
#: Share of the time that is worth a word.
_WORTH_TELLING = 0.005


@dataclass(frozen=True)
class Rates:
    """Times of one run of a program: of many in a row where inputs go through the feeder.

    Without a feeder a run follows the other: inputs over the link, computation, outputs over the link. With one, the
    next inputs and the last outputs travel while the device computes, as far as its memory goes. All times are those of
    the driver on a line with the times of the board (:mod:`concord.host.timed_line`).

    Parameters
    ----------
    sent, received : float
        Bytes to the device and from it, framing included (:class:`concord.host.traffic.Traffic`).
    requests : float
        Requests.
    cycles : int
        Clock cycles of the computation, as the hardware counts them (:mod:`concord.cycles`).
    period : float
        Cycles from a run to the next one.
    latency : float
        Cycles from the first byte to the last one of a run alone.
    batch : int
        Samples of a run.
    clock_hz : int
        Cycles per second on the board.
    link : LinkSpec
        What carries the bytes.
    layout : float or None
        Cycles that the feeder takes besides those of the computation, while the next inputs travel; ``None`` where the
        host lays out inputs.
    input_route : str
        How inputs travel: raw, or laid out by the host, and why.
    assumed : bool
        Values decide about cycles, and were not known: every window that slides is taken to need
        :data:`concord.cycles.ASSUMED_STEPS` steps.
    window : int
        Bytes of requests that may be on the way before there is a reply; 0: each waits for its reply, so that nothing
        travels in both directions at once.
    reply_seconds : float
        Time that a reply is held back (:class:`concord.spec.links.Adapter`).
    call_seconds : float
        Time that a call of ``concord.Network.run`` takes besides its runs, to clear flags and to read them.
    at_default : Rates or None
        The same with the serial driver as it is installed, if that is slower.
    clock_note : str
        Note about the clock (:func:`concord.spec.presets.note_of`).
    """

    sent: float
    received: float
    requests: float
    cycles: int
    period: float
    latency: float
    batch: int
    clock_hz: int
    link: LinkSpec
    layout: float | None = None
    input_route: str = ""
    assumed: bool = False
    window: int = 0
    reply_seconds: float = 0.0
    call_seconds: float = 0.0
    at_default: Rates | None = None
    clock_note: str = ""

    @property
    def assumption(self) -> str:
        """Assumption about the cycles, as a text that follows them."""
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
    def raw(self) -> bool:
        """True if inputs go through the feeder."""
        return self.layout is not None

    @property
    def wire_seconds(self) -> float:
        """Time of the bytes of a sample on the line."""
        apart = self.link.shared or not self.window
        count = self.sent + self.received if apart else max(self.sent, self.received)
        return count / self.link.bytes_per_second / self.batch

    @property
    def compute_seconds(self) -> float:
        """Time of computation for a sample."""
        return self.cycles / self.clock_hz / self.batch

    @property
    def period_seconds(self) -> float:
        """Time from a sample to the next one."""
        return self.period / self.clock_hz / self.batch

    @property
    def device_seconds(self) -> float:
        """Time of a sample on the device: computation, and layout of inputs."""
        return (self.cycles + (self.layout or 0)) / self.clock_hz / self.batch

    @property
    def wait_seconds(self) -> float:
        """Time of a sample in which neither bytes are on the line nor the device computes: replies are waited for."""
        apart = self.wire_seconds + self.compute_seconds
        used = max(self.wire_seconds, self.device_seconds) if self.raw else apart
        return max(0.0, self.period_seconds - used)

    @property
    def per_second(self) -> float:
        """Samples per second, in a batch of many."""
        return 1 / self.period_seconds

    @property
    def latency_seconds(self) -> float:
        """Time of one run alone, from the first byte to the last one."""
        return self.latency / self.clock_hz

    @property
    def single_per_second(self) -> float:
        """Samples per second if each is a call of its own of ``concord.Network.run``, with its flags."""
        return 1 / (self.latency_seconds + self.call_seconds)

    @property
    def limit(self) -> str:
        """Limit of the rate: ``"link"`` or ``"computation"``, with the layout of inputs on the device."""
        if not self.raw:
            return "computation" if 2 * self.compute_seconds > self.period_seconds else "link"
        return "computation" if self.device_seconds > _BUSY * self.period_seconds else "link"

    @property
    def bottleneck(self) -> str:
        """Part that takes most of the time: ``"line"``, ``"device"``, or ``"latency"`` of awaited replies."""
        parts = {"line": self.wire_seconds, "device": self.device_seconds, "latency": self.wait_seconds}
        return max(parts, key=lambda name: parts[name])

    @property
    def at(self) -> str:
        """Clock and link in words."""
        return f"at {self.clock} and {self.link.text}"

    @property
    def clock(self) -> str:
        """Clock in words, with its note."""
        return f"{self.clock_hz / 1e6:g} MHz{in_brackets(self.clock_note)}"

    @property
    def speeds(self) -> str:
        """Rates of a user in one line: in a batch and one at a time, and with the driver as it is installed."""
        text = (
            f"{spoken(self.per_second)} samples/s in a batch, limited by the {self.limit}; "
            f"{spoken(self.single_per_second)} one at a time"
        )
        slower = self.at_default
        if slower is not None:
            text += (
                f" (serial driver as installed, {1e3 * slower.reply_seconds:g} ms a reply: "
                f"{spoken(slower.per_second)} and {spoken(slower.single_per_second)})"
            )
        return text

    @property
    def times(self) -> str:
        """Bytes, requests and times of a sample, in one line."""
        waits = ""
        if self.wait_seconds > _WORTH_TELLING * self.period_seconds:
            waits = f" and {1e3 * self.wait_seconds:.3g} ms for replies to {self.requests / self.batch:.3g} requests"
        return (
            f"{self.at}, a sample takes {self.bytes_in:,.0f} bytes in and {self.bytes_out:,.0f} out, "
            f"{1e3 * self.wire_seconds:.3g} ms on the line{waits}, and {1e3 * self.compute_seconds:.3g} ms to compute"
            f"{' meanwhile' if self.raw else ''}"
        )

    @property
    def text(self) -> str:
        """Everything in one line."""
        return f"{self.speeds}; {self.times}"


def spoken(rate: float) -> str:
    """A rate for people: whole numbers from 100 on."""
    return f"{rate:,.{rate < 100:d}f}"


def rate_table(links: Sequence[Rates]) -> dict[str, tuple[str, ...]]:
    """Texts by what they are about: a column for every link, and one with its driver as installed if that is slower.

    The first line has the names of the columns.
    """
    columns: list[Rates] = []
    names: list[str] = []
    for figures in links:
        columns.append(figures)
        names.append(figures.link.name)
        if figures.at_default is not None:
            columns.append(figures.at_default)
            names.append(f"{figures.link.name} as installed")
    rows: dict[str, Callable[[Rates], str]] = {
        "samples/s in a batch": lambda column: spoken(column.per_second),
        "samples/s one at a time": lambda column: spoken(column.single_per_second),
        "limited by": lambda column: column.limit,
        "bytes in": lambda column: count_text(column.bytes_in),
        "bytes out": lambda column: count_text(column.bytes_out),
        "requests": lambda column: count_text(column.requests / column.batch),
        "ms on the line": lambda column: f"{1e3 * column.wire_seconds:.4g}",
        "ms for replies": lambda column: f"{1e3 * column.wait_seconds:.4g}",
        "ms to compute": lambda column: f"{1e3 * column.compute_seconds:.4g}",
        "ms for a run alone": lambda column: f"{1e3 * column.latency_seconds:.4g}",
        "ms that a reply waits": lambda column: f"{1e3 * column.reply_seconds:g}",
        "rate of the line": lambda column: column.link.text,
    }
    return {"link": tuple(names)} | {name: tuple(map(text, columns)) for name, text in rows.items()}


def count_text(number: float) -> str:
    return f"{number:,.{number % 1 > 0:d}f}"


def rates(
    image: Image,
    batch: int = 1,
    steps: Sequence[Sequence[Ints]] | None = None,
    link: str | None = None,
    code_words: int | None = None,
    *,
    installed: bool = True,
) -> Rates:
    """Rates of an image on the board that its configuration is for.

    A reply is held back by the latency of the link's adapter, set to low latency as
    :class:`concord.host.serial_port.SerialTransport` does; ``at_default`` has the rates without.

    Parameters
    ----------
    image : Image
        Its program must end with ``halt``.
    batch : int
        Samples of a run.
    steps : sequence, optional
        For every phase the steps of the windows of its sliding products, as for :func:`concord.cycles.count`.
    link : str, optional
        Name of a link of the board; its first one if left out.
    code_words : int, optional
        Words of the code book of a sample alone; as many as there may be if left out.
    installed : bool
        Whether ``at_default`` is asked for, too: who only compares images goes without.
    """
    board_link = link_of(image.config.board, link)
    phases, assumed = _phase_cycles(image, steps)
    if not installed:
        return _rates(image, batch, phases, assumed, board_link, board_link.adapter.latency, code_words)
    return _with_default(image, batch, phases, assumed, board_link, code_words)


def batch_traffic(image: Image, runs: int, link: str | None = None) -> Traffic:
    """Traffic of ``runs`` runs and their time in cycles, from the first byte to the last result.

    Parameters
    ----------
    image, link
        As for :func:`rates`. Script and code book are on the device already.
    runs : int
        One after the other, of one call.
    """
    config, board_link = image.config, link_of(image.config.board, link)
    phases, _ = _phase_cycles(image, None)
    times = LineTimes.of(board_link, config.clock_hz, board_link.adapter.latency)
    try:
        sample_route = _route(image)
    except FeedError:
        return traffic(image, phases, times).times(runs)
    few = 2 * few_samples(image, sample_route)
    batch = fed_batch(image, sample_route, phases, times, min(runs, few))
    if runs > few:
        batch += fed_traffic(image, sample_route, phases, times).times(runs - few)
    return batch


def _route(image: Image) -> Route:
    """Route that samples are expected to take through the feeder; :class:`FeedError` if they do not."""
    feeding = image.feeding
    return route(feeding, image.schedule(), (image.inputs, image.outputs), feeding.codings, image.config)


def _phase_cycles(image: Image, steps: Sequence[Sequence[Ints]] | None) -> tuple[list[int], bool]:
    """Cycles of every phase, and whether steps of windows were assumed for them."""
    traces = [trace(image.program, image.config, phase.pc) for phase in image.schedule()]
    known = steps if steps is not None else [None] * len(traces)
    phases = [counts_of(run, image.config, run_steps).cycles for run, run_steps in zip(traces, known, strict=True)]
    return phases, steps is None and any(run.slides for run in traces)


def rates_by_link(
    image: Image,
    batch: int = 1,
    steps: Sequence[Sequence[Ints]] | None = None,
    link: str | None = None,
) -> tuple[Rates, ...]:
    """Rates over every link of the board: first those of ``link``, or of the first one, then the others.

    Parameters as :func:`rates`.
    """
    first = link_of(image.config.board, link)
    others = [other for other in links_of(image.config.board) if other != first]
    phases, assumed = _phase_cycles(image, steps)
    return tuple(_with_default(image, batch, phases, assumed, each, None) for each in (first, *others))


def _with_default(
    image: Image, batch: int, phases: Sequence[int], assumed: bool, link: LinkSpec, code_words: int | None
) -> Rates:
    """Rates at the low latency of the adapter; those at its default latency beside them, if they are lower."""
    low, default = (
        _rates(image, batch, phases, assumed, link, latency, code_words)
        for latency in (link.adapter.latency, link.adapter.default_latency)
    )
    slower = default.per_second < low.per_second or default.single_per_second < low.single_per_second
    return replace(low, at_default=default) if slower else low


def _rates(
    image: Image,
    batch: int,
    phases: Sequence[int],
    assumed: bool,
    link: LinkSpec,
    reply_seconds: float,
    code_words: int | None,
) -> Rates:
    """Rates if the computation of the phases takes so many cycles, and a reply is held back so long."""
    config = image.config
    hz = config.clock_hz
    times = LineTimes.of(link, hz, reply_seconds)
    line, call = traffic(image, phases, times), call_traffic(image, times)
    whole = Rates(
        line.sent,
        line.received,
        line.requests,
        sum(phases),
        line.cycles,
        line.cycles,
        batch,
        hz,
        link,
        assumed=assumed,
        window=link.window(config.request_buffer),
        reply_seconds=reply_seconds,
        call_seconds=call.cycles / hz,
        clock_note=note_of(config),
    )
    try:
        feeding = _route(image)
    except FeedError as reason:
        return replace(whole, input_route=f"laid out by the host: {reason}")
    fed = fed_traffic(image, feeding, phases, times)
    alone = fed_latency(image, phases, times, code_words)
    clock = FeederClock(feeding, image.schedule(), phases, config)
    return replace(
        whole,
        sent=fed.sent,
        received=fed.received,
        requests=fed.requests,
        input_route=f"raw: {feeding.text}",
        period=fed.cycles,
        latency=alone,
        layout=clock.sample_cycles - sum(phases),
    )
