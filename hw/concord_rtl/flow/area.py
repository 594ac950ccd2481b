"""Cells of a design with accumulators of several widths, after synthesis."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from concord.spec.config import NpuConfig

#: Cells of yosys by family and by the name people use.
CELLS = {
    "ecp5": {"LUT4": "LUT4", "carry": "CCU2C", "LUT RAM": "TRELLIS_DPR16X4", "FF": "TRELLIS_FF", "DSP": "MULT18X18D"},
    "ice40": {"LUT4": "SB_LUT4", "carry": "SB_CARRY", "DSP": "SB_MAC16"},
}


def narrowed(config: NpuConfig, widths: Sequence[int]) -> Iterator[tuple[int, NpuConfig]]:
    """The configuration with registers of some widths; 0 is the full one, as are all that no sum exceeds."""
    for width in widths:
        bits = config.full_bits if width == 0 else min(width, config.full_bits)
        if bits == config.full_bits:
            yield bits, config
        else:
            kept = min(config.acc_width, bits)
            yield bits, config.replace(name=f"{config.name}-a{bits}", acc_width=kept, acc_register=bits)


def cells(stat: Path, family: str) -> dict[str, int]:
    """Cells that ``stat -json`` of yosys has counted."""
    counts = json.loads(stat.read_text())["design"]["num_cells_by_type"]
    found = {name: int(counts.get(kind, 0)) for name, kind in CELLS[family].items()}
    if family == "ice40":
        found["FF"] = sum(count for kind, count in counts.items() if kind.startswith("SB_DFF"))
    return found


def table(summary: dict[str, Any]) -> Table:
    """Widths and cells for a terminal."""
    clock = any("mhz" in row for row in summary["widths"])
    names = list(summary["widths"][0]["cells"])
    shown = Table("bits", *names, *(["MHz"] if clock else []), title=f"{summary['preset']} on {summary['board']}")
    for row in summary["widths"]:
        mhz = [f"{row['mhz']:.2f}" if "mhz" in row else ""] if clock else []
        shown.add_row(str(row["bits"]), *(f"{row['cells'][name]:,}" for name in names), *mhz)
    return shown
