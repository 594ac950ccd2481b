"""Cells and clock of what makes codes of accumulators: with ``vv_scale`` and without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from amaranth.lib import wiring
from rich.console import Console
from rich.table import Table

import concord_boards
from concord.spec.config import NpuConfig
from concord.spec.operations import NEEDS, Op
from concord.spec.presets import preset
from concord_rtl.arith.acc_scale import AccScale
from concord_rtl.families import family_named
from concord_rtl.flow.area import cells, synthesized, unit_cells
from concord_rtl.flow.plan import PRESET, board_option, build_option
from concord_rtl.flow.unit import clock_of_unit
from concord_rtl.vector.mfu import Mfu

CONSOLE = Console()


def without_scaling(config: NpuConfig) -> NpuConfig:
    """A configuration without its ``vv_scale``."""
    return config.without(Op.VV_SCALE).replace(name=f"{config.name}-without-code-scaling")


def units(config: NpuConfig) -> dict[str, Callable[[], wiring.Component]]:
    """Constructors of the units of a configuration with ``vv_scale`` that differ without it, by description."""
    return {
        "AccScale, a lane": lambda: AccScale(config),
        "first multifunction unit": lambda: Mfu(config, 0),
        "first multifunction unit, without": lambda: Mfu(without_scaling(config), 0),
    }


def _table(summary: dict[str, Any]) -> Table:
    """Table of the cells that were counted, for a terminal."""
    rows = summary["rows"]
    shown = Table("", *rows[0]["cells"], "MHz", title=summary["of"], title_justify="left")
    for row in rows:
        mhz = f"{row['mhz']:.2f}" if "mhz" in row else ""
        shown.add_row(row["what"], *(f"{count:,}" for count in row["cells"].values()), mhz)
    return shown


@click.command("code-scaling")
@board_option
@click.option("--preset", "preset_name", type=PRESET, default="ecp5-85f", show_default=True)
@click.option("--units", "only_units", is_flag=True, help="The units alone, without the whole design.")
@click.option("--clock", is_flag=True, help="Place and route the units, too, each by itself.")
@click.option("--seed", default=1, show_default=True, help="Of place and route.")
@build_option
def scaling(board_name: str, preset_name: str, only_units: bool, clock: bool, seed: int, build: Path) -> None:
    """Synthesise what makes codes of accumulators, with code_scaling and without, and count cells.

    One lane and the first multifunction unit by themselves, and the whole design. Writes code_scaling.json, which
    python -m concord_bench shows.
    """
    board, config = concord_boards.board_named(board_name), preset(preset_name)
    if not config.has(Op.VV_SCALE):
        raise click.ClickException(f"preset must be one with {NEEDS[Op.VV_SCALE]}, not {config.name!r}")
    family = family_named(board.family)
    if clock and family.without_pins is None:
        raise click.ClickException(f"--clock must be left out for {board_name}: {family.name} has no flow without pins")
    folder = build / "area" / f"{board.name}-{config.name}-code-scaling"
    rows: list[dict[str, Any]] = []
    for k, (what, make) in enumerate(units(config).items()):
        CONSOLE.print(f"{board.name}, {what}")
        counted = unit_cells(make(), f"unit{k}", family, folder, CONSOLE, target=family.target)
        rows.append({"what": what, "cells": counted})
        if clock:
            rows[-1]["mhz"] = round(clock_of_unit(make(), board, [seed], folder / f"unit{k}", CONSOLE), 2)
    if not only_units:
        for what, whole in (("whole design", config), ("whole design, without", without_scaling(config))):
            flow = synthesized(whole, board_name, build, CONSOLE).flow
            rows.append({"what": what, "cells": cells(flow.folder / "synthesis.json", flow.family)})
    summary = {"of": f"code_scaling of {config.name} on {board.name}", "rows": rows}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "code_scaling.json").write_text(json.dumps(summary, indent=2) + "\n")
    CONSOLE.print(_table(summary))
