"""``concord fit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.table import Table

from concord.cli.common import (
    BOARD,
    EXISTING,
    FILE,
    POSITIVE,
    NumberRange,
    TerminalConsole,
    arrays_of,
    echo,
    gathered,
    readable,
    wide_console,
)
from concord.cli.json_output import json_option, race_facts, write_json
from concord.cli.options import compile_options
from concord.cli.selection import selection_options
from concord.display.tables import text_table
from concord.host.rates import spoken
from concord.spec.boards import board_spec
from concord.spec.builds import in_brackets
from concord.spec.formats import ACT_MANT_MAX, MANT_MIN
from concord.spec.memmap import RegionId
from concord.spec.presets import note_of
from concord.utils.files import check_place, write_text

if TYPE_CHECKING:
    from concord.fit import Candidate, Judge, Race
    from concord.frontend.selection import Selection
    from concord.graph.ir import Graph

#: Columns from which on a table has depths of memories and noise.
_WIDE = 120
#: Note without samples.
UNJUDGED = "accuracy was not judged: --input SAMPLES measures what is lost with these mantissas"
#: Note if nothing is within the budget.
NOT_MET = "nothing keeps the budget: --mantissa tries wider mantissas, and --budget allows more"


class SearchOptions(NamedTuple):
    """Board and link, mantissas, the least clock in MHz, and how many configurations are shown."""

    board: str
    link: str | None
    mantissas: tuple[int, ...]
    least_mhz: float
    show: int


class LossOptions(NamedTuple):
    """File of samples on which losses are measured, how many, and what may be lost; ``None`` without an option."""

    inputs: Path | None
    samples: int
    budget: str | None


@click.command()
@click.argument("model", type=EXISTING)
@click.option("--board", required=True, type=BOARD, help="Board to find a configuration for.")
@click.option(
    "-i",
    "--input",
    "inputs",
    type=EXISTING,
    help="npz file with a batch of samples for every input, and their classes y if they are known: on them is measured "
    "what is lost with the mantissas.",
)
@click.option("--samples", default=500, show_default=True, type=POSITIVE, help="Number of samples to use.")
@click.option(
    "--budget",
    help="What may be lost: points of accuracy if there are classes y, points of agreement with floating point if the "
    "result is a class, or a relative error such as 5%. The default is 0.5 points, or 5% if the result is no class.",
)
@click.option(
    "--mantissa",
    "mantissas",
    multiple=True,
    type=click.IntRange(MANT_MIN, ACT_MANT_MAX),
    help="Width of mantissas to try, the best first. The option can be repeated. Default: 8, 7, 6, 5.",
)
@click.option("--clock", "least_mhz", default=0.0, type=NumberRange(min=0), help="Least clock in MHz to expect.")
@compile_options("link")
@click.option("--show", default=5, show_default=True, type=POSITIVE, help="Number of configurations to show.")
@click.option(
    "-o", "--output", type=FILE, help="File in TOML for the best configuration: for `concord compile --config`."
)
@json_option
@readable
@selection_options
@gathered(wanted=SearchOptions, measured=LossOptions)
def fit(
    model: Path,
    wanted: SearchOptions,
    measured: LossOptions,
    output: Path | None,
    as_json: bool,
    selection: Selection,
) -> None:
    """Find the configuration for the ONNX file MODEL with which a user gets most samples per second on a board.

    Samples per second over the board's link, or over that of --link, come first, then those that the core computes.
    Multipliers and memories are exact. So are cycles, except where windows slide and there are no samples. Logic and
    clock are estimates that were fitted to builds. With --input, the best one is the best that keeps the budget.
    """
    from concord.fit import search
    from concord.fit.candidates import MANTISSAS
    from concord.frontend import import_model
    from concord.frontend.load import one_file

    if output is not None:
        check_place(output)
    board, link = wanted.board, wanted.link
    board_spec(board).link(link)
    graph = import_model(selection.of(one_file(model)))
    widths = tuple(dict.fromkeys(wanted.mantissas)) or MANTISSAS
    with TerminalConsole(stderr=True).status("reading the network") as status:
        judge = None
        if measured.inputs is not None:
            status.update("computing the samples in double precision")
            judge = _judge(graph, measured.inputs, measured.samples, measured.budget, status.update)
        elif measured.budget is not None:
            raise ValueError("--budget must be given with --input, whose samples it is about")
        limits: dict[str, Any] = {"most": wanted.show, "least_mhz": wanted.least_mhz}
        race = search(graph, board, widths, judge, **limits, link=link, say=status.update)
    if not race.candidates:
        raise ValueError(_nowhere(graph, model, board, widths, race))
    if output is not None and race.kept:
        write_text(output, race.kept[0].file(board))
    if as_json:
        write_json(race_facts(race, judge, board, output))
    else:
        console = wide_console()
        console.print(_table(model, board, race, judge, console.width, link))
        if race.kept:
            _say_best(race.kept[0], model, board, output, link)
    if not race.kept:
        echo(NOT_MET if output is None else f"{NOT_MET}; {output}: not written", err=True)
    if judge is None:
        echo(UNJUDGED, err=as_json)
    if output is not None and not race.kept:
        raise click.exceptions.Exit(1)


def _say_best(best: Candidate, model: Path, board: str, output: Path | None, link: str | None) -> None:
    """Say which configuration is the best and how to compile for it, from its file if there is one."""
    echo(f"best: {best.text(board)}")
    over = "" if link is None else f" --link {link}"
    if output is not None:
        echo(f"{output}: concord compile {model} --config {output}{over}")
        building = f'make bitstream BOARD={board} ARGS="--config {output}{over}"'
        echo(f"bitstream: {building}" if best.is_preset else f"no ready bitstream fits it: {building} builds one")
    elif best.is_preset:
        echo(f"concord compile {model} --board {board} --preset {best.config.name}{over}")
    else:
        building = f'make bitstream BOARD={board} ARGS="--config FILE{over}"'
        echo(f"no ready bitstream fits it; -o FILE writes it for concord compile --config FILE and {building}")


def _judge(graph: Graph, inputs: Path, samples: int, budget: str | None, say: Callable[[str], None]) -> Judge:
    """Judge that measures the losses on samples from a file."""
    from concord.api.options import budget_of
    from concord.fit import Judge
    from concord.networks.samples import inputs_of, labels_of

    arrays = arrays_of(inputs)
    by_input = inputs_of(graph.inputs, arrays)
    labels = labels_of(arrays, graph.inputs, len(next(iter(by_input.values()))))
    limits = budget_of(budget, graph, labels is not None)
    first = {name: values[:samples] for name, values in by_input.items()}
    return Judge(graph, first, limits, None if labels is None else labels[:samples], say)


def _nowhere(graph: Graph, model: Path, board: str, widths: Sequence[int], race: Race) -> str:
    """Reason for which a network fits into no configuration for a board, and remedies."""
    from concord.fit.candidates import boards_for

    nearest = race.nearest
    assert nearest is not None
    bits = ", ".join(map(str, widths))
    tried = f"{len(race.refusals)} were tried, with mantissas of {bits} bits"
    lines = [f"{model.name} fits into no configuration for {board}; {tried}", f"nearest: it {nearest.error}"]
    if others := boards_for(graph, board, min(widths)):
        lines.append(f"it fits on {', '.join(others)}: --board {others[0]}")
    else:
        lines.append("the preset of no larger board holds it")
    # On iCE40 narrower mantissas leave the matrix memory with as many words.
    regions = set(nearest.error.short) & {RegionId.MATRIX, RegionId.NARROW}
    if min(widths) > MANT_MIN and regions and not (nearest.config.serial and RegionId.MATRIX in regions):
        lines.append(f"narrower mantissas make room for more words: --mantissa {min(widths) - 1}")
    return "\n  ".join(lines)


def _table(model: Path, board: str, race: Race, judge: Judge | None, width: int, link: str | None) -> Table:
    """All candidates, the best within the budget in bold; multipliers, memories and noise only where there is room."""
    serial, wide = race.candidates[0].config.serial, width >= _WIDE
    rows = [_figures(candidate, judge, serial, wide) for candidate in race.candidates]
    columns, title = list(rows[0]), f"Best configurations for {model.name} on {board}"
    table = text_table(title, columns, right=columns, whole=columns, caption=_caption(race, judge, link))
    for candidate, row in zip(race.candidates, rows, strict=True):
        table.add_row(*row.values(), style="bold" if race.kept and candidate is race.kept[0] else None)
    return table


def _figures(candidate: Candidate, judge: Judge | None, serial: bool, wide: bool) -> dict[str, str]:
    """A row by column."""
    from concord.fit.evidence import mantissas

    config, use, verdict = candidate.config, candidate.use, candidate.verdict
    row: dict[str, object] = {"N": config.native, "L": config.lanes}
    if not serial:
        row |= {"P": config.mfu_lanes, "W": config.window_taps}
    row["bits"] = mantissas(config)
    if wide:
        row |= {"matrix": config.matrix_depth, "narrow": config.narrow_depth, "wide": config.wide_depth}
    row["LC" if serial else "LUT"] = f"{use.luts:,.0f}"
    if wide:
        row |= {"DSP": use.blocks.multipliers, "EBR": use.blocks.rams}
        row |= {"SPRAM": use.blocks.single_port_rams} if serial else {}
    row |= {
        "cycles": f"{candidate.cycles:,}",
        "MHz": f"{config.clock_hz / 1e6:.0f}{'*' if candidate.is_preset else ''}",
        "link/s": spoken(candidate.rates.per_second),
        "core/s": f"{candidate.computed_per_second:,.0f}",
    }
    if verdict is not None and judge is not None:
        if verdict.accuracy is not None:
            row["accuracy"] = f"{100 * verdict.accuracy:.2f} %"
        elif judge.classes:
            row["agrees"] = f"{100 * verdict.agreement:.2f} %"
        if wide or not judge.classes:
            row["S/N dB"] = f"{verdict.signal_to_noise:.1f}"
        row["within"] = "yes" if verdict.within else "no"
    return {name: str(figure) for name, figure in row.items()}


def _caption(race: Race, judge: Judge | None, link: str | None) -> str:
    from concord.cycles import ASSUMED_STEPS
    from concord.fit.resources import ECP5_BUILDS, ICE40_BUILDS, ICE40_LUT_ERROR, greatest_errors

    if race.candidates[0].config.serial:
        errors = f"within {ICE40_LUT_ERROR:.1%} of the {1 + len(ICE40_BUILDS)} builds that it was fitted to"
        lines = [f"LC is an estimate, {errors}. MHz is that of the board."]
    else:
        luts, clock = (ceil(100 * error) for error in greatest_errors())
        errors = f"within {luts}% and {clock}% of the {len(ECP5_BUILDS)} presets that were routed"
        lines = [f"LUT and MHz are estimates, {errors}. Other shapes may be further from them."]
        if presets := [candidate.config for candidate in race.candidates if candidate.is_preset]:
            names = ", ".join(f"{config.name}{in_brackets(note_of(config))}" for config in presets)
            lines.append(f"*: clock of a bitstream, that of the preset {names}.")
    used = race.candidates[0].rates.link
    over = "the board's link" if link is None else f"{used.name}, {used.text}"
    lines.append(f"link/s: samples per second over {over}, in a batch; core/s: what the core computes.")
    if any(candidate.config.window_taps for candidate in race.candidates):
        steps = f"assume {ASSUMED_STEPS} steps per sliding window"
        sample = steps if judge is None else "are those of the first sample"
        lines.append(f"Cycles with W taps {sample}: they depend on exponents.")
    if judge is not None:
        what = {"accuracy": "points of accuracy", "agreement": "points of agreement", "error": "% of error"}
        limit = f"at most {judge.budget.points:g} {what[judge.budget.measure]} lost on {judge.count} samples"
        beside = "" if judge.accuracy is None else f"; accuracy in double precision: {100 * judge.accuracy:.2f} %"
        lines.append(f"Within: {limit}{beside}.")
        if judge.budget.measure != "error" and 100 / judge.count > judge.budget.points > 0:
            lines.append(f"One sample is {100 / judge.count:.2f} points, so this is none; --samples takes more.")
        lines.append("Formats are made with one half of the samples and measured on the other, both ways.")
    return "\n".join(lines)
