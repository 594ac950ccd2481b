"""``concord report``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click

from concord.cli.common import (
    FILE,
    POSITIVE,
    TerminalConsole,
    arrays_of,
    check_page,
    echo,
    readable,
    samples_input,
    wide_console,
)
from concord.cli.options import CodesOptions, compile_options
from concord.utils.files import write_text


@click.command()
@click.argument("network", type=click.Path(exists=True, file_okay=False, path_type=Path))
@samples_input
@click.option(
    "-o", "--output", type=FILE, help="HTML page to write, with JSON beside it; by default report.html in NETWORK."
)
@click.option(
    "--on",
    default="emulator",
    show_default=True,
    type=click.Choice(["emulator", "rtl"]),
    help="Where to run; the RTL also shows that bits and cycles are its own.",
)
@compile_options("link")
@click.option("--samples", default=32, show_default=True, type=POSITIVE, help="Number of samples to use.")
@readable
def report(network: Path, inputs: Path, output: Path | None, on: str, link: str | None, samples: int) -> None:
    """Write a report about every layer of a compiled NETWORK: formats, errors, saturation, cycles, memory.

    The report is one HTML page that needs no other file, and the same facts as JSON. Of a network that was compiled
    with --exact it is also about operations, tables with their sites, and the codes that the samples have.
    """
    page = output or network / "report.html"
    from concord.cli.exact import check_options, codes_at, report_exactly

    if (on_codes := codes_at(network, CodesOptions(False, None))) is not None:
        check_options(("--input", "--output", "--samples"))
        report_exactly(on_codes, inputs, page, samples)
        return
    from concord.cli.type_table import type_table
    from concord.compiler.codes.package import CodesPackage
    from concord.display.terminal import counted
    from concord.host import connect
    from concord.networks.folder import recompile
    from concord.networks.samples import inputs_of
    from concord.report import analyse, render
    from concord.report.code_facts import facts_of

    facts = check_page(page)
    compiled = recompile(network)
    arrays = {
        name: values[:samples]
        for name, values in inputs_of([*compiled.package.input_shapes], arrays_of(inputs)).items()
    }
    with TerminalConsole(stderr=True).status("running the network up to every layer"):
        with connect(on, compiled.image.config) if on == "rtl" else nullcontext() as device:
            analysis = analyse(compiled, arrays, device, link)
    analysis = replace(analysis, name=network.resolve().name)
    if isinstance(compiled.package, CodesPackage):
        analysis = replace(analysis, codes=facts_of(compiled.package.network, arrays))
    write_text(page, render(analysis))
    write_text(facts, analysis.to_json())
    for line in analysis.input_flags:
        echo(line, err=True)
    echo(f"{page}, {facts.name}: {len(analysis.layers)} layers, {analysis.summary}")
    if analysis.expected_error:
        echo(f"when it was compiled, {analysis.expected_error}")
    samples_of = counted(analysis.batch, "samples")
    wide_console().print(type_table(analysis.types, f" of the layers, bytes of {samples_of}"))
