"""``concord compile``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from concord.cli.common import EXISTING, FOLDER, POSITIVE, arrays_of, npu, readable, wide_console
from concord.cli.passes import Watch, passes_options
from concord.cli.workers import several, workers_options
from concord.spec.boards import BOARD_PRESETS
from concord.spec.formats import ACT_MANT_MAX, MANT_MIN
from concord.spec.presets import PRESETS

#: What there is to say if no widths keep the budget.
NOT_MET = "nothing keeps the budget: this loses least; --mantissa M is an NPU with wider mantissas"


@click.command(name="compile")
@click.argument("model", type=EXISTING)
@npu
@click.option("--board", type=click.Choice(list(BOARD_PRESETS)), help="The NPU of this board, instead of --preset.")
@click.option("--calibrate", type=EXISTING, help="npz file: an array per input, samples along the first axis.")
@click.option(
    "--mantissa",
    "mantissas",
    multiple=True,
    metavar="M|LAYER=M|auto",
    help=f"M: an NPU whose mantissas have M bits, {MANT_MIN} to {ACT_MANT_MAX}. "
    "LAYER=M: round the weights of a layer to M bits. "
    "auto: the least memory within the budget on the calibration data. Repeatable.",
)
@click.option(
    "--budget",
    help="For auto: points of accuracy, if the data has labels y, or of agreement that may be lost, or a relative "
    "error. Default: 0.5, or 5% if the result is no class.",
)
@click.option(
    "--input-range",
    "ranges",
    multiple=True,
    metavar="LOW,HIGH|NAME=LOW,HIGH",
    help="Without --calibrate: values that an input has. Default: what its data type or its codes allow; of floats "
    "standard normal within -8,8. Repeatable.",
)
@click.option(
    "--accumulator",
    metavar="full|auto|BITS",
    help="full: no sum can leave it (default). auto: an NPU like it whose accumulator has what the calibration data "
    "need and --guard bits more, or what no input can exceed, if that is less; of a network that was trained for one, "
    "that one. BITS: so many bits. Sums that do not "
    "fit raise ACC_OVERFLOW; of the calibration data all do.",
)
@click.option("--guard", type=click.IntRange(0, 32), help="For auto: bits above what the samples need. Default: 6.")
@click.option("--batch", default=1, show_default=True, type=POSITIVE, help="Samples per run (products only).")
@click.option(
    "--output-format",
    "output_formats",
    multiple=True,
    metavar="FORMAT|NAME=FORMAT",
    help="binary16: outputs leave the NPU as they are, the default. narrow: as mantissas with an exponent per vector,"
    " as activations do, in about half the bytes. Of all outputs, or of the one with this name. Repeatable.",
)
@click.option("-o", "--output", type=FOLDER, help="Folder to write; default: MODEL without its suffix.")
@passes_options
@workers_options
@readable
def compile_model(
    model: Path,
    preset: str,
    board: str | None,
    calibrate: Path | None,
    mantissas: tuple[str, ...],
    budget: str | None,
    ranges: tuple[str, ...],
    accumulator: str | None,
    guard: int | None,
    batch: int,
    output_formats: tuple[str, ...],
    output: Path | None,
    verbose: bool,
    dump: Path | None,
    check: bool,
    workers: int | None,
    cluster: str | None,
) -> None:
    """Compile an ONNX MODEL to a folder.

    With --calibrate, formats are chosen by what they do to these samples; without, all exponents are dynamic, and
    tables cover what is to be expected for the values of the inputs. With
    --mantissa auto as well, the weights of every layer are as narrow as the budget allows and, unless --board or a
    width says which NPU it is, the NPU may be one with narrower mantissas. With --accumulator the NPU is one whose
    accumulator, and exponents of weights, are as wide as the network needs. --workers and --cluster share what
    --calibrate runs on the emulator; double precision and the rounding of weights stay in this process.

    --verbose, --dump and --check show and check the passes of the compiler. Where formats are chosen among candidates,
    these are the passes of the chosen network, which is compiled once more.
    """
    from concord.api.compiling import compile_network, trained_for
    from concord.api.options import Options, Widths
    from concord.compiler.lowering.assumptions import assumption_table
    from concord.frontend import import_model
    from concord.frontend.load import one_file
    from concord.host.rates import rates
    from concord.networks.folder import NETWORK_FOLDER, save_package
    from concord.networks.samples import inputs_of, labels_of
    from concord.overflow.trained import evidence_path
    from concord.program.flags import flag_table

    options = Options(Widths.parse(mantissas), budget, board is None, ranges, accumulator, guard, batch, output_formats)
    options.check(calibrate is not None)
    target = output or model.with_suffix("")
    NETWORK_FOLDER.check_place(target)
    network, watch = one_file(model), Watch(verbose, dump, check)
    click.get_current_context().call_on_close(watch.show)
    with watch.observed():
        graph = import_model(network)
    if calibrate is None and (workers, cluster) != (None, None):
        raise ValueError("--workers and --cluster must be given with --calibrate: they share its samples")
    samples = labels = None
    if calibrate is not None:
        arrays = arrays_of(calibrate)
        samples = inputs_of(graph.inputs, arrays)
        labels = labels_of(arrays, graph.inputs, len(next(iter(samples.values()))))
    trained = trained_for(model, options)
    engine = click.get_current_context().with_resource(several(workers, cluster))
    single = samples is None and accumulator in (None, "full") and not output_formats  # nothing is chosen
    with watch.observed(single):
        compilation = compile_network(
            graph, PRESETS[BOARD_PRESETS[board] if board else preset], options, samples, labels,
            trained=trained, engine=engine, status=Console(stderr=True).status,
        )  # fmt: skip
    compiled = compilation.compiled
    if not single:
        watch.again(graph, compiled)
    save_package(compiled.package, target, network)
    if compilation.formats is not None:
        wide_console().print(compilation.formats.table())
    if (choice := compilation.mantissas) is not None:
        console = wide_console()
        console.print(choice.table())
        if choice.widths:
            console.print(f"chosen: {choice.chosen.label}; {choice.widths}", highlight=False, soft_wrap=True)
        if not choice.met:
            click.echo(NOT_MET, err=True)
    for line in compilation.accumulator:
        click.echo(f"accumulator: {line}")
    host = f", on the host: {', '.join(node.op for node in compiled.host_graph.nodes)}" if compiled.host_graph else ""
    streamed = f", streamed residual: {', '.join(compiled.streamed_residuals)}" if compiled.streamed_residuals else ""
    for one in compiled.inexact:
        click.echo(f"not exact: {one.text}")
    if compiled.assumptions:
        wide_console().print(assumption_table(compiled.assumptions))
    if compiled.raised:
        wide_console().print(flag_table(compiled.raised, "Flags on the calibration data"))
    counts = f"{len(compiled.lowered.layers)} layers, {len(compiled.image.program)} instructions"
    row_tiling = f", {compiled.row_tiling.text}" if compiled.row_tiling else ""
    if options.accumulator_bits() is None and evidence_path(model).exists():
        click.echo(f"{evidence_path(model).name} says which accumulator it was trained for: --accumulator auto has it")
    click.echo(f"{target}: {counts}{host}{streamed}{row_tiling}")
    found = rates(compiled.image, batch)
    click.echo(found.text)
    click.echo(f"inputs travel {found.way}")
