"""``concord data``."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO

import click

from concord.cli.common import EXISTING, FILE, THING, check_npz, echo, readable
from concord.datasets.convert import Converter
from concord.datasets.files import FileConverter
from concord.utils.files import replacing
from concord.utils.npz import Shape

_Conversion = Callable[[FileConverter, Path, IO[bytes]], tuple[dict[str, Shape], dict[str, int]]]


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


@_command("Convert SAMPLES, an npz file with an array for every input, to the form in the vector memories of the NPU.")
def to_native(network: Path, samples: Path, output: Path) -> None:
    """See the command."""
    _write(network, samples, output, FileConverter.to_native, "in the native form of {npu}, as its memories hold them")


@_command("Convert SAMPLES, inputs or outputs in the native form of the NPU, to the shapes of the network.")
def to_natural(network: Path, samples: Path, output: Path) -> None:
    """See the command."""
    _write(
        network, samples, output, FileConverter.to_natural, "from the native form of {npu} to the shapes of {network}"
    )


@_command("Round SAMPLES as the NPU rounds its inputs, and keep the shapes of the network: a quantised training set.")
def quantise(network: Path, samples: Path, output: Path) -> None:
    """See the command."""
    _write(network, samples, output, FileConverter.quantise, "rounded as {npu} rounds its inputs, shapes unchanged")


def _write(network: Path, samples: Path, output: Path, convert: _Conversion, done: str) -> None:
    """Convert samples of a network, and say what was done and what there is now."""
    check_npz(output)
    converter = FileConverter(Converter.load(network), scratch=output.resolve().parent)
    with replacing(output) as file:
        shapes, several = convert(converter, samples, file)
    echo(f"{samples}: {done.format(npu=converter.converter.image.config.name, network=network)}")
    echo(f"{output}: {', '.join(f'{name} {shape}' for name, shape in shapes.items() if shape)}")
    for name, count in several.items():
        echo(
            f"{name}: {count} of {prod(shapes[name])} elements are in several blocks, where windows overlap, with "
            "different numbers; the one of the finest block was taken"
        )
