"""Formats of the tensors between layers, chosen by what they do to calibration data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
from rich.table import Table

from concord.compiler.calibration.calibration import ALL, Calibration, Follow, FormatChoice, before_sigmoids, threshold
from concord.compiler.calibration.equalisation import better, estimated
from concord.compiler.calibration.observed import observed
from concord.compiler.calibration.preference import FLAGGED, GAIN, flags_text, is_static, preferred, rank, worth_flags
from concord.compiler.ir.activations import domain_of
from concord.compiler.ir.layers import AnyLayer, Layer
from concord.compiler.ir.table_segments import available, divided, sample, table_error
from concord.compiler.ir.table_specs import Proven
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import Compiled
from concord.display.tables import text_table
from concord.functions.segmented import TableSegment
from concord.graph.ir import Node
from concord.graph.ops.elementwise import FunctionAttributes
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray

#: Another table for a function may leave all of the error of the result, and not only :data:`GAIN` of it, if it leaves
#: no more than this of the function's own: not all adds up in samples as in a stream.
TABLE_GAIN = 0.5
#: Behind the label of static exponents that are one less than nothing that saturates.
_TIGHTER = ", one bit tighter"
_MARGINS = "", _TIGHTER
#: Samples of a half that something is compared on which was made with the other half, and how few a half may be.
_HELD_MOST, _HELD_LEAST = 16, 2
#: Note on the steps that a quick calibration leaves out.
QUICK = (
    "Quick: nothing was compared. Left out are weights rounded for the samples, static exponents, and what holds for "
    "the other half of the samples."
)
_QUICK_ADVICE = "compile without --quick, which tries other formats"


@dataclass(frozen=True)
class Evidence:
    """The candidates, the chosen one first.

    Parameters
    ----------
    candidates : tuple of FormatChoice
        The chosen one first, then by rank.
    held : mapping of str to float
        By label, errors on the half of the samples that a candidate was not made with, where they were needed.
    notes : tuple of str
        How to read errors and agreement of this network.
    decided : bool
        Whether its result is a decision, with which the NPU can agree.
    """

    candidates: tuple[FormatChoice, ...]
    held: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decided: bool = True

    @property
    def chosen(self) -> FormatChoice:
        """The one with the least error of those that hold for other samples, and whose flags are worth it."""
        return self.candidates[0]

    def table(self) -> Table:
        """All candidates, the chosen one in bold."""
        notes = list(self.notes)
        if any(candidate.compiled.package.formats.weights for candidate in self.candidates):
            notes.append(f"Weights for samples are taken if they leave at most {GAIN:.0%} of the error.")
        flags = any(candidate.flags for candidate in self.candidates)
        if flags:
            notes.append(f"Flags: taken if less than {FLAGGED:.0%} of the error is left of what raises fewer.")
        if self.held:
            notes.append("Other half: made with one half of the samples, measured on the other, both ways.")
        right = [
            *(["agreement"] if self.decided else []),
            "error of the result",
            *(["on the other half"] if self.held else []),
        ]
        columns = ["candidate", *right, *(["layers with flags"] if flags else [])]
        table = text_table("Formats on the calibration data", columns, right=right, caption="\n".join(notes))
        for candidate in self.candidates:
            style = "bold" if candidate is self.chosen else None
            figures = [f"{100 * candidate.agreement:.2f} %"] if self.decided else []
            figures.append(f"{100 * candidate.error:.2f} %")
            if self.held:
                figures.append(f"{100 * self.held[candidate.label]:.2f} %" if candidate.label in self.held else "")
            if flags:
                figures.append(flags_text(candidate))
            table.add_row(candidate.label, *figures, style=style)
        return table


def static_exponent(largest: float, config: NpuConfig) -> int:
    """The least static exponent that saturates nothing up to ``largest``."""
    exponent = int(np.frexp(largest)[1]) - 1 - config.act.headroom if largest > 0 else config.act.exp_min
    if largest > config.act.q_max * 2.0**exponent:
        exponent += 1
    return min(max(exponent, config.act.exp_min), config.act.exp_max)


def static_exponents(
    compiled: Compiled, values: Mapping[str, FloatArray], margin: int = 0, config: NpuConfig | None = None
) -> dict[str, int]:
    """The least exponents with which no value of a layer saturates, less ``margin``.

    Parameters
    ----------
    compiled : Compiled
        Gives the layers.
    values : mapping of str to array
        All tensors on the calibration data, in double precision.
    config : NpuConfig, optional
        With other mantissas than what was compiled for.
    """
    config, exponents = config or compiled.image.config, {}
    for layer in compiled.lowered.layers:
        if isinstance(layer, Layer) and layer.tensor in values:
            largest = float(np.abs(values[layer.tensor]).max())
            exponents[layer.tensor] = max(static_exponent(largest, config) - margin, config.act.exp_min)
    return exponents


def by_tables(calibration: Calibration, config: NpuConfig, best: FormatChoice, node: Node) -> list[FormatChoice]:
    """The best candidate with a function in two tables, in three, and so on, where it is worth a chain."""
    formats, candidates = best.compiled.package.formats, [best]
    (before, _), *more = _own_errors(calibration, config, best, node)
    for own, segments in more:
        if own > GAIN * before:
            continue
        label = f"{best.label}, {node.name} by {len(segments)} tables"
        calibration.attempts.expect(1)
        changed = replace(formats, table_segments={**formats.table_segments, node.name: segments})
        try:
            candidate = calibration.measure(label, config, changed, best.follow)
        except CapacityError:
            break
        last = candidates[-1].error
        if candidate.error >= GAIN * last and not (candidate.error <= last and own <= TABLE_GAIN * before):
            continue
        candidates.append(candidate)
        before = own
    return candidates[1:]


def _own_errors(
    calibration: Calibration, config: NpuConfig, candidate: FormatChoice, node: Node
) -> list[tuple[float, tuple[TableSegment, ...]]]:
    """Errors of a function itself on the samples in one table, in two, in three, and so on; with these tables."""
    functions = node.attributes(FunctionAttributes).spec
    spec = functions, domain_of(functions, candidate.compiled.package.formats.domain(node.inputs[0]))
    layers = candidate.compiled.lowered.layers
    if not any(spec in layer.table_specs for layer in layers):  # the host computes it
        return [(0.0, ())]
    most, entries, plain = available(layers, spec, config)
    x = sample(calibration.values[node.inputs[0]])
    errors: list[tuple[float, tuple[TableSegment, ...]]] = [(table_error(functions, [plain], x), ())]
    for count in range(2, most + 1):
        segments = divided(functions, x, count, entries)
        if segments is not None:
            errors.append((table_error(functions, segments, x), segments))
    return errors


def _divisible(calibration: Calibration) -> list[Node]:
    """Functions that may have several tables: not of several samples per run."""
    nodes = calibration.graph.nodes if calibration.batch == 1 else []
    return [node for node in nodes if node.op == "Function" and node.inputs[0] in calibration.ranges]


def without_search(calibration: Calibration, config: NpuConfig, mantissas: Mapping[str, int]) -> FormatChoice:
    """Formats that follow from the samples by themselves: nothing is compared.

    A function has several tables where these halve at least what it loses itself on the samples.
    """
    calibration.attempts.expect(1)
    label, follow = "dynamic exponents, weights to the nearest", ALL & ~Follow.WEIGHTS
    candidate = calibration.measure(label, config, Formats(mantissas=mantissas), follow)
    chosen = {}
    for node in _divisible(calibration):
        (before, _), *more = _own_errors(calibration, config, candidate, node)
        own, segments = min(more, key=itemgetter(0), default=(math.inf, ()))
        if own <= TABLE_GAIN * before:
            chosen[node.name] = segments
    if not chosen:
        return candidate
    calibration.attempts.expect(1)
    label += "".join(f", {name} by {len(segments)} tables" for name, segments in chosen.items())
    formats = Formats(mantissas=mantissas, table_segments=chosen)
    try:
        return calibration.measure(label, config, formats, follow)
    except CapacityError:
        return candidate


def rank_exponents(calibration: Calibration, config: NpuConfig, mantissas: Mapping[str, int]) -> Evidence:
    """Measure dynamic exponents, also without what follows the samples, then static ones, and rank all by their error.

    Nothing is chosen that has more error than what takes less from the samples, both made with one half of the samples
    and measured on the other.

    Functions get several tables where the best one becomes better by it; static exponents then have as many.
    """
    plain = Formats(mantissas=mantissas)
    calibration.attempts.expect(2 + len(_MARGINS))
    dynamic = calibration.measure("dynamic exponents", config, plain)
    others = {"weights and biases as they are": Follow.TABLES}
    if dynamic.compiled.package.formats.weights:
        others["weights to the nearest"] = ALL & ~Follow.WEIGHTS
    if dynamic.compiled.package.formats.input_offsets:
        others["inputs as they are"] = ALL & ~Follow.INPUTS
    if any(_follows(layer) for layer in dynamic.compiled.lowered.layers):
        others["tables as they are"] = ALL & ~Follow.TABLES
    calibration.attempts.expect(len(others) - 1)
    candidates = [dynamic]
    for what, follow in others.items():
        candidates.append(calibration.measure(f"dynamic exponents, {what}", config, plain, follow))
    with_tables = [candidate for candidate in candidates if Follow.TABLES in candidate.follow]
    for node in _divisible(calibration):
        more = by_tables(calibration, config, preferred(with_tables), node)
        candidates, with_tables = candidates + more, with_tables + more
    best = preferred(candidates)
    for margin, suffix in enumerate(_MARGINS):
        exponents = static_exponents(dynamic.compiled, calibration.values, margin)
        formats = replace(plain, exponents=exponents, table_segments=best.compiled.package.formats.table_segments)
        label = best.label.replace("dynamic", "static", 1) + suffix
        candidates.append(calibration.measure(label, config, formats, best.follow))
    ranked = sorted(candidates, key=rank)
    halves = _Halves(calibration, config)
    worth = [candidate for candidate in ranked if worth_flags(candidate, candidates)]
    chosen = next((candidate for candidate in worth if halves.hold(candidate, candidates)), worth[0])
    order = (chosen, *(candidate for candidate in ranked if candidate is not chosen))
    return Evidence(order, halves.errors, _notes(calibration), calibration.decides)


def _follows(layer: AnyLayer) -> bool:
    """True if a table of a layer covers the range that its function reads in samples."""
    return any(isinstance(domain, tuple) and not isinstance(domain, Proven) for _, domain in layer.table_specs)


def _notes(calibration: Calibration) -> tuple[str, ...]:
    """Notes on how to read errors and agreement of a network."""
    notes = []
    if before_sigmoids(calibration.graph)[1]:
        notes.append("Errors are those before the final sigmoid.")
    if calibration.single and calibration.decides:
        side = threshold(calibration.graph)
        notes.append(f"Agreement: share of samples whose result is on the same side of {side:g}.")
    return tuple(notes)


class _Halves:
    """Candidates made with one half of the samples and measured on the other.

    Parameters
    ----------
    calibration : Calibration
        All samples; with too few of them everything holds.
    config : NpuConfig
        What to compile for.
    """

    def __init__(self, calibration: Calibration, config: NpuConfig):
        self.calibration, self.config = calibration, config
        self.errors: dict[str, float] = {}
        self._halves: tuple[Calibration, Calibration] | None = None

    def hold(self, candidate: FormatChoice, others: Sequence[FormatChoice]) -> bool:
        """True if no candidate that takes less from the samples has less error on those it was not made with."""
        if self.calibration.count < 2 * _HELD_LEAST:
            return True
        simpler = [other for other in others if other is not candidate and _takes_less(other, candidate)]
        return all(self._error(candidate) <= self._error(other) for other in simpler)

    def _error(self, candidate: FormatChoice) -> float:
        if candidate.label not in self.errors:
            if self._halves is None:
                self._halves = self.calibration.some(0, 2), self.calibration.some(1, 2)
            first, second = self._halves
            self.calibration.attempts.expect(2)
            errors = [self._made(candidate, made_with, on) for made_with, on in ((first, second), (second, first))]
            self.errors[candidate.label] = math.hypot(*errors) / math.sqrt(2)
        return self.errors[candidate.label]

    def _made(self, candidate: FormatChoice, made_with: Calibration, on: Calibration) -> float:
        """The error of a candidate of the same kind, made with some samples, on others."""
        formats, functions = candidate.compiled.package.formats, {node.name: node for node in made_with.graph.nodes}
        segments = {}
        for name, held in formats.table_segments.items():
            node = functions[name]
            spec = node.attributes(FunctionAttributes).spec
            entries = sum(segment.entries for segment in held)
            segments[name] = divided(spec, sample(made_with.values[node.inputs[0]]), len(held), entries) or held
        exponents: Mapping[str, int] = {}
        if is_static(candidate):
            margin = int(candidate.label.endswith(_TIGHTER))
            exponents = static_exponents(candidate.compiled, made_with.values, margin)
        made = Formats(exponents, mantissas=formats.mantissas, table_segments=segments)
        label = f"{candidate.label}, made with half of the samples"
        return made_with.measure(label, self.config, made, candidate.follow, on.some(0, 1, _HELD_MOST)).error


def _takes_less(candidate: FormatChoice, other: FormatChoice) -> bool:
    """True if a candidate takes nothing from the samples that another one does not take, too."""
    segments, others = candidate.compiled.package.formats.table_segments, other.compiled.package.formats.table_segments
    fewer = all(len(held) <= len(others.get(name, ())) for name, held in segments.items())
    return fewer and candidate.follow in other.follow and is_static(candidate) <= is_static(other)


def choose_formats(
    calibration: Calibration, config: NpuConfig, mantissas: Mapping[str, int] | None = None, *, quick: bool = False
) -> Evidence:
    """Compile a network with dynamic and with static exponents, run all on calibration data and rank them by error.

    Parameters
    ----------
    calibration : Calibration
        The network and the data.
    config : NpuConfig
        What to compile it for.
    mantissas : mapping of str to int
        Bits of the mantissas of weights by layer, as in :class:`concord.compiler.ir.tensor_formats.Formats`.
    quick : bool
        Nothing is compared: exponents are dynamic, and tables, biases and what is taken off inputs follow the samples.

    Raises
    ------
    NotFiniteError
        If the chosen one overflows where floating point does not, and its results show it.
    """
    if quick:
        calibration = estimated(calibration, config, mantissas or {})
        only = without_search(calibration, config, mantissas or {})
        return Evidence(
            (observed(only, calibration, _QUICK_ADVICE),),
            notes=(*_notes(calibration), QUICK),
            decided=calibration.decides,
        )
    calibration, compared = better(calibration, config, mantissas or {})
    evidence = rank_exponents(calibration, config, mantissas or {})
    chosen, *others = evidence.candidates
    others = sorted([*others, *compared], key=rank)
    return replace(evidence, candidates=(observed(chosen, calibration), *others))
