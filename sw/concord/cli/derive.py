"""``concord derive``."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from concord.cli.common import FILE, THING, echo, gathered, readable
from concord.cli.options import CodesOptions, compile_options
from concord.derive.backends.registry import HostBackend, target_for, target_names
from concord.utils.numbers import number_of

if TYPE_CHECKING:
    from concord.integer import IntegerNetwork


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
    help="Compute the sticky flags of the NPU, too. Files of Python and C do by default, ONNX graphs do not.",
)
@click.option(
    "--bytes",
    "bytes_of",
    multiple=True,
    metavar="NAME=LOW,HIGH",
    help="Of a host in C: elements of this input are bytes, and these numbers are what 0 and 255 stand for. The option "
    "can be repeated.",
)
@click.option(
    "--npu-part",
    is_flag=True,
    help="Of files in C: leave out what the host computes in front of the NPU and behind it, such as a softmax at the "
    "end; inputs and outputs are those of the NPU.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="IMAGE is the ONNX or TensorFlow Lite file of a quantised network, or its folder of compile --exact, and what "
    "is written executes it as it is, on its codes alone.",
)
@compile_options("rounding")
@readable
@gathered(codes=CodesOptions)
def derive(
    image: Path,
    output: Path,
    name: str | None,
    flags: bool | None,
    bytes_of: tuple[str, ...],
    npu_part: bool,
    codes: CodesOptions,
) -> None:
    """Derive software that gives the same bits from an IMAGE or a compiled network.

    The program is read, not the network that it was made of: it may be written by hand. With --to c it is C99 for any
    processor, in integers. With --to c-host it is the software of a microcontroller that drives an NPU, with the image
    in it. With --exact it has all codes of `concord run --exact`; without, of a folder with codes on an NPU, those
    that the NPU makes.
    """
    from concord.cli.exact import software_at

    if (network := software_at(image, codes)) is not None:
        if bytes_of or npu_part:
            raise ValueError("a network on codes must be given without --bytes and --npu-part")
        _derive_exactly(network, image, output, name, flags)
        return
    from concord.derive.facts import summary
    from concord.derive.model import derive as derived
    from concord.utils.files import check_place

    backend = target_for(output, name)
    check_place(output)
    if isinstance(backend, HostBackend):
        if flags is not None:
            raise ValueError("--flags and --no-flags are for models; a host reads the flags of the NPU in every run")
        echo(f"{output}: {backend.write(image, output, _byte_ranges(bytes_of), npu_part)}")
        return
    if bytes_of:
        raise ValueError("--bytes is for hosts in C; models take floats")
    if npu_part and backend.host:
        raise ValueError("--npu-part is for files in C; other models have all of the network")
    model = derived(image, backend.flags if flags is None else flags)
    model = model.npu_part if npu_part else model
    backend.write(replace(model, origin=_origin(image)), output)
    echo(f"{output}: {summary(model)}")


def _derive_exactly(network: IntegerNetwork, model: Path, output: Path, name: str | None, flags: bool | None) -> None:
    """Software for a quantised network, which is that of a file or folder."""
    from concord.derive.exact.registry import exact_backend_for
    from concord.utils.files import check_place

    backend = exact_backend_for(output, name)
    if flags is not None and backend.write_plain is None:
        raise ValueError("a network on codes must be given without --flags and --no-flags, but for files in C")
    check_place(output)
    write = backend.write_plain if flags is False and backend.write_plain else backend.write
    note = write(network, output, _origin(model))
    echo(network.report())
    for tensor in network.graph.outputs:
        echo(f"{output}: {tensor} {network.scheme(tensor)}")
    if note:
        echo(f"{output}: {note}")


def _origin(path: Path) -> str:
    """SHA-256 of a file; of a folder that of the model in it, or of the program, if it has no model."""
    from concord.spec.stored import PROGRAM, model_in

    file = model_in(path) or next(file for file in (path / PROGRAM, path) if file.is_file())
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _byte_ranges(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Ranges by input; ``ValueError`` for a text that is none."""
    ranges = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            low, high = (number_of(number, "--bytes") for number in numbers.split(","))
        except ValueError as error:
            raise ValueError(f"--bytes must be NAME=LOW,HIGH, not {text!r}") from error
        ranges[name] = low, high
    return ranges
