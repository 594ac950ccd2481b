"""Contents of the memories of one configuration, as the flow needs them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
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


def load(image: Path | None, config: NpuConfig, folder: Path) -> Contents:
    """Read an image, or a folder with its hex files; without one, all is empty.

    The image itself is read by the software, which writes the hex files to ``folder``.

    Raises
    ------
    ValueError
        If the image is damaged, or for another configuration.
    """
    if image is None:
        return Contents()
    if image.is_file():
        command = [sys.executable, "-m", "concord.hexfiles", str(image), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr.strip().removeprefix("Error: "))
        image = folder
    made_for = NpuConfig.from_dict(json.loads((image / "config.json").read_text()))
    if made_for.fingerprint != config.fingerprint:
        raise ValueError(f"the image is for another configuration; image / NPU: {made_for.difference(config)}")
    names = [region.name.lower() for region in (*REGIONS, RegionId.SLOTS)]
    return Contents(**{name: _words(image / f"{name}.hex") for name in names})


def _words(file: Path) -> list[int]:
    """Words of one hex file, without the zeros at its end."""
    words = [int(word, 16) for word in file.read_text().split()]
    while words and not words[-1]:
        words.pop()
    return words
