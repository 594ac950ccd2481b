"""The command that lists the configurations."""

from __future__ import annotations

import click

from concord.cli.common import TerminalConsole, echo
from concord.cli.json_output import json_option, npu_facts, write_json
from concord.display.tables import text_table
from concord.spec.builds import STALE, UNROUTED, clock_note
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import PRESETS


@click.command()
@json_option
def presets(as_json: bool) -> None:
    """List the named configurations."""
    if as_json:
        write_json({"presets": [npu_facts(config) | _sizes(config) for config in PRESETS.values()]})
        return
    right = ("N", "L", "MACs", "matrix", "narrow", "wide", "MHz", "fingerprint")
    columns, title = ("preset", *right), "Presets (N native, L lanes, MACs per cycle; memories in KiB)"
    table = text_table(title, columns, right=right, whole=columns)
    for name, config in PRESETS.items():
        table.add_row(
            name,
            *map(str, (config.native, config.lanes, config.macs)),
            *(f"{bits / 8192:.1f}" for bits in _bits(config).values()),
            f"{config.clock_hz / 1e6:g}",
            f"{config.fingerprint:016x}",
        )
    TerminalConsole().print(table)
    for note in (STALE, UNROUTED):
        if names := [name for name, config in PRESETS.items() if clock_note(config.board, name) == note]:
            echo(f"MHz of {', '.join(names)}: {note}")


def _bits(config: NpuConfig) -> dict[str, int]:
    """Bits of the memories for weights and vectors."""
    memories = [regions(config)[region] for region in (RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE)]
    return {memory.id.name.lower(): memory.word.width * memory.depth for memory in memories}


def _sizes(config: NpuConfig) -> dict[str, int]:
    bits = {f"{memory}_bits": count for memory, count in _bits(config).items()}
    return {"native": config.native, "lanes": config.lanes, **bits}
