"""Samples per second over a link of a board: as estimated, and of the RTL behind the link, in simulated time.

``python -m concord_bench.link_rates --link spi --only ic_resnet8 --runs 16``
"""

from __future__ import annotations

import click
import numpy as np
from rich.console import Console

from concord.cli.common import PRESET
from concord.compiler.model import expecting
from concord.host import LinkedDevice, connect
from concord.host.measured import compared_run, stream_runs
from concord.host.rates import rates
from concord.spec.boards import link_of
from concord.spec.presets import preset
from concord_bench.rates import EXPECTED, rates_of
from concord_bench.tasks import TASKS, folder


@click.command()
@click.option("--preset", "name", type=PRESET, default="ecp5-85f-256", show_default=True)
@click.option("--link", default="spi", show_default=True, help="Of the board that the preset is for.")
@click.option("--only", multiple=True, type=click.Choice([task.model for task in TASKS]), help="Some of the networks.")
@click.option("--runs", type=click.IntRange(min=1), help="Of a batch; by default enough for a stream.")
def main(name: str, link: str, only: tuple[str, ...], runs: int | None) -> None:
    """Compare rates over a link with those of the RTL, in a batch and alone; networks have one input."""
    data = folder()
    if data is None:
        raise click.ClickException("CONCORD_DATA must name the folder with the networks")
    config = preset(name)
    click.echo(f"{name} over {link}, {link_of(config.board, link).text}")
    for task in TASKS:
        if only and task.model not in only:
            continue
        compiled, inputs, _ = rates_of(task, config, data)
        (port,) = compiled.graph.inputs
        image = expecting(compiled, {port: inputs[:EXPECTED]}).image
        count = task.batch * (runs or stream_runs(rates(image, task.batch, link=link)))
        batch = compiled.package.arrangement.pack({port: np.resize(inputs, (count, *inputs.shape[1:]))})
        with connect("rtl", config, link=link) as device:
            assert isinstance(device, LinkedDevice)
            device.load(image)
            _, comparison = compared_run(device, batch, task.batch)
        assert comparison is not None
        click.echo(task.model)
        Console(width=120).print(comparison.table())


if __name__ == "__main__":
    main()
