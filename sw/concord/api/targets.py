"""The NPU that a network is compiled for: the one that was asked for, or one of the presets of a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from concord.api.compiling import Compilation, CompileRequest, compile_network, compile_rest
from concord.api.options import input_ranges
from concord.compiler.calibration.suggestions import suggestions
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.host_partition import without_front
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph, with_front
from concord.graph.ir import Graph
from concord.networks.boards import PresetRefusal, Ranking, nearest, rank, refused_by_all
from concord.networks.npu_share import NpuShare, fits, largest, ranges_of_front, share_text
from concord.overflow.accumulator import AccumulatorError
from concord.pipeline.manager import unobserved
from concord.program.allocator import CapacityError
from concord.spec import presets
from concord.spec.boards import DEFAULT_BOARD, board_spec, link_of
from concord.spec.compile_options import CompileOptions
from concord.spec.config import NpuConfig
from concord.spec.config_file import read_config
from concord.spec.presets import with_mantissas

#: Advice where the NPU takes a part of a network.
_IN_PART = "--partition any lets the host compute what the NPU does not take"


@dataclass(frozen=True)
class Target:
    """Configurations that a network may be compiled for, with their board and link.

    Parameters
    ----------
    configs : tuple of NpuConfig
        The configurations that it may get: the presets of the board, without the one for training alone, or one.
    board : str or None
        The board, if there is one.
    link : str or None
        Name of a link of the board, by whose rates presets are ranked; the first one if left out.
    """

    configs: tuple[NpuConfig, ...]
    board: str | None = None
    link: str | None = None

    @classmethod
    def of(cls, options: CompileOptions) -> Target:
        """Target of the options; the presets of :data:`concord.spec.boards.DEFAULT_BOARD` if they name none.

        Raises
        ------
        ValueError
            For names that do not exist, a preset that is none of the board's, a link that it has not, or options that
            do not go together.
        """
        target = cls._without_link(options.board, options.preset, options.config)
        link_of(target.configs[0].board, options.link)
        return replace(target, link=options.link)

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
        return cls(tuple(configs), board)


def compile_for(request: CompileRequest, target: Target) -> Compilation:
    """Compile a network for what was asked for.

    Of several presets of a board it gets the first one that takes it, in the order of
    :func:`concord.networks.boards.rank`, which knows neither the formats nor the accumulator that are chosen for it.

    Parameters
    ----------
    request : CompileRequest
        The network, and how.
    target : Target
        What for; with ``options.widths.npu`` for NPUs like these with other mantissas.

    Raises
    ------
    ValueError
        For options that do not go together, or not with the network. :class:`CapacityError` if it does not fit, with
        what would help; other errors as :func:`concord.compiler.model.compile_graph` has them.
    """
    options, graph, plain = request.options, request.parts.rest, request.plain
    configs, refusals = _with_widths(target.configs, options.widths.npu)
    ranking = Ranking()
    if len(configs) > 1:
        with request.status("choosing the preset"), unobserved():
            ranking = rank(graph, configs, plain, options.batch, request.samples_of_rest, target.link)
        sampled = request.samples is not None or request.trained is not None
        again = ranking.refusals if sampled else ()
        refusals += [refusal for refusal in ranking.refusals if refusal not in again]
        configs = [*(candidate.config for candidate in ranking.candidates), *(refusal.config for refusal in again)]
    for config in configs:
        known = None if request.samples is not None else ranking.compiled(config)
        try:
            compilation = compile_network(request, config, known)
        except (CapacityError, Unsupported, AccumulatorError) as error:
            refusals.append(PresetRefusal(config, error))
            continue
        chosen = "" if len(target.configs) == 1 else ranking.text(str(target.board), config, refusals)
        return replace(compilation, preset=chosen)
    if options.partition == "any" and request.trained is None:
        small = [refusal for refusal in refusals if isinstance(refusal.error, CapacityError | Unsupported)]
        if small and (part := _largest_part(request, small)) is not None:
            return part
    with request.status("looking for what would make it fit"), unobserved():
        raise _refused(graph, request.whole, target.board, refusals, plain, options.batch)


def _largest_part(request: CompileRequest, refusals: Sequence[PresetRefusal]) -> Compilation | None:
    """A network of which the NPU computes as much as it takes, and the host the rest; ``None`` if it takes no part.

    Of several configurations that refuse the whole it gets the one that computes most, and the first of those that
    compute equally much. Formats that samples choose may need more memory than the plain ones that parts are tried
    with. Then the next smaller part is taken.
    """
    whole, options = request.whole, request.options
    ranges, mantissas = input_ranges(options.ranges, whole), options.widths.layers
    stay = () if request.reference is None else request.reference.stay
    with request.status("looking for the part that fits") as show, unobserved():
        shares = [
            NpuShare(whole, partial(fits, config=config, mantissas=mantissas, batch=options.batch), config, show)
            for config in (refusal.config for refusal in refusals)
        ]
        best = largest(shares)
    while best is not None:
        share, names = best
        cut = replace(whole, npu_nodes=names)
        parts = without_front(cut)
        samples = None if request.places is None else parts.inputs(request.places)
        plain = Formats(mantissas=mantissas, inputs=ranges_of_front(parts, ranges) if samples is None else {})
        try:
            compilation = compile_rest(request, parts.rest, share.config, plain, samples)
        except (CapacityError, Unsupported):
            share.refuse(names)
            with request.status("looking for the part that fits"), unobserved():
                best = largest(shares)
            continue
        compiled = with_front(compilation.compiled, parts, cut)
        compiled = replace(compiled, package=replace(compiled.package, stay=stay))
        own = next(refusal for refusal in refusals if refusal.config == share.config)
        why = f"{own.config.name} refuses the whole ({own.short})"
        text = f"the NPU computes {share_text(whole, compiled.npu)}, and the host the rest: {why}"
        return replace(compilation, share=text, compiled=compiled)
    return None


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
    if whole.partition == "any" and (alone := _alone(whole, config, formats, batch)):
        lines = [alone]
    if isinstance(error, Unsupported):
        return Unsupported(error.name, error.reasons, error.target, lines)
    if least is None:
        return error
    lines = [*suggestions(graph, config, formats, batch, least[1]), *lines]
    return CapacityError("\n  ".join([str(error), *lines]), least[1].short)


def _takes_any(whole: Graph, config: NpuConfig, formats: Formats, batch: int) -> bool:
    tried = partial(fits, config=config, mantissas=formats.mantissas, batch=batch)
    return NpuShare(replace(whole, partition="any"), tried, config).takes_any()


def _alone(whole: Graph, config: NpuConfig, formats: Formats, batch: int) -> str:
    """Reason for which the node with the most multiply-accumulates is nothing for the NPU even without the others."""
    share = NpuShare(whole, lambda graph: False, config)
    if (node := share.heaviest) is None:
        return ""
    try:
        part = without_front(replace(whole, npu_nodes=frozenset([node.name]))).rest
        compile_graph(part, config, Formats(mantissas=formats.mantissas), batch=batch)
    except (CapacityError, Unsupported) as error:
        short = PresetRefusal(config, error).short
        return f"no part of it compiles, either: {node.op} '{node.name}' alone is refused ({short})"
    return ""
