"""The command that lists the configurations."""

from __future__ import annotations

import click

from concord.cli.common import TerminalConsole
from concord.display.tables import text_table
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import PRESETS


@click.command()
def presets() -> None:
    """List the named configurations."""
    right = ("N", "L", "MACs", "matrix", "narrow", "wide", "MHz", "fingerprint")
    columns, title = ("preset", *right), "Presets (N native, L lanes, MACs per cycle; memories in KiB)"
    table = text_table(title, columns, right=right, whole=columns)
    for name, config in PRESETS.items():
        memories = [regions(config)[region] for region in (RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE)]
        table.add_row(
            name,
            *map(str, (config.native, config.lanes, config.macs)),
            *(f"{memory.word.width * memory.depth / 8192:.1f}" for memory in memories),
            f"{config.clock_hz / 1e6:g}",
            f"{config.fingerprint:016x}",
        )
    TerminalConsole().print(table)
