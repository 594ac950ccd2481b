"""The command that simulates a netlist."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from concord.spec.links import LinkKind
from concord_rtl.flow.bitstream import Goal
from concord_rtl.flow.gates.simulate import NetlistStage, contents_text, fill, library_of, netlist_of
from concord_rtl.flow.plan import (
    Plan,
    baud_option,
    board_option,
    build_option,
    clock_option,
    image_option,
    preset_option,
)
from concord_rtl.netlists.netlist import NetlistError

#: Seed of place and route where there is no placed design yet.
SEED = 1


@click.command()
@board_option
@preset_option
@image_option
@build_option
@click.option(
    "--stage",
    type=click.Choice([stage.value for stage in NetlistStage]),
    default=NetlistStage.SYNTHESIS.value,
    show_default=True,
    help="The netlist after this step.",
)
@clock_option
@baud_option
def gates(
    board_name: str,
    preset_name: str | None,
    image: Path | None,
    build: Path,
    stage: str,
    clock_mhz: float | None,
    baud: int | None,
) -> None:
    """Simulate the netlist that a bitstream with the serial port is made of.

    Prints the library of its simulation, which the software takes in place of that of the RTL. Steps of the flow that
    are missing are done, place and route with seed 1.
    """
    plan = Plan.of(board_name, preset_name, image, build, Console(stderr=True), link_name=LinkKind.UART.value)
    plan.choose(clock_mhz, baud)
    rate = plan.link.baud
    assert rate is not None
    plan.synthesize()
    flow, board = plan.flow, plan.board
    if stage == NetlistStage.ROUTED and not flow.is_routed:
        flow.place([SEED], Goal(plan.hz, plan.hz))
    try:
        netlist = netlist_of(flow, NetlistStage(stage))
        text = flow.placed.read_text() if stage == NetlistStage.ROUTED else contents_text(netlist, flow.family)
        filled = plan.fill(text)
        if filled.lost:
            raise NetlistError(
                f"{', '.join(filled.lost)}: the netlist cannot hold the contents; load them over the link"
            )
        fill(netlist, flow.family, filled.rams)
        click.echo(library_of(netlist, board, plan.hz, rate, plan.measures))
    except NetlistError as error:
        raise click.ClickException(str(error)) from error
