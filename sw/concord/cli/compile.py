"""``concord compile``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from concord.cli.common import EXISTING, FOLDER, arrays_of, echo, gathered, readable, show_rates, wide_console
from concord.cli.json_output import flag_facts, json_option, npu_facts, rate_facts, write_json
from concord.cli.options import compile_options
from concord.cli.passes import PassesShown, Watch, passes_options
from concord.cli.selection import SELECTED, selection_options
from concord.cli.status import counted_status
from concord.cli.workers import SHARED, several, workers_options
from concord.spec.blocks import shortages
from concord.spec.compile_options import OPTIONS, CompileOptions

if TYPE_CHECKING:
    from concord.api.compiling import Compilation
    from concord.compiler.calibration.calibration import Inputs
    from concord.frontend.selection import Selection
    from concord.integer import IntegerNetwork

#: Note if no widths keep the budget.
NOT_MET = "nothing keeps the budget: this loses least; --mantissa M is an NPU with wider mantissas"
#: Note about codes of an NPU.
FACTORS = "scales are factors of 16 bits, so a layer may round some codes to the next one; `concord run` counts them"
#: Options of compiling that are those of this command alone, or in front of others; not those of Python alone.
FIRST = [name for name, known in OPTIONS.items() if known.spelling and name not in (*SHARED, *SELECTED)]


@click.command(name="compile")
@click.argument("model", type=EXISTING)
@compile_options(*FIRST)
@click.option("-o", "--output", type=FOLDER, help="Folder to write; by default MODEL without its suffix.")
@json_option
@passes_options
@workers_options
@readable
@selection_options
@gathered(shown=PassesShown)
def compile_model(
    model: Path,
    output: Path | None,
    as_json: bool,
    selection: Selection,
    shown: PassesShown,
    **values: Any,
) -> None:
    """Compile a MODEL, of ONNX or TensorFlow Lite, to a folder.

    With --calibrate, the formats are chosen that do least harm to the results of these samples. Without it, all
    exponents are dynamic, and tables cover the values that are to be expected. With --quick, nothing is compared.

    Without --preset, every preset of the board is tried, and the command says which one it took and why.

    With --mantissa auto, the weights of every layer get as few bits as the budget allows. Unless --board, --config or a
    width says which NPU it is, the NPU may be one with narrower mantissas, too. With --accumulator, the accumulator and
    the exponents of weights are as wide as the network needs.

    --shape, --inputs, --outputs and --fix change the model first: the folder holds what was compiled.

    --workers and --cluster share the runs on the emulator that --calibrate needs; results do not depend on them.

    --verbose, --dump and --check show and check the passes of the compiler. Where formats are chosen among candidates,
    the chosen network is compiled once more for them.

    With --exact the folder holds a quantised network that `concord run`, `inspect` and `report` take. With --preset
    ecp5-85f, or another NPU that scales codes, it holds a program for that as well: its accumulators become codes
    by factors of 16 bits.
    """
    from concord.api.exact import codes_to_compile, compile_exact
    from concord.networks.folder import NETWORK_FOLDER, save_package
    from concord.networks.window_steps import measured_steps

    options = CompileOptions(**values)
    options.check_codes()
    if as_json and (shown.verbose or shown.check):
        raise ValueError("--json must be given without --verbose and --check, which write tables")
    target = output or model.with_suffix("")
    NETWORK_FOLDER.check_place(target)
    codes = samples = None
    if options.exact:
        codes, network = codes_to_compile(model, selection, options)
    if codes is not None and not options.names_npu:
        _without_npu(codes, target, network, shown, as_json)
        return
    watch = Watch(*shown)
    click.get_current_context().call_on_close(watch.show)
    if codes is None:
        compilation, network, samples = _in_blocks(model, selection, options, watch)
    else:
        with watch.observed():
            compilation = compile_exact(codes, options)
    save_package(compilation.compiled.package, target, network)
    steps = None if samples is None else measured_steps(compilation.compiled, samples)
    if as_json:
        facts = _facts(compilation, target, options, steps)
        write_json(facts)
        for line in facts["warnings"]:
            echo(f"warning: {line}", err=True)
        return
    if codes is not None:
        echo(codes.report())
    _show(model, compilation, target, options, shown.verbose)
    if codes is not None:
        echo(
            "scales are factors of 16 bits, so a layer may round some codes to the next one; `concord run` counts them"
        )
    show_rates(compilation.compiled.image, options.link, options.batch, steps)


def _without_npu(codes: IntegerNetwork, folder: Path, model: bytes, shown: PassesShown, as_json: bool) -> None:
    """Writes the folder of a network on codes that no NPU computes."""
    from concord.networks.folder import save_codes
    from concord.report.code_facts import facts_of
    from concord.spec.stored import PROGRAM, TABLES

    wanted = [f"--{name}" for name, value in shown._asdict().items() if value]
    if wanted:
        raise ValueError(f"a network on codes must be given without {', '.join(wanted)} where it has no --preset")
    save_codes(codes, folder, model)
    if as_json:
        write_json({"folder": folder, "network": asdict(facts_of(codes))})
        return
    echo(codes.report())
    echo(f"{folder}: {PROGRAM}, {TABLES}")


def _in_blocks(
    model: Path, selection: Selection, options: CompileOptions, watch: Watch
) -> tuple[Compilation, bytes, Inputs | None]:
    """A network in block floating point, the file of it, and its samples."""
    from concord.api.compiling import CompileRequest, trained_for
    from concord.api.options import input_ranges
    from concord.api.targets import Target, compile_for
    from concord.frameworks import onnx_bytes
    from concord.frontend import import_model
    from concord.frontend.selection import Selection
    from concord.graph.states import states_of, with_states
    from concord.networks.quantised_model import with_pairs
    from concord.networks.samples import labels_of, samples_of

    calibrate, workers, cluster = options.calibrate, options.workers, options.cluster
    options.check(calibrate is not None)
    npu, network = Target.of(options), selection.of(onnx_bytes(model))
    with watch.observed():
        graph = with_states(import_model(network), states_of(options.states))
    if calibrate is None and (workers, cluster) != (None, None):
        raise ValueError("--workers and --cluster must be given with --calibrate: they share its samples")
    samples = labels = None
    if calibrate is not None:
        arrays = arrays_of(calibrate)
        samples = samples_of(graph, arrays)
        labels = labels_of(arrays, graph.inputs, len(next(iter(samples.values()))))
    graph, reference = with_pairs(network, graph, samples, input_ranges(options.ranges, graph))
    trained = trained_for(model if selection == Selection() else None, options)
    engine = click.get_current_context().with_resource(several(workers, cluster))
    plain = options.accumulator_bits() is None and not options.output_formats
    single = samples is None and plain and len(npu.configs) == 1
    try:
        with watch.observed(single):
            request = CompileRequest(graph, options, samples, labels, trained, reference, engine, counted_status)
            compilation = compile_for(request, npu)
    except ValueError:
        if not single:
            watch.refused(graph, npu.configs[0], options.batch)
        raise
    if not single:
        watch.again(compilation.graph, compilation.compiled)
    return compilation, network, samples


def _show(model: Path, compilation: Compilation, target: Path, options: CompileOptions, verbose: bool) -> None:
    """Prints what was chosen for a network and why, its parts, and doubts."""
    from concord.compiler.lowering.assumptions import assumption_table
    from concord.compiler.lowering.layout_copies import copies_text
    from concord.compiler.lowering.states import rounded_states
    from concord.host.bitstreams import no_ready_bitstream
    from concord.networks.host_share import host_lines, share_warnings
    from concord.overflow.trained import evidence_path
    from concord.program.flags import flag_table

    compiled = compilation.compiled
    if compilation.formats is not None:
        wide_console().print(compilation.formats.table())
    if (choice := compilation.mantissas) is not None:
        wide_console().print(choice.table())
        if choice.widths:
            echo(f"chosen: {choice.chosen.label}; {choice.widths}")
        if not choice.met:
            echo(NOT_MET, err=True)
    for line in compilation.compiled.image.metadata.get("equalised", ()):
        echo(f"equalised: {line}")
    for line in compilation.accumulator:
        echo(f"accumulator: {line}")
    streamed = f", streamed residual: {', '.join(compiled.streamed_residuals)}" if compiled.streamed_residuals else ""
    if (measured := compiled.package.quantised_model) is not None:
        echo(f"warning: {measured.text}" if measured.too_large else measured.text, err=measured.too_large)
    for tensor in compiled.inexact if verbose else ():
        echo(f"not exact: {tensor.text}")
    if compiled.assumptions:
        wide_console().print(assumption_table(compiled.assumptions))
    if compiled.flag_diagnostics:
        wide_console().print(flag_table(compiled.flag_diagnostics, "Flags on the calibration data"))
    counts = f"{len(compiled.lowered.layers)} layers, {len(compiled.image.program)} instructions"
    row_tiling = f", {compiled.row_tiling.text}" if compiled.row_tiling else ""
    if options.accumulator_bits() is None and not options.exact and evidence_path(model).exists():
        echo(f"{evidence_path(model).name} says which accumulator it was trained for: --accumulator auto has it")
    if compilation.preset:
        echo(compilation.preset)
    echo(f"{target}: {counts}{streamed}{row_tiling}")
    if kept := compiled.package.arrangement.state_results:
        pairs = ", ".join(f"{name} ({result} of the run before)" for name, result in kept.items())
        echo(f"stays on the NPU, zero in the first run: {pairs}")
    if rounded := rounded_states(compiled.lowered):
        echo(f"rounded as in front of a product when it is written: {', '.join(rounded)}")
    if compilation.share:
        echo(compilation.share)
    for line in host_lines(compiled):
        echo(line)
    for line in (*share_warnings(compiled), *compiled.package.doubts):
        echo(f"warning: {line}", err=True)
    if copies := copies_text(compiled.lowered):
        echo(copies)
    if (expected := compiled.package.expected_error) is not None:
        echo(expected.text)
        for line in expected.warnings[1:]:
            echo(f"warning: {line}", err=True)
    for line in shortages(compiled.image.config):
        echo(line, err=True)
    if line := no_ready_bitstream(compiled.image.config, options.link, target):
        echo(line, err=True)


def _facts(compilation: Compilation, folder: Path, options: CompileOptions, steps: Any) -> dict[str, Any]:
    """Record that the command writes with ``--json``."""
    from concord.compiler.codes.package import CodesPackage
    from concord.host.bitstreams import no_ready_bitstream
    from concord.host.copied_weights import copied_weights
    from concord.host.rates import rates_by_link
    from concord.networks.host_share import share_warnings
    from concord.report.code_facts import facts_of

    compiled, package, choice = compilation.compiled, compilation.compiled.package, compilation.mantissas
    not_met = [] if choice is None or choice.met else [NOT_MET]
    lines = (*shortages(package.config), no_ready_bitstream(package.config, options.link, folder))
    codes = {"network": asdict(facts_of(package.network))} if isinstance(package, CodesPackage) else {}
    return codes | {
        "folder": folder,
        "npu": npu_facts(package.config),
        "preset": compilation.preset,
        "share": compilation.share,
        "inputs": package.input_shapes,
        "outputs": package.output_shapes,
        "layers": len(compiled.lowered.layers),
        "instructions": len(compiled.image.program),
        "mantissas": None if choice is None else choice.chosen.label,
        "expected_error": None if package.expected_error is None else package.expected_error.to_dict(),
        "flags": flag_facts(compiled.flag_diagnostics),
        "host": package.host_operations,
        "copied_weights": asdict(copied_weights(compiled.image)),
        "rates": rate_facts(rates_by_link(compiled.image, options.batch, steps, options.link)),
        "warnings": [*share_warnings(compiled), *compiled.warnings, *filter(None, lines), *not_met],
    }
