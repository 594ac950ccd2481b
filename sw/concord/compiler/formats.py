"""Formats of the tensors between layers, chosen by what they do to calibration data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table

from concord.compiler.layers import Domain, Layer
from concord.compiler.model import Compiled, compile_graph
from concord.compiler.tensor_formats import Formats
from concord.graph import execute
from concord.graph.ir import Floats, Graph
from concord.host import connect
from concord.spec.config import NpuConfig

Inputs = Mapping[str, npt.ArrayLike]
#: Computes the outputs of a compiled network.
Runner = Callable[[Compiled, Inputs], dict[str, Floats]]


def emulate(compiled: Compiled, inputs: Inputs) -> dict[str, Floats]:
    """Results of a batch on the emulator."""
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        return compiled.run(device, inputs)


@dataclass(frozen=True)
class Candidate:
    """One choice of formats, and what came of it.

    Parameters
    ----------
    label : str
        Short name.
    compiled : Compiled
        The network with these formats.
    error : float
        Root mean square error of the outputs, relative to the reference; of several outputs the largest.
    agreement : float
        Share of samples whose largest element of the first output is where it is in the reference.
    """

    label: str
    compiled: Compiled
    error: float
    agreement: float


@dataclass(frozen=True)
class Evidence:
    """The candidates, the chosen one first."""

    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> Candidate:
        """The one with the least error."""
        return self.candidates[0]

    def table(self) -> Table:
        """All candidates, the chosen one in bold."""
        table = Table(title="Formats on the calibration data", box=box.SIMPLE_HEAD, title_justify="left")
        for column in ("candidate", "agreement", "error of the result"):
            table.add_column(column, justify="left" if column == "candidate" else "right")
        for candidate in self.candidates:
            style = "bold" if candidate is self.chosen else None
            figures = f"{100 * candidate.agreement:.2f} %", f"{100 * candidate.error:.2f} %"
            table.add_row(candidate.label, *figures, style=style)
        return table


def relative_error(computed: Floats, reference: Floats) -> float:
    """Root mean square error relative to the root mean square of the reference."""
    return float(np.linalg.norm(computed - reference) / max(float(np.linalg.norm(reference)), 1e-30))


def static_exponent(largest: float, config: NpuConfig) -> int:
    """The least static exponent that saturates nothing up to ``largest``."""
    exponent = int(np.frexp(largest)[1]) - 1 - config.act.headroom if largest > 0 else config.act.exp_min
    if largest > config.act.q_max * 2.0**exponent:
        exponent += 1
    return min(max(exponent, config.act.exp_min), config.act.exp_max)


def static_exponents(compiled: Compiled, values: Mapping[str, Floats], margin: int = 0) -> dict[str, int]:
    """The least exponents with which no value of a layer saturates, less ``margin``.

    Parameters
    ----------
    compiled : Compiled
        Gives the layers.
    values : mapping of str to array
        All tensors on the calibration data, in double precision.
    """
    config, exponents = compiled.image.config, {}
    for layer in compiled.lowered.layers:
        if isinstance(layer, Layer) and layer.tensor in values:
            largest = float(np.abs(values[layer.tensor]).max())
            exponents[layer.tensor] = max(static_exponent(largest, config) - margin, config.act.exp_min)
    return exponents


def function_ranges(graph: Graph, values: Mapping[str, Floats]) -> dict[str, Domain]:
    """Least and greatest values of the tensors that functions read."""
    read = {name for node in graph.nodes if node.op == "Function" for name in node.inputs}
    return {name: (float(values[name].min()), float(values[name].max())) for name in sorted(read)}


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
    graph : Graph
        The network.
    config : NpuConfig
        What to compile it for.
    inputs : mapping of str to array
        Calibration data, samples along the first axis.
    run : callable
        Computes the outputs.
    mantissas : mapping of str to int
        Bits of the mantissas of weights by layer, as in :class:`concord.compiler.tensor_formats.Formats`.
    batch : int
        As for :func:`concord.compiler.model.compile_graph`.
    """
    values = execute.run(graph, inputs, keep="all")
    ranges = function_ranges(graph, values)
    formats = Formats(ranges=ranges, mantissas=mantissas or {})
    dynamic = compile_graph(graph, config, formats, batch=batch)
    proposals: dict[str, dict[str, int]] = {
        "dynamic exponents": {},
        "static exponents": static_exponents(dynamic, values),
        "static exponents, one bit tighter": static_exponents(dynamic, values, margin=1),
    }
    found = []
    for label, exponents in proposals.items():
        chosen = replace(formats, exponents=exponents)
        compiled = compile_graph(graph, config, chosen, batch=batch) if exponents else dynamic
        outputs = run(compiled, inputs)
        first = graph.outputs[0]
        best, want = (part[first].reshape(len(part[first]), -1).argmax(axis=1) for part in (outputs, values))
        error = max(relative_error(outputs[name], values[name]) for name in graph.outputs)
        found.append(Candidate(label, compiled, error, float(np.mean(best == want))))
    return Evidence(tuple(sorted(found, key=lambda candidate: candidate.error)))
