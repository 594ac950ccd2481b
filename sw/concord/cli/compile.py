"""``concord compile``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from concord.cli.common import (
    BOARD,
    EXISTING,
    FOLDER,
    POSITIVE,
    PRESET,
    arrays_of,
    echo,
    link_option,
    readable,
    show_rates,
    wide_console,
)
from concord.cli.passes import Watch, passes_options
from concord.cli.selection import selection_options
from concord.cli.status import counted_status
from concord.cli.workers import several, workers_options
from concord.spec.blocks import shortages
from concord.spec.boards import DEFAULT_BOARD
from concord.spec.formats import ACT_MANT_MAX, MANT_MIN
from concord.spec.partition import PARTITIONS

if TYPE_CHECKING:
    from concord.frontend.selection import Selection

#: What there is to say if no widths keep the budget.
NOT_MET = "nothing keeps the budget: this loses least; --mantissa M is an NPU with wider mantissas"


@click.command(name="compile")
@click.argument("model", type=EXISTING)
@click.option(
    "--board",
    type=BOARD,
    help=f"Compile for this board, by default {DEFAULT_BOARD}: for that of its presets with which a user gets most "
    "samples per second over its link.",
)
@click.option(
    "--preset", type=PRESET, help="Compile for this configuration; with --board it must be one of the board's."
)
@click.option(
    "--config",
    "config_file",
    type=EXISTING,
    help="Compile for the configuration in this file, as `concord fit -o` writes it.",
)
@link_option
@click.option(
    "--calibrate", type=EXISTING, help="npz file with an array for every input; the first axis counts samples."
)
@click.option(
    "--quick",
    is_flag=True,
    help="With --calibrate: take from the samples what they say without a search. Tables, biases and what is taken off "
    "inputs follow them; other formats are not tried.",
)
@click.option(
    "--mantissa",
    "mantissas",
    multiple=True,
    metavar="M|LAYER=M|auto",
    help=f"M: use an NPU whose mantissas have M bits ({MANT_MIN} to {ACT_MANT_MAX}). "
    "LAYER=M: round the weights of this layer to M bits. "
    "auto: choose the widths that take the least memory and keep the budget on the calibration data. "
    "The option can be repeated.",
)
@click.option(
    "--budget",
    help="What --mantissa auto may lose: points of accuracy if the data has labels y, points of agreement with "
    "floating point if the result is a class, or a relative error such as 5%. The default is 0.5 points, or 5% if the "
    "result is no class.",
)
@click.option(
    "--input-range",
    "ranges",
    multiple=True,
    metavar="LOW,HIGH|NAME=LOW,HIGH",
    help="Range of an input's values, where there are no calibration data. The default is what the data type or the "
    "codes of the input allow; floats are taken for standard normal within -8 and 8. The option can be repeated.",
)
@click.option(
    "--accumulator",
    metavar="full|auto|BITS",
    help="full (the default): the accumulator holds every possible sum. auto: it holds what the calibration data need "
    "and --guard bits more, or what the largest possible sum needs if that is less; a network that was trained for an "
    "accumulator gets that one. BITS: it has this many bits. A sum that does not fit raises ACC_OVERFLOW; all sums of "
    "the calibration data must fit.",
)
@click.option(
    "--guard",
    type=click.IntRange(0, 32),
    help="Bits that --accumulator auto adds to what the samples need; 6 by default.",
)
@click.option(
    "--batch",
    default=1,
    show_default=True,
    type=POSITIVE,
    help="Samples per run; above 1 only for networks of matrix products.",
)
@click.option(
    "--output-format",
    "output_formats",
    multiple=True,
    metavar="FORMAT|NAME=FORMAT",
    help="binary16 (the default): outputs leave the NPU as floating-point numbers. narrow: they leave as mantissas "
    "with an exponent per vector, in about half the bytes. The format holds for all outputs, or for the one with this "
    "NAME. The option can be repeated.",
)
@click.option(
    "--partition",
    type=click.Choice(PARTITIONS),
    default="ends",
    show_default=True,
    help="What the host may compute where no instruction does: nothing; ends, what has no product in front of "
    "it or none behind it, such as an embedding or ArgMax; or any, which is also for what does not fit.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="INPUT=OUTPUT",
    help="The NPU keeps this input between runs: it begins with zeros, and is this output of the run before then. For "
    "the state of a recurrent cell, or the keys and values of a decoder. The option can be repeated.",
)
@click.option("-o", "--output", type=FOLDER, help="Folder to write; by default MODEL without its suffix.")
@click.option(
    "--exact",
    is_flag=True,
    help="Compile a quantised network as it is, on its codes alone: a program in integers, and the tables of its "
    "functions in a file beside it; with --preset or --config also a program for an NPU that computes on codes. "
    "Beside these, only --output and the part of the model can be chosen.",
)
@passes_options
@workers_options
@readable
@selection_options
def compile_model(
    model: Path,
    board: str | None,
    preset: str | None,
    config_file: Path | None,
    link: str | None,
    calibrate: Path | None,
    quick: bool,
    mantissas: tuple[str, ...],
    budget: str | None,
    ranges: tuple[str, ...],
    accumulator: str | None,
    guard: int | None,
    batch: int,
    output_formats: tuple[str, ...],
    partition: str,
    states: tuple[str, ...],
    output: Path | None,
    exact: bool,
    selection: Selection,
    verbose: bool,
    dump: Path | None,
    check: bool,
    workers: int | None,
    cluster: str | None,
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
    ecp5-85f-int8, or another NPU with code_scaling, it holds a program for that as well: its accumulators become codes
    by factors of 16 bits.
    """
    from concord.api.compiling import CompileRequest, trained_for
    from concord.api.options import Options, Widths
    from concord.api.targets import Target, compile_for
    from concord.compiler.lowering.assumptions import assumption_table
    from concord.compiler.lowering.layout_copies import copies_text
    from concord.compiler.lowering.states import rounded_states
    from concord.frameworks import onnx_bytes
    from concord.frontend import import_model
    from concord.frontend.selection import Selection
    from concord.graph.states import states_of, with_states
    from concord.networks.folder import NETWORK_FOLDER, save_package
    from concord.networks.host_share import host_lines
    from concord.networks.quantised_model import with_pairs
    from concord.networks.samples import labels_of, samples_of
    from concord.networks.window_steps import measured_steps
    from concord.overflow.trained import evidence_path
    from concord.program.flags import flag_table
    from concord.utils.foreign import tflite_contents

    if exact:
        from concord.cli.exact import check_options, compile_codes_for, compile_exactly

        parts = () if tflite_contents(model) is not None else ("--shape", "--inputs", "--outputs", "--fix")
        check_options(("--exact", "--output", "--board", "--preset", "--config", "--link", *parts))
        part, folder = model if selection == Selection() else selection.of(onnx_bytes(model)), output
        folder = folder or model.with_suffix("")
        if (preset, config_file) != (None, None):
            compile_codes_for(part, folder, Target.of(board, preset, config_file, link).configs[0], link)
        elif (board, link) != (None, None):
            raise ValueError("--exact must be given with --preset or --config for a --board and a --link")
        else:
            compile_exactly(part, folder)
        return
    free = board is None and config_file is None
    options = Options(
        Widths.parse(mantissas), budget, free, ranges, accumulator, guard, batch, output_formats, quick, partition
    )
    options.check(calibrate is not None)
    npu, target = Target.of(board, preset, config_file, link), output or model.with_suffix("")
    NETWORK_FOLDER.check_place(target)
    network, watch = selection.of(onnx_bytes(model)), Watch(verbose, dump, check)
    click.get_current_context().call_on_close(watch.show)
    with watch.observed():
        graph = with_states(import_model(network), states_of(states))
    if calibrate is None and (workers, cluster) != (None, None):
        raise ValueError("--workers and --cluster must be given with --calibrate: they share its samples")
    samples = labels = None
    if calibrate is not None:
        arrays = arrays_of(calibrate)
        samples = samples_of(graph, arrays)
        labels = labels_of(arrays, graph.inputs, len(next(iter(samples.values()))))
    graph, reference = with_pairs(network, graph, samples, options.input_ranges(graph))
    trained = trained_for(model if selection == Selection() else None, options)
    engine = click.get_current_context().with_resource(several(workers, cluster))
    single = samples is None and accumulator in (None, "full") and not output_formats and len(npu.configs) == 1
    try:
        with watch.observed(single):
            request = CompileRequest(graph, options, samples, labels, trained, reference, engine, counted_status)
            compilation = compile_for(request, npu)
    except ValueError:
        if not single:
            watch.refused(graph, npu.configs[0], batch)
        raise
    compiled = compilation.compiled
    if not single:
        watch.again(compilation.graph, compiled)
    save_package(compiled.package, target, network)
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
    if options.accumulator_bits() is None and evidence_path(model).exists():
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
    for line in compiled.package.jumps:
        echo(f"warning: {line}", err=True)
    if copies := copies_text(compiled.lowered):
        echo(copies)
    if (expected := compiled.package.expected_error) is not None:
        echo(expected.text)
        for line in expected.warnings[1:]:
            echo(f"warning: {line}", err=True)
    for line in shortages(compiled.image.config):
        echo(line, err=True)
    steps = None if samples is None else measured_steps(compiled, samples)
    show_rates(compiled.image, link, batch, steps)
