"""Contents of the memories of one configuration, as the flow needs them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId, regions
from concord.spec.stored import remedy
from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.core.implementation import Contents
from concord_rtl.families import Family
from concord_rtl.flow.bram import Store

#: Regions with contents of their own; registers and flags have none.
REGIONS = (RegionId.PROGRAM, RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE)


def noise(config: NpuConfig, region: RegionId) -> list[int]:
    """Pseudo-random words for a whole region, the same ones in every run, by which its block RAMs are found later."""
    area = regions(config)[region]
    rng = random.Random(f"{region.name} {area.word.width} {area.depth}")
    return [rng.getrandbits(area.word.width) for _ in range(area.depth)]


def fillable(config: NpuConfig, family: Family) -> list[RegionId]:
    """Regions in block RAM with initial contents; some families have memories that have none."""
    table = regions(config)
    depths = {region: table[region].depth for region in REGIONS} | {RegionId.MATRIX: config.matrix_depth}
    return [region for region in REGIONS if depths[region] >= BlockRam.LEAST and region not in family.empty_regions]


def fixed(config: NpuConfig, family: Family, contents: Contents) -> dict[str, list[int]]:
    """Contents that become part of the netlist: small memories, which are not in block RAM, and table descriptors."""
    names = [region.name.lower() for region in REGIONS if region not in fillable(config, family)]
    empty = [region.name.lower() for region in family.empty_regions]
    return {name: getattr(contents, name) for name in (*names, "slots") if name not in empty}


def marked(config: NpuConfig, family: Family, contents: Contents) -> Contents:
    """Contents to synthesise with: noise in all block RAMs."""
    noises = {region.name.lower(): noise(config, region) for region in fillable(config, family)}
    return Contents(**noises, **fixed(config, family, contents))


def stores(config: NpuConfig, contents: Contents, chosen: Sequence[RegionId]) -> list[Store]:
    """The memories of the design: every region is one, but the matrix region has one per row of a word."""
    table = regions(config)
    stores = []
    for region in chosen:
        words = getattr(contents, region.name.lower())
        area = table[region]
        full = [*words, *[0] * (area.depth - len(words))]
        if region == RegionId.MATRIX:
            rows = config.rows
            stores += [Store(f"matrix row {row}", area.word.width, full[row::rows]) for row in range(rows)]
        else:
            stores.append(Store(region.name.lower(), area.word.width, full))
    return stores


def configuration(image: Path) -> NpuConfig:
    """The configuration that an image, or a folder with its hex files, is for; ``ValueError`` if it is damaged."""
    with TemporaryDirectory() as folder:
        return NpuConfig.from_dict(json.loads((_hex_files(image, Path(folder)) / "config.json").read_text()))


def _hex_files(image: Path, folder: Path) -> Path:
    """The folder with the hex files of an image: written to ``folder`` by the software, or the image itself."""
    if image.is_dir():
        return image
    command = [sys.executable, "-m", "concord.image.hexfiles", str(image), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr.strip().removeprefix("Error: "))
    return folder


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
    place, image = image, _hex_files(image, folder)
    made_for = NpuConfig.from_dict(json.loads((image / "config.json").read_text()))
    if made_for.fingerprint != config.fingerprint:
        advice = remedy(made_for, place)
        text = f"the image is for another configuration; image / NPU: {made_for.difference(config)}"
        raise ValueError("; ".join(filter(None, (text, advice))))
    names = [region.name.lower() for region in (*REGIONS, RegionId.SLOTS)]
    return Contents(**{name: _words(image / f"{name}.hex") for name in names})


def _words(file: Path) -> list[int]:
    """Words of one hex file, without the zeros at its end."""
    words = [int(word, 16) for word in file.read_text().split()]
    while words and not words[-1]:
        words.pop()
    return words
