"""Cells of the units of the integer engine."""

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
from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.operations import NEEDS, Op
from concord.spec.presets import ECP5_85F
from concord_rtl.families import family_named
from concord_rtl.flow.area import unit_cells
from concord_rtl.flow.plan import PRESET, board_option, build_option, config_option, configuration
from concord_rtl.pipe.integers.collector import VectorCollector
from concord_rtl.pipe.integers.engine import IntegerEngine
from concord_rtl.pipe.integers.integer_lane import IntegerLane
from concord_rtl.pipe.integers.reader import IntegerReader
from concord_rtl.pipe.integers.tensor_unit import TensorUnit
from concord_rtl.pipe.integers.update_stage import UpdateStage
from concord_rtl.pipe.integers.writer import IntegerWriter

CONSOLE = Console()


def units(config: NpuConfig) -> dict[str, Callable[[], wiring.Component]]:
    """Constructors of the units of the integer engine of a configuration, by description; the engine itself last."""
    latencies = {
        "product_latency": timing.sum_latency(config) + timing.MATRIX_DELAY,
        "result_latency": timing.RESULT_QUEUE,
    }
    return {
        f"lane, one of {config.mfu_lanes}": IntegerLane,
        "tensor registers": TensorUnit,
        "reader": lambda: IntegerReader(config, **latencies),
        "collector": lambda: VectorCollector(config),
        "writer": lambda: IntegerWriter(config),
        "lazy update": lambda: UpdateStage(config),
        "integer engine": lambda: IntegerEngine(config, **latencies),
    }


def _table(summary: dict[str, Any]) -> Table:
    """Table of the cells that were counted, for a terminal."""
    rows = summary["rows"]
    shown = Table("", *rows[0]["cells"], title=summary["of"], title_justify="left")
    for row in rows:
        shown.add_row(row["what"], *(f"{count:,}" for count in row["cells"].values()))
    return shown


@click.command("integers")
@board_option
@click.option("--preset", "preset_name", type=PRESET, help="Default: ecp5-85f.")
@config_option
@build_option
def integers(board_name: str, preset_name: str | None, config_file: Path | None, build: Path) -> None:
    """Synthesise the integer engine and its units, each by itself, and count cells.

    Inputs are not known then, so that the units together are more than the engine. Writes integers.json, which
    python -m concord_bench shows.
    """
    board = concord_boards.board_named(board_name)
    named = preset_name or (ECP5_85F.name if config_file is None else None)
    config = configuration(board, named, None, config_file)
    if not config.has(Op.I_RUN):
        raise click.ClickException(f"preset must be one with {NEEDS[Op.I_RUN]}, not {config.name!r}")
    family, folder = family_named(board.family), build / "area" / f"{board.name}-{config.name}-integers"
    rows = []
    for k, (what, make) in enumerate(units(config).items()):
        CONSOLE.print(f"{board.name}, {what}")
        rows.append(
            {"what": what, "cells": unit_cells(make(), f"unit{k}", family, folder, CONSOLE, target=family.target)}
        )
    summary = {"of": f"the integer engine of {config.name} on {board.name}", "rows": rows}
    (folder / "integers.json").write_text(json.dumps(summary, indent=2) + "\n")
    CONSOLE.print(_table(summary))
