"""Command line of the generator: Verilog, bitstreams, and new contents for the block RAMs of a built bitstream."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import amaranth
import click
from rich.console import Console

import concord.spec
import concord_boards
import concord_rtl
from concord.spec.boards import BOARD_SPECS, preset_of
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.spec.presets import PRESETS, preset

from .core import Contents
from .flow import area as areas
from .flow import contents as memories
from .flow import report
from .flow.bitstream import Flow, Goal
from .flow.board_top import BoardTop, divisor_of, reachable
from .flow.bram import BlockRams
from .flow.cache import Stage, digest, sources
from .flow.clocking import clock_of, tunable
from .flow.tools import ToolError
from .flow.tuning import tuned, tuning
from .top import NpuTop

CONSOLE = Console()

board_option = click.option("--board", "board_name", type=click.Choice(list(concord_boards.BOARDS)), required=True)
preset_option = click.option(
    "--preset",
    "preset_name",
    type=click.Choice(list(PRESETS)),
    help="Default: the configuration of the image; without one, the board's preset.",
)
image_option = click.option("--image", type=click.Path(exists=True, path_type=Path), help="Contents of the memories.")
partial_option = click.option("--partial", is_flag=True, help="Leave out contents that a bitstream cannot hold.")
build_option = click.option(
    "--build", type=click.Path(path_type=Path), default=Path("build"), show_default=True, help="Folder of the results."
)


def _source_key() -> str:
    """Hash of everything a design is generated from."""
    return digest(*sources(concord_rtl, concord.spec, concord_boards), amaranth.__version__)


def _folder(build: Path, board: Any, config: NpuConfig) -> Path:
    return build / (board.name if config.name == board.preset else f"{board.name}-{config.name}")


def _config(board: Any, preset_name: str | None, image: Path | None) -> NpuConfig:
    """The configuration to build: a preset by name, that of the image, or the preset of the board."""
    if preset_name is not None or image is None:
        return preset(preset_name or board.preset)
    try:
        return memories.configuration(image)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _given(image: Path | None, config: NpuConfig, flow: Flow) -> Contents:
    try:
        return memories.load(image, config, flow.folder / "image")
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _seeds(context: click.Context, option: click.Parameter, text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"must be numbers separated by commas, not {text!r}") from None
    return list(dict.fromkeys(seeds))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Generate the NPU as Verilog or as a bitstream."""


@main.command()
@click.option("--preset", "preset_name", type=click.Choice(list(PRESETS)), default="tiny", show_default=True)
@build_option
def verilog(preset_name: str, build: Path) -> None:
    """Write the NPU without a board as Verilog."""
    from amaranth.back import verilog as back

    config = preset(preset_name)
    output = build / preset_name / "npu.v"
    stage = Stage([output], digest(_source_key(), config.to_dict()))
    if not stage.fresh:
        stage.clear()
        with CONSOLE.status("generating Verilog"):
            output.write_text(back.convert(NpuTop(config), name="npu", emit_src=False))
        stage.keep()
    click.echo(output)


@main.command()
@board_option
@preset_option
@image_option
@build_option
@click.option(
    "--seeds",
    default="1,2,3",
    show_default=True,
    callback=_seeds,
    help="Of place and route, tried until one is fast enough.",
)
@click.option("--every-seed", is_flag=True, help="Try all seeds and keep the best one.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="After that time no other seed is tried if there is a result.",
)
@click.option("--clock", "clock_mhz", type=float, help="Clock in MHz that must be reached; default: what is possible.")
@click.option("--baud", type=int, help="Bit rate of the serial port; default: the board's.")
@partial_option
@click.option("--jobs", default=1, show_default=True, help="Seeds worked on at a time.")
def bitstream(
    board_name: str,
    preset_name: str | None,
    image: Path | None,
    build: Path,
    seeds: list[int],
    every_seed: bool,
    minutes: float,
    clock_mhz: float | None,
    baud: int | None,
    jobs: int,
    partial: bool,
) -> None:
    """Make a bitstream and a report.

    Without --clock the bitstream of an ECP5 runs at the clock that place and route reached. Fails if --clock is not
    reached, or, on other devices, the preset's clock.
    """
    board = concord_boards.board_named(board_name)
    config = _config(board, preset_name, image)
    spec = BOARD_SPECS[board.name]
    baud = spec.baud if baud is None else baud
    own = preset_of(config.name) == spec.preset
    usual = spec.clock_hz if own else config.clock_hz
    wanted = round(clock_mhz * report.MHZ) if clock_mhz else usual
    try:
        hz, _ = clock_of(board, wanted)
        divisor_of(hz, baud)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    flow = Flow(board, _folder(build, board, config), CONSOLE)
    given = _given(image, config, flow)
    fixed = memories.fixed(config, board.family, given)

    tunes = tunable(board, wanted) and not clock_mhz
    aim = spec.aim_hz if tunes and own else hz
    CONSOLE.print(f"{board.name}, preset {config.name}, target {aim / report.MHZ:g} MHz, {baud} baud -> {flow.folder}")
    flow.generate(
        lambda: BoardTop(
            NpuTop(config, memories.marked(config, board.family, given)), board, clock_hz=wanted, baud=baud
        ),
        digest(_source_key(), config.to_dict(), fixed, wanted, baud),
    )
    flow.synthesize()
    runs = flow.place(seeds, Goal(aim, hz, tunes), jobs, every_seed, minutes)
    if tunes:
        hz = _tune(flow, max(map(report.score, runs.values())) * report.MHZ, baud)
    summary = _summary(board, config, hz, baud, runs)
    summary["fixed"] = fixed
    (flow.folder / "report.json").write_text(json.dumps(summary, indent=2) + "\n")
    with (flow.folder / "report.txt").open("w") as file:
        Console(file=file, width=100).print(*report.render(summary))
    CONSOLE.print(*report.render(summary))
    if not summary["met"]:
        flow.bitstream.unlink(missing_ok=True)
        slowest = min(entry["mhz"] for entry in summary["clocks"])
        raise click.ClickException(f"timing is missed: {slowest:.2f} MHz, not {hz / report.MHZ:g}; try other --seeds")
    _fill(flow, config, given, flow.bitstream, partial)


@main.command()
@board_option
@preset_option
@build_option
@click.option(
    "--accumulators",
    "widths",
    default="0,44,32,24",
    show_default=True,
    callback=_seeds,
    help="Bits of the accumulator's register; 0: as many as the preset has.",
)
@click.option("--clock", is_flag=True, help="Place and route each, too, with one seed: the clock that paths allow.")
def area(board_name: str, preset_name: str | None, build: Path, widths: list[int], clock: bool) -> None:
    """Synthesise the NPU with accumulators of several widths, and count cells.

    The grid stays that of the preset. Writes accumulators.json, which concord bench shows.
    """
    board = concord_boards.board_named(board_name)
    config, spec = _config(board, preset_name, None), BOARD_SPECS[board.name]
    hz, _ = clock_of(board, spec.clock_hz)
    rows = []
    for bits, one in areas.narrowed(config, widths):
        flow = Flow(board, _folder(build / "area", board, one), CONSOLE)
        CONSOLE.print(f"{board.name}, {bits} bits -> {flow.folder}")
        marked = memories.marked(one, board.family, Contents())
        flow.generate(
            lambda one=one, marked=marked: BoardTop(NpuTop(one, marked), board, clock_hz=spec.clock_hz, baud=spec.baud),
            digest(_source_key(), one.to_dict(), spec.clock_hz, spec.baud),
        )
        flow.synthesize()
        row = {"bits": bits, "cells": areas.cells(flow.folder / "synthesis.json", board.family)}
        if clock:
            goal = Goal(spec.aim_hz, hz, tunable(board, spec.clock_hz))
            row["mhz"] = round(max(map(report.score, flow.place([1], goal).values())), 2)
        rows.append(row)
    summary = {"board": board.name, "preset": config.name, "widths": rows}
    folder = build / "area" / f"{board.name}-{config.name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "accumulators.json").write_text(json.dumps(summary, indent=2) + "\n")
    CONSOLE.print(areas.table(summary))


@main.command()
@board_option
@preset_option
@image_option
@build_option
@partial_option
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Bitstream to write.")
def patch(
    board_name: str, preset_name: str | None, image: Path | None, build: Path, output: Path, partial: bool
) -> None:
    """Put other contents into a built bitstream.

    Takes seconds, without place and route; without --image, the contents are zeros.
    """
    board = concord_boards.board_named(board_name)
    config = _config(board, preset_name, image)
    flow = Flow(board, _folder(build, board, config), CONSOLE)
    if not flow.bitstream.exists():
        raise click.ClickException(f"{flow.bitstream} must be built first: make bitstream BOARD={board.name}")
    summary = json.loads((flow.folder / "report.json").read_text())
    if summary["fingerprint"] != f"{config.fingerprint:016x}":
        raise click.ClickException(f"{flow.bitstream} must be built again: its configuration is not the preset's")
    given = _given(image, config, flow)
    fixed = memories.fixed(config, board.family, given)
    other = [name for name in fixed if fixed[name] != summary["fixed"][name]]
    if other and not partial:
        raise click.ClickException(
            f"{', '.join(other)} must be as when the bitstream was built, being no block RAM: "
            f"build it with --image {image}, or load them over the link and say --partial here"
        )
    _fill(flow, config, given, output, partial)


def _tune(flow: Flow, reached_hz: float, baud: int) -> float:
    """Set the PLL of the placed design to the greatest clock within reach, and return it as the design has it."""
    oscillator, text = flow.board.oscillator_hz, flow.placed.read_text()
    hz, pll = reachable(flow.board, reached_hz, baud)
    flow.placed.write_text(tuned(text, pll, oscillator))
    made = tuning(flow.placed.read_text(), oscillator).hz
    if not made == hz <= reached_hz:
        raise ToolError(f"the clock must be {hz:g} Hz and at most {reached_hz:g}, not {made:g}")
    return made


def _summary(board: Any, config: NpuConfig, hz: float, baud: int, runs: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What report.json says."""
    best = max(runs, key=lambda seed: report.score(runs[seed]))
    clocks = report.clocks(runs[best], hz)
    return {
        "board": board.name,
        "preset": config.name,
        "fingerprint": f"{config.fingerprint:016x}",
        "hz": hz,
        "baud": baud,
        "met": all(clock["met"] for clock in clocks),
        "clocks": clocks,
        "utilisation": report.utilisation(runs[best], board.family),
        "seed": best,
        "seeds": {
            str(seed): {
                "mhz": round(report.score(run), 2),
                "aim_mhz": run["aim_hz"] / report.MHZ,
                "seconds": run["seconds"],
            }
            for seed, run in runs.items()
        },
    }


def _fill(flow: Flow, config: NpuConfig, given: Contents, output: Path, partial: bool) -> None:
    """Put ``given`` into the block RAMs of the placed design, and pack it."""
    family = flow.board.family
    chosen = memories.fillable(config, family)
    rams = BlockRams(family, flow.placed.read_text())
    layout = rams.locate(memories.stores(config, memories.marked(config, family, given), chosen))
    wanted = memories.stores(config, given, chosen)
    lost = [store.name for store in wanted if any(store.words) and store.name in layout.missing]
    if given.matrix and RegionId.MATRIX not in chosen:
        lost.append("matrix")
    if lost and not partial:
        raise click.ClickException(
            f"{', '.join(lost)}: a bitstream for {flow.board.name} cannot hold the contents; "
            "load them over the link and say --partial here"
        )
    layout.write(rams, wanted)
    filled = flow.folder / f"filled{flow.placed.suffix}"
    filled.write_text(rams.text())
    flow.pack(filled, output)
    filled.unlink()
    CONSOLE.print(f"{output}: {len(layout.places)} slices of {len(wanted)} memories filled")


def run() -> None:
    """Entry point: failures of the tools end with their log, not with a traceback."""
    try:
        main()
    except ToolError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    run()
