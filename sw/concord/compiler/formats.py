"""Formats of the tensors between layers, chosen by what they do to calibration data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from rich import box
from rich.table import Table

from concord.compiler.activations import domain_of
from concord.compiler.calibration import ALL, Calibration, Candidate, Follow, Inputs, Runner, emulate
from concord.compiler.judged import judged
from concord.compiler.layers import AnyLayer, Layer, Proven
from concord.compiler.model import Compiled
from concord.compiler.parts import available, divided, sample, table_error
from concord.compiler.tensor_formats import Formats
from concord.graph.ir import Floats, Graph, Node
from concord.sheet import CapacityError
from concord.spec.config import NpuConfig

#: What another table for a function, which costs a chain, may leave of the error of the result. It may also leave all
#: of that, if it leaves no more than ``TABLE_GAIN`` of the function's own: not all adds up in samples as in a stream.
#: And what weights that are rounded for samples may leave of the error on these samples, which flatters them.
GAIN, TABLE_GAIN = 0.9, 0.5


@dataclass(frozen=True)
class Evidence:
    """The candidates, the chosen one first."""

    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> Candidate:
        """The one with the least error, weights that follow the samples being worth it."""
        return self.candidates[0]

    def table(self) -> Table:
        """All candidates, the chosen one in bold."""
        flattered = any(candidate.compiled.package.formats.weights for candidate in self.candidates)
        table = Table(
            title="Formats on the calibration data",
            caption=f"Weights for samples are taken if they leave at most {GAIN:.0%} of the error."
            if flattered
            else None,
            box=box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
        )
        for column in ("candidate", "agreement", "error of the result"):
            table.add_column(column, justify="left" if column == "candidate" else "right")
        for candidate in self.candidates:
            style = "bold" if candidate is self.chosen else None
            figures = f"{100 * candidate.agreement:.2f} %", f"{100 * candidate.error:.2f} %"
            table.add_row(candidate.label, *figures, style=style)
        return table


def static_exponent(largest: float, config: NpuConfig) -> int:
    """The least static exponent that saturates nothing up to ``largest``."""
    exponent = int(np.frexp(largest)[1]) - 1 - config.act.headroom if largest > 0 else config.act.exp_min
    if largest > config.act.q_max * 2.0**exponent:
        exponent += 1
    return min(max(exponent, config.act.exp_min), config.act.exp_max)


def static_exponents(
    compiled: Compiled, values: Mapping[str, Floats], margin: int = 0, config: NpuConfig | None = None
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


def by_tables(calibration: Calibration, config: NpuConfig, best: Candidate, node: Node) -> list[Candidate]:
    """The best candidate with a function in two tables, in three, and so on, where it is worth a chain."""
    formats, found = best.compiled.package.formats, [best]
    functions = tuple((name, tuple(sorted(given.items()))) for name, given in node.attrs["functions"])
    curve = functions, domain_of(functions, formats.domain(node.inputs[0]))
    layers = best.compiled.lowered.layers
    if not any(curve in layer.curves for layer in layers):  # the host computes it
        return []
    most, entries, plain = available(layers, curve, config)
    x = sample(calibration.values[node.inputs[0]])
    before = table_error(functions, [plain], x)
    for count in range(2, most + 1):
        parts = divided(functions, x, count, entries)
        if parts is None or (own := table_error(functions, parts, x)) > GAIN * before:
            continue
        changed = replace(formats, parts={**formats.parts, node.name: parts})
        label = f"{best.label}, {node.name} by {count} tables"
        try:
            one = calibration.measure(label, config, changed, best.follow)
        except CapacityError:
            break
        last = found[-1].error
        if one.error >= GAIN * last and not (one.error <= last and own <= TABLE_GAIN * before):
            continue
        found.append(one)
        before = own
    return found[1:]


def rank_exponents(calibration: Calibration, config: NpuConfig, mantissas: Mapping[str, int]) -> Evidence:
    """Measure dynamic exponents, also without what follows the samples, then static ones, and rank all by their error.

    Functions get several tables where the best one becomes better by it; static exponents then have as many.
    """
    plain = Formats(mantissas=mantissas)
    dynamic = calibration.measure("dynamic exponents", config, plain)
    others = {"weights and biases as they are": Follow.TABLES}
    if dynamic.compiled.package.formats.weights:
        others["weights to the nearest"] = ALL & ~Follow.WEIGHTS
    if dynamic.compiled.package.formats.centres:
        others["inputs as they are"] = ALL & ~Follow.INPUTS
    if any(_follows(layer) for layer in dynamic.compiled.lowered.layers):
        others["tables as they are"] = ALL & ~Follow.TABLES
    found = [dynamic]
    for what, follow in others.items():
        found.append(calibration.measure(f"dynamic exponents, {what}", config, plain, follow))
    with_tables = [candidate for candidate in found if Follow.TABLES in candidate.follow]
    for node in calibration.graph.nodes:
        if node.op == "Function" and node.inputs[0] in calibration.ranges and calibration.batch == 1:
            more = by_tables(calibration, config, min(with_tables, key=_rank), node)
            found, with_tables = found + more, with_tables + more
    best = min(found, key=_rank)
    for margin, suffix in enumerate(("", ", one bit tighter")):
        exponents = static_exponents(dynamic.compiled, calibration.values, margin)
        formats = replace(plain, exponents=exponents, parts=best.compiled.package.formats.parts)
        label = best.label.replace("dynamic", "static", 1) + suffix
        found.append(calibration.measure(label, config, formats, best.follow))
    return Evidence(tuple(sorted(found, key=_rank)))


def _follows(layer: AnyLayer) -> bool:
    """Whether a table of a layer covers what its function reads."""
    return any(isinstance(domain, tuple) and not isinstance(domain, Proven) for _, domain in layer.curves)


def _rank(candidate: Candidate) -> float:
    """The error, in proportion to what it may be."""
    return candidate.error / (GAIN if candidate.compiled.package.formats.weights else 1.0)


def choose_formats(
    graph: Graph,
    config: NpuConfig,
    inputs: Inputs,
    run: Runner = emulate,
    *,
    mantissas: Mapping[str, int] | None = None,
    batch: int = 1,
) -> Evidence:
    """Compile a network with dynamic and with static exponents, run all on calibration data and rank them by error.

    Parameters
    ----------
    config : NpuConfig
        What to compile it for.
    mantissas : mapping of str to int
        Bits of the mantissas of weights by layer, as in :class:`concord.compiler.tensor_formats.Formats`.
    graph, inputs, run, batch
        As for :class:`Calibration`.

    Raises
    ------
    NotFiniteError
        If the chosen one overflows where floating point does not, and its results show it.
    """
    calibration = Calibration(graph, inputs, run, batch=batch)
    chosen, *others = rank_exponents(calibration, config, mantissas or {}).candidates
    return Evidence((judged(chosen, calibration), *others))
