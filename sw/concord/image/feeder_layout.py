"""Layout of raw inputs of an image in its ports: the geometry.

Scripts and bytes are in :mod:`concord.image.feeder_scripts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from concord.golden import binary16
from concord.image.code_book import Coding
from concord.image.ports import Port
from concord.spec.config import NpuConfig
from concord.utils.arrays import Array, Bits, FloatArray, Ids

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
        """True if every element is in one place."""
        return self.kernel == (1, 1)

    @property
    def lanes(self) -> int:
        """Elements of a window."""
        return prod(self.kernel) * self.image[2]

    def in_vectors(self, native: int) -> Feed | None:
        """This layout with positions that are whole native vectors; ``None`` if vectors are no part of the image.

        Then an element that is in several windows has the same neighbours in all of its vectors.
        """
        (height, width, channels), (_, kw) = self.image, self.kernel
        ends = [at + (n - 1) * step + (k - 1) * apart + 1 for at, n, step, k, apart in self._axes()]
        if self.single:
            return self
        if min(self.origin) < 0 or any(end > size for end, size in zip(ends, self.image[:2], strict=True)):
            return None
        if channels % native == 0:
            return self
        across = (width, kw, self.stride[1], self.origin[1])
        if self.dilation[1] != 1 or any(count * channels % native for count in across):
            return None
        width, kw, step, origin = (count * channels // native for count in across)
        return replace(
            self,
            image=(height, width, native),
            kernel=(self.kernel[0], kw),
            stride=(self.stride[0], step),
            origin=(self.origin[0], origin),
        )

    def _axes(self) -> list[tuple[int, ...]]:
        """First position, windows, their distance, taps and their distance, of both axes."""
        return list(zip(self.origin, self.windows, self.stride, self.kernel, self.dilation, strict=True))

    def order(self, native: int) -> Ids:
        """The element of the image, or ``BORDER``, for every element ``[vectors, native]`` of the port."""
        (height, width, channels), (kh, kw) = self.image, self.kernel
        rows = self.origin[0] + np.arange(self.windows[0])[:, None] * self.stride[0] + np.arange(kh) * self.dilation[0]
        cols = self.origin[1] + np.arange(self.windows[1])[:, None] * self.stride[1] + np.arange(kw) * self.dilation[1]
        y, x = rows[:, None, :, None, None], cols[None, :, None, :, None]
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        ids = np.where(inside, (y * width + x) * channels + np.arange(channels), BORDER)
        ordered = np.zeros((*self.windows, -(-self.lanes // native) * native), np.int64)
        ordered[..., : self.lanes] = ids.reshape(*self.windows, self.lanes)
        ordered[..., self.lanes :] = ordered[..., self.lanes - 1 : self.lanes]
        return ordered.reshape(-1, native)


@dataclass(frozen=True)
class Feeding:
    """Facts about an image that a feeder needs.

    Parameters
    ----------
    feeds : tuple of Feed
        One for every input.
    lanes : dict
        By output: for each of its vectors, elements that are sent; the others count as zero.
    codings : dict of str to Coding
        Inputs whose elements are expected to have few values, so that a byte can stand for each, and their pages of
        the code book: for estimates, a batch decides for itself.
    """

    feeds: tuple[Feed, ...] = ()
    lanes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    codings: dict[str, Coding] = field(default_factory=dict)

    @property
    def channels(self) -> dict[str, int]:
        """Elements of a position, by input."""
        return {feed.port: feed.image[2] for feed in self.feeds}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Feeding:
        """Inverse of :func:`dataclasses.asdict`, lists for tuples allowed."""

        def feed_of(values: dict[str, Any]) -> Feed:
            kept: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
            return Feed(**kept)

        feeds = [feed_of(feed) for feed in values["feeds"]]
        lanes = {name: tuple(counts) for name, counts in values["lanes"].items()}
        codings = {name: Coding.from_dict(coding) for name, coding in values["codings"].items()}
        return cls(tuple(feeds), lanes, codings)

    def check(self, inputs: Sequence[Port], outputs: Sequence[Port], config: NpuConfig) -> None:
        """Raise ``ValueError`` unless inputs have the vectors that are laid out, outputs the lanes, and codes pages."""
        vectors = {port.name: port.vectors(config) for port in inputs}
        for feed in self.feeds:
            count = prod(feed.windows) * -(-feed.lanes // config.native)
            if vectors.get(feed.port) != count:
                raise ValueError(f"feed of {feed.port!r} must lay out {vectors.get(feed.port)} vectors, not {count}")
        for name, coding in self.codings.items():
            channels = self.channels.get(name)
            if channels is None or not 0 <= coding.page < coding.pages(channels).stop <= config.code_pages:
                raise ValueError(f"codes must be of a feed, in {config.code_pages} pages, not {coding} of {name!r}")
        vectors = {port.name: port.vectors(config) for port in outputs}
        for name, lanes in self.lanes.items():
            if len(lanes) != vectors.get(name) or not all(1 <= count <= config.native for count in lanes):
                raise ValueError(
                    f"lanes must be those of the vectors of {list(vectors)} and in 1..{config.native}, "
                    f"not {list(lanes)} of {name!r}"
                )

    def trim(self, outputs: dict[str, Array]) -> dict[str, Array]:
        """Outputs with zeros in the lanes that are not sent."""
        for name, lanes in self.lanes.items():
            values = outputs[name]
            vectors = values.reshape(len(values), len(lanes), -1)
            spare = np.arange(vectors.shape[2]) >= np.array(lanes)[:, None]
            outputs[name] = np.where(spare, 0, vectors).astype(values.dtype).reshape(values.shape)
        return outputs

    def raw(self, feed: Feed, values: FloatArray, native: int) -> Bits | None:
        """The elements of an input ``[batch, elements]`` as binary16 patterns, from the values of the port.

        ``None`` if these are not what the elements give: an element in several places that is not the same in all.
        """
        bits = binary16.encode(values.reshape(len(values), -1))
        order = feed.order(native).reshape(-1)
        elements = np.zeros((len(values), feed.elements), np.uint16)
        first = np.unique(order, return_index=True)
        places = {int(n): int(at) for n, at in zip(*first, strict=True) if n >= 0}
        elements[:, list(places)] = bits[:, list(places.values())]
        laid = np.where(order == BORDER, feed.border, elements[:, order])
        return elements if np.array_equal(laid, bits) else None
