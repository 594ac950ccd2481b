"""``concord fit``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from concord.cli.common import EXISTING, POSITIVE, readable, wide_console
from concord.fit.resources import BUILDS, CLOCK_ERROR, LUT_ERROR
from concord.spec.devices import ECP5_DEVICES


@click.command()
@click.argument("model", type=EXISTING)
@click.option("--board", required=True, type=click.Choice(list(ECP5_DEVICES)), help="Board with an ECP5.")
@click.option(
    "--mantissa", "mantissas", multiple=True, type=click.IntRange(3, 12),
    help="Width of mantissas to try, the best first. The option can be repeated. Default: 8, 7, 6, 5.",
)  # fmt: skip
@click.option("--show", default=5, show_default=True, type=POSITIVE, help="Number of configurations to show.")
@readable
def fit(model: Path, board: str, mantissas: tuple[int, ...], show: int) -> None:
    """Find the configuration that computes the ONNX file MODEL fastest on a board.

    Cycles, multipliers and block RAMs are exact. LUTs and clock are estimates that were fitted to builds.
    """
    from concord.fit import search
    from concord.frontend import import_model

    graph = import_model(model)
    with Console(stderr=True).status("trying configurations") as status:
        found = search(graph, board, mantissas or (8, 7, 6, 5), lambda name: status.update(f"trying {name}"))
    if not found:
        raise ValueError(f"model must fit into some configuration for {board}, and {model} fits into none")
    caption = (
        f"LUT and MHz are estimates, within {LUT_ERROR:.0%} and {CLOCK_ERROR:.0%} of the {len(BUILDS)} builds that "
        "they were fitted to. Other shapes may be further from them."
    )
    table = Table(title=f"Fastest configurations for {model.name} on {board}", caption=caption)
    for name in ("N", "L", "P", "mantissa", "matrix", "LUT", "DSP", "EBR", "cycles", "MHz", "runs/s"):
        table.add_column(name, justify="right")
    for one in found[:show]:
        config, use = one.config, one.use
        numbers = (config.native, config.lanes, config.mfu_lanes, config.act_mant, config.matrix_depth)
        table.add_row(
            *map(str, numbers), f"{use.luts:,.0f}", str(use.multipliers), str(use.rams), f"{one.cycles:,}",
            f"{use.clock_mhz:.0f}", f"{one.per_second:,.0f}",
        )  # fmt: skip
    wide_console().print(table)
