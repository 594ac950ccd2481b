"""Compiles a graph as a user's options say, and keeps the evidence for the formats that it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.api.options import Options, Widths, budget_of, narrow_outputs
from concord.compiler.calibration.formats import Evidence
from concord.compiler.calibration.mantissas import MOST, Choice, choose_mantissas
from concord.compiler.calibration.suggestions import suggestions
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import Compiled, compile_graph, expecting, with_narrow
from concord.graph.ir import Graph
from concord.networks.calibrated import calibration_of, choose_formats
from concord.overflow.accumulator import GUARD, choose_accumulator, with_lines
from concord.overflow.trained import Trained, compile_trained, evidence_path, read_trained
from concord.pipeline.manager import unobserved
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.presets import with_mantissas
from concord.utils.attempts import Show, show_nothing
from concord.utils.parallel import Engine

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
        The network as it was imported.
    compiled : Compiled
        The result.
    formats : Evidence or None
        How formats compare on the samples, if they were chosen.
    mantissas : Choice or None
        How widths of mantissas compare, if they were chosen.
    accumulator : tuple of str
        What speaks for the width of the accumulator, a line each.
    """

    graph: Graph
    compiled: Compiled
    formats: Evidence | None = None
    mantissas: Choice | None = None
    accumulator: tuple[str, ...] = ()


def trained_for(model: Path | None, options: Options) -> Trained | None:
    """What a network beside ``model`` was trained for, if its accumulator is to be chosen by that.

    Raises
    ------
    ValueError
        For options that say something else.
    """
    if options.accumulator_bits() != 0 or model is None or (found := read_trained(model)) is None:
        return None
    widths, guard = options.widths != Widths(), options.guard is not None
    for name, given in (("mantissa", widths), ("guard", guard), ("quick", options.quick)):
        if given:
            raise ValueError(f"--{name} must be left out: {evidence_path(model)} says what the network was trained for")
    return found


def compile_network(
    graph: Graph,
    config: NpuConfig,
    options: Options,
    samples: Mapping[str, npt.ArrayLike] | None = None,
    labels: Labels | None = None,
    *,
    trained: Trained | None = None,
    engine: Engine | None = None,
    status: Status = silent,
) -> Compilation:
    """Compile a network as the options say.

    Parameters
    ----------
    graph : Graph
        The network.
    config : NpuConfig
        The NPU; with ``options.widths.npu`` one like it with other mantissas.
    options : Options
        What is asked.
    samples : mapping of str to array, optional
        Calibration data by input, samples along the first axis.
    labels : array of int, optional
        A class for every sample.
    trained : Trained, optional
        What the network was trained for (:func:`trained_for`).
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
    if options.widths.npu is not None:
        config = with_mantissas(config, options.widths.npu)
    plain = Formats(mantissas=options.widths.layers, inputs=options.input_ranges(graph))
    try:
        if trained is not None:
            with status("counting what the accumulators hold"):
                of_training = compile_trained(graph, config, trained, samples, options.batch, engine)
            found = Compilation(graph, of_training.compiled, accumulator=of_training.lines)
        else:
            found = _with_formats(graph, config, options, plain, samples, labels, engine, status)
    except CapacityError as error:
        with status("looking for what would make it fit"), unobserved():
            lines = suggestions(graph, config, plain, options.batch, error)
        raise CapacityError("\n  ".join([str(error), *lines]), error.short) from error
    if narrow := narrow_outputs(options.output_formats, found.compiled.lowered.graph.outputs):
        found = replace(found, compiled=with_narrow(graph, found.compiled, narrow))
    if trained is not None:
        found = replace(found, compiled=with_lines(found.compiled, found.accumulator))
    elif (bits := options.accumulator_bits()) is not None:
        guard = GUARD if options.guard is None else options.guard
        with status("counting what the accumulators hold"):
            chosen = choose_accumulator(graph, found.compiled, bits or None, samples, guard, engine)
        found = replace(found, compiled=chosen.compiled, accumulator=tuple(chosen.lines))
    if samples is not None:
        found = replace(found, compiled=expecting(found.compiled, samples))
    return found


def _with_formats(
    graph: Graph,
    config: NpuConfig,
    options: Options,
    plain: Formats,
    samples: Mapping[str, Any] | None,
    labels: Labels | None,
    engine: Engine | None,
    status: Status,
) -> Compilation:
    """Compile with the formats that the options ask for."""
    batch, widths = options.batch, options.widths
    if samples is None:
        return Compilation(graph, compile_graph(graph, config, plain, batch=batch))
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
