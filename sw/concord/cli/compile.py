"""``concord compile``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console

from concord.cli.common import EXISTING, FOLDER, POSITIVE, arrays_of, inputs_of, npu, readable, wide_console
from concord.cli.passes import Watch, passes_options
from concord.cli.workers import several, workers_options
from concord.spec.boards import BOARD_PRESETS
from concord.spec.config import NpuConfig
from concord.spec.formats import ACT_MANT_MAX, MANT_MIN
from concord.spec.presets import PRESETS, with_mantissas

if TYPE_CHECKING:
    from concord.compiler.calibration.mantissas import Budget
    from concord.compiler.ir.tensor_formats import Formats
    from concord.compiler.model import Compiled
    from concord.graph.ir import Graph
    from concord.overflow.trained import Trained
    from concord.utils.parallel import Engine


@dataclass(frozen=True)
class Widths:
    """What ``--mantissa`` asks for.

    Parameters
    ----------
    auto : bool
        Whether what is not given is to be chosen.
    npu : int or None
        Bits of the mantissas of a configuration of its own.
    layers : dict
        Bits of the mantissas of the weights by layer.
    """

    auto: bool = False
    npu: int | None = None
    layers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Widths:
        """Read the values of the option, ``auto``, ``5`` and ``layer=5``; ``ValueError`` for anything else."""
        whole: list[int] = []
        layers: dict[str, int] = {}
        for text in filter(lambda text: text != "auto", texts):
            layer, equals, width = text.rpartition("=")
            if not width.isdecimal() or (equals and (not layer or layer in layers)) or (not equals and whole):
                raise ValueError(f"mantissa must be auto, one width, and one layer=width per layer, not {text!r}")
            if equals:
                layers[layer] = int(width)
            else:
                whole.append(int(width))
        return cls("auto" in texts, whole[0] if whole else None, layers)


def budget_of(text: str | None, graph: Graph, labelled: bool) -> Budget:
    """What ``--budget`` asks for, ``0.5`` or ``5%``, or the default; ``ValueError`` if it does not suit the network."""
    from concord.compiler.calibration.mantissas import Budget, classifies

    classes = labelled or classifies(graph)
    text = text or ("0.5" if classes else "5%")
    try:
        points = float(text.removesuffix("%"))
    except ValueError:
        points = -1.0
    if not points >= 0:
        raise ValueError(f"budget must be points such as 0.5, or a relative error such as 5%, not {text!r}")
    if text.endswith("%"):
        return Budget("error", points)
    if not classes:
        raise ValueError(f"budget must be a relative error such as 5%, as the result is no class, not {text!r}")
    return Budget("accuracy" if labelled else "agreement", points)


def input_ranges(texts: Sequence[str], graph: Graph) -> dict[str, tuple[float, float]]:
    """What ``--input-range`` asks for, by input: ``LOW,HIGH`` for the only one, or ``NAME=LOW,HIGH``.

    Raises
    ------
    ValueError
        For anything else.
    """
    found: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, equals, ends = text.rpartition("=")
        if not equals and len(graph.inputs) == 1:
            name = graph.inputs[0]
        try:
            low, high = map(float, ends.split(","))
        except ValueError:
            low = high = float("nan")
        if not low < high or name not in graph.inputs or name in found:
            names = ", ".join(graph.inputs)
            raise ValueError(
                f"input-range must be LOW,HIGH of the only input or NAME=LOW,HIGH, once each, of {names}, not {text!r}"
            )
        found[name] = low, high
    return found


def narrow_outputs(texts: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """Outputs that ``--output-format`` wants narrow; ``ValueError`` if it says something else."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, kind = text.rpartition("=")
        if kind not in ("binary16", "narrow") or (name and name not in outputs):
            names = ", ".join(outputs)
            raise ValueError(f"output-format must be binary16, narrow, or one of them for one of {names}, not {text!r}")
        found |= dict.fromkeys([name] if name else outputs, kind)
    return tuple(name for name, kind in found.items() if kind == "narrow")


def accumulator_bits(text: str | None, guard: int | None) -> int | None:
    """Bits that ``--accumulator`` wants, 0 for auto; ``None`` for full; ``ValueError`` for anything else."""
    if guard is not None and text != "auto":
        raise ValueError("--guard must be given with --accumulator auto")
    if text is None or text == "full":
        return None
    if text != "auto" and not (text.isdecimal() and int(text)):
        raise ValueError(f"accumulator must be full, auto or a number of bits, not {text!r}")
    return 0 if text == "auto" else int(text)


def labels_of(arrays: dict[str, Any], graph: Graph, samples: int) -> npt.NDArray[np.int64] | None:
    """The array y of calibration data, if it has a class for every sample."""
    labels = arrays.get("y")
    if labels is None or "y" in graph.inputs or labels.dtype.kind not in "iu" or labels.shape != (samples,):
        return None
    return np.asarray(labels, dtype=np.int64)


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
    from concord.compiler.calibration.remedies import remedies
    from concord.compiler.ir.tensor_formats import Formats
    from concord.compiler.lowering.assumptions import assumption_table
    from concord.compiler.model import expecting, with_narrow
    from concord.frontend import import_model
    from concord.frontend.load import one_file
    from concord.host.rates import rates
    from concord.networks.folder import NETWORK_FOLDER, save_package
    from concord.overflow.accumulator import with_lines
    from concord.overflow.trained import evidence_path
    from concord.program.allocator import CapacityError
    from concord.program.flags import flag_table

    widths, bits = Widths.parse(mantissas), accumulator_bits(accumulator, guard)
    target = output or model.with_suffix("")
    NETWORK_FOLDER.check_place(target)
    network, watch = one_file(model), Watch(verbose, dump, check)
    click.get_current_context().call_on_close(watch.show)
    with watch.observed():
        graph = import_model(network)
    config = PRESETS[BOARD_PRESETS[board] if board else preset]
    single = calibrate is None and bits is None and not output_formats  # nothing is chosen among candidates
    if widths.npu is not None:
        config = with_mantissas(config, widths.npu)
    if (budget is not None or widths.auto) and not (widths.auto and calibrate):
        raise ValueError("--mantissa auto needs --calibrate, and --budget both of them")
    if ranges and calibrate:
        raise ValueError("--input-range is for networks without --calibrate, whose samples say it")
    plain = Formats(mantissas=widths.layers, inputs=input_ranges(ranges, graph))
    if calibrate is None and (workers, cluster) != (None, None):
        raise ValueError("--workers and --cluster must be given with --calibrate: they share its samples")
    trained = _trained(model, widths, guard) if bits == 0 else None
    engine = click.get_current_context().with_resource(several(workers, cluster))
    try:
        if trained is not None:
            samples = None if calibrate is None else inputs_of(graph, arrays_of(calibrate))
            compiled, lines = _for_trained(graph, config, trained, samples, batch, engine)
        else:
            with watch.observed(single):
                compiled = _compiled(graph, config, calibrate, widths, plain, budget, board is None, batch, engine)
    except CapacityError as error:
        with Console(stderr=True).status("looking for what would do"):
            lines = remedies(graph, config, plain, batch, error)
        raise CapacityError("\n  ".join([str(error), *lines]), error.short) from error
    if narrow := narrow_outputs(output_formats, compiled.lowered.graph.outputs):
        compiled = with_narrow(graph, compiled, narrow)
    if trained is not None:
        compiled = with_lines(compiled, lines)
    elif bits is not None:
        samples = None if calibrate is None else inputs_of(graph, arrays_of(calibrate))
        compiled = _narrower(graph, compiled, bits, samples, guard, engine)
    if calibrate is not None:
        compiled = expecting(compiled, inputs_of(graph, arrays_of(calibrate)))
    if not single:
        watch.again(graph, compiled)
    save_package(compiled.package, target, network)
    host = f", on the host: {', '.join(node.op for node in compiled.host_graph.nodes)}" if compiled.host_graph else ""
    strips = f", operand in strips: {', '.join(compiled.strips)}" if compiled.strips else ""
    for one in compiled.inexact:
        click.echo(f"not exact: {one.text}")
    if compiled.assumptions:
        wide_console().print(assumption_table(compiled.assumptions))
    if compiled.raised:
        wide_console().print(flag_table(compiled.raised, "Flags on the calibration data"))
    counts = f"{len(compiled.lowered.layers)} layers, {len(compiled.image.program)} instructions"
    row_tiling = f", {compiled.row_tiling.text}" if compiled.row_tiling else ""
    if bits is None and evidence_path(model).exists():
        click.echo(f"{evidence_path(model).name} says which accumulator it was trained for: --accumulator auto has it")
    click.echo(f"{target}: {counts}{host}{strips}{row_tiling}")
    found = rates(compiled.image, batch)
    click.echo(found.text)
    click.echo(f"inputs travel {found.way}")


def _compiled(
    graph: Graph,
    config: NpuConfig,
    calibrate: Path | None,
    widths: Widths,
    plain: Formats,
    budget: str | None,
    any_npu: bool,
    batch: int,
    engine: Engine | None,
) -> Compiled:
    """Compile with the formats that the options ask for; with ``any_npu`` mantissas may be those of another NPU."""
    from concord.compiler.model import compile_graph
    from concord.networks.calibrated import choose_formats

    if calibrate is None:
        return compile_graph(graph, config, plain, batch=batch)
    arrays = arrays_of(calibrate)
    if widths.auto:
        return _automatic(graph, config, arrays, widths.layers, budget, any_npu and widths.npu is None, batch, engine)
    with Console(stderr=True).status("choosing formats"):
        given = inputs_of(graph, arrays)
        evidence = choose_formats(graph, config, given, mantissas=widths.layers, batch=batch, engine=engine)
    wide_console().print(evidence.table())
    return evidence.chosen.compiled


def _trained(model: Path, widths: Widths, guard: int | None) -> Trained | None:
    """The evidence of training beside a model; ``ValueError`` for options that say something else than it does."""
    from concord.overflow.trained import evidence_path, read_trained

    if (found := read_trained(model)) is None:
        return None
    for name, given in (("mantissa", widths != Widths()), ("guard", guard is not None)):
        if given:
            raise ValueError(f"--{name} must be left out: {evidence_path(model)} says what the network was trained for")
    return found


def _for_trained(
    graph: Graph, config: NpuConfig, trained: Trained, inputs: dict[str, Any] | None, batch: int, engine: Engine | None
) -> tuple[Compiled, Sequence[str]]:
    """The network for the accumulator that it was trained for; shows what speaks for it."""
    from concord.overflow.trained import compile_trained

    with Console(stderr=True).status("counting what the accumulators hold"):
        found = compile_trained(graph, config, trained, inputs, batch, engine)
    for line in found.lines:
        click.echo(f"accumulator: {line}")
    return found.compiled, found.lines


def _narrower(
    graph: Graph, compiled: Compiled, bits: int, inputs: dict[str, Any] | None, guard: int | None, engine: Engine | None
) -> Compiled:
    """The same network for an NPU with another accumulator; shows what speaks for it."""
    from concord.overflow.accumulator import GUARD, choose_accumulator

    with Console(stderr=True).status("counting what the accumulators hold"):
        found = choose_accumulator(graph, compiled, bits or None, inputs, GUARD if guard is None else guard, engine)
    for line in found.lines:
        click.echo(f"accumulator: {line}")
    return found.compiled


def _automatic(
    graph: Graph,
    config: NpuConfig,
    arrays: dict[str, Any],
    fixed: dict[str, int],
    budget: str | None,
    free: bool,
    batch: int,
    engine: Engine | None,
) -> Compiled:
    """Choose widths of mantissas on the first samples, and show the evidence."""
    from concord.compiler.calibration.mantissas import MOST, choose_mantissas
    from concord.networks.calibrated import calibration_of

    inputs = inputs_of(graph, arrays)
    labels = labels_of(arrays, graph, len(next(iter(inputs.values()))))
    limits = budget_of(budget, graph, labels is not None)
    first = {name: values[:MOST] for name, values in inputs.items()}
    with Console(stderr=True).status("choosing mantissas"):
        known = None if labels is None else labels[:MOST]
        calibration = calibration_of(graph, first, labels=known, batch=batch, engine=engine)
        choice = choose_mantissas(calibration, config, limits, fixed=fixed, free=free)
    console = wide_console()
    console.print(choice.table())
    if choice.widths:
        console.print(f"chosen: {choice.chosen.label}; {choice.widths}", highlight=False, soft_wrap=True)
    if not choice.met:
        click.echo("nothing keeps the budget: this loses least; --mantissa M is an NPU with wider mantissas", err=True)
    return choice.chosen.compiled
