"""``concord derive``."""

from __future__ import annotations

from pathlib import Path

import click

from concord.cli.common import FILE, THING, echo, readable
from concord.derive.backends.registry import HostBackend, target_for, target_names


@click.command()
@click.argument("image", type=THING)
@click.option(
    "-o",
    "--output",
    type=FILE,
    required=True,
    help="File to write; its suffix says which library it is for (.py, .onnx, .c).",
)
@click.option("--to", "name", type=click.Choice(target_names()), help="What it is for, where the suffix does not say.")
@click.option(
    "--flags/--no-flags",
    default=None,
    help="Compute the sticky flags of the NPU, too. Python files do by default, ONNX graphs do not.",
)
@readable
def derive(image: Path, output: Path, name: str | None, flags: bool | None) -> None:
    """Derive software that gives the same bits from an IMAGE or a compiled network.

    The program is read, not the network that it was made of: it may be written by hand. With --to c-host it is the
    software of a microcontroller that drives an NPU, with the image in it.
    """
    from concord.derive.facts import summary
    from concord.derive.model import derive as derived
    from concord.utils.files import check_place

    backend = target_for(output, name)
    check_place(output)
    if isinstance(backend, HostBackend):
        if flags is not None:
            raise ValueError("--flags and --no-flags are for models; a host reads the flags of the NPU in every run")
        echo(f"{output}: {backend.write(image, output)}")
        return
    model = derived(image, backend.flags if flags is None else flags)
    backend.write(model, output)
    echo(f"{output}: {summary(model)}")
