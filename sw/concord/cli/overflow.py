"""``concord overflow``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from concord.cli.common import (
    FILE,
    POSITIVE,
    THING,
    TerminalConsole,
    arrays_of,
    echo,
    gathered,
    readable,
    samples_input,
    wide_console,
)
from concord.cli.selection import selection_options
from concord.cli.workers import SharingOptions, several, workers_options
from concord.utils.files import check_place, write_bytes, write_text

if TYPE_CHECKING:
    from concord.frontend.selection import Selection
    from concord.overflow.results import Analysis

_WIDTH = click.IntRange(1, 64)
_OPERAND = click.IntRange(1, 32)


class CountingOptions(NamedTuple):
    """View, and widths and rules of counting; ``None`` without an option."""

    view: str | None
    width: int | None
    output_width: int | None
    threshold: int | None
    kind: str | None
    input_width: int | None
    weight_width: int | None
    rounding: str | None
    clip: bool

    @property
    def of_integers(self) -> dict[str, Any]:
        """Options of layers of integers alone, by parameter of their settings."""
        names = ("input_width", "weight_width", "rounding")
        return {name: getattr(self, name) for name in names} | {"clip": self.clip or None}


@click.command()
@click.argument("model", type=THING)
@samples_input
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="HTML page to write, with JSON and a picture beside it. Without it, results go to the terminal only.",
)
@click.option(
    "--view",
    type=click.Choice(["machine", "integers"]),
    help="machine: count in the accumulators of a compiled network. integers: count in layers of integers. "
    "Default: what MODEL is.",
)
@click.option("--samples", default=100, show_default=True, type=POSITIVE, help="Number of samples to use.")
@click.option(
    "--width", type=_WIDTH, help="Bits of products and partial sums; by default those of the NPU or of --kind."
)
@click.option("--output-width", type=_WIDTH, help="Bits of outputs; by default those of the NPU or of --kind.")
@click.option(
    "--threshold", type=click.IntRange(min=0), help="Number of values of a layer that may overflow; 0 by default."
)
@click.option(
    "--kind",
    type=click.Choice(["cnn", "dense", "graph", "recurrent", "lstm"]),
    help="Kind of network, which sets the defaults of the integer widths.",
)
@click.option("--input-width", type=_OPERAND, help="Bits of integer inputs; by default those of --kind.")
@click.option("--weight-width", type=_OPERAND, help="Bits of integer weights; by default those of --kind.")
@click.option(
    "--rounding", type=click.Choice(["floor", "nearest"]), help="How floats are rounded to integers; floor by default."
)
@click.option(
    "--clip",
    is_flag=True,
    help="For integers: use a smaller range where bits are unused; values beyond it are cut off.",
)
@click.option(
    "--input-range",
    "ranges",
    multiple=True,
    metavar="LOW,HIGH|NAME=LOW,HIGH",
    help="Range of an input, for which the bounds hold; by default the range of the samples. "
    "The option can be repeated.",
)
@workers_options
@readable
@selection_options
@gathered(storage=CountingOptions, sharing=SharingOptions)
def overflow(
    model: Path,
    inputs: Path,
    output: Path | None,
    storage: CountingOptions,
    samples: int,
    ranges: tuple[str, ...],
    selection: Selection,
    sharing: SharingOptions,
) -> None:
    """Count how many values of MODEL need how many bits, and which widths are free of overflow.

    MODEL is the folder of a compiled network, whose accumulators are looked at, or an ONNX file, whose layers are
    mapped on integers and scaled until no more values overflow than the threshold allows. Every product, partial sum
    and output is counted, beside the bound that holds for every input.
    """
    from concord.api.options import input_ranges
    from concord.frontend import import_model
    from concord.frontend.load import one_file
    from concord.frontend.selection import Selection
    from concord.graph.states import with_states
    from concord.networks.folder import NETWORK_FOLDER, has_codes, load_package
    from concord.networks.samples import samples_of
    from concord.overflow import analyse_integers, analyse_machine
    from concord.overflow.kinds import kind_of, settings_of
    from concord.overflow.page import render
    from concord.overflow.picture import picture
    from concord.spec.stored import MODEL

    view = storage.view or ("machine" if model.is_dir() else "integers")
    only = {"kind": storage.kind} | storage.of_integers
    wrong = [f"--{name.replace('_', '-')}" for name, value in only.items() if value is not None]
    if view == "machine" and wrong:
        raise ValueError(f"{', '.join(wrong)} must be given with --view integers: the NPU has formats of its own")
    if model.is_dir() and selection != Selection():
        raise ValueError("--shape, --inputs, --outputs and --fix must be given with an ONNX file, not a folder")
    if view == "machine" and not model.is_dir():
        raise ValueError(f"MODEL must be a compiled network for --view machine, not {model}: concord compile makes one")
    if model.is_dir() and has_codes(model):
        raise ValueError(f"MODEL must be in block floating point, not on codes as {model}: compile names its wide sums")
    files = [] if output is None else [output.with_suffix(suffix) for suffix in (".html", ".json", ".png")]
    for file in files:
        check_place(file)
    network = NETWORK_FOLDER.read(model)[MODEL] if model.is_dir() else one_file(model)
    graph = import_model(selection.of(network))
    if model.is_dir():
        graph = with_states(graph, load_package(model).arrangement.state_results)
    arrays = {name: values[:samples] for name, values in samples_of(graph, arrays_of(inputs)).items()}
    limits = input_ranges(ranges, graph)
    widths: dict[str, Any] = {"width": storage.width, "output_width": storage.output_width}
    with several(*sharing) as engine, TerminalConsole(stderr=True).status("counting"):
        if view == "machine":
            package, name, threshold = load_package(model), model.resolve().name, storage.threshold or 0
            analysis = analyse_machine(
                package, arrays, ranges=limits, threshold=threshold, name=name, engine=engine, **widths
            )
        else:
            kind, name = storage.kind or kind_of(graph), model.stem
            settings = settings_of(kind).replace(threshold=storage.threshold, **widths, **storage.of_integers)
            analysis = analyse_integers(
                graph, arrays, kind=kind, settings=settings, ranges=limits, name=name, engine=engine
            )
    _show(analysis)
    if files:
        page, facts, drawn = files
        write_text(page, render(analysis))
        write_text(facts, analysis.to_json())
        write_bytes(drawn, picture(analysis))
    echo(f"{f'{files[0]}, .json, .png: ' if files else ''}{analysis.summary}")


def _show(analysis: Analysis) -> None:
    from concord.overflow.results import STORAGES
    from concord.overflow.show import layer_table, width_plot

    console = wide_console()
    console.print(layer_table(analysis))
    for checked in STORAGES:
        console.print(width_plot(analysis, checked), soft_wrap=True)
    for layer in analysis.overflowing:
        count = layer.overflows(analysis.width, analysis.output_width)
        storages = f"storages of {analysis.width} and {analysis.output_width} bits"
        echo(f"{layer.name}: {count:,} values leave {storages}", err=True)
