"""The ``concord`` command."""

from __future__ import annotations

import warnings
from typing import Any

import click

from concord import __version__
from concord.cli.lazy import LazyCommand, LazyGroup

SECTIONS = {
    "Compile and run": {
        "compile": LazyCommand("compile", "compile_model"),
        "run": LazyCommand("run", "run"),
        "data": LazyCommand("data", "data"),
        "derive": LazyCommand("derive", "derive"),
    },
    "Look closer": {
        "inspect": LazyCommand("inspect", "inspect"),
        "report": LazyCommand("report", "report"),
        "types": LazyCommand("types", "types"),
        "prove": LazyCommand("prove", "prove"),
        "overflow": LazyCommand("overflow", "overflow"),
    },
    "Train": {
        "train": LazyCommand("train", "train"),
    },
    "Hardware": {
        "presets": LazyCommand("presets", "presets"),
        "fit": LazyCommand("fit", "fit"),
        "flash": LazyCommand("flash", "flash"),
        "memtest": LazyCommand("memtest", "memtest"),
        "gates": LazyCommand("gates", "gates"),
        "asm": LazyCommand("words", "asm"),
        "disasm": LazyCommand("words", "disasm"),
    },
    "Demonstrations": {
        "live": LazyCommand("live", "live"),
        "demo": LazyCommand("demos", "demo"),
        "train-demo": LazyCommand("demos", "train_demo"),
    },
}


@click.group(cls=LazyGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="concord")
@click.pass_context
def main(context: click.Context) -> None:
    """Block-floating-point neural networks that agree to the last bit: emulator, RTL and bitstream."""
    context.with_resource(warnings.catch_warnings())
    warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """The text alone: where in the code it comes from tells a user nothing."""
    from concord.cli.common import echo
    from concord.display.terminal import printable

    echo(f"warning: {printable(str(message))}", err=True)
