"""The compiled RTL as a device whose memories are loaded and read without the link.

Nearly all cycles of a random program would pass with that. Where the words of a region are is found once for each
library in a process, by noise: all regions are loaded and read over the link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.host.rtl import Bank, RtlTransport, find_library
from concord.image.words import to_bytes
from concord.spec.config import NpuConfig
from concord.spec.memmap import CORE_REGIONS, Region, RegionId
from concord_rtl.flow.contents import noise

#: Fewer words do not say which memory they are in; they go over the link.
LEAST_WORDS = 32
#: By library, the places of its regions.
_FOUND = {}


@dataclass(frozen=True)
class Place:
    """Bits of some words of a region: ``region_bits`` of words ``first``, ``first + step``, ... are ``bank_bits``."""

    bank: Bank
    bank_bits: list[int]
    region_bits: list[int]
    first: int
    step: int
    count: int

    def rows(self, addr: int, count: int) -> tuple[slice, slice]:
        """Words of the memory that are among some of the region, and which of these they are."""
        low = max(0, -(-(addr - self.first) // self.step))
        high = min(self.count, -(-(addr + count - self.first) // self.step))
        begin = self.first + low * self.step - addr
        return slice(low, max(low, high)), slice(begin, begin + max(0, high - low) * self.step, self.step)


class BackDoorDevice(LinkedDevice):
    """Reads and writes of large memories take no cycles; everything else goes over the link.

    A read looks into every copy that the hardware has of a word; :class:`AssertionError` if they differ.

    Parameters
    ----------
    config : NpuConfig
    library : Path
        Compiled simulation.

    Members
    -------
    places : dict
        By region, where its words are.
    """

    def __init__(self, config: NpuConfig, library: Path):
        self.transport = RtlTransport(library)
        self.places: dict[RegionId, list[Place]] = {}
        super().__init__(Link(self.transport), config)
        if library not in _FOUND:
            _FOUND[library] = _pass_over_the_link(self)
            if config.dram:
                bank = self.transport.banks["sdram"]
                bits = list(range(bank.width))
                _FOUND[library][RegionId.DRAM] = [Place(bank, bits, bits, 0, 1, bank.depth)]
        self.places = _FOUND[library]

    def _read(self, region: Region, addr: int, count: int) -> bytes:
        if region.id not in self.places:
            return super()._read(region, addr, count)
        words = np.zeros((count, 8 * region.nbytes), np.uint8)
        known = np.zeros((count, region.word.width), bool)
        for place in self.places[region.id]:
            rows, at = place.rows(addr, count)
            here = np.ix_(range(at.start, at.stop, at.step), place.region_bits)
            found = _bits(self.transport.peek(place.bank, rows.start, rows.stop - rows.start))[:, place.bank_bits]
            same = ~known[here] | (words[here] == found)
            assert same.all(), f"copies of {region.id.name} must be alike, not as in {place.bank.name}"
            words[here], known[here] = found, True
        assert known.all()
        return np.packbits(words, axis=1, bitorder="little").tobytes()

    def _write(self, region: Region, addr: int, data: bytes) -> None:
        if region.id not in self.places:
            super()._write(region, addr, data)
            return
        words = _bits(np.frombuffer(data, np.uint8).reshape(-1, region.nbytes))
        for place in self.places[region.id]:
            rows, at = place.rows(addr, len(words))
            bits = _bits(self.transport.peek(place.bank, rows.start, rows.stop - rows.start))
            bits[:, place.bank_bits] = words[at][:, place.region_bits]
            self.transport.poke(place.bank, rows.start, np.packbits(bits, axis=1, bitorder="little"))
        if region.id is RegionId.FLAGS:  # the RTL forgets the word that it wrote last when the host writes one
            super()._write(region, addr, data[: region.nbytes])


@contextmanager
def connected(config: NpuConfig) -> Iterator[BackDoorDevice]:
    """A device with empty memories, closed at the end."""
    with BackDoorDevice(config, find_library(config)) as device:
        for region in map(device.regions.__getitem__, device.places.keys() - {RegionId.DRAM}):
            device._write(region, 0, bytes(region.depth * region.nbytes))
        device.clear_flags()
        yield device


def _bits(data):
    return np.unpackbits(data, axis=1, bitorder="little")


def _pass_over_the_link(device: BackDoorDevice) -> dict[RegionId, list[Place]]:
    """Load noise and read it; the places where it is then."""
    config, columns = device.config, defaultdict(list)
    large = [area for area in device.regions.values() if area.id in CORE_REGIONS and area.depth >= LEAST_WORDS]
    contents = {area.id: to_bytes(noise(config, area.id), area.nbytes) for area in large}
    for area in large:
        device.link.write(area, 0, contents[area.id].tobytes())
    for area in large:
        assert device.link.read(area, 0, area.depth) == contents[area.id].tobytes(), area.id.name
    for bank in device.transport.banks.values():
        if bank.depth >= LEAST_WORDS:
            bits = _bits(device.transport.peek(bank, 0, bank.depth))[:, : bank.width]
            for number, column in enumerate(np.packbits(bits, axis=0).T):
                columns[bank.depth, column.tobytes()].append((bank, number))
    return {area.id: _places(area, _bits(contents[area.id]), columns, config.rows) for area in large}


def _places(area: Region, bits, columns, rows: int) -> list[Place]:
    """Where the bits of a region are: in memories of its depth, or of a part of it, or of every so many words."""
    places, known = [], np.zeros((area.depth, area.word.width), bool)
    for depth, step in product(sorted({depth for depth, _ in columns}), sorted({1, 2, rows})):
        aligned = 1 << (depth - 1).bit_length()
        for first, base in product(range(step), range(0, area.depth // step - depth + 1, aligned)):
            words = slice(first + base * step, first + (base + depth) * step, step)
            by_bank = defaultdict(list)
            for bit, column in enumerate(np.packbits(bits[words, : area.word.width], axis=0).T):
                for bank, number in columns.get((depth, column.tobytes()), ()):
                    by_bank[bank].append((number, bit))
                    known[words, bit] = True
            for bank, pairs in by_bank.items():
                places.append(Place(bank, *map(list, zip(*pairs, strict=True)), words.start, step, depth))
    assert known.all(), f"bits of {area.id.name} must be in some memory, not {np.argwhere(~known)[:3].tolist()}"
    return places
