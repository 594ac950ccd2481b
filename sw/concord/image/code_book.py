"""The code book of a batch: numbers that bytes of inputs stand for, in pages.

Inputs with few values share a page. An image whose channels have few values each, as colours have that were normalised
one by one, gets a page for every channel, if the configuration has so many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE
from concord.utils.arrays import Bits, Bytes

#: Values that the host puts into a page.
PAGE_VALUES = CODE_PAGE
_PATTERNS = 1 << 16


@dataclass(frozen=True)
class Coding:
    """Pages of the code book with the numbers that the bytes of an input stand for.

    Parameters
    ----------
    page : int
        Page of the code book; of channel 0 if every channel has its own.
    by_channel : bool
        True if channel ``c`` has page ``page + c``.
    """

    page: int = 0
    by_channel: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Coding:
        """Inverse of :func:`dataclasses.asdict`."""
        return cls(int(values["page"]), bool(values["by_channel"]))

    def pages(self, channels: int) -> range:
        """The pages of an image with so many channels."""
        return range(self.page, self.page + (channels if self.by_channel else 1))


@dataclass(frozen=True)
class CodeBook:
    """Values of the inputs of a batch.

    Parameters
    ----------
    pages : tuple of array
        The binary16 patterns of each page, in ascending order, at most 256.
    codings : dict of str to Coding
        By input whose elements can be bytes: its pages.
    """

    pages: tuple[Bits, ...]
    codings: dict[str, Coding]

    @property
    def words(self) -> tuple[int, ...]:
        """Words of the region ``CODES``, from address 0 on."""
        if not self.pages:
            return ()
        words = np.zeros((len(self.pages) - 1) * CODE_PAGE + len(self.pages[-1]), np.uint16)
        for number, values in enumerate(self.pages):
            words[number * CODE_PAGE :][: len(values)] = values
        return tuple(words.tolist())

    def encode(self, name: str, raw: Bits, channels: int) -> Bytes:
        """Bytes ``[batch, elements]`` of the elements of an input, whose channels are next to each other."""
        laid = np.empty(raw.shape, np.uint8)
        pages = self.codings[name].pages(channels)
        for channel, page in enumerate(pages):
            codes = np.zeros(_PATTERNS, np.uint8)
            codes[self.pages[page]] = np.arange(len(self.pages[page]))
            laid[:, channel :: len(pages)] = codes[raw[:, channel :: len(pages)]]
        return laid


def code_book(raws: Mapping[str, Bits], channels: Mapping[str, int], config: NpuConfig) -> CodeBook:
    """The code book for a batch.

    Parameters
    ----------
    raws : mapping of str to array
        Elements ``[batch, elements]`` by input, as binary16 patterns.
    channels : mapping of str to int
        Channels of each; those of a position are next to each other.
    config : NpuConfig
        Says how many pages there are.
    """
    pages: list[Bits] = []
    codings: dict[str, Coding] = {}
    for name, raw in raws.items():
        values = _values(raw)
        unions = [np.union1d(page, values) for page in pages]
        shared = next((number for number, union in enumerate(unions) if len(union) <= PAGE_VALUES), None)
        free = config.code_pages - len(pages)
        if shared is not None:
            pages[shared] = unions[shared]
            codings[name] = Coding(shared)
        elif len(values) <= PAGE_VALUES and free:
            codings[name] = Coding(len(pages))
            pages.append(values)
        elif channels[name] <= free:
            by_channel = [_values(raw[:, channel :: channels[name]]) for channel in range(channels[name])]
            if max(map(len, by_channel)) <= PAGE_VALUES:
                codings[name] = Coding(len(pages), by_channel=True)
                pages += by_channel
    return CodeBook(tuple(pages), codings)


def _values(raw: Bits) -> Bits:
    """Patterns that there are, in ascending order."""
    return np.flatnonzero(np.bincount(raw.reshape(-1), minlength=1)).astype(np.uint16)
