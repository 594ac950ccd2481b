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
from concord.cli.exact import check_options, results_on_codes, run_exactly
from concord.cli.json_output import array_facts, comparison_facts, flag_facts, json_option, write_json
from concord.cli.options import CodesOptions, check_exact, compile_options, rounding_option
from concord.cli.workers import SharingOptions, several, workers_options
from concord.host import Device, LinkedDevice
from concord.host.measured import LinkComparison, compared_run
from concord.host.progress import run_batch, sample_bar
from concord.host.shared import emulator
from concord.host.tensors import check_batch
from concord.integer.folder import is_integer_folder
from concord.integer.npu.folder import is_codes_folder, load_codes
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
@rounding_option
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
    if is_codes_folder(network) and not codes.exact:
        check_options(("--input", "--output", "--on", "--link", "--json"))
        check_link(*place)
        _run_codes(network, inputs, output, place, as_json)
        return
    if codes.exact or is_integer_folder(network):
        check_options(("--exact", "--input", "--output", "--rounding", "--json"))
        run_exactly(network, inputs, output, codes.rounding, as_json)
        return
    check_exact(codes.rounding)
    loaded, package = load(network)
    by_input = inputs_from(
        inputs, [port.name for port in loaded.inputs] if package is None else [*package.input_shapes]
    )
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
            device.load(loaded)
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
    if as_json:
        write_json(_facts(output, records, array_facts(arrays), comparison))
        return
    echo(f"{output}: {', '.join(f'{name} {value.shape}' for name, value in arrays.items())}")
    _show_flags(records)


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


def _run_codes(folder: Path, inputs: Path, output: Path, place: RunPlace, as_json: bool) -> None:
    """Codes of the outputs of a network on an NPU, and how many are others than those of the network as it is."""
    codes = load_codes(folder)
    arrays = inputs_from(inputs, [*codes.network.graph.inputs])
    batch = {name: arrays[name] for name in codes.network.graph.inputs if name in arrays}
    with connected(place.on, codes.image.config, place.link, folder, codes.network.graph.name) as device:
        device.load(codes.image)
        ports = codes.pack(batch)
        computed, comparison = _run(device, ports, codes.arrangement.batch)
        results = codes.finish(batch, computed)
        records = diagnose_flags(codes.image, device.flags())
    saved: dict[str, Any] = dict(results)
    with replacing(output) as file:
        np.savez(file, **saved)
    exact = codes.network.run(batch)
    apart = {name: np.abs(value.astype(np.int64) - exact[name].astype(np.int64)) for name, value in results.items()}
    if as_json:
        facts = results_on_codes(codes.network, results)
        for name, steps in apart.items():
            facts[name] |= {"different": np.count_nonzero(steps), "most": steps.max(initial=0)}
        write_json(_facts(output, records, facts, comparison))
        return
    _show_line(device, comparison)
    for name, value in results.items():
        steps = apart[name]
        differ = f"{np.count_nonzero(steps)} of {steps.size} codes are others than with the scales of the network"
        most = f", by at most {steps.max()}" if steps.any() else ""
        echo(f"{output}: {name} {value.shape} {codes.network.scheme(name)}; {differ}{most}")
    _show_flags(records)


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
