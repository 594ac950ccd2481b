"""The command that runs a compiled network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import numpy as np

from concord.cli.common import (
    FILE,
    THING,
    TerminalConsole,
    check_link,
    check_npz,
    connected,
    echo,
    gathered,
    inputs_from,
    on_option,
    readable,
    samples_input,
    wide_console,
)
from concord.cli.exact import check_options, codes_at, differences, inputs_of_codes, results_on_codes, run_exactly
from concord.cli.json_output import array_facts, comparison_facts, flag_facts, json_option, write_json
from concord.cli.options import CodesOptions, compile_options
from concord.cli.workers import SharingOptions, several, workers_options
from concord.compiler.codes.package import CodesPackage
from concord.host import Device, LinkedDevice
from concord.host.measured import LinkComparison, compared_run
from concord.host.progress import load as load_image
from concord.host.progress import run_batch, sample_bar
from concord.host.shared import emulator
from concord.host.tensors import check_batch
from concord.networks.folder import load
from concord.program.flags import FlagDiagnostic, diagnose_flags, flag_table, not_finite
from concord.spec.boards import links_of
from concord.utils.files import replacing

#: Exit status of ``concord run --strict`` when flags were raised.
STRICT_STATUS = 3


class RunPlace(NamedTuple):
    """``--on``, and ``--link`` or ``None``."""

    on: str
    link: str | None


@click.command()
@click.argument("network", type=THING)
@samples_input
@click.option("-o", "--output", type=FILE, required=True, help="npz file for the results.")
@on_option
@compile_options("link")
@click.option(
    "--strict", is_flag=True, help=f"If a flag is raised, write no results and exit with status {STRICT_STATUS}."
)
@click.option(
    "--exact", is_flag=True, help="Run a quantised network, of ONNX or TensorFlow Lite, as it is: on its codes alone."
)
@compile_options("rounding")
@json_option
@workers_options
@readable
@gathered(place=RunPlace, codes=CodesOptions, sharing=SharingOptions)
def run(
    network: Path,
    inputs: Path,
    output: Path,
    place: RunPlace,
    strict: bool,
    codes: CodesOptions,
    as_json: bool,
    sharing: SharingOptions,
) -> None:
    """Run a compiled NETWORK, or an image, on a batch of inputs.

    On RTL behind a --link, and on a device, it shows what the batch took, beside what is estimated: samples per
    second, the time of a sample alone, bytes, and what limits.

    Ends with the flags that were raised: inputs unlike what the network was compiled for, where values were cut off or
    overflowed, and what helps.

    With --exact, NETWORK is the ONNX file of a quantised network, or its TensorFlow Lite file. No NPU is run: results
    are codes, rounded by the rule of --rounding.
    A folder that `concord compile --exact` has written runs the same way; one with a program for an NPU runs there,
    and without an NPU if --exact is given.
    """
    check_npz(output)
    if (on_codes := codes_at(network, codes)) is not None:
        check_options(("--exact", "--input", "--output", "--rounding", "--json"))
        run_exactly(on_codes, inputs, output, as_json)
        return
    loaded, package = load(network)
    if isinstance(package, CodesPackage):
        by_input = inputs_of_codes(package.network, inputs)
    else:
        names = [port.name for port in loaded.inputs] if package is None else [*package.input_shapes]
        by_input = inputs_from(inputs, names)
    ports = by_input if package is None else package.pack(by_input)
    batch = check_batch(loaded.inputs, ports)[0]
    records = [] if package is None else package.input_flags(by_input)
    if strict and records:
        _refuse(records, output, as_json)
    if place.on != "emulator" and sharing != SharingOptions():
        raise ValueError(f"--workers and --cluster must be given with --on emulator, not {place.on!r}")
    check_link(*place)
    with several(*sharing) as engine:
        alone = connected(place.on, loaded.config, place.link, network)
        with alone if engine is None else emulator(loaded.config, engine) as device:
            load_image(device, loaded, TerminalConsole(stderr=True))
            results, comparison = _run(device, batch, 1 if package is None else package.arrangement.batch)
            flags = device.flags()
        records += diagnose_flags(loaded, flags)
    if not as_json:
        _show_line(device, comparison)
    if package is not None:
        records += package.host_flags(by_input, results)
        results = package.finish(by_input, results)
    records += not_finite(results)
    if strict and records:
        _refuse(records, output, as_json)
    arrays: dict[str, Any] = results if package is None else package.typed(results)
    with replacing(output) as file:
        np.savez(file, **arrays)
    apart = differences(package, by_input, arrays) if isinstance(package, CodesPackage) else {}
    if as_json:
        known = results_on_codes(package.network, arrays) if isinstance(package, CodesPackage) else array_facts(arrays)
        for name, steps in apart.items():
            known[name] |= {"different": np.count_nonzero(steps), "most": steps.max(initial=0)}
        write_json(_facts(output, records, known, comparison))
        return
    if isinstance(package, CodesPackage):
        _show_codes(output, package, arrays, apart)
    else:
        echo(f"{output}: {', '.join(f'{name} {value.shape}' for name, value in arrays.items())}")
    _show_flags(records)


def _show_codes(output: Path, package: CodesPackage, codes: Mapping[str, Any], apart: Mapping[str, Any]) -> None:
    """Codes of an NPU, and how many are others than those of the network as it is."""
    for name, value in codes.items():
        steps = apart[name]
        differ = f"{np.count_nonzero(steps)} of {steps.size} codes are others than with the scales of the network"
        most = f", by at most {steps.max()}" if steps.any() else ""
        echo(f"{output}: {name} {value.shape} {package.network.scheme(name)}; {differ}{most}")


def _facts(
    output: Path | None,
    records: list[FlagDiagnostic],
    results: Mapping[str, Any],
    comparison: LinkComparison | None = None,
) -> dict[str, Any]:
    """Record that the command writes with ``--json``; ``output`` is ``None`` if nothing was written."""
    return {
        "output": output,
        "results": results,
        "flags": flag_facts(records),
        "measured": comparison_facts(comparison),
    }


def _show_flags(records: list[FlagDiagnostic]) -> None:
    if records:
        wide_console().print(flag_table(records))
    else:
        echo("no flags were raised")


def _run(device: Device, batch: Mapping[str, Any], samples: int) -> tuple[dict[str, Any], LinkComparison | None]:
    """The results of a batch, ``samples`` a run; over a link also what it took, beside what is estimated."""
    console = TerminalConsole(stderr=True)
    if not isinstance(device, LinkedDevice):
        return run_batch(device, batch, console), None
    with sample_bar(device, batch, console):
        results, comparison = compared_run(device, batch, samples)
    return dict(results), comparison


def _show_line(device: Device, comparison: LinkComparison | None) -> None:
    """Prints the route of the inputs to a device at a link, and the times of the batch."""
    if not isinstance(device, LinkedDevice):
        return
    echo(f"inputs travelled {device.input_route}")
    if comparison is not None:
        wide_console().print(comparison.table())
    elif device.carrier is None:
        names = ", ".join(link.name for link in links_of(device.config.board))
        echo(f"bytes took no time: --link simulates a line and measures it ({names})")


def _refuse(records: list[FlagDiagnostic], output: Path, as_json: bool) -> NoReturn:
    """End with the flags, and nothing written."""
    if as_json:
        write_json(_facts(None, records, {}))
    else:
        wide_console().print(flag_table(records))
    echo(f"{output}: not written, for flags were raised and --strict was given", err=True)
    raise click.exceptions.Exit(STRICT_STATUS)
