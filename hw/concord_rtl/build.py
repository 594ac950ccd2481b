"""Command line of the generator: Verilog, bitstreams, and new contents for the block RAMs of a built bitstream."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import concord_boards
from concord.spec import builds
from concord.spec.blocks import shortage
from concord.spec.boards import BOARD_SPECS
from concord.spec.config import NpuConfig
from concord.spec.links import LinkSpec
from concord.spec.presets import preset
from concord.utils.cache import CacheError, digest
from concord_rtl.core.top import NpuTop
from concord_rtl.dram.pins import BOARD_PHASES
from concord_rtl.families import family_named
from concord_rtl.flow import area as areas
from concord_rtl.flow import report
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import reachable
from concord_rtl.flow.cache import FlowStep
from concord_rtl.flow.gates.command import gates
from concord_rtl.flow.integer_area import integers
from concord_rtl.flow.plan import (
    PRESET,
    Plan,
    baud_option,
    board_option,
    build_option,
    clock_option,
    config_option,
    configuration,
    image_option,
    link_option,
    preset_option,
    source_key,
)
from concord_rtl.flow.record import keep_bitstream, record_of
from concord_rtl.flow.scaling_area import scaling
from concord_rtl.flow.tools import ToolError, ended_by_signals

CONSOLE = Console()

partial_option = click.option("--partial", is_flag=True, help="Leave out contents that a bitstream cannot hold.")


def _numbers(context: click.Context, option: click.Parameter, text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"must be numbers separated by commas, not {text!r}") from None
    return list(dict.fromkeys(seeds))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Generate the NPU as Verilog or as a bitstream."""


@main.command()
@click.option("--preset", "preset_name", type=PRESET, default="tiny", show_default=True)
@build_option
def verilog(preset_name: str, build: Path) -> None:
    """Write the NPU without a board as Verilog."""
    from amaranth.back import verilog as back

    config = preset(preset_name)
    output = build / preset_name / "npu.v"
    step = FlowStep([output], digest(source_key(), config.to_dict()))
    if not step.fresh:
        step.clear()
        with CONSOLE.status("generating Verilog"):
            output.write_text(back.convert(NpuTop(config, phases=BOARD_PHASES), name="npu", emit_src=False))
        step.keep()
    click.echo(output)


def planned(command: Callable[..., None]) -> Callable[..., None]:
    """Options of what is built; the command gets the :class:`Plan`."""

    @wraps(command)
    def with_plan(
        board_name: str,
        preset_name: str | None,
        config_file: Path | None,
        image: Path | None,
        build: Path,
        link_name: str | None,
        short_chains: bool = False,
        **others: Any,
    ) -> None:
        own: dict[str, Any] = {"config": config_file, "link_name": link_name, "short_chains": short_chains}
        command(Plan.of(board_name, preset_name, image, build, CONSOLE, **own), **others)

    for option in (link_option, build_option, image_option, config_option, preset_option, board_option):
        with_plan = option(with_plan)
    return with_plan


@main.command()
@planned
@click.option(
    "--seeds",
    callback=_numbers,
    help="Of place and route, tried until one is fast enough.  [default: those of the board and preset, mostly 1,2,3]",
)
@click.option("--every-seed", is_flag=True, help="Try all seeds and keep the best one.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="After that time no other seed is tried if there is a result.",
)
@clock_option
@baud_option
@partial_option
@click.option(
    "--short-chains",
    is_flag=True,
    help="Give carry chains the fewest cells before place and route, for a design that nearly fills an ECP5.",
)
@click.option("--jobs", default=1, show_default=True, help="Seeds worked on at a time.")
def bitstream(
    plan: Plan,
    seeds: list[int] | None,
    every_seed: bool,
    minutes: float,
    clock_mhz: float | None,
    baud: int | None,
    jobs: int,
    partial: bool,
) -> None:
    """Make a bitstream and a report.

    Without --clock the bitstream of a family whose PLL can be tuned runs at the clock that place and route reached.
    Fails if --clock is not reached, or, on other devices, the preset's clock.
    """
    if lacking := shortage(plan.config, plan.board.name):
        raise click.ClickException(f"does not fit on {plan.board.name}: {lacking}")
    plan.choose(clock_mhz, baud)
    board, config, flow, hz = plan.board, plan.config, plan.flow, plan.hz
    target = f"target {plan.aim / report.MHZ:g} MHz, {plan.link.name} with {plan.link.text}"
    CONSOLE.print(f"{board.name}, preset {config.name}, {target} -> {flow.folder}")
    routed = builds.build_of(board.name, config.name, plan.link.name)
    if routed is not None and routed.minutes:
        CONSOLE.print(f"place and route took {routed.minutes} minutes when it was recorded")
    plan.synthesize()
    seeds = seeds or list(flow.placement.seeds)
    runs = flow.place(seeds, Goal(plan.aim, hz, plan.tunes), jobs, every_seed, minutes)
    if plan.tunes:
        hz = _tune(flow, max(map(report.score, runs.values())) * report.MHZ, plan.link)
        plan.check_memory_clock(hz)
    summary = _summary(board, config, hz, plan.link, runs)
    summary["fixed"] = plan.fixed
    (flow.folder / "report.json").write_text(json.dumps(summary, indent=2) + "\n")
    with (flow.folder / "report.txt").open("w") as file:
        Console(file=file, width=100).print(*report.render(summary))
    CONSOLE.print(*report.render(summary))
    if not summary["met"]:
        flow.bitstream.unlink(missing_ok=True)
        slowest = min(entry["mhz"] for entry in summary["clocks"])
        raise click.ClickException(f"timing is missed: {slowest:.2f} MHz, not {hz / report.MHZ:g}; try other --seeds")
    _fill(plan, flow.bitstream, partial)


@main.command()
@board_option
@preset_option
@config_option
@build_option
@click.option(
    "--accumulators",
    "widths",
    default="0,44,32,24",
    show_default=True,
    callback=_numbers,
    help="Bits of the accumulator's register; 0: as many as the preset has.",
)
@click.option("--whole", is_flag=True, help="The whole design, not the units of the tile engines alone.")
@click.option(
    "--clock",
    is_flag=True,
    help="Place and route, too, with one seed: what the paths allow. With --whole a quarter of an hour or more each.",
)
def area(
    board_name: str,
    preset_name: str | None,
    config_file: Path | None,
    build: Path,
    widths: list[int],
    whole: bool,
    clock: bool,
) -> None:
    """Synthesise with accumulators of several widths, and count cells.

    Of the tile engines each unit by itself, times how many there are; their clock is that of the slowest unit. The grid
    stays that of the preset. Writes accumulators.json, which python -m concord_bench shows.
    """
    board, spec = concord_boards.board_named(board_name), BOARD_SPECS[board_name]
    config = configuration(board, preset_name, None, config_file)
    if config.serial:
        raise click.ClickException(f"accumulator of {config.name} must be the full one: it is element-serial")
    family = family_named(board.family)
    if clock and not whole and family.without_pins is None:
        raise click.ClickException(
            f"--clock must be with --whole for {board_name}: {family.name} has no flow without pins"
        )
    try:
        narrowed = list(areas.narrowed(config, widths))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    rows: list[dict[str, Any]] = []
    for bits, narrower in narrowed:
        if not whole:
            folder = build / "area" / f"{board.name}-{config.name}-units-{bits}"
            rows.append({"bits": bits, "cells": areas.engine_cells(narrower, family, folder, CONSOLE)})
            if clock:
                mhz, slowest = areas.engine_clock(narrower, board, folder, CONSOLE)
                rows[-1] |= {"mhz": round(mhz, 2), "slowest": slowest}
            continue
        plan = areas.synthesized(narrower, board_name, build, CONSOLE)
        flow = plan.flow
        row = {"bits": bits, "cells": areas.cells(flow.folder / "synthesis.json", flow.family)}
        if clock:
            goal = Goal(spec.aim_hz, plan.hz, plan.measures)
            row["mhz"] = round(max(map(report.score, flow.place([1], goal).values())), 2)
        rows.append(row)
    what = f"{config.name} on {board.name}" if whole else f"tile engines of {config.name}"
    summary = {"of": what, "widths": rows}
    folder = build / "area" / what.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "accumulators.json").write_text(json.dumps(summary, indent=2) + "\n")
    CONSOLE.print(areas.table(summary))


@main.command()
@planned
@partial_option
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Bitstream to write.")
def patch(plan: Plan, output: Path, partial: bool) -> None:
    """Put other contents into a built bitstream.

    Takes seconds, without place and route; without --image, the contents are zeros.
    """
    board, config, flow = plan.board, plan.config, plan.flow
    if not flow.bitstream.exists():
        raise click.ClickException(f"{flow.bitstream} must be built first: make bitstream BOARD={board.name}")
    summary = json.loads((flow.folder / "report.json").read_text())
    if summary["fingerprint"] != f"{config.fingerprint:016x}":
        raise click.ClickException(f"{flow.bitstream} must be built again: its configuration is not the preset's")
    fixed = plan.fixed
    other = [name for name in fixed if fixed[name] != summary["fixed"][name]]
    if other and not partial:
        raise click.ClickException(
            f"{', '.join(other)} must be as when the bitstream was built, being no block RAM: "
            f"build it with --image {plan.image}, or load them over the link and say --partial here"
        )
    _fill(plan, output, partial)


@main.command()
@board_option
@preset_option
@build_option
@link_option
def record(board_name: str, preset_name: str | None, build: Path, link_name: str | None) -> None:
    """Write what a finished build reached into the records of routed bitstreams.

    They are in sw/concord/spec/builds.toml; tables of the pages and clocks that rates are given for follow from them.
    The bitstream goes to sw/concord/bitstreams, where `concord flash` finds it.
    """
    plan = Plan.of(board_name, preset_name, None, build, CONSOLE, link_name=link_name)
    try:
        made = record_of(plan.flow.folder, plan.flow.family, plan.flow.placement.short_chains)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if made.fingerprint != f"{plan.config.fingerprint:016x}":
        raise click.ClickException(f"{plan.flow.folder} must be built again: its configuration is not the preset's")
    made = keep_bitstream(plan.flow.folder, made)
    builds.FILE.write_text(builds.text(builds.with_build(builds.BUILDS, made)))
    CONSOLE.print(f"{builds.FILE}: {made.preset} on {made.board}, {made.mhz:g} MHz, {made.cells:,} logic cells")


def _tune(flow: Flow, reached_hz: float, link: LinkSpec) -> float:
    """Set the PLL of the placed design to the greatest clock within reach, and return it as the design has it."""
    oscillator, text = flow.board.oscillator_hz, flow.placed.read_text()
    hz, pll = reachable(flow.board, reached_hz, link)
    tuning = flow.family.tuning
    if tuning is None or pll is None:
        raise ToolError(f"the clock of {flow.board.name} must be one that can be tuned")
    flow.placed.write_text(tuning.write(text, pll, oscillator))
    made = tuning.read(flow.placed.read_text(), oscillator).hz
    if not made == hz <= reached_hz:
        raise ToolError(f"the clock must be {hz:g} Hz and at most {reached_hz:g}, not {made:g}")
    return made


def _summary(
    board: Any, config: NpuConfig, hz: float, link: LinkSpec, runs: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """Contents of report.json."""
    best = max(runs, key=lambda seed: report.score(runs[seed]))
    clocks = report.clocks(runs[best], hz)
    return {
        "board": board.name,
        "preset": config.name,
        "fingerprint": f"{config.fingerprint:016x}",
        "hz": hz,
        "link": link.name,
        **({} if link.baud is None else {"baud": link.baud}),
        "met": all(clock["met"] for clock in clocks),
        "clocks": clocks,
        "utilisation": report.utilisation(runs[best], family_named(board.family)),
        "seed": best,
        "seeds": {
            str(seed): {
                "mhz": round(report.score(run), 2),
                "aim_mhz": run["aim_hz"] / report.MHZ,
                "seconds": run["seconds"],
            }
            for seed, run in runs.items()
        },
        "slow_paths": runs[best].get("slow_paths", []),
        "not_counted": runs[best].get("not_counted", []),
    }


def _fill(plan: Plan, output: Path, partial: bool) -> None:
    """Put the contents into the block RAMs of the placed design, and pack it."""
    flow = plan.flow
    filled = plan.fill(flow.placed.read_text())
    if filled.lost and not partial:
        raise click.ClickException(
            f"{', '.join(filled.lost)}: a bitstream for {flow.board.name} cannot hold the contents; "
            "load them over the link and say --partial here"
        )
    text = flow.folder / f"filled{flow.placed.suffix}"
    text.write_text(filled.rams.text())
    flow.pack(text, output)
    text.unlink()
    CONSOLE.print(f"{output}: {len(filled.layout.places)} slices of {len(filled.wanted)} memories filled")


main.add_command(gates)
main.add_command(integers)
main.add_command(scaling)


def run() -> None:
    """Entry point: failures of the tools end with their log, not with a traceback, and a signal ends the tools."""
    try:
        with ended_by_signals():
            main()
    except (CacheError, ToolError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    run()
