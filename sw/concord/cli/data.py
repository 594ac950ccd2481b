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


def _conversion(name: str, convert: _Conversion, done: str, text: str) -> None:
    """Add a command: what it converts with, what it says in the end, and its help."""

    @data.command(name, help=text)
    @click.argument("network", type=THING)
    @click.argument("samples", type=EXISTING)
    @click.option("-o", "--output", type=FILE, required=True, help="npz file for the converted arrays.")
    @readable
    def command(network: Path, samples: Path, output: Path) -> None:
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


_conversion(
    "to-native",
    FileConverter.to_native,
    "in the native form of {npu}, as its memories hold them",
    "Convert SAMPLES, an npz file with an array for every input, to the form in the vector memories of the NPU.",
)
_conversion(
    "to-natural",
    FileConverter.to_natural,
    "from the native form of {npu} to the shapes of {network}",
    "Convert SAMPLES, inputs or outputs in the native form of the NPU, to the shapes of the network.",
)
_conversion(
    "quantise",
    FileConverter.quantise,
    "rounded as {npu} rounds its inputs, shapes unchanged",
    "Round SAMPLES as the NPU rounds its inputs, and keep the shapes of the network: a quantised training set.",
)
