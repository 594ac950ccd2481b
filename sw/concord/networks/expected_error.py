"""Measures the error that a network is expected to have, and finds where it is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from concord.compiler.calibration.calibration import Inputs
from concord.compiler.ir.expected_error import TOO_LARGE, Cause, ExpectedError, LayerError, error_percent
from concord.compiler.lowering.input_assumptions import nearly_equal
from concord.compiler.model import Compiled
from concord.graph import execute
from concord.graph.cost import macs
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import constant_of, names_of
from concord.networks.coarse_tables import coarse_tables
from concord.networks.layer_errors import MeasuredErrors, largest_error, measured_errors, output_errors, reference
from concord.networks.layer_results import parts
from concord.networks.samples import finite_samples, other_samples_to_measure, samples_to_measure
from concord.networks.steep_functions import rounded, steep_functions
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray

#: Samples that errors are measured on: of small networks up to the second number, whose multiply-accumulates together
#: are at most the third. In few samples alone numbers may lie where a function is steep.
SAMPLES, _MOST, _WORK = 16, 64, 1 << 26
#: Synthetic ones.
SYNTHETIC = 6
#: Layers that are named, at most, and the share of the error of the result that each must add.
_NAMED, _WORTH = 3, 0.25
#: Times by which operands are larger than the result where they are told to cancel.
_CANCELLED = 8.0
#: Times by which channels of a product differ where they are told to be of different scales.
_SCALES = 16.0
#: Share of an error that a cause must have alone to be told.
_SHARE = 0.5
_WIDER = "wider mantissas (--mantissa M)"
_SMALLER = "smaller inputs (divided by their deviation), or wider mantissas (--mantissa M)"
#: What helps a table that is coarse, without samples and with some.
_FINER = (
    "samples (--calibrate), an --input-range no wider than needed, or an NPU with more tables (--preset)",
    "samples without the rare large numbers that make the step, or an NPU with more tables (--preset)",
)


def with_expected_error(
    graph: Graph, compiled: Compiled, samples: Inputs | None = None, example: Inputs | None = None
) -> Compiled:
    """Add the error that a network is expected to have.

    Parameters
    ----------
    graph : Graph
        The network, as it was compiled.
    compiled : Compiled
        What became of it.
    samples : mapping of str to array, optional
        Inputs ``[samples, *shape of a sample]`` by name; if left out, synthetic ones that are like what is assumed of
        the inputs, of several kinds: the error is that of the worst kind. After a softmax, errors of those mean little:
        then the result is what the NPU hands to the host.
    example : mapping of str to array, optional
        Inputs of one more kind.
    """
    most = int(np.clip(_WORK // max(macs(graph), 1), SAMPLES, _MOST))
    measured_on = [samples_to_measure(graph, samples, compiled.package.formats.inputs, most, SYNTHETIC)]
    if samples is None:
        measured_on += other_samples_to_measure(graph, compiled.package.formats.inputs, SYNTHETIC // 3)
    if example is not None:
        spread, _ = samples_to_measure(graph, example, None, SAMPLES)
        measured_on.append((spread, "samples of the example"))
    inputs, source, want = _worst(compiled, measured_on, samples is not None)
    if not inputs:
        return compiled
    count = len(want[graph.outputs[0]])
    host = compiled.host_graph
    if host is not None and samples is None:
        source += f", before {', '.join(dict.fromkeys(node.op for node in host.nodes))} of the host"
    measured = _measured(compiled, inputs, want, samples is not None)
    layers: tuple[LayerError, ...] = ()
    if measured.layers:
        pairs = zip(compiled.lowered.layers, measured.layers, measured.own, strict=True)
        layers = tuple(LayerError(layer.name, whole.relative, own.relative) for layer, whole, own in pairs)
    expected = ExpectedError(f"{count} {source}", measured.relative, layers)
    if expected.too_large:
        exact = execute.run(graph, inputs, keep="all")
        shaped = {name: values.reshape(len(values), *graph.shapes[name]) for name, values in exact.items()}
        looked_for = _Causes(compiled, graph, shaped, samples is not None)
        expected = replace(expected, causes=looked_for.worst(layers, measured.relative))
    doubts = [f"{table.text}; what helps: {_FINER[samples is not None]}" for table in coarse_tables(compiled, want)]
    if not expected.too_large:
        doubts += [f"{steep.text}; what helps: {_SMALLER}" for steep in steep_functions(compiled, want)]
    if samples is not None and not expected.too_large:
        doubts += _nearly_equal(graph, compiled, measured_on[0][0])
    expected = replace(expected, doubts=tuple(doubts))
    return replace(compiled, package=replace(compiled.package, expected_error=expected))


def _nearly_equal(graph: Graph, compiled: Compiled, samples: Mapping[str, FloatArray]) -> list[str]:
    """A line if the error is large for inputs that are alike, as samples do not have to be."""
    others = graph.whole | graph.element_types.keys() | graph.from_host
    floats = [name for name in samples if name not in others]
    near = nearly_equal(graph, samples, dict.fromkeys(floats))
    inputs, _, want = _worst(compiled, [(near, "")] if near else [], True)
    if not inputs:
        return []
    error = largest_error(output_errors(compiled, inputs, want).values())
    if error is not None and error <= TOO_LARGE:
        return []
    shapes = {graph.sample_shape(name) for name in floats if near[name] is not samples[name]}
    names = ", ".join(name for name in floats if graph.sample_shape(name) in shapes)
    share = error_percent(error)
    what = f"expected error of the result: {share} if they differ by a 32nd of what they do in the samples"
    return [f"inputs {names} that are nearly equal: {what}; what helps: samples of such inputs, or {_WIDER}"]


def _worst(
    compiled: Compiled, kinds: Sequence[tuple[Inputs, str]], host: bool
) -> tuple[Inputs, str, dict[str, FloatArray]]:
    """Of several kinds of samples those with the largest error, and their results; none if no results are finite."""
    worst: tuple[float, Inputs, str, dict[str, FloatArray]] = (-1.0, {}, "", {})
    for inputs, source in kinds:
        want = reference(compiled, inputs)
        usable = finite_samples(want[name] for name in compiled.graph.outputs)
        if not usable.any():
            continue
        inputs = {name: np.asarray(values)[usable] for name, values in inputs.items()}
        want = {name: values[usable] for name, values in want.items()}
        error: float | None = 0.0
        if len(kinds) > 1:
            error = largest_error(output_errors(compiled, inputs, want, host=host).values())
        error = np.inf if error is None else error
        if error > worst[0]:
            worst = error, inputs, source, want
    return worst[1:]


def _measured(compiled: Compiled, inputs: Inputs, want: Mapping[str, FloatArray], host: bool) -> MeasuredErrors:
    try:
        return measured_errors(compiled, inputs, want, host=host)
    except CapacityError:  # in row tiles, and larger than the largest memories
        return MeasuredErrors(output_errors(compiled, inputs, want, host=host), (), ())


def _rms(x: npt.ArrayLike) -> float:
    values = np.asarray(x, dtype=np.float64)
    return float(np.sqrt(np.mean(values * values))) if values.size else 0.0


@dataclass(frozen=True)
class _Causes:
    """Looks for what makes errors of layers.

    Parameters
    ----------
    compiled : Compiled
        The network.
    graph : Graph
        As it was before its functions were taken apart.
    want : mapping of str to array
        All tensors of that in double precision, as nodes have them after the axis of samples.
    calibrated : bool
        Whether there are samples.
    """

    compiled: Compiled
    graph: Graph
    want: Mapping[str, FloatArray]
    calibrated: bool

    def worst(self, errors: tuple[LayerError, ...], result: float | None) -> tuple[Cause, ...]:
        """The layers that add most to the error, each with its cause."""
        known: dict[str, float] = {}
        added = []
        for layer, error in zip(self.compiled.lowered.layers, errors, strict=False):
            tensor = parts(self.compiled.lowered, layer)[0].tensor
            nodes, read = self._between(tensor, known)
            if not nodes:  # part of a function, or moved elements
                continue
            known[tensor] = np.inf if error.relative is None else error.relative
            carried = max((known.get(name, 0.0) for name in read), default=0.0)
            added.append((known[tensor] - (carried if np.isfinite(carried) else 0.0), layer.name, nodes, known[tensor]))
        least = _WORTH * (TOO_LARGE if result is None else result)
        ranked = sorted(added, key=lambda item: -item[0])
        largest = [item for item in ranked if item[0] >= least][:_NAMED] or ranked[:1]
        return tuple(self._cause(name, nodes, now) for _, name, nodes, now in largest)

    def _between(self, tensor: str, known: Mapping[str, float]) -> tuple[list[Node], list[str]]:
        """Nodes that compute a tensor from others whose error is known, and those."""
        nodes: dict[str, Node] = {}
        read, waiting = [], [tensor]
        while waiting:
            name = waiting.pop()
            node = self.graph.producer(name)
            if name in known and name != tensor:
                read.append(name)
            elif node is not None and node.name not in nodes:
                nodes[node.name] = node
                waiting += [name for name in node.inputs if name]
        return list(nodes.values()), read

    def _cause(self, layer: str, nodes: list[Node], now: float) -> Cause:
        config = self.compiled.image.config
        for node in nodes:
            for rule in (_cancelled, _large_arguments, _inputs_of_product):
                texts = rule(node, self.want, now, config)
                if texts is not None:
                    return Cause(layer, *texts)
        size = f"its error is {100 * now:.1f} %" if np.isfinite(now) else "its values are not all finite"
        wider = "wider mantissas (--mantissa M, or another --preset)"
        samples = "samples (--calibrate), an --input-range no wider than needed, or "
        meaning = f"{size} with mantissas of {config.act_mant} bits"
        return Cause(layer, meaning, wider if self.calibrated else samples + wider)


def _operands(node: Node, want: Mapping[str, FloatArray]) -> list[FloatArray]:
    operands = [want[name] for name in node.inputs if name]
    constant = constant_of(node, node.op)
    return operands if constant is None else [*operands, constant]


def _cancelled(node: Node, want: Mapping[str, FloatArray], now: float, config: NpuConfig) -> tuple[str, str] | None:
    """A sum or difference of numbers that are much larger than the result."""
    if node.op not in ("Add", "Sub"):
        return None
    result, operands = _rms(want[node.outputs[0]]), [_rms(operand) for operand in _operands(node, want)]
    if len(operands) < 2 or sorted(operands)[-2] < _CANCELLED * result:
        return None
    times = "infinitely many" if not result else f"{max(operands) / result:.3g}"
    return (
        f"{node.name} is a difference of nearly equal numbers, {times} times as large as it",
        "take off what they have in common before the network, or wider mantissas (--mantissa M)",
    )


def _by_rounding(node: Node, want: Mapping[str, FloatArray], axis: int, config: NpuConfig) -> float:
    """Error of what a node computes if nothing but what it reads is rounded to the format of activations."""
    x, y = want[node.inputs[0]], want[node.outputs[0]]
    with np.errstate(all="ignore"):
        changed = operator_of(node).evaluate(node, [rounded(x, axis, config)])[0]
        return _rms(changed - y) / max(_rms(y), 1e-30)


def _large_arguments(
    node: Node, want: Mapping[str, FloatArray], now: float, config: NpuConfig
) -> tuple[str, str] | None:
    """A function whose result changes much within a step of the block that its argument is in."""
    if node.op != "Function":
        return None
    x = want[node.inputs[0]]
    if x.ndim < 2 or not _by_rounding(node, want, x.ndim - 1, config) > _SHARE * min(now, 1.0):
        return None
    name = "+".join(names_of(node))
    largest = float(np.abs(x).max())
    step = largest * 2.0 ** (2 - config.act_mant)
    return (
        f"{name} reads numbers up to {largest:.3g}; steps of {step:.2g} are large against what changes its result",
        "smaller inputs or weights before it, or wider mantissas (--mantissa M)",
    )


def _inputs_of_product(
    node: Node, want: Mapping[str, FloatArray], now: float, config: NpuConfig
) -> tuple[str, str] | None:
    """A product that loses by the rounding of what it reads: channels of different sizes, or sums that cancel."""
    if node.op not in ("Dense", "Conv"):
        return None
    x = want[node.inputs[0]]
    axis = 1 if node.op == "Conv" else x.ndim - 1
    rounding = _by_rounding(node, want, axis, config)
    if not rounding > max(_SHARE * min(now, 1.0), TOO_LARGE / 2):
        return None
    sizes = np.sqrt((x * x).mean(axis=tuple(k for k in range(x.ndim) if k != axis)))
    sizes = sizes[sizes > 0]
    if sizes.size > 1 and sizes.max() >= _SCALES * sizes.min():
        return (
            f"{node.name} reads channels of sizes from {sizes.min():.3g} to {sizes.max():.3g}, which share exponents",
            "bring the features to one scale before the network, or wider mantissas (--mantissa M)",
        )
    if rounding < _CANCELLED / 2 * _rms(rounded(x, axis, config) - x) / max(_rms(x), 1e-30):
        return None
    return (
        f"the sums of {node.name} cancel: rounding what it reads alone changes them by {100 * rounding:.1f} %",
        "take off what its inputs have in common before the network, or wider mantissas (--mantissa M)",
    )
