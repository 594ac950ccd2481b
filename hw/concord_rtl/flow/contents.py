"""Contents of the memories of one configuration, as the flow needs them."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Sequence
from pathlib import Path

from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId, regions

from ..core import Contents
from .bram import Store

#: Regions with contents of their own; registers and flags have none.
REGIONS = (RegionId.PROGRAM, RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE)


def noise(config: NpuConfig, region: RegionId) -> list[int]:
    """Pseudo-random words for a whole region, the same ones in every run, by which its block RAMs are found later."""
    area = regions(config)[region]
    rng = random.Random(f"{region.name} {area.word.width} {area.depth}")
    return [rng.getrandbits(area.word.width) for _ in range(area.depth)]


def marked(config: NpuConfig, slots: Sequence[int] = (), *, matrix: bool = True) -> Contents:
    """Contents to synthesise with: noise, and the real table descriptors, which are not in block RAM."""
    found = {region.name.lower(): noise(config, region) for region in REGIONS if matrix or region != RegionId.MATRIX}
    return Contents(**found, slots=list(slots))


def stores(config: NpuConfig, contents: Contents) -> list[Store]:
    """The memories of the design: every region is one, but the matrix region has one per row of a word."""
    table = regions(config)
    found = []
    for region in REGIONS:
        words = getattr(contents, region.name.lower())
        area = table[region]
        full = [*words, *[0] * (area.depth - len(words))]
        if region == RegionId.MATRIX:
            rows = config.rows
            found += [Store(f"matrix row {row}", area.word.width, full[row::rows]) for row in range(rows)]
        else:
            found.append(Store(region.name.lower(), area.word.width, full))
    return found


def load(path: Path, config: NpuConfig) -> Contents:
    """Read the memory files of an image: a zip archive or a folder with ``program.hex`` and so on.

    Raises
    ------
    ValueError
        If a word is too wide, or there are more words than the memory has.
    """
    table = regions(config)
    found = {}
    for region in (*REGIONS, RegionId.SLOTS):
        name = region.name.lower()
        area = table[region]
        words = [int(word, 16) for word in _read(path, f"{name}.hex").split()]
        if len(words) > area.depth:
            raise ValueError(f"{name}.hex must have at most {area.depth} words, not {len(words)}")
        if any(word >> area.word.width for word in words):
            raise ValueError(f"{name}.hex must have words of {area.word.width} bits")
        found[name] = words
    return Contents(**found)


def _read(path: Path, name: str) -> str:
    """Text of one file of an image; empty if it is not there."""
    if path.is_dir():
        file = path / name
        return file.read_text() if file.exists() else ""
    with zipfile.ZipFile(path) as archive:
        return archive.read(name).decode() if name in archive.namelist() else ""
