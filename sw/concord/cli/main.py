"""The ``concord`` command."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np
from rich import box
from rich.table import Table

from concord import __version__
from concord.cli.common import (
    EXISTING,
    FILE,
    FOLDER,
    POSITIVE,
    THING,
    TerminalConsole,
    echo,
    inputs_from,
    npu,
    readable,
    text_of,
    text_output,
    wide_console,
)
from concord.cli.compile import compile_model
from concord.cli.data import data
from concord.cli.derive import derive
from concord.cli.evidence import training_evidence
from concord.cli.fit import fit
from concord.cli.gates import gates
from concord.cli.inspect import inspect
from concord.cli.overflow import overflow
from concord.cli.prove import prove
from concord.cli.report import report
from concord.cli.train import train
from concord.cli.workers import several, workers_options
from concord.host import LinkedDevice, connect
from concord.host.progress import run_batch
from concord.host.shared import emulator
from concord.host.tensors import check_batch
from concord.networks.folder import load_image, load_package
from concord.program.assembler import assemble, disassemble
from concord.program.flags import FlagDiagnostic, diagnose_flags, flag_table, not_finite
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import PRESETS
from concord.utils.files import check_place, replacing, write_text
from concord.utils.terminal import printable

#: Exit status of ``concord run --strict`` when flags were raised.
STRICT_STATUS = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="concord")
@click.pass_context
def main(context: click.Context) -> None:
    """Block-floating-point neural networks that agree to the last bit: emulator, RTL and bitstream."""
    context.with_resource(warnings.catch_warnings())
    warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """The text alone: where in the code it comes from tells a user nothing."""
    echo(f"warning: {printable(str(message))}", err=True)


main.add_command(compile_model)
main.add_command(data)
main.add_command(derive)
main.add_command(fit)
main.add_command(inspect)
main.add_command(gates)
main.add_command(overflow)
main.add_command(prove)
main.add_command(report)
main.add_command(train)
main.add_command(training_evidence)


@main.command()
def presets() -> None:
    """List the named configurations."""
    table = Table(
        title="Presets (N native, L lanes, T engines, MACs per cycle; memories in KiB)",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("preset", no_wrap=True)
    for column in ("N", "L", "T", "MACs", "matrix", "narrow", "wide", "MHz", "fingerprint"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, config in PRESETS.items():
        memories = [regions(config)[region] for region in (RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE)]
        table.add_row(
            name,
            *map(str, (config.native, config.lanes, config.engines, config.macs)),
            *(f"{memory.word.width * memory.depth / 8192:.1f}" for memory in memories),
            f"{config.clock_hz / 1e6:g}",
            f"{config.fingerprint:016x}",
        )
    TerminalConsole().print(table)


@main.command()
@click.argument("file", type=EXISTING)
@text_output
@readable
def asm(file: Path, output: Path | None) -> None:
    """Assemble FILE to words in hexadecimal, one per line."""
    _emit("".join(f"{word:016x}\n" for word in assemble(text_of(file))), output)


@main.command()
@click.argument("file", type=THING)
@text_output
@readable
def disasm(file: Path, output: Path | None) -> None:
    """Disassemble FILE.

    FILE is an image, a compiled network, or words in hexadecimal as `concord asm` writes them.
    """
    _emit(disassemble(_words(file)), output)


def _words(file: Path) -> list[int]:
    if file.is_dir() or zipfile.is_zipfile(file):
        return list(load_image(file).program)
    words = []
    for number, line in enumerate(text_of(file).split(), 1):
        try:
            words.append(int(line, 16))
        except ValueError:
            raise ValueError(f"{file}: word {number} must be hexadecimal, not {line!r}") from None
    return words


def _emit(text: str, output: Path | None) -> None:
    if output is None:
        echo(text, nl=False)
    else:
        write_text(output, text)


@main.command()
@click.argument("network", type=THING)
@click.option(
    "-i", "--input", "inputs", type=EXISTING, required=True, help="npz file with a batch of samples for every input."
)
@click.option("-o", "--output", type=FILE, required=True, help="npz file for the results.")
@click.option(
    "--on", default="emulator", show_default=True, help="Where to run: emulator, rtl, or the name of a serial port."
)
@click.option(
    "--strict", is_flag=True, help=f"If a flag is raised, write no results and exit with status {STRICT_STATUS}."
)
@workers_options
@readable
def run(
    network: Path, inputs: Path, output: Path, on: str, strict: bool, workers: int | None, cluster: str | None
) -> None:
    """Run a compiled NETWORK, or an image, on a batch of inputs.

    Ends with the flags that were raised: inputs unlike what the network was compiled for, where values were cut off or
    overflowed, and what helps.
    """
    if output.suffix != ".npz":
        raise ValueError(f"output must be an npz file and end in .npz, not {str(output)!r}")
    check_place(output)
    package = load_package(network) if network.is_dir() else None
    loaded = package.image if package is not None else load_image(network)
    given = inputs_from(inputs, [port.name for port in loaded.inputs])
    ports = given if package is None else package.arrangement.pack(given)
    batch = check_batch(loaded.inputs, ports)[0]
    records = [] if package is None else package.input_flags(given)
    if strict and records:
        _refuse(records, output)
    if on != "emulator" and (workers, cluster) != (None, None):
        raise ValueError(f"--workers and --cluster must be given with --on emulator, not {on!r}")
    with several(workers, cluster) as engine:
        with connect(on, loaded.config) if engine is None else emulator(loaded.config, engine) as device:
            device.load(loaded)
            results = run_batch(device, batch, TerminalConsole(stderr=True))
            if isinstance(device, LinkedDevice):
                echo(f"inputs travelled {device.input_route}")
            flags = device.flags()
        records += diagnose_flags(loaded, flags)
    if package is not None:
        records += package.host_flags(given, results)
        results = package.finish(given, results)
    records += not_finite(results)
    if strict and records:
        _refuse(records, output)
    arrays: dict[str, Any] = results
    with replacing(output) as file:
        np.savez(file, **arrays)
    echo(f"{output}: {', '.join(f'{name} {value.shape}' for name, value in results.items())}")
    if records:
        wide_console().print(flag_table(records))
    else:
        echo("no flags were raised")


def _refuse(records: list[FlagDiagnostic], output: Path) -> NoReturn:
    """End with the flags, and nothing written."""
    wide_console().print(flag_table(records))
    echo(f"{output}: not written, for flags were raised and --strict was given", err=True)
    raise click.exceptions.Exit(STRICT_STATUS)


@main.command()
@npu
@click.option("--output", default=Path("build/demo"), show_default=True, type=FOLDER, help="Folder for the results.")
@click.option("--images", default=64, show_default=True, type=POSITIVE, help="Number of images to run on the RTL.")
@readable
def demo(preset: str, output: Path, images: int) -> None:
    """Train and compile a network, and compare emulator and RTL.

    They are compared to the last bit, and the command fails if they differ.
    """
    from concord.demo.run import run_demo

    if not run_demo(PRESETS[preset], output, images, TerminalConsole()):
        raise click.exceptions.Exit(1)


@main.command(name="train-demo")
@npu
@click.option(
    "--output", default=Path("build/train-demo"), show_default=True, type=FOLDER, help="Folder for the results."
)
@click.option("--images", type=POSITIVE, help="Number of test images to run on the RTL; all by default.")
@readable
def train_demo(preset: str, output: Path, images: int | None) -> None:
    """Train a network in block floating point, compile it, and classify on emulator and RTL.

    They are compared to the last bit, and the command fails if they differ.
    """
    from concord.demo.training import run_training_demo

    if not run_training_demo(PRESETS[preset], output, images, TerminalConsole()).comparison.passed:
        raise click.exceptions.Exit(1)


@main.command()
@npu
@click.option(
    "--output", default=Path("build/bench.json"), show_default=True, type=FILE, help="JSON file for the figures."
)
@click.option("--docs", type=FILE, help="Also write the figures as a page of the documentation.")
@click.option(
    "--only",
    multiple=True,
    metavar="PART",
    help="Measure only this part, such as networks or widths. The option can be repeated.",
)
@click.option("--log", type=FILE, help="Also put the figures into a log with a line for every version.")
@click.option("--picture", type=FILE, help="Also draw the figures of all versions in the log (PNG).")
@readable
def bench(
    preset: str, output: Path, docs: Path | None, only: tuple[str, ...], log: Path | None, picture: Path | None
) -> None:
    """Measure cycles, speed and sizes.

    These are the figures of the documentation, and take a few minutes.
    """
    from concord.bench import PARTS, Results, measure, releases

    if unknown := sorted(set(only) - set(PARTS)):
        raise ValueError(f"parts must be among {', '.join(PARTS)}, not {', '.join(unknown)}")
    if docs is not None and only:
        raise ValueError("--docs must be given without --only, for the page has all parts")
    if picture is not None and log is None:
        raise ValueError("--picture must be given with --log, as it shows what is in it")
    console = wide_console()
    results = Results(f"Preset {preset}, cycles from the counters of the simulated RTL")
    with console.status("measuring") as status:
        measure(PRESETS[preset], results, lambda what: status.update(f"measuring: {what}"), only or PARTS)
    results.save(output)
    page = results.markdown()
    if log is not None:
        known = releases.log(log, releases.of_results(results, preset))
        page += "\n" + releases.section(known, picture and Path(os.path.relpath(picture, (docs or log).parent)))
        if picture is not None:
            releases.draw(known, picture)
    if docs is not None:
        write_text(docs, page)
    results.show(console)
    console.print(f"written to {output}", soft_wrap=True)
