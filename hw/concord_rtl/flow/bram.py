"""Contents of the block RAMs in a placed and routed design: find them, read them, replace them.

Works on the text that nextpnr writes, before it is packed (:mod:`concord_rtl.families.geometry`). A memory is found
by its contents, which must be pseudo-random when the design is synthesised: it is cut into *slices*, one bit of a run
of consecutive words, as long as the shallowest shape of the block RAM. Whatever synthesis did to width and depth,
a slice is in one block RAM, and the few ways in which one can lie there are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from concord_rtl.families.geometry import Geometry

#: Words a slice must have, so that its bits are not there by chance; the last slice of a memory may be a short one.
LEAST_WORDS = 32


@dataclass(frozen=True)
class Store:
    """One memory of the design: ``words`` of ``width`` bits."""

    name: str
    width: int
    words: Sequence[int]


class BlockRams:
    """The block RAMs of one design.

    Parameters
    ----------
    geometry : Geometry
        How the family writes them.
    text : str
        What nextpnr wrote.
    """

    def __init__(self, geometry: Geometry, text: str):
        self.geometry = geometry
        self._text = text
        matches = list(re.finditer(self.geometry.pattern, text, re.MULTILINE))
        self._names = [match["name"] for match in matches]
        self._spans = [match.span("bits") for match in matches]
        self.bits = np.array([self._parse(text[start:end]) for start, end in self._spans], dtype=np.uint8)

    def _parse(self, body: str) -> np.ndarray:
        unit = self.geometry.unit
        size = -(-unit // 8)
        data = b"".join(int(number, 16).to_bytes(size, "little") for number in body.split())
        numbers = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
        return np.unpackbits(numbers, axis=1, count=unit, bitorder="little").reshape(-1)

    def by_name(self) -> dict[str, bytes]:
        """The contents of each block RAM as they are now, a byte per bit."""
        return {name: bits.tobytes() for name, bits in zip(self._names, self.bits, strict=True)}

    def text(self) -> str:
        """The design with the contents as they are now."""
        pieces, at = [], 0
        for (start, end), bits in zip(self._spans, self.bits, strict=True):
            rows = np.packbits(bits.reshape(-1, self.geometry.unit), axis=1, bitorder="little")
            numbers = iter([int.from_bytes(row.tobytes(), "little") for row in rows])

            def follow(match: re.Match[str], numbers: Iterator[int] = numbers) -> str:
                return f"{next(numbers):0{len(match[0])}x}"

            pieces += [self._text[at:start], re.sub("[0-9a-f]+", follow, self._text[start:end])]
            at = end
        return "".join([*pieces, self._text[at:]])

    def locate(self, stores: Sequence[Store]) -> Layout:
        """Find where ``stores`` are, which must be the contents that the design has now.

        Raises
        ------
        ValueError
            If two slices of the stores are equal, so that they cannot be told apart.
        """
        wanted: dict[bytes, tuple[int, int, int]] = {}
        for number, store in enumerate(stores):
            for base, bit, column in _columns(store, self.geometry.run):
                key = np.packbits(column).tobytes()
                if key in wanted:
                    raise ValueError(f"contents of {store.name} must be pseudo-random, not repeat at word {base}")
                wanted[key] = (number, base, bit)
        layout = Layout(list(stores))
        missing = set(wanted.values())
        for positions in self.geometry.slices():
            for block, key in enumerate(np.packbits(self.bits[:, positions], axis=1)):
                if place := wanted.get(key.tobytes()):
                    layout.places.append((*place, block, positions))
                    missing.discard(place)
        layout.missing = {stores[number].name for number, _, _ in missing} | set(_short(stores, self.geometry.run))
        return layout


@dataclass
class Layout:
    """Places of memories in block RAMs.

    Attributes
    ----------
    stores : list of Store
        The memories, with the contents by which they were found.
    places : list of (store, first word, bit, block RAM, positions)
        Slices found; a memory with several read ports is there several times.
    missing : set of str
        Memories that are not in block RAM, or not wholly.
    """

    stores: list[Store]
    places: list[tuple[int, int, int, int, np.ndarray]] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    def write(self, rams: BlockRams, stores: Sequence[Store]) -> None:
        """Replace the contents; ``stores`` as those of the layout, with other words."""
        have, want = [[(store.name, store.width) for store in group] for group in (stores, self.stores)]
        if have != want:
            raise ValueError(f"memories must be {want}, not {have}")
        run = rams.geometry.run
        columns = [{(base, bit): column for base, bit, column in _columns(store, run)} for store in stores]
        for number, base, bit, block, positions in self.places:
            column = columns[number].get((base, bit), np.zeros(run, dtype=np.uint8))
            rams.bits[block, positions] = column

    def read(self, rams: BlockRams) -> list[Store]:
        """Return the contents that ``rams`` have at the places of this layout."""
        run = rams.geometry.run
        bits = [np.zeros((len(store.words) + run, store.width), dtype=np.uint8) for store in self.stores]
        for number, base, bit, block, positions in self.places:
            bits[number][base : base + run, bit] = rams.bits[block, positions]
        stores = []
        for store, rows in zip(self.stores, bits, strict=True):
            packed = np.packbits(rows[: len(store.words)], axis=1, bitorder="little")
            stores.append(Store(store.name, store.width, [int.from_bytes(row.tobytes(), "little") for row in packed]))
        return stores


def _columns(store: Store, run: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield first word, bit and contents of every slice, zeros after the last word; slices too short are left out."""
    for base in range(0, len(store.words), run):
        words = store.words[base : base + run]
        if len(words) >= LEAST_WORDS:
            size = -(-store.width // 8)
            data = np.frombuffer(b"".join(word.to_bytes(size, "little") for word in words), dtype=np.uint8)
            bits = np.zeros((run, store.width), dtype=np.uint8)
            bits[: len(words)] = np.unpackbits(data.reshape(-1, size), axis=1, count=store.width, bitorder="little")
            yield from ((base, bit, bits[:, bit]) for bit in range(store.width))


def _short(stores: Sequence[Store], run: int) -> Iterator[str]:
    """Yield the names of memories whose last slice is too short to be found."""
    for store in stores:
        if 0 < (len(store.words) - 1) % run + 1 < LEAST_WORDS:
            yield store.name
