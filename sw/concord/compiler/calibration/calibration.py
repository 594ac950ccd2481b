"""Errors of formats: a network with samples, compiled with candidates and compared with double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Flag, auto

import numpy as np
import numpy.typing as npt

from concord.compiler.calibration.input_offsets import input_offsets
from concord.compiler.calibration.input_products import channel_means
from concord.compiler.calibration.weights import ROUNDED, Rounder
from concord.compiler.ir.activations import depends
from concord.compiler.ir.table_specs import Domain
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.decomposition import one_table_suffices
from concord.compiler.lowering.moments import moments
from concord.compiler.memory.footprint import weight_bits
from concord.compiler.model import Compiled, compile_graph
from concord.functions import function
from concord.functions.float64 import sigmoid
from concord.golden.real_numbers import real_numbers
from concord.graph import execute
from concord.graph.equalised import Scales, equalised, with_preparation
from concord.graph.ir import Graph
from concord.graph.ops.elementwise import FunctionAttributes, names_of
from concord.program.flags import FlagDiagnostic
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_PRECISION
from concord.spec.memmap import RegionId
from concord.utils.arrays import FloatArray, Ints
from concord.utils.attempts import Attempts

Inputs = Mapping[str, npt.ArrayLike]
#: Computes the outputs of a compiled network, and tells the flags that it raises.
Runner = Callable[[Compiled, Inputs], tuple[dict[str, FloatArray], list[FlagDiagnostic]]]


class Follow(Flag):
    """Parts of the formats that follow the samples of a calibration."""

    #: Biases make up for what the rounding of weights changes in the mean.
    BIASES = auto()
    #: Tables cover what functions read in double precision, and are coarser where that is much.
    TABLES = auto()
    #: Weights are rounded for the inputs that they are multiplied with, and not each to the nearest.
    WEIGHTS = auto()
    #: The host takes something off inputs that are rounded less by it.
    INPUTS = auto()


ALL = Follow.BIASES | Follow.TABLES | Follow.WEIGHTS | Follow.INPUTS


@dataclass(frozen=True)
class FormatChoice:
    """One choice of formats, and its error and size.

    Parameters
    ----------
    label : str
        Short name.
    compiled : Compiled
        The network with these formats.
    error : float
        Root mean square error of the outputs of the NPU, relative to the reference; of several outputs the largest.
        Before a final softmax or sigmoid, because after it only samples that are undecided would count.
    agreement : float
        Share of samples that the first output decides as the reference does (:meth:`Calibration.decided`).
    accuracy : float or None
        Share of samples that the first output decides as the label says, where there are labels.
    outputs : dict
        Results on the calibration data, those of a final sigmoid from what the NPU computes in front of it.
    follow : Follow
        What follows that data.
    flags : tuple of FlagDiagnostic
        What the NPU raises on that data, but for a final sigmoid.
    """

    label: str
    compiled: Compiled
    error: float
    agreement: float
    accuracy: float | None = None
    outputs: Mapping[str, FloatArray] = field(default_factory=dict, repr=False, compare=False)
    follow: Follow = ALL
    flags: tuple[FlagDiagnostic, ...] = ()

    @property
    def flags_by_layer(self) -> frozenset[tuple[str, str]]:
        """Pairs of a layer and a flag that it raises."""
        return frozenset((diagnostic.where, diagnostic.flag) for diagnostic in self.flags)

    @property
    def bits(self) -> int:
        """Bits of memory for weights and narrow vectors."""
        compiled = self.compiled
        config, formats = compiled.image.config, compiled.package.formats
        narrow = sum(item.count for item in compiled.allocations.values() if item.region is RegionId.NARROW)
        weights = sum(
            weight_bits(layer, compiled.allocations, config, formats.mantissa(layer, config))
            for layer in compiled.lowered.layers
        )
        return weights + narrow * config.narrow_word.width


def relative_error(computed: FloatArray, reference: FloatArray) -> float:
    """Root mean square error relative to the root mean square of the reference; infinite if it is no number."""
    error = float(np.linalg.norm(computed - reference) / max(float(np.linalg.norm(reference)), 1e-30))
    return error if np.isfinite(error) else float("inf")


def _range(values: FloatArray) -> Domain:
    """Least and greatest value; a little more of values that are all alike, as a table has several entries."""
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    if high - low > 2.0**-BINARY16_PRECISION * size:
        return low, high
    margin = max(size, 2.0**-BINARY16_PRECISION) / 16
    return low - margin, high + margin


def function_ranges(graph: Graph, values: Mapping[str, FloatArray]) -> dict[str, Domain]:
    """Least and greatest values of the tensors that functions read whose tables depend on that.

    Of a normalisation these are means and variances, or means of squares, of what it works on.
    """
    ranges = {}
    for node in graph.nodes:
        if node.op == "Normalise":
            for what, moment in moments(graph, node, values[node.inputs[0]]).items():
                ranges[f"{node.name}/{what}"] = _range(moment)
        if node.op == "Function" and depends(node.attributes(FunctionAttributes).spec):
            (name,) = node.inputs
            ranges[name] = _range(values[name])
    return dict(sorted(ranges.items()))


def product_means(graph: Graph, values: Mapping[str, FloatArray]) -> dict[str, tuple[float, ...]]:
    """Mean of every input channel of convolutions and products, by node."""
    return {
        node.name: tuple(map(float, channel_means(node, values[node.inputs[0]])))
        for node in graph.nodes
        if node.op in ROUNDED
    }


def before_sigmoids(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The network without the sigmoids at its end, and what they compute by what they read."""
    sigmoids: dict[str, str] = {}
    for node in graph.nodes:
        last = node.outputs[0] in graph.outputs and not graph.consumers(node.outputs[0])
        if last and names_of(node) == ("sigmoid",):
            if node.inputs[0] not in (*graph.inputs, *graph.outputs, *sigmoids):
                sigmoids[node.inputs[0]] = node.outputs[0]
    names = {computed: read for read, computed in sigmoids.items()}
    nodes = [node for node in graph.nodes if node.outputs[0] not in names]
    batched = graph.batched | {read for read, computed in sigmoids.items() if computed in graph.batched}
    outputs = [names.get(name, name) for name in graph.outputs]
    shapes = {name: shape for name, shape in graph.shapes.items() if name not in names}
    return replace(graph, nodes=nodes, outputs=outputs, shapes=shapes, batched=batched), sigmoids


def threshold(graph: Graph) -> float:
    """Number with which a single number at the end of a network is compared to decide: 0.5 after a sigmoid, else 0."""
    names = names_of(graph.producer(graph.outputs[0]))
    return 0.5 if names and function(names[-1]).range == (0, 1) else 0.0


def classifies(graph: Graph) -> bool:
    """True if the first output has an element per class: one axis, and not that of an input that is reconstructed."""
    sizes, *inputs = ([size for size in graph.sample_shape(n) if size > 1] for n in (graph.outputs[0], *graph.inputs))
    return len(sizes) == 1 and sizes not in inputs


def decides(graph: Graph) -> bool:
    """True if the first output is a decision: an element per class, a class, or a single number after a sigmoid.

    Other results, such as those of a regression, have an error, but nothing that could agree.
    """
    if graph.outputs[0] in graph.element_types:
        return decides_alone(graph)
    return classifies(graph) or (decides_alone(graph) and threshold(graph) > 0)


def decides_alone(graph: Graph) -> bool:
    """True if the first output is a single number."""
    return math.prod(graph.sample_shape(graph.outputs[0])) == 1


def decisions(graph: Graph, values: FloatArray) -> Ints:
    """Decisions of the first output: the place of its largest element or, of a single number, 1 if it is large.

    A whole number is the class itself.
    """
    if decides_alone(graph) and graph.outputs[0] in graph.element_types:
        return np.asarray(values.reshape(-1), dtype=np.int64)
    if decides_alone(graph):
        return np.asarray(values.reshape(-1) > threshold(graph), dtype=np.int64)
    return largest_elements(values)


def largest_elements(values: FloatArray) -> Ints:
    """Place of the largest element of every sample."""
    return np.asarray(values.reshape(len(values), -1).argmax(axis=1))


class Calibration:
    """A network with samples, which measures the error of formats against double precision.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to array
        Samples along the first axis.
    run : callable
        Computes the outputs and tells the flags.
    labels : array of int, optional
        Right class of every sample.
    batch : int
        As for :func:`concord.compiler.model.compile_graph`.
    attempts : Attempts, optional
        Counts what is measured.
    channel_scales : mapping of str to ChannelScale, optional
        Powers of two that channels are divided by; ``graph`` is the network with these, ``source`` the one without.

    Raises
    ------
    TypeError
        If an input is not made of real numbers.
    ValueError
        If there are no samples, or a name, a shape or a value is wrong.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Inputs,
        run: Runner,
        labels: Ints | None = None,
        batch: int = 1,
        attempts: Attempts | None = None,
        channel_scales: Scales | None = None,
    ):
        self.source, self.channel_scales = graph, dict(channel_scales or {})
        graph = with_preparation(equalised(graph, self.channel_scales), self.channel_scales)
        self.graph, self.run, self.labels, self.batch = graph, run, labels, batch
        self.attempts = attempts or Attempts()
        self.inputs = {name: real_numbers(f"input {name!r}", values) for name, values in inputs.items()}
        if empty := [name for name, values in self.inputs.items() if not values.size]:
            raise ValueError(f"input {empty[0]!r} must have samples to calibrate with, not none")
        #: All tensors in double precision.
        self.values = execute.run(graph, self.inputs, keep="all")
        self.ranges = function_ranges(graph, self.values)
        self.means = product_means(graph, self.values)
        self.best = self.decided(self.values[graph.outputs[0]])
        self.rounder = Rounder(graph, self.values)
        self._known_offsets: dict[Hashable, dict[str, float]] = {}

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(next(iter(self.inputs.values())))

    @property
    def single(self) -> bool:
        """True if a single number is all that decides."""
        return decides_alone(self.graph)

    def decided(self, values: FloatArray) -> Ints:
        """Decisions of the first output: the place of its largest element or, of one number, 1 if that is above 0.

        After a sigmoid the threshold is 0.5.
        """
        return decisions(self.graph, values)

    @property
    def decides(self) -> bool:
        """True if the first output is a decision, with which the NPU can agree: labels say so, or its shape."""
        return self.labels is not None or decides(self.graph)

    def some(self, start: int, step: int, most: int | None = None) -> Calibration:
        """Calibration with every ``step``-th of the samples from ``start`` on, at most so many."""
        which = slice(start, None if most is None else start + step * most, step)
        part = copy(self)
        part.inputs = {name: values[which] for name, values in self.inputs.items()}
        part.values = {name: values[which] for name, values in self.values.items()}
        part.labels = None if self.labels is None else self.labels[which]
        part.ranges, part.means = function_ranges(self.graph, part.values), product_means(self.graph, part.values)
        part.best = self.best[which]
        halved = (step, most) == (2, None) and start < step and self.rounder.divisible
        part.rounder = self.rounder.halved(start) if halved else Rounder(self.graph, part.values)
        part._known_offsets = {}
        return part

    def with_scales(self, channel_scales: Scales) -> Calibration:
        """Calibration with these samples for the network with channels that are divided by powers of two."""
        return Calibration(self.source, self.inputs, self.run, self.labels, self.batch, self.attempts, channel_scales)

    def accuracy(self, best: Ints) -> float | None:
        """Share of samples that are in the right class, if labels tell."""
        return None if self.labels is None else float(np.mean(best == self.labels))

    def measure(
        self, label: str, config: NpuConfig, formats: Formats, follow: Follow = ALL, on: Calibration | None = None
    ) -> FormatChoice:
        """Compile with formats, in which what ``follow`` says is as the samples want it, and run.

        It runs on these samples, or ``on`` others of the same network.

        Raises
        ------
        ValueError
            If weights are to follow and biases are not: weights leave the mean to biases.
        """
        if Follow.WEIGHTS in follow and Follow.BIASES not in follow:
            raise ValueError(f"biases must follow where weights do, not {follow!r}")
        self.attempts.begin(label)
        ranges = self.ranges if Follow.TABLES in follow else {}
        plain = one_table_suffices(self.graph, self.values, config) if Follow.TABLES in follow else ()
        means = self.means if Follow.BIASES in follow else {}
        formats = replace(formats, ranges=ranges, plain=plain, means=means, channel_scales=self.channel_scales)
        compiled = compile_graph(self.source, config, formats, batch=self.batch)
        weights = self.rounder.weights(compiled) if Follow.WEIGHTS in follow else {}
        offsets = self._offsets(compiled) if Follow.INPUTS in follow else {}
        if weights or offsets:
            formats = replace(formats, weights=weights, input_offsets=offsets)
            compiled = compile_graph(self.source, config, formats, batch=self.batch)
        return (on or self).judge(label, compiled, follow)

    def complete(self, candidate: FormatChoice) -> tuple[Mapping[str, FloatArray], list[FlagDiagnostic]]:
        """Outputs and flags of a candidate, those of a final sigmoid included."""
        if before_sigmoids(self.graph)[1]:
            return self.run(candidate.compiled, self.inputs)
        return candidate.outputs, list(candidate.flags)

    def judge(self, label: str, compiled: Compiled, follow: Follow = ALL) -> FormatChoice:
        """Run a compiled network on the samples, and measure the error before a final softmax or sigmoid."""
        complete, (short, sigmoids) = compiled, before_sigmoids(self.source)
        if sigmoids:
            package = compiled.package
            compiled = compile_graph(short, package.config, package.formats, batch=self.batch)
        bare = replace(compiled, package=replace(compiled.package, host_graph=None))
        computed, flags = self.run(bare, self.inputs)
        error = max(
            relative_error(x.reshape(self.values[name].shape), self.values[name]) for name, x in computed.items()
        )
        outputs = compiled.package.host_outputs(self.inputs, computed)
        outputs = {sigmoids.get(name, name): sigmoid(x) if name in sigmoids else x for name, x in outputs.items()}
        best = self.decided(outputs[self.graph.outputs[0]])
        agreement, accuracy = float(np.mean(best == self.best)), self.accuracy(best)
        return FormatChoice(label, complete, error, agreement, accuracy, outputs, follow, tuple(flags))

    def _offsets(self, compiled: Compiled) -> dict[str, float]:
        """Offsets that the host takes off inputs, computed once for equal vectors."""
        offsettable, config = sorted(compiled.lowered.offsettable), compiled.image.config
        arrays = [compiled.package.arrangement.inputs[name] for name in offsettable]
        key = config.act, config.native, *offsettable, *(array.tobytes() for array in arrays)
        if key not in self._known_offsets:
            self._known_offsets[key] = input_offsets(compiled, self.inputs)
        return self._known_offsets[key]
