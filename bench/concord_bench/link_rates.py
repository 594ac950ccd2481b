"""Samples per second over a link of a board: as estimated, and of the RTL behind the link, in simulated time.

``python -m concord_bench.link_rates --link spi --only ic_resnet8 --samples 16``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np

from concord.compiler.model import Compiled, expecting
from concord.host import connect
from concord.host.rates import rates, spoken
from concord.spec.boards import link_of
from concord.spec.presets import PRESETS, preset
from concord.utils.arrays import FloatArray
from concord_bench.rates import EXPECTED, rates_of
from concord_bench.tasks import TASKS, folder


def seconds_per_sample(device: Any, batch: Callable[[int], Mapping[str, Any]], samples: int) -> float:
    """Simulated time that each of ``samples`` more takes in a batch; ``batch`` gives inputs of so many."""

    def seconds(count: int) -> float:
        transport = device.link.transport
        before: int = transport.cycles
        device.run(batch(count))
        cycles: int = transport.cycles - before
        return cycles / int(device.config.clock_hz)

    seconds(samples)  # writes the script
    return (seconds(2 * samples) - seconds(samples)) / samples


@click.command()
@click.option("--preset", "name", type=click.Choice(list(PRESETS)), default="ecp5-85f-256", show_default=True)
@click.option("--link", default="spi", show_default=True, help="Of the board that the preset is for.")
@click.option("--only", multiple=True, type=click.Choice([task.model for task in TASKS]), help="Some of the networks.")
@click.option("--samples", default=16, show_default=True, help="By which the second of two batches is longer.")
def main(name: str, link: str, only: tuple[str, ...], samples: int) -> None:
    """Compare rates over a link with those of the RTL, in a batch of many; networks have one input."""
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
        estimate = rates(image, task.batch, link=link)

        def batch(count: int, compiled: Compiled = compiled, inputs: FloatArray = inputs, port: str = port) -> Any:
            return compiled.package.arrangement.pack({port: np.resize(inputs, (count, *inputs.shape[1:]))})

        with connect("rtl", config, link=link) as device:
            device.load(image)
            each = seconds_per_sample(device, batch, samples)
        click.echo(f"{task.model}: {spoken(1 / each)}/s measured, {spoken(estimate.per_second)}/s estimated")


if __name__ == "__main__":
    main()
