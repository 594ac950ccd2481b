"""``concord overflow``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from concord.cli.common import EXISTING, FILE, POSITIVE, THING, TerminalConsole, arrays_of, echo, readable, wide_console
from concord.cli.workers import several, workers_options
from concord.utils.files import check_place, write_bytes, write_text

if TYPE_CHECKING:
    from concord.graph.ir import Graph
    from concord.overflow.kinds import IntegerSettings
    from concord.overflow.results import Analysis
    from concord.utils.parallel import Engine

_WIDTH = click.IntRange(1, 64)
_OPERAND = click.IntRange(1, 32)


@click.command()
@click.argument("model", type=THING)
@click.option(
    "-i", "--input", "inputs", type=EXISTING, required=True, help="npz file with a batch of samples for every input."
)
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
def overflow(
    model: Path,
    inputs: Path,
    output: Path | None,
    view: str | None,
    samples: int,
    width: int | None,
    output_width: int | None,
    threshold: int | None,
    kind: str | None,
    input_width: int | None,
    weight_width: int | None,
    rounding: str | None,
    clip: bool,
    ranges: tuple[str, ...],
    workers: int | None,
    cluster: str | None,
) -> None:
    """Count how many values of MODEL need how many bits, and which widths are free of overflow.

    MODEL is the folder of a compiled network, whose accumulators are looked at, or an ONNX file, whose layers are
    mapped on integers and scaled until no more values overflow than the threshold allows. Every product, partial sum
    and output is counted, beside the bound that holds for every input.
    """
    from concord.api.options import input_ranges
    from concord.networks.samples import inputs_of
    from concord.overflow.kinds import kind_of, settings_of
    from concord.overflow.picture import picture

    view = view or ("machine" if model.is_dir() else "integers")
    only = {"--kind": kind, "--input-width": input_width, "--weight-width": weight_width, "--rounding": rounding}
    wrong = [name for name, value in {**only, "--clip": clip or None}.items() if value is not None]
    if view == "machine" and wrong:
        raise ValueError(f"{', '.join(wrong)} must be given with --view integers: the NPU has formats of its own")
    for suffix in (".html", ".json", ".png"):
        if output is not None:
            check_place(output.with_suffix(suffix))
    graph = _graph(model)
    arrays = inputs_of(graph.inputs, arrays_of(inputs))
    arrays = {name: values[:samples] for name, values in arrays.items()}
    limits = input_ranges(ranges, graph)
    with several(workers, cluster) as engine, TerminalConsole(stderr=True).status("counting"):
        if view == "machine":
            analysis = _machine(model, arrays, limits, width, output_width, threshold or 0, engine)
        else:
            settings = settings_of(kind or kind_of(graph)).replace(
                width=width,
                output_width=output_width,
                threshold=threshold,
                input_width=input_width,
                weight_width=weight_width,
                rounding=rounding,
                clip=clip or None,
            )
            analysis = _integers(graph, arrays, limits, kind, settings, model.stem, engine)
    _show(analysis)
    if output is not None:
        from concord.overflow.page import render

        write_text(output.with_suffix(".html"), render(analysis))
        write_text(output.with_suffix(".json"), analysis.to_json())
        write_bytes(output.with_suffix(".png"), picture(analysis))
    files = "" if output is None else f"{output.with_suffix('.html')}, .json, .png: "
    echo(f"{files}{analysis.summary}")


def _graph(model: Path) -> Graph:
    from concord.frontend import import_model
    from concord.frontend.load import one_file
    from concord.networks.folder import MODEL, NETWORK_FOLDER

    return import_model(NETWORK_FOLDER.read(model)[MODEL] if model.is_dir() else one_file(model))


def _machine(
    model: Path,
    inputs: dict[str, object],
    ranges: dict[str, tuple[float, float]],
    width: int | None,
    output_width: int | None,
    threshold: int,
    engine: Engine | None,
) -> Analysis:
    from concord.networks.folder import load_package
    from concord.overflow.compiled import analyse_machine

    if not model.is_dir():
        raise ValueError(f"MODEL must be a compiled network for --view machine, not {model}: concord compile makes one")
    return analyse_machine(
        load_package(model),
        inputs,  # type: ignore[arg-type]
        ranges=ranges,
        width=width,
        output_width=output_width,
        threshold=threshold,
        name=model.resolve().name,
        engine=engine,
    )


def _integers(
    graph: Graph,
    inputs: dict[str, object],
    ranges: dict[str, tuple[float, float]],
    kind: str | None,
    settings: IntegerSettings,
    name: str,
    engine: Engine | None,
) -> Analysis:
    from concord.overflow.quantised import analyse_integers

    arrays: Any = inputs
    return analyse_integers(graph, arrays, kind=kind, settings=settings, ranges=ranges, name=name, engine=engine)


def _show(analysis: Analysis) -> None:
    from concord.overflow.show import layer_table, width_plot

    console = wide_console()
    console.print(layer_table(analysis))
    for checked in ("intermediate", "output"):
        console.print(width_plot(analysis, checked), soft_wrap=True)
    for layer in analysis.overflowing:
        count = layer.overflows(analysis.width, analysis.output_width)
        storages = f"storages of {analysis.width} and {analysis.output_width} bits"
        echo(f"{layer.name}: {count:,} values leave {storages}", err=True)
