"""``concord inspect``: layers with their formats, ports, memory map and program of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.errors import ConsoleError
from rich.table import Table
from rich.text import Text

from concord.cli.common import THING, echo, readable, wide_console
from concord.cli.exact import check_options, codes_at, inspect_exactly, show_codes
from concord.cli.json_output import json_option, npu_facts, port_facts, program_facts, rate_facts, write_json
from concord.cli.options import CodesOptions, compile_options
from concord.cli.type_table import type_table
from concord.compiler.codes.package import CodesPackage
from concord.compiler.emission.package import Package
from concord.compiler.ir.expected_error import LayerError, error_percent
from concord.compiler.memory.dataflow import elements
from concord.display.tables import text_table
from concord.display.terminal import counted, printable
from concord.graph.passes.dtype_report import TensorTypes, rows
from concord.host.rates import Rates, rate_table, rates_by_link
from concord.image import Image
from concord.networks.folder import load, recompile
from concord.program.assembler import disassemble
from concord.report.code_facts import facts_of
from concord.spec.memmap import RegionId

#: Parts that are shown, in this order.
PARTS = ("layers", "ports", "rates", "memory", "program")
#: Part that is shown only if it is asked for, as the network is compiled once more for it.
TYPES = "types"
#: Metadata that have a table of their own.
_TABLES = ("layers", "program", "map")


@click.command()
@click.argument("image", type=THING)
@click.option(
    "--only", type=click.Choice((*PARTS, TYPES)), multiple=True, help="Show only this part. The option can be repeated."
)
@compile_options("link")
@json_option
@readable
def inspect(image: Path, only: tuple[str, ...], link: str | None, as_json: bool) -> None:
    """Show what is in an IMAGE or a compiled network.

    Layers with their formats, inputs and outputs, the rate on the board, a map of the memories, and the program. The
    part types, which tensors are narrow and where they are converted, is shown if it is asked for: a compiled network
    is compiled once more for it.

    Of a network that was compiled with --exact: also operations, inputs and outputs, and the tables with their sites.
    """
    if (network := codes_at(image, CodesOptions(False, None))) is not None:
        check_options(("--only", "--json"))
        inspect_exactly(image, network, only, as_json)
        return
    loaded, package = load(image)
    if TYPES in only and package is None:
        raise ValueError(
            f"IMAGE must be the folder of a compiled network for --only {TYPES}, not {image}: an image has a program, "
            "but no network to take types from"
        )
    try:
        if as_json:
            write_json(_facts(loaded, package, image, only or PARTS, link))
        else:
            _show(loaded, package, image, only or PARTS, wide_console(), link)
    except (LookupError, TypeError, AttributeError, ConsoleError) as error:  # metadata may be anything
        raise ValueError(
            f"{image} must have metadata as a compilation writes them; compile the network again"
        ) from error


def _show(
    loaded: Image, package: Package | None, image: Path, parts: Sequence[str], console: Console, link: str | None
) -> None:
    config = loaded.config
    console.print(
        Text.assemble((str(image), "bold"), f": for {config.name}, fingerprint {config.fingerprint:016x}"),
        soft_wrap=True,
    )
    if package is not None and package.quantised_model is not None:
        echo(f"  {package.quantised_model.text}")
    for key, value in loaded.metadata.items():
        if key not in _TABLES:
            for text in value if isinstance(value, list) else [value]:
                echo(f"  {key}: {text}")
    if package is not None:
        for name, record in package.input_records.items():
            echo(f"  input {name}: {record.text}")
        if package.expected_error is not None:
            for text in package.expected_error.warnings or [package.expected_error.text]:
                echo(f"  {text}")
    if loaded.phases:
        echo(f"  {len(loaded.phases)} phases: the program is started that often for a sample")
    if "layers" in parts and "layers" in loaded.metadata:
        errors = package.expected_error.layers if package is not None and package.expected_error is not None else ()
        console.print(_layers(loaded, errors))
    if "ports" in parts:
        console.print(_ports(loaded))
    if "rates" in parts:
        try:
            links = rates_by_link(loaded, package.arrangement.batch if package is not None else 1, link=link)
            console.print(_rates(links))
            echo(f"  inputs travel {links[0].input_route}")
        except ValueError as error:  # a program written by hand that goes on and on
            echo(f"no rate: {error}")
    if "memory" in parts:
        console.print(_memories(loaded))
        if "map" in loaded.metadata:
            console.print(_map(loaded))
    if isinstance(package, CodesPackage):
        show_codes("", facts_of(package.network), parts, console)
    if "program" in parts:
        _print_program(loaded)
    if TYPES in parts:
        _print_types(image, console)


def _facts(
    loaded: Image, package: Package | None, image: Path, parts: Sequence[str], link: str | None
) -> dict[str, Any]:
    """Record that the command writes with ``--json``: the parts that are asked for."""
    known: dict[str, Any] = {
        "image": image,
        "npu": npu_facts(loaded.config),
        "metadata": {key: value for key, value in loaded.metadata.items() if key not in _TABLES},
        "phases": len(loaded.phases),
        "expected_error": None,
        "input_records": {},
    }
    if package is not None:
        expected = package.expected_error
        known["expected_error"] = None if expected is None else expected.to_dict()
        known["input_records"] = {name: record.text for name, record in package.input_records.items()}
    if isinstance(package, CodesPackage):
        known["network"] = asdict(facts_of(package.network))
    if "layers" in parts:
        known["layers"] = loaded.metadata.get("layers", [])
    if "ports" in parts:
        known |= port_facts(loaded)
    if "rates" in parts:
        try:
            links = rates_by_link(loaded, package.arrangement.batch if package is not None else 1, link=link)
            known["rates"] = rate_facts(links)
        except ValueError as error:  # a program written by hand that goes on and on
            known["rates"] = []
            echo(f"no rate: {error}", err=True)
    if "memory" in parts:
        words = loaded.loaded().items()
        known["memory"] = {region.name.lower(): {"words": count, "of": depth} for region, (count, depth) in words}
        known["map"] = loaded.metadata.get("map", [])
    if "program" in parts:
        known["program"] = program_facts(loaded, disassemble(loaded.program).splitlines())
    if TYPES in parts:
        known["types"] = [asdict(row) for row in _types(image)[0]]
    return known


def _print_types(folder: Path, console: Console) -> None:
    """Prints the decisions of the data-type pass for the layers."""
    tensors, batch = _types(folder)
    console.print(type_table(tensors, f" of the layers, bytes of {counted(batch, 'samples')}"))


def _types(folder: Path) -> tuple[list[TensorTypes], int]:
    """Types of the tensors, and samples of a run, of the network compiled once more: the folder does not hold them."""
    compiled = recompile(folder)
    tensors = rows(compiled.types, elements(compiled.lowered), compiled.image.config)
    return tensors, compiled.package.arrangement.batch


def _layers(image: Image, errors: Sequence[LayerError]) -> Table:
    """Table of the layers, their formats, and their errors as far as those are known."""
    known = ("expected error", "of the layer alone")
    table = text_table(
        "Layers",
        ("#", "layer", "nodes", "weights", "output", *(known if errors else ())),
        right=("#", *known),
    )
    texts_of = {error.layer: (error_percent(error.relative), error_percent(error.own)) for error in errors}
    for index, layer in enumerate(image.metadata["layers"]):
        texts = texts_of.get(layer["name"], ("", "")) if errors else ()
        table.add_row(str(index), layer["name"], layer["nodes"], layer.get("weights", ""), layer["output"], *texts)
    return table


def _ports(image: Image) -> Table:
    """Table of what the host writes and reads, and of the states that stay from a run to the next one."""
    columns = ("direction", "name", "shape", "type", "memory", "address")
    rows = [
        (side, port.name, " x ".join(map(str, port.shape)), port.dtype, port.region.name.lower(), str(port.address))
        for side, ports in (
            ("in", image.inputs),
            ("out", image.outputs),
            ("stays", [state.port for state in image.states]),
        )
        for port in ports
    ]
    return text_table("Inputs and outputs", columns, right=["address"], rows=rows)


def _rates(links: Sequence[Rates]) -> Table:
    """Table of samples per second over every link, with their limits and shares of the time."""
    speed = links[0]
    samples = f", {speed.batch} samples per run" if speed.batch > 1 else ""
    title = f"Rates at {speed.clock} ({speed.cycles:,} cycles{speed.assumption}{samples})"
    (what, names), *rows = rate_table(links).items()
    return text_table(title, [what, *names], right=names, rows=((name, *texts) for name, texts in rows))


def _memories(image: Image) -> Table:
    """Table of the memories, with the share of each that is loaded."""
    right = ("words", "of", "share")
    rows = [
        (region.name.lower(), str(count), str(depth), f"{100 * count / depth:.1f} %")
        for region, (count, depth) in image.loaded().items()
        if count
    ]
    return text_table("What is loaded", ("memory", *right), right=right, rows=rows)


def _map(image: Image) -> Table:
    """Allocations in the memories in the order of addresses."""
    allocations = [entry for entry in image.metadata["map"] if entry["words"]]
    described = ["what"] if any(entry["doc"] for entry in allocations) else []
    table = text_table(
        "Memory map", ("memory", "first", "last", "name", "in layers", *described), right=("first", "last")
    )
    order = [region.name.lower() for region in RegionId]
    layers = len(image.metadata.get("layers", ()))
    for entry in sorted(allocations, key=lambda allocation: (order.index(allocation["memory"]), allocation["address"])):
        last = entry["address"] + entry["words"] - 1
        row = entry["memory"], str(entry["address"]), str(last), entry["name"], _use(entry, layers)
        table.add_row(*row, *([entry["doc"]] if described else []))
    return table


def _use(allocation: dict[str, Any], layers: int) -> str:
    """The layers that an allocation is there for, in words."""
    first_use, last_use = allocation.get("layers", (-1, layers))
    first = max(first_use, 0)
    if last_use >= layers:
        return "all" if first_use < 0 else f"{first} to the end"
    return str(last_use) if first == last_use else f"{first} to {last_use}"


def _print_program(image: Image) -> None:
    """Every instruction with its address; above it the layer that begins there, and the phase."""
    layers: list[Any] = image.metadata.get("layers", [])
    notes = {pc: [f"layer {index}: {layers[index]['name']}"] for pc, index in image.metadata.get("program", ())}
    for number, phase in enumerate(image.phases):
        notes.setdefault(phase.pc, []).insert(0, f"phase {number}")
    echo("\nProgram")
    for pc, text in enumerate(disassemble(image.program).splitlines()):
        if pc in notes:
            click.secho(printable(f"\n      # {', '.join(notes[pc])}"), bold=True)
        echo(f"{pc:4d}  {text}")
