"""``concord data``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from concord.cli_base import EXISTING, FILE, THING, arrays_of, readable
from concord.datasets import Arrays, Converter
from concord.files import check_place, replacing


@click.group()
def data() -> None:
    """Convert data sets between the shapes of a network and the NPU's native form."""


def _command(text: str) -> Callable[[Callable[..., None]], click.Command]:
    """The arguments that all conversions have, and their help."""

    def decorate(convert: Callable[..., None]) -> click.Command:
        command = readable(convert)
        command.__doc__ = text
        for option in (
            click.option("-o", "--output", type=FILE, required=True, help="npz file for the converted arrays."),
            click.argument("samples", type=EXISTING),
            click.argument("network", type=THING),
        ):
            command = option(command)
        return data.command(convert.__name__.replace("_", "-"))(command)

    return decorate


@_command("SAMPLES, an npz file with an array for every input, as the vector memories of the NPU hold them.")
def to_native(network: Path, samples: Path, output: Path) -> None:
    """See the command."""
    _write(output, Converter.load(network).to_native(arrays_of(samples)))


@_command("SAMPLES in the NPU's native form, of inputs or outputs, in the shapes of the network.")
def to_natural(network: Path, samples: Path, output: Path) -> None:
    """See the command."""
    found, several = Converter.load(network).to_natural(arrays_of(samples))
    _write(output, found, several)


@_command(
    "SAMPLES as the NPU's conversion of inputs leaves them, in the shapes of the network: a quantised training set."
)
def quantise(network: Path, samples: Path, output: Path) -> None:
    """See the command."""
    converter = Converter.load(network)
    found, several = converter.to_natural(converter.to_native(arrays_of(samples)))
    _write(output, found, several)


def _write(output: Path, arrays: Arrays, several: dict[str, int] | None = None) -> None:
    """Write the arrays, and say what they are."""
    if output.suffix != ".npz":
        raise ValueError(f"output must be an npz file and end in .npz, not {str(output)!r}")
    check_place(output)
    kept: dict[str, Any] = arrays
    with replacing(output) as file:
        np.savez(file, **kept)
    click.echo(f"{output}: {', '.join(f'{name} {values.shape}' for name, values in arrays.items() if values.ndim)}")
    for name, count in (several or {}).items():
        click.echo(
            f"{name}: {count} of {arrays[name].size} elements are in several blocks, where windows overlap, with "
            "different numbers; the one of the finest block was taken"
        )
