"""Compiles a graph for one NPU as a user's options say, and keeps the evidence for the formats that it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from concord.api.options import budget_of, input_ranges, narrow_outputs
from concord.compiler.calibration.calibration import Inputs
from concord.compiler.calibration.equalisation import for_weights
from concord.compiler.calibration.formats import Evidence
from concord.compiler.calibration.mantissas import MOST, Choice, choose_mantissas
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.host_partition import Parts, without_front
from concord.compiler.lowering.input_assumptions import assumed, synthetic_samples
from concord.compiler.model import Compiled, compile_graph, expecting, with_front, with_narrow
from concord.graph.element_types import as_places
from concord.graph.ir import Graph
from concord.networks.calibrated import calibration_of, choose_formats
from concord.networks.expected_error import with_expected_error
from concord.networks.input_records import with_input_records
from concord.networks.quantised_model import Reference, with_quantised_model
from concord.overflow.accumulator import GUARD, choose_accumulator, with_lines
from concord.overflow.required import CountedWidths
from concord.overflow.trained import Trained, compile_trained, evidence_path, read_trained
from concord.pipeline.manager import unobserved
from concord.program.allocator import CapacityError
from concord.spec.compile_options import CompileOptions, MantissaWidths
from concord.spec.config import NpuConfig
from concord.utils.arrays import Ints
from concord.utils.attempts import Show, show_nothing
from concord.utils.parallel import Engine

#: Shows what goes on for as long as it lasts; what it gives shows how far that has got.
Status = Callable[[str], AbstractContextManager[Show]]


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


def trained_for(model: Path | None, options: CompileOptions) -> Trained | None:
    """Record of the training of a network beside ``model``, if its accumulator is to be chosen by that.

    Raises
    ------
    ValueError
        For options that say something else.
    """
    if options.accumulator_bits() != 0 or model is None or (trained := read_trained(model)) is None:
        return None
    widths, guard = options.widths != MantissaWidths(), options.guard is not None
    for name, value in (("mantissa", widths), ("guard", guard), ("quick", options.quick)):
        if value:
            raise ValueError(f"--{name} must be left out: {evidence_path(model)} says what the network was trained for")
    return trained


@dataclass(frozen=True)
class CompileRequest:
    """A network to be compiled, and how.

    Parameters
    ----------
    graph : Graph
        The network, without what options say of it.
    options : CompileOptions
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
    status : callable
        Shows what goes on.
    example : mapping of str to array, optional
        Few inputs by name, of which formats are not chosen.

    Raises
    ------
    ValueError
        For options that do not go together.
    """

    graph: Graph
    options: CompileOptions
    samples: Mapping[str, npt.ArrayLike] | None = None
    labels: Ints | None = None
    trained: Trained | None = None
    reference: Reference | None = None
    engine: Engine | None = None
    status: Status = silent
    example: Mapping[str, npt.ArrayLike] | None = None

    def __post_init__(self) -> None:
        self.options.check(self.samples is not None)

    @cached_property
    def whole(self) -> Graph:
        """The network with what the host may compute of it."""
        return replace(self.graph, partition=self.options.partition)

    @cached_property
    def parts(self) -> Parts:
        """The part of the network that the host computes in front of the NPU, and the rest."""
        return without_front(self.whole)

    @cached_property
    def places(self) -> dict[str, npt.ArrayLike] | None:
        """The samples as numbers: texts are places in their lists."""
        return None if self.samples is None else as_places(self.samples, self.whole.texts)

    @cached_property
    def samples_of_rest(self) -> Inputs | None:
        """The samples after the part of the network that the host computes in front of the NPU."""
        return self.of_rest(self.samples)

    def of_rest(self, inputs: Mapping[str, npt.ArrayLike] | None) -> Inputs | None:
        """Inputs after the part of the network that the host computes in front of the NPU."""
        return None if inputs is None else self.parts.inputs(as_places(inputs, self.whole.texts))

    @cached_property
    def plain(self) -> Formats:
        """Formats that the options say, of the network after the part that the host computes in front of the NPU."""
        return Formats(mantissas=self.options.widths.layers, inputs=input_ranges(self.options.ranges, self.parts.rest))


def compile_network(request: CompileRequest, config: NpuConfig, known: Compiled | None = None) -> Compilation:
    """Compile a network for one NPU. Which one it is, and how fast it is on a board, is for the caller to ask.

    Parameters
    ----------
    request : CompileRequest
        The network, and how.
    config : NpuConfig
        The NPU.
    known : Compiled, optional
        The network behind what the host computes in front, compiled with :attr:`CompileRequest.plain`, where that is
        known.

    Raises
    ------
    ValueError
        For options that do not go with the network. :class:`CapacityError` if it does not fit; other errors as
        :func:`concord.compiler.model.compile_graph` has them.
    """
    parts, samples = request.parts, request.samples_of_rest
    example = request.of_rest(request.example)
    compilation = compile_rest(request, parts.rest, config, request.plain, samples, known, example)
    if request.reference is not None:
        pairs = without_front(replace(request.reference.graph, partition=request.options.partition))
        reference = replace(request.reference, graph=pairs.rest)
        with request.status("comparing with the quantised model"):
            compiled = with_quantised_model(compilation.compiled, reference, samples, request.engine)
        compilation = replace(compilation, compiled=compiled)
    return replace(compilation, compiled=with_front(compilation.compiled, parts, request.whole))


def compile_rest(
    request: CompileRequest,
    graph: Graph,
    config: NpuConfig,
    plain: Formats,
    samples: Inputs | None,
    known: Compiled | None = None,
    example: Inputs | None = None,
) -> Compilation:
    """Compile what is behind the host's part in front of the NPU.

    Parameters
    ----------
    request : CompileRequest
        Says how.
    graph : Graph
        The rest of its network, or of a part of that.
    config : NpuConfig
        The NPU.
    plain : Formats
        The formats that the options say.
    samples : mapping of str to array or None
        By input of ``graph``.
    known : Compiled, optional
        The graph compiled with these formats, where that is known.
    example : mapping of str to array, optional
        Few inputs, which choose no formats: the error is measured on them, too, and they are compared with what is
        assumed of inputs.
    """
    options, trained, status = request.options, request.trained, request.status
    if trained is not None:
        with status("counting what the accumulators hold"):
            counted = CountedWidths(samples, request.engine)
            of_training = compile_trained(graph, config, trained, counted, options.batch)
        compilation = Compilation(graph, of_training.compiled, accumulator=of_training.lines)
    elif samples is None:
        compilation = Compilation(graph, _equalised(graph, config, plain, options.batch, known))
    else:
        compilation = _with_formats(request, graph, config, samples)
    if narrow := narrow_outputs(options.output_formats, compilation.compiled.lowered.graph.outputs):
        compilation = replace(compilation, compiled=with_narrow(graph, compilation.compiled, narrow))
    if trained is not None:
        compilation = replace(compilation, compiled=with_lines(compilation.compiled, compilation.accumulator))
    elif (bits := options.accumulator_bits()) is not None:
        guard = GUARD if options.guard is None else options.guard
        with status("counting what the accumulators hold"):
            chosen = choose_accumulator(
                graph, compilation.compiled, bits or None, CountedWidths(samples, request.engine), guard
            )
        compilation = replace(compilation, compiled=chosen.compiled, accumulator=tuple(chosen.lines))
    compiled = compilation.compiled
    if samples is not None:
        compiled = expecting(compiled, samples)
    elif {*graph.known_ranges} & {*graph.element_types}:  # bytes, which may travel as such
        compiled = expecting(compiled, synthetic_samples(graph, assumed(graph, plain.inputs)))
    compiled = with_input_records(compiled, samples, lambda name: name not in request.whole.inputs)
    flags = () if example is None else tuple(compiled.package.input_flags(example))
    compiled = replace(compiled, flag_diagnostics=(*compiled.flag_diagnostics, *flags))
    with status("measuring the error to be expected"), unobserved():
        return replace(compilation, compiled=with_expected_error(graph, compiled, samples, example))


def _equalised(graph: Graph, config: NpuConfig, plain: Formats, batch: int, known: Compiled | None) -> Compiled:
    """A network without samples, with channels as they are unless weights promise less error and there is room.

    It is compiled as it is first: what does not fit is refused before powers are looked for.
    """
    compiled = known or compile_graph(graph, config, plain, batch=batch)
    if scales := for_weights(graph, config, plain.inputs, plain.mantissas):
        with suppress(CapacityError):
            return compile_graph(graph, config, replace(plain, channel_scales=scales), batch=batch)
    return compiled


def _with_formats(request: CompileRequest, graph: Graph, config: NpuConfig, samples: Inputs) -> Compilation:
    """Compile with the formats that samples choose."""
    options, engine, status = request.options, request.engine, request.status
    batch, widths, labels = options.batch, options.widths, request.labels
    if not widths.auto:
        with status("choosing formats") as show:
            evidence = choose_formats(
                graph,
                config,
                samples,
                mantissas=widths.layers,
                batch=batch,
                engine=engine,
                quick=options.quick,
                show=show,
            )
        return Compilation(graph, evidence.chosen.compiled, formats=evidence)
    limits = budget_of(options.budget, graph, labels is not None)
    first = {name: np.asarray(values)[:MOST] for name, values in samples.items()}
    with status("choosing mantissas") as show:
        known = None if labels is None else labels[:MOST]
        calibration = calibration_of(graph, first, labels=known, batch=batch, engine=engine, show=show)
        free = options.other_npu and widths.npu is None
        choice = choose_mantissas(calibration, config, limits, fixed=widths.layers, free=free)
    return Compilation(graph, choice.chosen.compiled, mantissas=choice)
