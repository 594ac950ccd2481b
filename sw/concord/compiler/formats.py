"""Formats of the tensors between layers, chosen by what they do to calibration data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table

from concord.compiler.activations import domain_of
from concord.compiler.footprint import weight_bits
from concord.compiler.layers import Domain, Layer
from concord.compiler.model import Compiled, compile_graph
from concord.compiler.parts import available, divided, sample, table_error
from concord.compiler.tensor_formats import Formats
from concord.graph import execute
from concord.graph.ir import Floats, Graph, Node
from concord.host import connect
from concord.host.tensors import real_numbers
from concord.sheet import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

Inputs = Mapping[str, npt.ArrayLike]
Classes = npt.NDArray[np.int64]
#: Computes the outputs of a compiled network.
Runner = Callable[[Compiled, Inputs], dict[str, Floats]]
#: What another table for a function, which costs a chain, may leave of the error of the result. It may also leave all
#: of that, if it leaves no more than ``TABLE_GAIN`` of the function's own: not all adds up in samples as in a stream.
GAIN, TABLE_GAIN = 0.9, 0.5


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
    accuracy : float or None
        Share of samples whose largest element of the first output is the label, where there are labels.
    outputs : dict
        Results on the calibration data.
    """

    label: str
    compiled: Compiled
    error: float
    agreement: float
    accuracy: float | None = None
    outputs: Mapping[str, Floats] = field(default_factory=dict, repr=False, compare=False)

    @property
    def bits(self) -> int:
        """Bits of memory for weights and narrow vectors."""
        compiled = self.compiled
        config, formats = compiled.image.config, compiled.package.formats
        narrow = sum(item.count for item in compiled.items.values() if item.region is RegionId.NARROW)
        weights = sum(
            weight_bits(layer, compiled.items, config, formats.mantissa(layer, config))
            for layer in compiled.lowered.layers
        )
        return weights + narrow * config.narrow_word.width


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


def function_ranges(graph: Graph, values: Mapping[str, Floats]) -> dict[str, Domain]:
    """Least and greatest values of the tensors that functions read whose tables depend on that."""
    found = {}
    for node in graph.nodes:
        if node.op == "Function":
            (name,) = node.inputs
            domain = float(values[name].min()), float(values[name].max())
            if domain_of(node.attrs["functions"], domain) is not None:
                found[name] = domain
    return dict(sorted(found.items()))


def product_means(graph: Graph, values: Mapping[str, Floats]) -> dict[str, tuple[float, ...]]:
    """Mean of every input channel of convolutions and products, by node."""
    means = {}
    for node in graph.nodes:
        if node.op in ("Conv", "Dense"):
            shape = graph.shapes[node.inputs[0]]
            channel = 1 if node.op == "Conv" else len(shape) - 1
            x = np.moveaxis(values[node.inputs[0]].reshape(-1, *shape[1:]), channel, -1)
            means[node.name] = tuple(map(float, x.reshape(-1, shape[channel]).mean(axis=0)))
    return means


def largest_elements(values: Floats) -> Classes:
    """Where the largest element of every sample is."""
    return np.asarray(values.reshape(len(values), -1).argmax(axis=1))


class Calibration:
    """A network and samples for it: what comes of formats, against double precision.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to array
        Samples along the first axis.
    run : callable
        Computes the outputs.
    labels : array of int, optional
        Right class of every sample.
    batch : int
        As for :func:`concord.compiler.model.compile_graph`.

    Raises
    ------
    TypeError
        If an input is not made of real numbers.
    ValueError
        If there are no samples, or a name, a shape or a value is wrong.
    """

    def __init__(
        self, graph: Graph, inputs: Inputs, run: Runner = emulate, labels: Classes | None = None, batch: int = 1
    ):
        self.graph, self.run, self.labels, self.batch = graph, run, labels, batch
        self.inputs = {name: real_numbers(f"input {name!r}", values) for name, values in inputs.items()}
        if empty := [name for name, values in self.inputs.items() if not values.size]:
            raise ValueError(f"input {empty[0]!r} must have samples to calibrate with, not none")
        #: All tensors in double precision.
        self.values = execute.run(graph, self.inputs, keep="all")
        self.ranges = function_ranges(graph, self.values)
        self.means = product_means(graph, self.values)
        self.best = largest_elements(self.values[graph.outputs[0]])

    def accuracy(self, best: Classes) -> float | None:
        """Share of samples that are in the right class, if labels tell."""
        return None if self.labels is None else float(np.mean(best == self.labels))

    def measure(
        self, label: str, config: NpuConfig, formats: Formats, shifted: bool = True, covering: bool = True
    ) -> Candidate:
        """Compile with formats and run.

        With ``shifted``, biases make up for the rounding of weights; with ``covering``, tables cover what functions
        read in double precision, and are coarser where that is much.
        """
        formats = replace(formats, ranges=self.ranges if covering else {}, means=self.means if shifted else {})
        compiled = compile_graph(self.graph, config, formats, batch=self.batch)
        outputs = self.run(compiled, self.inputs)
        best = largest_elements(outputs[self.graph.outputs[0]])
        error = max(relative_error(outputs[name], self.values[name]) for name in self.graph.outputs)
        return Candidate(label, compiled, error, float(np.mean(best == self.best)), self.accuracy(best), outputs)


def in_parts(calibration: Calibration, config: NpuConfig, best: Candidate, node: Node) -> list[Candidate]:
    """The best candidate with a function in two tables, in three, and so on, as long as it is worth a chain."""
    formats, found = best.compiled.package.formats, [best]
    functions = tuple((name, tuple(sorted(given.items()))) for name, given in node.attrs["functions"])
    curve = functions, domain_of(functions, formats.ranges.get(node.inputs[0]))
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
            one = calibration.measure(label, config, changed, bool(formats.means), bool(formats.ranges))
        except CapacityError:
            break
        last = found[-1].error
        if one.error >= GAIN * last and not (one.error <= last and own <= TABLE_GAIN * before):
            break
        found.append(one)
        before = own
    return found[1:]


def rank_exponents(calibration: Calibration, config: NpuConfig, mantissas: Mapping[str, int]) -> Evidence:
    """Measure dynamic and static exponents, biases and tables as they are, and rank them by the error of the result.

    Then functions get several tables where the best one becomes better by it.
    """
    plain = Formats(mantissas=mantissas)
    dynamic = calibration.measure("dynamic exponents", config, plain)
    found = [dynamic, calibration.measure("dynamic exponents, biases as they are", config, plain, shifted=False)]
    if calibration.ranges:
        found.append(calibration.measure("dynamic exponents, tables as they are", config, plain, covering=False))
    for margin, label in enumerate(("static exponents", "static exponents, one bit tighter")):
        exponents = static_exponents(dynamic.compiled, calibration.values, margin)
        found.append(calibration.measure(label, config, Formats(exponents, mantissas=mantissas)))
    for node in calibration.graph.nodes:
        if node.op == "Function" and node.inputs[0] in calibration.ranges and calibration.batch == 1:
            found += in_parts(calibration, config, min(found, key=_error), node)
    return Evidence(tuple(sorted(found, key=_error)))


def _error(candidate: Candidate) -> float:
    return candidate.error


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
    """
    return rank_exponents(Calibration(graph, inputs, run, batch=batch), config, mantissas or {})
