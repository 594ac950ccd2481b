"""Batches for the feeder: scripts, the bytes that are sent, and in which of its formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

import numpy as np

from concord.golden.blocks import quantize
from concord.image.code_book import CodeBook, Coding, code_book
from concord.image.feeder_layout import Feed, Feeding
from concord.image.phases import Phase
from concord.image.ports import Port
from concord.spec.config import NpuConfig
from concord.spec.feeder import SCRIPT_DEPTH, FeedOp, feed_word
from concord.spec.link import TARGET
from concord.spec.memmap import RegionId
from concord.utils.arrays import Bits, Bytes, FloatArray

Ports = tuple[Sequence[Port], Sequence[Port]]

#: Bytes that must fit into the inbox beside what is being laid out.
_LEAST_CHUNK = 64


class FeedError(ValueError):
    """Reason for which the host has to lay out inputs."""


class LinkFormat(Enum):
    """Form of an element on the link."""

    CODED = "a byte for an element, one of at most 256 values"
    BLOCKS = "a mantissa for an element, an exponent for a vector"
    BINARY16 = "two bytes for an element"


@dataclass(frozen=True)
class Rows:
    """Lines of windows that one ``FILL`` lays out.

    Parameters
    ----------
    phase : int
        Number of the phase, from 0.
    first, count, address : int
        First line of windows, number of lines, and address of their first vector.
    top, end : int
        Lines of the image that it begins with, and that the next one begins with.
    held : int
        Its last lines of windows, which read what the next one begins with: nothing may be let go there.
    """

    phase: int
    first: int
    count: int
    address: int
    top: int
    end: int
    held: int


class InputTransfer:
    """One input in one format.

    Parameters
    ----------
    feed : Feed
        Its layout.
    port : Port
        Where it goes.
    kind : LinkFormat
        What its elements are.
    config : NpuConfig
        Of the device.
    coding : Coding, optional
        Pages of the code book, where elements are codes.

    Raises
    ------
    FeedError
        If it cannot have this format.
    """

    def __init__(self, feed: Feed, port: Port, kind: LinkFormat, config: NpuConfig, coding: Coding | None = None):
        laid_out = feed.in_vectors(config.native) if kind is LinkFormat.BLOCKS else feed
        if laid_out is None or (kind is LinkFormat.BLOCKS and port.region is not RegionId.NARROW):
            raise FeedError(f"elements of {feed.port!r} have no exponent of their own")
        self.feed, self.port, self.kind, self.config = laid_out, port, kind, config
        self.coding = coding or Coding()
        self.size = {LinkFormat.CODED: 1, LinkFormat.BLOCKS: config.mantissa_bytes, LinkFormat.BINARY16: 2}[kind]
        channels = laid_out.image[2]
        self.headers = -(-channels // config.native) if kind is LinkFormat.BLOCKS else 0
        #: Bytes of a position, and of a line.
        self.pixel = channels * self.size + self.headers
        self.line = laid_out.image[1] * self.pixel

    @property
    def text(self) -> str:
        """Form of an element in words."""
        by_channel = self.kind is LinkFormat.CODED and self.coding.by_channel
        return f"{self.kind.value} of its channel" if by_channel else self.kind.value

    @property
    def total(self) -> int:
        """Bytes of a sample."""
        return self.feed.image[0] * self.line

    def span(self, parts: Sequence[Rows]) -> int:
        """Most bytes that must be in the inbox at a time to lay out all parts."""
        feed = self.feed
        reach = (feed.kernel[0] - 1) * feed.dilation[0] + 1
        again = 0  # lines of the image that are kept for the next part
        for rows in parts:
            bottom = feed.origin[0] + (rows.first + rows.count - 1) * feed.stride[0] + reach
            again = max(again, min(bottom, feed.image[0]) - rows.end)
        if feed.single:
            return max(2, again * self.line + self.pixel)
        last = feed.origin[0] + (feed.windows[0] - 1) * feed.stride[0]
        before = -feed.origin[1] * self.pixel  # lines are let go as far as the first window reaches
        return max(reach, again, feed.image[0] - max(last, 0)) * self.line + max(before, 0)

    def rows(self, schedule: Sequence[Phase]) -> list[Rows]:
        """Rows in the order in which they are laid out; :class:`FeedError` if a part is not whole lines of windows."""
        feed, name = self.feed, self.port.name
        parts = [(k, part) for k, phase in enumerate(schedule) for part in phase.inputs if part.port == name]
        per_line = feed.windows[1] * -(-feed.lanes // self.config.native)
        if any(part.first % per_line or part.count % per_line for _, part in parts):
            raise FeedError(f"{name!r} comes in parts that are no whole lines of windows")
        firsts, counts = ([getattr(part, end) // per_line for _, part in parts] for end in ("first", "count"))
        if firsts[:1] != [0] or firsts != sorted(firsts):
            raise FeedError(f"{name!r} comes in parts that are in another order than its lines")
        tops = [max(0, feed.origin[0] + first * feed.stride[0]) for first in firsts] + [feed.image[0]]
        # Windows let go of what is above them, and single taps of what they have read: the first line of the next part.
        again = [first + count - after for first, count, after in zip(firsts, counts, firsts[1:], strict=False)]
        held = [max(0, lines - (not feed.single)) for lines in again]
        return [
            Rows(phase, first, count, part.address, tops[k], tops[k + 1], last)
            for k, ((phase, part), first, count, last) in enumerate(zip(parts, firsts, counts, [*held, 0], strict=True))
        ]

    def words(self, rows: Rows) -> list[int]:
        """Words of a script that lay out lines of windows; :class:`FeedError` if they are too large for its fields."""
        feed, pixel = self.feed, self.pixel
        height, width, channels = feed.image
        ring = 2 * self.config.inbox - 1
        y0 = feed.origin[0] + rows.first * feed.stride[0] - rows.top
        reach = y0 + (rows.count - 1) * feed.stride[0] + (feed.kernel[0] - 1) * feed.dilation[0]
        below = height if reach < height - rows.top else height - rows.top  # the same in as many words as it can be
        fields = (
            (FeedOp.WINDOW, dict(zip(("kh", "kw", "dil_y", "dil_x"), (*feed.kernel, *feed.dilation), strict=True))),
            (FeedOp.SLIDE, {"step_y": feed.stride[0], "step_x": feed.stride[1], "y0": y0, "x0": feed.origin[1]}),
            (FeedOp.IMAGE, {"height": below, "width": width}),
            (FeedOp.SIZE, {"rows": rows.count, "cols": feed.windows[1], "channels": channels}),
            (FeedOp.TAPS, {"tap_y": feed.dilation[0] * self.line & ring, "tap_x": feed.dilation[1] * pixel & ring}),
            (FeedOp.MOVES, {"move_y": feed.stride[0] * self.line & ring, "move_x": feed.stride[1] * pixel & ring}),
            (FeedOp.START, {"start": (y0 * self.line + feed.origin[1] * pixel) & ring, "border": feed.border}),
            (FeedOp.TARGET, {"target": rows.address, **self._flags()}),
            (FeedOp.FILL, {"advance": (rows.end - rows.top) * self.line & ring, "held": rows.held}),
        )
        try:
            return [feed_word(op, **values) for op, values in fields]
        except ValueError as error:
            raise FeedError(f"windows of {self.port.name!r} are too large for a script: {error}") from error

    def _flags(self) -> dict[str, int]:
        coded = self.kind is LinkFormat.CODED
        return {
            "wide": self.port.region is RegionId.WIDE,
            "double": self.size == 2,
            "coded": coded,
            "blocks": self.kind is LinkFormat.BLOCKS,
            "page": self.coding.page if coded else 0,
            "paged": coded and self.coding.by_channel,
        }

    def encode(self, raw: Bits, codes: CodeBook) -> Bytes:
        """Bytes ``[batch, total]`` of elements ``[batch, elements]``."""
        if self.kind is LinkFormat.CODED:
            return codes.encode(self.port.name, raw, self.feed.image[2])
        if self.kind is LinkFormat.BINARY16:
            return raw.astype("<u2").view(np.uint8).reshape(len(raw), -1)
        native, lanes = self.config.native, self.feed.image[2]
        tiles, size = self.headers, self.size
        padded = np.zeros((len(raw), raw.shape[1] // lanes, tiles * native), np.uint16)
        padded[..., :lanes] = raw.reshape(len(raw), -1, lanes)
        padded[..., lanes:] = padded[..., lanes - 1 : lanes]
        blocks = quantize(padded.reshape(len(raw), -1, native), self.config.act)
        mant = blocks.mant.astype(np.int8 if size == 1 else "<i2")
        laid = np.concatenate(
            [blocks.exp.astype(np.int8).view(np.uint8)[..., None], mant.view(np.uint8).reshape(*mant.shape[:2], -1)], -1
        ).reshape(len(raw), -1, tiles * (1 + size * native))
        return laid[..., : tiles + size * lanes].reshape(len(raw), -1)


@dataclass(frozen=True)
class OutputTransfer:
    """Vectors of an output that are sent alike.

    Parameters
    ----------
    port : Port
        The output.
    first, count, address : int
        First vector of the output, number of vectors, and address of the first one.
    lanes : int
        Elements of each vector that are sent.
    size : int
        Bytes of each vector on the link.
    """

    port: Port
    first: int
    count: int
    address: int
    lanes: int
    size: int

    @property
    def word(self) -> int:
        """The word of a script; ``ValueError`` if something is too large for it."""
        narrow = self.port.region is RegionId.NARROW
        where = {"source": self.address, "vectors": self.count}
        return feed_word(FeedOp.SEND, **where, lanes=self.lanes, narrow=narrow)


@dataclass(frozen=True)
class Route:
    """Route of samples through the feeder.

    Parameters
    ----------
    script : tuple of int
        Words that carry out one sample.
    input_transfers : tuple of InputTransfer
        Inputs, in the order of the ports.
    chunk : int
        Most bytes that are sent at a time.
    sample_bytes : int
        Bytes of a sample.
    output_transfers : tuple of tuple of OutputTransfer
        By phase: what a sample gives back.
    """

    script: tuple[int, ...]
    input_transfers: tuple[InputTransfer, ...]
    chunk: int
    sample_bytes: int
    output_transfers: tuple[tuple[OutputTransfer, ...], ...]

    @property
    def result_bytes(self) -> int:
        """Bytes that a sample gives back."""
        return sum(output.count * output.size for phase in self.output_transfers for output in phase)

    @property
    def codings(self) -> dict[str, Coding]:
        """Pages of the code book, by input whose elements are a byte each."""
        coded = (transfer for transfer in self.input_transfers if transfer.kind is LinkFormat.CODED)
        return {transfer.port.name: transfer.coding for transfer in coded}

    @property
    def text(self) -> str:
        """Bytes that travel, in words."""
        return ", ".join(
            f"{transfer.port.name}: {transfer.total} bytes, {transfer.text}" for transfer in self.input_transfers
        )


@dataclass(frozen=True)
class Stream:
    """A batch on its way through the feeder.

    Parameters
    ----------
    route : Route
        How.
    data : bytes
        Raw inputs of all samples.
    codes : tuple of int
        The code book.
    """

    route: Route
    data: bytes
    codes: tuple[int, ...]


def route(
    feeding: Feeding, schedule: Sequence[Phase], ports: Ports, codings: Mapping[str, Coding], config: NpuConfig
) -> Route:
    """Route of the samples of an image through the feeder.

    Parameters
    ----------
    feeding : Feeding
        Of the image.
    schedule : sequence of Phase
        Of the image.
    ports : pair
        Its inputs and outputs.
    codings : mapping of str to Coding
        Inputs whose elements can be bytes, as they have few values.
    config : NpuConfig
        Of the device.

    Raises
    ------
    FeedError
        If the host has to lay out the inputs; the message says why.
    """
    feeds, (inputs, outputs) = {feed.port: feed for feed in feeding.feeds}, ports
    if not config.inbox:
        raise FeedError(f"{config.name} has no inbox")
    if not inputs:
        raise FeedError("there are no inputs")
    if missing := [port.name for port in inputs if port.name not in feeds]:
        raise FeedError(f"the image does not say how {', '.join(missing)} is laid out on the device")
    if len(schedule) > 1 and len(inputs) > 1:
        raise FeedError("several inputs come in several phases")
    input_transfers = tuple(_narrowest(feeds[port.name], port, codings.get(port.name), config) for port in inputs)
    words: dict[int, list[int]] = {}
    room = config.inbox - 1
    for transfer in input_transfers:
        parts = transfer.rows(schedule)
        room = min(room, config.inbox - 1 - transfer.span(parts))
        for rows in parts:
            words.setdefault(rows.phase, []).extend(transfer.words(rows))
    for exact in (True, False):
        output_transfers = tuple(tuple(_output_transfers(feeding, phase, outputs, exact, config)) for phase in schedule)
        script = _script(schedule, output_transfers, words)
        if len(script) <= SCRIPT_DEPTH:
            break
    else:
        raise FeedError(f"its script has {len(script)} words, and there is room for {SCRIPT_DEPTH}")
    chunk = min(room, config.max_payload - TARGET.nbytes)
    if chunk < min(_LEAST_CHUNK, config.inbox // 2):
        raise FeedError(f"windows reach over {config.inbox - 1 - room} bytes, and the inbox has {config.inbox}")
    return Route(script, input_transfers, chunk, sum(transfer.total for transfer in input_transfers), output_transfers)


def _narrowest(feed: Feed, port: Port, coding: Coding | None, config: NpuConfig) -> InputTransfer:
    """The format with the fewest bytes."""
    transfers = [InputTransfer(feed, port, LinkFormat.BINARY16, config)]
    with suppress(FeedError):
        transfers.append(InputTransfer(feed, port, LinkFormat.BLOCKS, config))
    if coding is not None:
        transfers.append(InputTransfer(feed, port, LinkFormat.CODED, config, coding))
    return min(transfers, key=lambda transfer: transfer.total)


def _output_transfers(
    feeding: Feeding, phase: Phase, outputs: Sequence[Port], exact: bool, config: NpuConfig
) -> Iterator[OutputTransfer]:
    """Outputs of a phase: vectors with as many elements together, or all of an output alike."""
    places = {port.name: port for port in outputs}
    for part in phase.outputs:
        port = places[part.port]
        lanes = feeding.lanes.get(part.port, (config.native,) * port.vectors(config))
        counts = lanes[part.first : part.first + part.count]
        at = 0
        for count, same in groupby(counts) if exact else [(max(counts), iter(counts))]:
            vectors = len(list(same))
            size = 2 * count if port.region is RegionId.WIDE else 1 + count * config.mantissa_bytes
            yield OutputTransfer(port, part.first + at, vectors, part.address + at, count, size)
            at += vectors


def _script(
    schedule: Sequence[Phase], output_transfers: Sequence[Sequence[OutputTransfer]], words: Mapping[int, list[int]]
) -> tuple[int, ...]:
    """Words for all phases; :class:`FeedError` if something is too large for them."""
    script = []
    try:
        for k, phase in enumerate(schedule):
            script += [
                *words.get(k, []),
                feed_word(FeedOp.RUN, pc=phase.pc, adds=k > 0),
                *(output.word for output in output_transfers[k]),
            ]
    except ValueError as error:
        raise FeedError(f"outputs are too large for a script: {error}") from error
    return tuple(_shorter([*script, feed_word(FeedOp.END)]))


def _shorter(words: Sequence[int]) -> list[int]:
    """Without words that set what is set already."""
    kept: list[int] = []
    state: dict[int, int] = {}
    for word in words:
        op = FeedOp(word & 15)
        if op in (FeedOp.TARGET, FeedOp.FILL, FeedOp.RUN, FeedOp.SEND, FeedOp.END) or state.get(op) != word:
            kept.append(word)
        state[op] = word
    return kept


def stream(
    feeding: Feeding,
    schedule: Sequence[Phase],
    ports: Ports,
    batch: Mapping[str, FloatArray],
    config: NpuConfig,
) -> Stream:
    """A batch as the feeder takes it.

    Parameters
    ----------
    feeding, schedule, ports, config
        As for :func:`route`.
    batch : mapping
        Values of the inputs, ``[batch, *port.shape]``.

    Raises
    ------
    FeedError
        If the host has to lay out the inputs; the message says why.
    """
    route(feeding, schedule, ports, dict.fromkeys(feeding.channels, Coding()), config)  # whether it can be done at all
    raws = {}
    for feed in feeding.feeds:
        raw = feeding.raw(feed, batch[feed.port], config.native)
        if raw is None:
            raise FeedError(f"an element of {feed.port!r} is in several windows, and is not the same in all of them")
        raws[feed.port] = raw
    codes = code_book(raws, feeding.channels, config)
    chosen_route = route(feeding, schedule, ports, codes.codings, config)
    whole = np.concatenate(
        [transfer.encode(raws[transfer.port.name], codes) for transfer in chosen_route.input_transfers], axis=1
    )
    used = any(transfer.kind is LinkFormat.CODED for transfer in chosen_route.input_transfers)
    return Stream(chosen_route, whole.tobytes(), codes.words if used else ())


def outbox_chunk(config: NpuConfig) -> int:
    """Results that are read at a time: while they can still be asked for again, as many can be made."""
    return min(config.outbox_depth // 2, config.max_payload)
