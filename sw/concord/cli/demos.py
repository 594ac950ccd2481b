"""The demonstrations as commands."""

from __future__ import annotations

from pathlib import Path

import click

from concord.cli.common import FOLDER, POSITIVE, TerminalConsole, npu, readable
from concord.spec.presets import PRESETS


@click.command()
@npu
@click.option("--output", default=Path("build/demo"), show_default=True, type=FOLDER, help="Folder for the results.")
@click.option("--images", default=64, show_default=True, type=POSITIVE, help="Number of images to run on the RTL.")
@readable
def demo(preset: str, output: Path, images: int) -> None:
    """Train and compile a network, and compare emulator and RTL.

    They are compared to the last bit, and the command fails if they differ.
    """
    from concord.demo.run import run_demo

    if not run_demo(PRESETS[preset], output, images, TerminalConsole()):
        raise click.exceptions.Exit(1)


@click.command(name="train-demo")
@npu
@click.option(
    "--output", default=Path("build/train-demo"), show_default=True, type=FOLDER, help="Folder for the results."
)
@click.option("--images", type=POSITIVE, help="Number of test images to run on the RTL; all by default.")
@click.option("--on", help="What trains: an NPU, emulator, rtl, or the name of a serial port; else this machine.")
@readable
def train_demo(preset: str, output: Path, images: int | None, on: str | None) -> None:
    """Train a network in block floating point, compile it, and classify on emulator and RTL.

    They are compared to the last bit, and the command fails if they differ. With --on an NPU trains a network of dense
    layers, this machine does so, too, and both must have come to the same weights.
    """
    from concord.demo.training import run_training_demo

    if not run_training_demo(PRESETS[preset], output, images, TerminalConsole(), on=on).passed:
        raise click.exceptions.Exit(1)
