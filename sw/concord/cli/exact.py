"""Commands on quantised networks that are computed in codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from concord.cli.common import check_page, echo, inputs_from, wide_console
from concord.cli.json_output import array_facts, write_json
from concord.cli.options import CodesOptions
from concord.compiler.codes.package import CodesPackage
from concord.display.tables import text_table
from concord.frontend.codes import load
from concord.integer import IntegerNetwork
from concord.networks.folder import has_codes, has_program, load_codes, load_package
from concord.report.code_facts import IntegerFacts, PortFacts, facts_of
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


def codes_at(path: Path, codes: CodesOptions) -> IntegerNetwork | None:
    """The network on codes that a command is about, as it is, of a file or a folder; ``None`` if it is about an NPU.

    That is so with ``--exact``, and of a folder without a program for an NPU.
    """
    if not codes.exact and has_program(path):
        codes.check()
        return None
    if path.is_dir() and codes.rounding is not None:
        raise ValueError(f"--rounding must be given to compile, which has written {path}")
    return load_codes(path) if path.is_dir() else load(path, rounding=codes.rounding)


def software_at(path: Path, codes: CodesOptions) -> IntegerNetwork | None:
    """The network on codes that derived software computes; ``None`` of other networks.

    It has its scales, or the factors of an NPU if it is in a folder with a program for one.
    """
    network = codes_at(path, codes)
    if network is not None or not has_codes(path):
        return network
    package = load_package(path)
    assert isinstance(package, CodesPackage)
    return package.arithmetic


def results_on_codes(network: IntegerNetwork, results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Shape, type, scale and zero point of results; these are ``None`` of floats."""
    facts = array_facts(results)
    for name, fields in facts.items():
        scheme = network.scheme(name)
        fields |= {"scale": None, "zero": None}
        if isinstance(scheme, Codes):
            fields |= {"scale": float(scheme.scale), "zero": scheme.zero}
    return facts


def differences(package: CodesPackage, inputs: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """Distances of codes of an NPU from those of the network as it is, by output."""
    exact = package.network.run(inputs)
    return {name: np.abs(value.astype(np.int64) - exact[name].astype(np.int64)) for name, value in results.items()}


def run_exactly(loaded: IntegerNetwork, inputs: Path, output: Path, as_json: bool) -> None:
    """Codes of the outputs of a quantised network, and what they stand for."""
    codes: dict[str, Any] = dict(loaded.run(inputs_of_codes(loaded, inputs)))
    with replacing(output) as file:
        np.savez(file, **codes)
    if as_json:
        write_json({"output": output, "results": results_on_codes(loaded, codes)})
        return
    echo(loaded.report())
    for name, value in codes.items():
        echo(f"{output}: {name} {value.shape} {loaded.scheme(name)}")


def inputs_of_codes(network: IntegerNetwork, file: Path) -> dict[str, Any]:
    """Inputs of a network in a file, which may have other arrays."""
    arrays = inputs_from(file, [*network.graph.inputs])
    return {name: arrays[name] for name in network.graph.inputs if name in arrays}


def inspect_exactly(folder: Path, network: IntegerNetwork, only: Sequence[str], as_json: bool) -> None:
    """Operations, ports and tables of a folder."""
    if unknown := sorted(set(only) - set(PARTS)):
        raise ValueError(f"--only must be one of {', '.join(PARTS)} for a network on codes, not {', '.join(unknown)}")
    facts = facts_of(network)
    if as_json:
        write_json({"image": folder, "network": asdict(facts)})
        return
    show_codes(f"{folder}: ", facts, only or PARTS, wide_console())


def show_codes(what: str, facts: IntegerFacts, parts: Sequence[str], console: Console) -> None:
    """Operations, ports and tables of a network on codes, as far as they are among the parts."""
    echo(f"{what}{facts.name} on codes, {len(facts.operations)} operations, {_bytes(facts)}")
    for line in facts.wide_sums:
        echo(f"  {line}")
    for part, table in (("layers", _operations), ("ports", _ports), ("memory", _tables)):
        if part in parts:
            console.print(table(facts))


def report_exactly(network: IntegerNetwork, inputs: Path, page: Path, samples: int) -> None:
    """A page about a network and the codes of all tensors on samples, and the same as JSON."""
    from concord.report.codes import render

    facts_file = check_page(page)
    facts = facts_of(network, {name: values[:samples] for name, values in inputs_of_codes(network, inputs).items()})
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
