"""Compiles a graph as a user's options say, and keeps the evidence for the formats that it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.api.options import Options, Widths, budget_of, narrow_outputs
from concord.compiler.calibration.accumulator import GUARD, AccumulatorError, choose_accumulator, with_lines
from concord.compiler.calibration.equalisation import for_weights
from concord.compiler.calibration.formats import Evidence
from concord.compiler.calibration.mantissas import MOST, Choice, choose_mantissas
from concord.compiler.calibration.suggestions import suggestions
from concord.compiler.calibration.trained import Trained, compile_trained, evidence_path, read_trained
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.host_partition import without_front
from concord.compiler.lowering.input_assumptions import assumed, synthetic_samples
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import Compiled, compile_graph, expecting, with_front, with_narrow
from concord.graph.element_types import as_places
from concord.graph.ir import Graph
from concord.networks.boards import PresetRefusal, Ranking, nearest, rank, refused_by_all
from concord.networks.calibrated import calibration_of, choose_formats
from concord.networks.expected_error import with_expected_error
from concord.networks.input_records import with_input_records
from concord.networks.npu_share import NpuShare, largest, ranges_of_front, share_text
from concord.networks.quantised_model import Reference, with_quantised_model
from concord.overflow.required import CountedWidths
from concord.pipeline.manager import unobserved
from concord.program.allocator import CapacityError
from concord.spec import presets
from concord.spec.boards import DEFAULT_BOARD, board_spec, link_of
from concord.spec.config import NpuConfig
from concord.spec.config_file import read_config
from concord.spec.presets import with_mantissas
from concord.utils.attempts import Show, show_nothing
from concord.utils.parallel import Engine

#: What helps where the NPU takes a part of a network.
_IN_PART = "--partition any lets the host compute what the NPU does not take"
#: Shows what goes on for as long as it lasts; what it gives shows how far that has got.
Status = Callable[[str], AbstractContextManager[Show]]
#: Labels, one class per sample.
Labels = npt.NDArray[np.int64]


@contextmanager
def silent(text: str) -> Iterator[Show]:
    """A :data:`Status` that shows nothing."""
    yield show_nothing


@dataclass(frozen=True)
class Compilation:
    """A compiled network, and what speaks for its formats.

    Parameters
    ----------
    graph : Graph
        The network as it was imported, without what the host computes in front of the NPU.
    compiled : Compiled
        The result.
    formats : Evidence or None
        How formats compare on the samples, if they were chosen.
    mantissas : Choice or None
        How widths of mantissas compare, if they were chosen.
    accumulator : tuple of str
        What speaks for the width of the accumulator, a line each.
    preset : str
        Which preset of the board was taken and why, in a line; empty if it was named.
    share : str
        How much of the network the NPU computes and why not all of it, in a line; empty if the whole compiles.
    """

    graph: Graph
    compiled: Compiled
    formats: Evidence | None = None
    mantissas: Choice | None = None
    accumulator: tuple[str, ...] = ()
    preset: str = ""
    share: str = ""


@dataclass(frozen=True)
class Target:
    """What a network is compiled for.

    Parameters
    ----------
    configs : tuple of NpuConfig
        The configurations that it may get: the presets of the board, those for networks on codes apart, or one.
    board : str or None
        The board, if there is one.
    link : str or None
        Name of a link of the board, by whose rates presets are ranked; the first one if left out.
    """

    configs: tuple[NpuConfig, ...]
    board: str | None = None
    link: str | None = None

    @classmethod
    def of(
        cls,
        board: str | None = None,
        preset: str | None = None,
        config: NpuConfig | str | Path | None = None,
        link: str | None = None,
    ) -> Target:
        """What the options say; the presets of :data:`concord.spec.boards.DEFAULT_BOARD` if they say nothing.

        ``config`` may be a file (:func:`concord.spec.config_file.read_config`).

        Raises
        ------
        ValueError
            For names that do not exist, a preset that is none of the board's, a link that it has not, or options that
            do not go together.
        """
        target = cls._without_link(board, preset, config)
        link_of(target.configs[0].board, link)
        return replace(target, link=link)

    @classmethod
    def _without_link(cls, board: str | None, preset: str | None, config: NpuConfig | str | Path | None) -> Target:
        if config is not None:
            if preset is not None:
                raise ValueError("preset and config must not be given together")
            config = config if isinstance(config, NpuConfig) else read_config(Path(config))
            if board is not None:
                board_spec(board)
                config = config.replace(board=board)
            return cls((config,), board)
        if board is None and preset is not None:
            return cls((presets.preset(preset),))
        board = DEFAULT_BOARD if board is None else board
        configs = presets.presets_of(board, preset)
        return cls(tuple(config for config in configs if preset is not None or not config.special), board)


def trained_for(model: Path | None, options: Options) -> Trained | None:
    """What a network beside ``model`` was trained for, if its accumulator is to be chosen by that.

    Raises
    ------
    ValueError
        For options that say something else.
    """
    if options.accumulator_bits() != 0 or model is None or (trained := read_trained(model)) is None:
        return None
    widths, guard = options.widths != Widths(), options.guard is not None
    for name, value in (("mantissa", widths), ("guard", guard), ("quick", options.quick)):
        if value:
            raise ValueError(f"--{name} must be left out: {evidence_path(model)} says what the network was trained for")
    return trained


def compile_network(
    graph: Graph,
    target: Target,
    options: Options,
    samples: Mapping[str, npt.ArrayLike] | None = None,
    labels: Labels | None = None,
    *,
    trained: Trained | None = None,
    reference: Reference | None = None,
    engine: Engine | None = None,
    status: Status = silent,
) -> Compilation:
    """Compile a network as the options say.

    Of several presets of a board it gets the first one that takes it, in the order of
    :func:`concord.networks.boards.rank`, which knows neither the formats nor the accumulator that are chosen for it.

    Parameters
    ----------
    graph : Graph
        The network.
    target : Target
        What for; with ``options.widths.npu`` for NPUs like these with other mantissas.
    options : Options
        What is asked.
    samples : mapping of str to array, optional
        Calibration data by input, samples along the first axis.
    labels : array of int, optional
        A class for every sample.
    trained : Trained, optional
        What the network was trained for (:func:`trained_for`).
    reference : Reference, optional
        What to compare a quantised model with (:func:`concord.networks.quantised_model.with_pairs`).
    engine : Engine, optional
        Its workers share what the emulator computes; nothing depends on them.
    status : callable, optional
        Shows what goes on.

    Raises
    ------
    ValueError
        For options that do not go together, or not with the network. :class:`CapacityError` if it does not fit, with
        what would help; other errors as :func:`concord.compiler.model.compile_graph` has them.
    """
    options.check(samples is not None)
    whole = replace(graph, partition=options.partition)
    whole_samples = None if samples is None else as_places(samples, whole.texts)
    parts = without_front(whole)
    graph = parts.rest
    if reference is not None:
        pairs = replace(reference.graph, partition=options.partition)
        reference = replace(reference, graph=without_front(pairs).rest)
    if whole_samples is not None:
        samples = parts.inputs(whole_samples)
    plain = Formats(mantissas=options.widths.layers, inputs=options.input_ranges(graph))
    configs, refusals = _with_widths(target.configs, options.widths.npu)
    ranking = Ranking()
    if len(configs) > 1:
        with status("choosing the preset"), unobserved():
            ranking = rank(graph, configs, plain, options.batch, samples, target.link)
        again = ranking.refusals if samples is not None or trained is not None else ()
        refusals += [refusal for refusal in ranking.refusals if refusal not in again]
        configs = [*(candidate.config for candidate in ranking.candidates), *(refusal.config for refusal in again)]
    for npu in configs:
        known = None if samples is not None else ranking.compiled(npu)
        try:
            compilation = _compile(graph, npu, options, plain, samples, labels, trained, engine, status, known)
        except (CapacityError, Unsupported, AccumulatorError) as error:
            refusals.append(PresetRefusal(npu, error))
            continue
        if reference is not None:
            with status("comparing with the quantised model"):
                compilation = replace(
                    compilation, compiled=with_quantised_model(compilation.compiled, reference, samples, engine)
                )
        chosen = "" if len(target.configs) == 1 else ranking.text(str(target.board), npu, refusals)
        return replace(compilation, preset=chosen, compiled=with_front(compilation.compiled, parts, whole))
    if options.partition == "any" and trained is None:
        stay = () if reference is None else reference.stay
        job = _Job(whole, stay, options, whole_samples, labels, engine, status)
        small = [refusal for refusal in refusals if isinstance(refusal.error, CapacityError | Unsupported)]
        if small and (part := _largest_part(job, small)) is not None:
            return part
    with status("looking for what would make it fit"), unobserved():
        raise _refused(graph, whole, target.board, refusals, plain, options.batch)


@dataclass(frozen=True)
class _Job:
    """What :func:`compile_network` is asked for."""

    whole: Graph
    stay: tuple[str, ...]
    options: Options
    samples: Mapping[str, npt.ArrayLike] | None
    labels: Labels | None
    engine: Engine | None
    status: Status


def _largest_part(job: _Job, refusals: Sequence[PresetRefusal]) -> Compilation | None:
    """A network of which the NPU computes as much as it takes, and the host the rest; ``None`` if it takes no part.

    Of several configurations that refuse the whole it gets the one that computes most, and the first of those that
    compute equally much. Formats that samples choose may need more memory than the plain ones that parts are tried
    with. Then the next smaller part is taken.
    """
    whole, options = job.whole, job.options
    ranges, mantissas = options.input_ranges(whole), options.widths.layers
    with job.status("looking for the part that fits") as show, unobserved():
        shares = [
            NpuShare(whole, partial(_fits, config=config, mantissas=mantissas, batch=options.batch), config, show)
            for config in (refusal.config for refusal in refusals)
        ]
        best = largest(shares)
    while best is not None:
        share, names = best
        cut = replace(whole, npu_nodes=names)
        parts = without_front(cut)
        samples = None if job.samples is None else parts.inputs(job.samples)
        plain = Formats(mantissas=mantissas, inputs=ranges_of_front(parts, ranges) if samples is None else {})
        try:
            compilation = _compile(
                parts.rest, share.config, options, plain, samples, job.labels, None, job.engine, job.status, None
            )
        except (CapacityError, Unsupported):
            share.refuse(names)
            with job.status("looking for the part that fits"), unobserved():
                best = largest(shares)
            continue
        compiled = with_front(compilation.compiled, parts, cut)
        compiled = replace(compiled, package=replace(compiled.package, stay=job.stay))
        own = next(refusal for refusal in refusals if refusal.config == share.config)
        why = f"{own.config.name} refuses the whole ({own.short})"
        text = f"the NPU computes {share_text(whole, compiled.npu)}, and the host the rest: {why}"
        return replace(compilation, share=text, compiled=compiled)
    return None


def _fits(graph: Graph, config: NpuConfig, mantissas: Mapping[str, int], batch: int) -> bool:
    try:
        compile_graph(graph, config, Formats(mantissas=dict(mantissas)), batch=batch)
    except (CapacityError, Unsupported):
        return False
    return True


def _with_widths(configs: Sequence[NpuConfig], mantissa: int | None) -> tuple[list[NpuConfig], list[PresetRefusal]]:
    """Configurations with mantissas of so many bits, if that is asked for, and those of which there is none.

    Raises
    ------
    ValueError
        If there is none of any.
    """
    if mantissa is None:
        return list(configs), []
    configured: list[NpuConfig] = []
    refusals: list[PresetRefusal] = []
    for config in configs:
        try:
            configured.append(with_mantissas(config, mantissa))
        except ValueError as error:
            refusals.append(PresetRefusal(config, error))
    if not configured:
        raise refusals[0].error
    return configured, refusals


def _refused(
    graph: Graph, whole: Graph, board: str | None, refusals: Sequence[PresetRefusal], formats: Formats, batch: int
) -> ValueError:
    """The error for a network that no configuration takes, with what would help; ``whole`` has the host's part, too."""
    error, least = refused_by_all(graph, board, refusals), nearest(refusals)
    config = refusals[0].config if least is None else least[0]
    lines = [_IN_PART] if whole.partition == "ends" and _takes_any(whole, config, formats, batch) else []
    if isinstance(error, Unsupported):
        return Unsupported(error.name, error.reasons, error.target, lines)
    if least is None:
        return error
    lines = [*suggestions(graph, config, formats, batch, least[1]), *lines]
    return CapacityError("\n  ".join([str(error), *lines]), least[1].short)


def _takes_any(whole: Graph, config: NpuConfig, formats: Formats, batch: int) -> bool:
    fits = partial(_fits, config=config, mantissas=formats.mantissas, batch=batch)
    return NpuShare(replace(whole, partition="any"), fits, config).takes_any()


def _compile(
    graph: Graph,
    config: NpuConfig,
    options: Options,
    plain: Formats,
    samples: Mapping[str, npt.ArrayLike] | None,
    labels: Labels | None,
    trained: Trained | None,
    engine: Engine | None,
    status: Status,
    known: Compiled | None,
) -> Compilation:
    """Compile a network for one configuration; ``known`` is the network with plain formats, if that is known."""
    if trained is not None:
        with status("counting what the accumulators hold"):
            of_training = compile_trained(graph, config, trained, CountedWidths(samples, engine), options.batch)
        compilation = Compilation(graph, of_training.compiled, accumulator=of_training.lines)
    elif samples is None:
        compilation = Compilation(graph, _equalised(graph, config, plain, options.batch, known))
    else:
        compilation = _with_formats(graph, config, options, samples, labels, engine, status)
    if narrow := narrow_outputs(options.output_formats, compilation.compiled.lowered.graph.outputs):
        compilation = replace(compilation, compiled=with_narrow(graph, compilation.compiled, narrow))
    if trained is not None:
        compilation = replace(compilation, compiled=with_lines(compilation.compiled, compilation.accumulator))
    elif (bits := options.accumulator_bits()) is not None:
        guard = GUARD if options.guard is None else options.guard
        with status("counting what the accumulators hold"):
            chosen = choose_accumulator(
                graph, compilation.compiled, bits or None, CountedWidths(samples, engine), guard
            )
        compilation = replace(compilation, compiled=chosen.compiled, accumulator=tuple(chosen.lines))
    compiled = compilation.compiled
    if samples is not None:
        compiled = expecting(compiled, samples)
    elif {*graph.known_ranges} & {*graph.element_types}:  # bytes, which may travel as such
        compiled = expecting(compiled, synthetic_samples(graph, assumed(graph, plain.inputs)))
    compiled = with_input_records(compiled, samples)
    with status("measuring the error to be expected"), unobserved():
        return replace(compilation, compiled=with_expected_error(graph, compiled, samples))


def _equalised(graph: Graph, config: NpuConfig, plain: Formats, batch: int, known: Compiled | None) -> Compiled:
    """A network without samples, with channels as they are unless weights promise less error and there is room."""
    scales = for_weights(graph, config, plain.inputs, plain.mantissas)
    if scales:
        with suppress(CapacityError):
            return compile_graph(graph, config, replace(plain, channel_scales=scales), batch=batch)
    return known or compile_graph(graph, config, plain, batch=batch)


def _with_formats(
    graph: Graph,
    config: NpuConfig,
    options: Options,
    samples: Mapping[str, Any],
    labels: Labels | None,
    engine: Engine | None,
    status: Status,
) -> Compilation:
    """Compile with the formats that samples choose."""
    batch, widths = options.batch, options.widths
    if not widths.auto:
        with status("choosing formats") as show:
            evidence = choose_formats(
                graph, config, samples,
                mantissas=widths.layers, batch=batch, engine=engine, quick=options.quick, show=show,
            )  # fmt: skip
        return Compilation(graph, evidence.chosen.compiled, formats=evidence)
    limits = budget_of(options.budget, graph, labels is not None)
    first = {name: values[:MOST] for name, values in samples.items()}
    with status("choosing mantissas") as show:
        known = None if labels is None else labels[:MOST]
        calibration = calibration_of(graph, first, labels=known, batch=batch, engine=engine, show=show)
        free = options.other_npu and widths.npu is None
        choice = choose_mantissas(calibration, config, limits, fixed=widths.layers, free=free)
    return Compilation(graph, choice.chosen.compiled, mantissas=choice)
