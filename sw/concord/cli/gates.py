"""``concord gates``: a compiled network on the netlist of a bitstream."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console

from concord.cli.common import (
    BOARD,
    FOLDER,
    POSITIVE,
    THING,
    TerminalConsole,
    echo,
    inputs_from,
    readable,
    samples_input,
)
from concord.host import LinkedDevice, connect
from concord.host.device import Device
from concord.host.progress import run_batch
from concord.host.rtl import find_netlist
from concord.host.tensors import check_batch
from concord.image import Image
from concord.networks.folder import load
from concord.prove.compare import compare
from concord.prove.device_state import COUNTED
from concord.spec.boards import DEFAULT_BOARD


@click.command()
@click.argument("network", type=THING)
@samples_input
@click.option("--board", type=BOARD, default=DEFAULT_BOARD, show_default=True)
@click.option(
    "--stage",
    type=click.Choice(["synthesis", "routed"]),
    default="synthesis",
    show_default=True,
    help="Simulate the netlist after synthesis, or the one after place and route.",
)
@click.option("--samples", type=POSITIVE, help="Number of samples to run; all by default.")
@click.option("--filled", is_flag=True, help="Start with the contents in the block RAMs, as a bitstream has them.")
@click.option(
    "--build",
    type=FOLDER,
    default=Path("build"),
    show_default=True,
    help="Folder with the results of synthesis, place and route.",
)
@readable
def gates(network: Path, inputs: Path, board: str, stage: str, samples: int | None, filled: bool, build: Path) -> None:
    """Compare a compiled NETWORK on the emulator and on the simulated netlist of a bitstream.

    Outputs, flags and counters must be the same to the last bit; else the first difference is told, and the exit status
    is 1. What is missing of the netlist is built first: minutes for synthesis, and more for place and route.
    """
    console = TerminalConsole(stderr=True)
    image, package = load(network)
    arrays = inputs_from(inputs, [port.name for port in image.inputs] if package is None else [*package.input_shapes])
    arrays = {name: values[:samples] for name, values in arrays.items()}
    batch = check_batch(image.inputs, arrays if package is None else package.pack(arrays))[0]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "npu.image"
        image.save(file)
        library = find_netlist(image.config, board, stage, image=file if filled else None, build=build)
    with connect("emulator", image.config) as emulator:
        emulator.load(image)
        expected = _run(emulator, image, batch, console)
    begun = time.monotonic()
    with connect("rtl", image.config, library=library) as device:
        assert isinstance(device, LinkedDevice)
        if filled:
            device.image = image
        else:
            device.load(image)
        computed = _run(device, image, batch, console)
        cycles = getattr(device.link.transport, "cycles", 0)
    _tell(expected, computed, f"netlist after {stage}" if stage == "synthesis" else "netlist after place and route")
    seconds = time.monotonic() - begun
    echo(f"{cycles:,} cycles in {seconds:.0f} s, {cycles / seconds:,.0f} cycles/s")


def _run(device: Device, image: Image, batch: dict[str, Any], console: Console) -> tuple[dict[str, Any], Any, Any]:
    """Outputs, flags by address, and counters."""
    outputs = run_batch(device, batch, console)
    counters = device.counters()
    return outputs, device.flags(), {name: counters[name] for name in COUNTED}


def _tell(expected: tuple[Any, Any, Any], computed: tuple[Any, Any, Any], what: str) -> None:
    """Say whether all is the same; exit status 1 if not."""
    result = compare(expected[0], computed[0], what)
    echo(str(result))
    for name, want, have in zip(("flags", "counters"), expected[1:], computed[1:], strict=True):
        if want != have:
            echo(f"{name}: {want} in the emulator, {have} in the {what}")
    if not result.passed or expected[1:] != computed[1:]:
        raise click.exceptions.Exit(1)
