"""Commands on quantised networks that are computed in codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.table import Table

from concord.cli.common import check_page, echo, inputs_from, show_rates, wide_console
from concord.cli.json_output import array_facts, npu_facts, rate_facts, write_json
from concord.display.tables import text_table
from concord.integer import IntegerNetwork, load, load_network, save_network
from concord.integer.facts import IntegerFacts, PortFacts, facts_of
from concord.integer.folder import INTEGER_FOLDER, TABLES, WITH_NPU
from concord.spec.config import NpuConfig
from concord.spec.stored import PROGRAM
from concord.transfer import Codes
from concord.utils.files import replacing, write_text

#: Parts of ``concord inspect`` that a network on codes has.
PARTS = ("layers", "ports", "memory")


def check_options(allowed: Sequence[str]) -> None:
    """``ValueError`` if the command was given an option that a network on codes has nothing for."""
    context = click.get_current_context()
    options = [item for item in context.command.params if isinstance(item, click.Option)]
    names = {
        max(item.opts, key=len)
        for item in options
        if context.get_parameter_source(str(item.name)) is ParameterSource.COMMANDLINE
    }
    refused = sorted(names - set(allowed))
    if refused:
        raise ValueError(f"a network on codes must be given without {', '.join(refused)}")


def network_at(path: Path, rounding: str | None = None, *, scales: bool = True) -> IntegerNetwork:
    """The quantised network of a file or a folder, with its scales, or with the factors of an NPU in their place."""
    from concord.integer.npu.folder import load_codes

    if path.is_dir() and rounding is not None:
        raise ValueError(f"--rounding must be given to compile, which has written {path}")
    if not scales:
        return load_codes(path).arithmetic
    return load_network(path) if path.is_dir() else load(path, rounding=rounding)


def compile_exactly(model: Path | bytes, folder: Path, rounding: str | None, as_json: bool) -> None:
    """Write the folder of a quantised network: its program, and its tables."""
    INTEGER_FOLDER.check_place(folder)
    network = load(model, rounding=rounding)
    save_network(network, folder)
    if as_json:
        write_json({"folder": folder, "network": asdict(facts_of(network))})
        return
    echo(network.report())
    echo(f"{folder}: {PROGRAM}, {TABLES}")


def compile_codes_for(
    model: Path | bytes, folder: Path, config: NpuConfig, link: str | None, rounding: str | None, as_json: bool
) -> None:
    """Writes the folder of a quantised network with a program for an NPU that makes codes of accumulators."""
    from concord.integer.npu import compile_codes
    from concord.integer.npu.folder import save_codes

    WITH_NPU.check_place(folder)
    network = load(model, pairs=False, rounding=rounding)
    codes = compile_codes(network, config)
    save_codes(codes, folder)
    assert codes.compiled is not None
    if as_json:
        from concord.host.rates import rates_by_link

        facts = {
            "folder": folder,
            "network": asdict(facts_of(network)),
            "npu": npu_facts(config),
            "layers": len(codes.compiled.lowered.layers),
            "instructions": len(codes.image.program),
            "host": [part.name for part in codes.split.host],
            "rates": rate_facts(rates_by_link(codes.image, link=link)),
            "warnings": codes.warnings,
        }
        write_json(facts)
        _warn(codes.warnings)
        return
    echo(network.report())
    counts = f"{len(codes.compiled.lowered.layers)} layers, {len(codes.image.program)} instructions"
    echo(f"{folder}: {', '.join(WITH_NPU.files)}; {config.name}: {counts}")
    if codes.split.host:
        echo(f"the host computes {', '.join(part.name for part in codes.split.host)}")
    show_rates(codes.image, link)
    _warn(codes.warnings)
    echo("scales are factors of 16 bits, so a layer may round some codes to the next one; `concord run` counts them")


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        echo(f"warning: {line}", err=True)


def results_on_codes(network: IntegerNetwork, results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Shape, type, scale and zero point of results; these are ``None`` of floats."""
    facts = array_facts(results)
    for name, fields in facts.items():
        scheme = network.scheme(name)
        fields |= {"scale": None, "zero": None}
        if isinstance(scheme, Codes):
            fields |= {"scale": float(scheme.scale), "zero": scheme.zero}
    return facts


def run_exactly(network: Path, inputs: Path, output: Path, rounding: str | None, as_json: bool) -> None:
    """Codes of the outputs of a quantised network, a model or a folder, and what they stand for."""
    loaded = network_at(network, rounding)
    arrays = inputs_from(inputs, [*loaded.graph.inputs])
    codes: dict[str, Any] = dict(loaded.run({name: arrays[name] for name in loaded.graph.inputs if name in arrays}))
    with replacing(output) as file:
        np.savez(file, **codes)
    if as_json:
        write_json({"output": output, "results": results_on_codes(loaded, codes)})
        return
    echo(loaded.report())
    for name, value in codes.items():
        echo(f"{output}: {name} {value.shape} {loaded.scheme(name)}")


def inspect_exactly(folder: Path, only: Sequence[str], as_json: bool) -> None:
    """Operations, ports and tables of a folder."""
    if unknown := sorted(set(only) - set(PARTS)):
        raise ValueError(f"--only must be one of {', '.join(PARTS)} for a network on codes, not {', '.join(unknown)}")
    facts, parts, console = facts_of(load_network(folder)), only or PARTS, wide_console()
    if as_json:
        write_json({"image": folder, "network": asdict(facts)})
        return
    echo(f"{folder}: {facts.name} on codes, {len(facts.operations)} operations, {_bytes(facts)}")
    for line in facts.wide_sums:
        echo(f"  {line}")
    if "layers" in parts:
        console.print(_operations(facts))
    if "ports" in parts:
        console.print(_ports(facts))
    if "memory" in parts:
        console.print(_tables(facts))


def report_exactly(folder: Path, inputs: Path, page: Path, samples: int) -> None:
    """A page about a folder and the codes of all tensors on samples, and the same as JSON."""
    from concord.report.codes import render

    facts_file, network = check_page(page), load_network(folder)
    arrays = inputs_from(inputs, [*network.graph.inputs])
    facts = facts_of(network, {name: arrays[name][:samples] for name in network.graph.inputs if name in arrays})
    write_text(page, render(facts))
    write_text(facts_file, facts.to_json())
    echo(f"{page}, {facts_file.name}: {len(facts.operations)} operations, {_bytes(facts)}")


def _bytes(facts: IntegerFacts) -> str:
    tables = f"{facts.sites} sites, {len(facts.tables)} tables of {facts.table_bytes} bytes"
    return f"{facts.constant_bytes} bytes of constants; {tables}, {facts.saved} bytes saved by sharing"


def _operations(facts: IntegerFacts) -> Table:
    rows = [
        (str(k), part.name, part.kind, str(part.nbytes), "" if part.table is None else str(part.table), part.codes)
        for k, part in enumerate(facts.operations)
    ]
    columns = ("#", "node", "operation", "bytes", "table", "codes of the result")
    return text_table("Operations", columns, right=("#", "bytes", "table"), rows=rows)


def _ports(facts: IntegerFacts) -> Table:
    def row(side: str, port: PortFacts) -> tuple[str, ...]:
        return side, port.name, " x ".join("any" if size < 0 else str(size) for size in port.sizes), port.codes

    rows = [row(side, port) for side, ports in (("in", facts.inputs), ("out", facts.outputs)) for port in ports]
    return text_table("Inputs and outputs", ("direction", "name", "shape", "codes"), rows=rows)


def _tables(facts: IntegerFacts) -> Table:
    rows = [
        (str(k), str(table.codes), table.type, str(table.nbytes), str(table.saved), ", ".join(table.sites))
        for k, table in enumerate(facts.tables)
    ]
    columns = ("#", "entries", "type", "bytes", "saved", "sites")
    return text_table(f"Tables: {facts.sites} sites", columns, right=columns[:5], rows=rows)
