"""How raw inputs of an image become its ports: geometry, scripts of the feeder, and the bytes that are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .golden import half
from .golden.blocks import quantize
from .phases import Part, Phase
from .ports import Port
from .spec.config import NpuConfig
from .spec.feeder import CODES_DEPTH, OUTBOX_SHARE, SCRIPT_DEPTH, FeedOp, feed_word
from .spec.link import TARGET
from .spec.memmap import RegionId

Ids = NDArray[np.int64]
Bytes = NDArray[np.uint8]

#: Elements outside the image.
BORDER = -2


@dataclass(frozen=True)
class Feed:
    """An input as an image ``[height, width, channels]`` whose windows follow each other in the vectors of a port.

    Parameters
    ----------
    port : str
        Name of the port.
    image : tuple of int
        Height, width and channels.
    kernel, stride, dilation : tuple of int
        Of the window, vertical and horizontal, in positions.
    origin : tuple of int
        First position of the first window.
    windows : tuple of int
        Windows, vertical and horizontal.
    border : int
        Bits of the binary16 number outside the image.
    """

    port: str
    image: tuple[int, int, int]
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    origin: tuple[int, int] = (0, 0)
    windows: tuple[int, int] = (1, 1)
    border: int = 0

    @property
    def elements(self) -> int:
        """Elements of the image."""
        return prod(self.image)

    @property
    def single(self) -> bool:
        """Whether every element is in one place."""
        return self.kernel == (1, 1)

    @property
    def lanes(self) -> int:
        """Elements of a window."""
        return prod(self.kernel) * self.image[2]

    def order(self, native: int) -> Ids:
        """The element of the image, or ``BORDER``, for every element ``[vectors, native]`` of the port."""
        (height, width, channels), (kh, kw) = self.image, self.kernel
        rows = self.origin[0] + np.arange(self.windows[0])[:, None] * self.stride[0] + np.arange(kh) * self.dilation[0]
        cols = self.origin[1] + np.arange(self.windows[1])[:, None] * self.stride[1] + np.arange(kw) * self.dilation[1]
        y, x = rows[:, None, :, None, None], cols[None, :, None, :, None]
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        ids = np.where(inside, (y * width + x) * channels + np.arange(channels), BORDER)
        found = np.zeros((*self.windows, -(-self.lanes // native) * native), np.int64)
        found[..., : self.lanes] = ids.reshape(*self.windows, self.lanes)
        found[..., self.lanes :] = found[..., self.lanes - 1 : self.lanes]
        return found.reshape(-1, native)


class Format(Enum):
    """What an element is on the link."""

    CODED = "a byte, the address of a binary16 number in the code book"
    BLOCKS = "a mantissa; an exponent per vector"
    HALF = "a binary16 number"


@dataclass(frozen=True)
class Feeding:
    """What a feeder has to know about an image.

    Parameters
    ----------
    feeds : tuple of Feed
        One for every input.
    lanes : dict
        By output: elements of every vector that are sent; the others count as zero.
    """

    feeds: tuple[Feed, ...] = ()
    lanes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Feeding:
        """Inverse of :func:`dataclasses.asdict`, lists for tuples allowed."""

        def one(values: dict[str, Any]) -> Feed:
            kept: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
            return Feed(**kept)

        feeds = [one(feed) for feed in values["feeds"]]
        return cls(tuple(feeds), dict(values["lanes"]))

    def check(self, inputs: Sequence[Port], outputs: Sequence[Port], config: NpuConfig) -> None:
        """Raise ``ValueError`` unless inputs have the vectors that are laid out, and outputs the lanes."""
        vectors = {port.name: port.vectors(config) for port in inputs}
        for feed in self.feeds:
            count = prod(feed.windows) * -(-feed.lanes // config.native)
            if vectors.get(feed.port) != count:
                raise ValueError(f"feed of {feed.port!r} must lay out {vectors.get(feed.port)} vectors, not {count}")
        names = [port.name for port in outputs]
        for name, lanes in self.lanes.items():
            if name not in names or not 1 <= lanes <= config.native:
                raise ValueError(f"lanes must be of {names} and in 1..{config.native}, not {lanes} of {name!r}")

    def trim(self, outputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs with zeros where nothing is sent."""
        for name, lanes in self.lanes.items():
            outputs[name][..., lanes:] = 0
        return outputs

    def raw(self, feed: Feed, values: NDArray[np.float64], native: int) -> NDArray[np.uint16] | None:
        """The elements of an input ``[batch, elements]`` as binary16 patterns, from the values of the port.

        ``None`` if these are not what the elements give: an element in several places that is not the same in all.
        """
        bits = half.encode(values.reshape(len(values), -1))
        order = feed.order(native).reshape(-1)
        found = np.zeros((len(values), feed.elements), np.uint16)
        first = np.unique(order, return_index=True)
        places = {int(n): int(at) for n, at in zip(*first, strict=True) if n >= 0}
        found[:, list(places)] = bits[:, list(places.values())]
        laid = np.where(order == BORDER, feed.border, found[:, order])
        return found if np.array_equal(laid, bits) else None


@dataclass(frozen=True)
class Stream:
    """A batch on its way through the feeder.

    Parameters
    ----------
    script : tuple of int
        Words that carry out one sample.
    data : bytes
        Raw inputs of all samples.
    codes : tuple of int
        The code book.
    chunk : int
        Most bytes that are sent at a time.
    results : int
        Bytes that a sample gives back.
    """

    script: tuple[int, ...]
    data: bytes
    codes: tuple[int, ...]
    chunk: int
    results: int


class _Fill:
    """One input in one format."""

    def __init__(self, feed: Feed, port: Port, kind: Format, config: NpuConfig):
        self.feed, self.port, self.kind, self.config = feed, port, kind, config
        self.size = 1 if kind is Format.CODED or (kind is Format.BLOCKS and config.act_mant <= 8) else 2
        self.headers = -(-feed.lanes // config.native) if kind is Format.BLOCKS else 0
        #: Bytes of a line of the image, or of its windows where they are its elements.
        self.line = feed.image[1] * feed.image[2] * self.size + self.headers * feed.windows[1]

    @property
    def total(self) -> int:
        """Bytes of a sample."""
        return self.feed.image[0] * self.line

    def span(self) -> int:
        """Most bytes that must be in the inbox at a time."""
        feed = self.feed
        if feed.single:
            return 2
        reach = (feed.kernel[0] - 1) * feed.dilation[0] + 1
        last = feed.origin[0] + (feed.windows[0] - 1) * feed.stride[0]
        before = -feed.origin[1] * feed.image[2] * self.size  # lines are let go as far as the first window reaches
        return max(reach, feed.image[0] - max(last, 0)) * self.line + before

    def words(self, parts: Sequence[tuple[int, Part]]) -> dict[int, list[int]] | None:
        """Words by phase, or ``None`` if a part is not made of whole lines of windows."""
        feed, config = self.feed, self.config
        height, width, channels = feed.image
        per_line = feed.windows[1] * -(-feed.lanes // config.native)
        ring = 2 * config.inbox - 1
        if any(part.first % per_line or part.count % per_line for _, part in parts):
            return None
        places = [(phase, part.first // per_line, part.count // per_line, part.address) for phase, part in parts]
        if [first for _, first, _, _ in places] != [sum(p[2] for p in places[:k]) for k in range(len(places))]:
            return None
        tops = [max(0, feed.origin[0] + first * feed.stride[0]) for _, first, _, _ in places] + [height]
        pixel = channels * self.size + (self.headers if feed.single else 0)
        found: dict[int, list[int]] = {}
        for k, (phase, first, rows, address) in enumerate(places):
            top = tops[k]
            y0 = feed.origin[0] + first * feed.stride[0] - top
            fields = (
                (FeedOp.WINDOW, dict(zip(("kh", "kw", "dil_y", "dil_x"), (*feed.kernel, *feed.dilation), strict=True))),
                (FeedOp.SLIDE, {"step_y": feed.stride[0], "step_x": feed.stride[1], "y0": y0, "x0": feed.origin[1]}),
                (FeedOp.IMAGE, {"height": height - top, "width": width}),
                (FeedOp.SIZE, {"rows": rows, "cols": feed.windows[1], "channels": channels}),
                (FeedOp.TAPS, {"tap_y": feed.dilation[0] * self.line & ring, "tap_x": feed.dilation[1] * pixel & ring}),
                (FeedOp.MOVES, {"move_y": feed.stride[0] * self.line & ring, "move_x": feed.stride[1] * pixel & ring}),
                (FeedOp.START, {"start": (y0 * self.line + feed.origin[1] * pixel) & ring, "border": feed.border}),
                (FeedOp.TARGET, {"target": address, **self._flags()}),
                (FeedOp.FILL, {"advance": (tops[k + 1] - top) * self.line & ring}),
            )
            found.setdefault(phase, []).extend(feed_word(op, **values) for op, values in fields)
        return found

    def _flags(self) -> dict[str, int]:
        return {
            "wide": self.port.region is RegionId.WIDE,
            "double": self.size == 2,
            "coded": self.kind is Format.CODED,
            "blocks": self.kind is Format.BLOCKS,
        }

    def encode(self, raw: NDArray[np.uint16], codes: NDArray[np.uint16]) -> Bytes:
        """Bytes ``[batch, total]`` of elements ``[batch, elements]``."""
        if self.kind is Format.CODED:
            return np.searchsorted(codes, raw).astype(np.uint8)
        if self.kind is Format.HALF:
            return raw.astype("<u2").view(np.uint8).reshape(len(raw), -1)
        native, lanes = self.config.native, self.feed.lanes
        tiles = self.headers
        padded = np.zeros((len(raw), raw.shape[1] // lanes, tiles * native), np.uint16)
        padded[..., :lanes] = raw.reshape(len(raw), -1, lanes)
        padded[..., lanes:] = padded[..., lanes - 1 : lanes]
        blocks = quantize(padded.reshape(len(raw), -1, native), self.config.act)
        mant = blocks.mant.astype(np.int8 if self.size == 1 else "<i2")
        size = self.size
        laid = np.concatenate(
            [blocks.exp.astype(np.int8).view(np.uint8)[..., None], mant.view(np.uint8).reshape(*mant.shape[:2], -1)], -1
        ).reshape(len(raw), -1, tiles * (1 + size * native))
        return laid[..., : tiles + size * lanes].reshape(len(raw), -1)


def stream(
    feeding: Feeding,
    schedule: Sequence[Phase],
    ports: tuple[Sequence[Port], Sequence[Port]],
    batch: Mapping[str, NDArray[np.float64]],
    config: NpuConfig,
) -> Stream | None:
    """A batch as the feeder takes it, or ``None`` if it cannot.

    Parameters
    ----------
    feeding : Feeding
        Of the image.
    schedule : sequence of Phase
        Of the image.
    ports : pair
        Its inputs and outputs.
    batch : mapping
        Values of the inputs, ``[batch, *port.shape]``.
    config : NpuConfig
        Of the device.
    """
    feeds = {feed.port: feed for feed in feeding.feeds}
    inputs, outputs = ports
    if not config.inbox or not inputs or set(feeds) != {port.name for port in inputs}:
        return None
    if len(schedule) > 1 and len(inputs) > 1:
        return None
    raws = {port.name: feeding.raw(feeds[port.name], batch[port.name], config.native) for port in inputs}
    if any(raw is None for raw in raws.values()):
        return None
    found = {name: np.unique(raw) for name, raw in raws.items() if raw is not None}
    codes = np.zeros(0, np.uint16)
    words: dict[int, list[int]] = {}
    data, room = [], config.inbox - 1
    for port in inputs:
        raw = raws[port.name]
        assert raw is not None
        both = np.union1d(codes, found[port.name])
        kinds = [Format.HALF]
        if port.region is RegionId.NARROW and feeds[port.name].single:
            kinds.append(Format.BLOCKS)
        if len(both) <= CODES_DEPTH:
            kinds.append(Format.CODED)
        fill = min((_Fill(feeds[port.name], port, kind, config) for kind in kinds), key=lambda fill: fill.total)
        if fill.kind is Format.CODED:
            codes = both
        parts = [(k, part) for k, phase in enumerate(schedule) for part in phase.inputs if part.port == port.name]
        try:
            mine = fill.words(parts)
        except ValueError:  # larger than the fields of a script
            return None
        if mine is None:
            return None
        for index, more in mine.items():
            words.setdefault(index, []).extend(more)
        room = min(room, config.inbox - 1 - fill.span())
        data.append((fill, raw))
    chunk = min(room, config.max_payload - TARGET.nbytes)
    script, results = [], 0
    lanes = {port.name: feeding.lanes.get(port.name, config.native) for port in outputs}
    for k, phase in enumerate(schedule):
        script += [*words.get(k, []), feed_word(FeedOp.RUN, pc=phase.pc)]
        for part in phase.outputs:
            script.append(feed_word(FeedOp.SEND, source=part.address, vectors=part.count, lanes=lanes[part.port]))
            results += 2 * part.count * lanes[part.port]
    script = _shorter([*script, feed_word(FeedOp.END)])
    if (
        len(script) > SCRIPT_DEPTH
        or chunk < min(64, config.inbox // 2)
        or not all(p.region is RegionId.WIDE for p in outputs)
    ):
        return None
    whole = np.concatenate([fill.encode(raw, codes) for fill, raw in data], axis=1)
    return Stream(tuple(script), whole.tobytes(), tuple(int(code) for code in codes), chunk, results)


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


def half_outbox(config: NpuConfig) -> int:
    """Results that are read at a time: while they can still be asked for again, as many can be made."""
    return config.inbox // OUTBOX_SHARE // 2
