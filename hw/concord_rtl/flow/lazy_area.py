"""Cells and clock of the lazy update by the number of its lanes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import concord_boards
from concord_rtl.families import family_named
from concord_rtl.flow.area import unit_cells
from concord_rtl.flow.unit import clock_of_unit
from concord_rtl.lazy.block_updater import BlockUpdater
from concord_rtl.lazy.updated_memory import UpdatedMemory
from concord_rtl.lazy.widths import LazyWidths

CONSOLE = Console()


def _lanes(context: click.Context, option: click.Parameter, text: str) -> list[int]:
    try:
        lanes = [int(part) for part in text.split(",")]
    except ValueError:
        lanes = [0]
    if any(count < 1 or count & count - 1 for count in lanes):
        raise click.BadParameter(f"must be powers of two separated by commas, not {text!r}")
    return lanes


def _table(summary: dict[str, Any]) -> Table:
    """What was counted, for a terminal."""
    shown = Table("lanes", *summary["lanes"][0]["cells"], "MHz", title=summary["of"], title_justify="left")
    for row in summary["lanes"]:
        mhz = f"{row['mhz']:.2f}" if "mhz" in row else ""
        shown.add_row(str(row["lanes"]), *(f"{count:,}" for count in row["cells"].values()), mhz)
    return shown


@click.command()
@click.option(
    "--board", "board_name", type=click.Choice(list(concord_boards.BOARDS)), default="ulx3s-25f", show_default=True
)
@click.option(
    "--lanes", default="1,4,8,16", show_default=True, callback=_lanes, help="Elements of a word, one design each."
)
@click.option("--depth", type=click.IntRange(2), default=1024, show_default=True, help="Words of the memory.")
@click.option(
    "--clock",
    is_flag=True,
    help="Place and route, too, with the memory in block RAM (where the family has a flow without pins).",
)
@click.option("--seed", default=1, show_default=True, help="Of place and route.")
@click.option(
    "--build", type=click.Path(path_type=Path), default=Path("build"), show_default=True, help="Folder of the results."
)
def lazy(board_name: str, lanes: list[int], depth: int, clock: bool, seed: int, build: Path) -> None:
    """Synthesise the lazy update of weights by itself, in the formats 8, 16 and 32 bits, and count cells.

    Writes lazy.json, which python -m concord_bench shows.
    """
    board, widths = concord_boards.board_named(board_name), LazyWidths()
    family = family_named(board.family)
    if clock and family.without_pins is None:
        raise click.ClickException(f"--clock must be left out for {board_name}: {family.name} has no flow without pins")
    rows: list[dict[str, Any]] = []
    for count in lanes:
        folder = build / "area" / f"{board_name}-lazy-{count}x{depth}"
        CONSOLE.print(f"{board_name}, {count} lanes -> {folder}")
        unit = BlockUpdater(widths, count, depth)
        row: dict[str, Any] = {"lanes": count, "cells": unit_cells(unit, "updater", family, folder, CONSOLE)}
        if clock:
            memory = UpdatedMemory(widths, count, depth)
            row["mhz"] = round(clock_of_unit(memory, board, [seed], folder, CONSOLE), 2)
        rows.append(row)
    summary = {"of": f"Lazy update of {depth} words on {board_name}", "lanes": rows}
    folder = build / "area" / f"{board_name}-lazy"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lazy.json").write_text(json.dumps(summary, indent=2) + "\n")
    CONSOLE.print(_table(summary))
