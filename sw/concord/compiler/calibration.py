"""A network and samples for it: what comes of formats, against double precision."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, auto

import numpy as np
import numpy.typing as npt

from concord.compiler.activations import depends
from concord.compiler.centres import input_centres
from concord.compiler.footprint import weight_bits
from concord.compiler.layers import Domain
from concord.compiler.model import Compiled, compile_graph
from concord.compiler.normalisations import moments
from concord.compiler.scaled import good_enough
from concord.compiler.tensor_formats import Formats
from concord.compiler.weights import Rounder, channel_means
from concord.graph import execute
from concord.graph.ir import Floats, Graph
from concord.host import connect
from concord.host.tensors import real_numbers
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

Inputs = Mapping[str, npt.ArrayLike]
Classes = npt.NDArray[np.int64]
#: Computes the outputs of a compiled network.
Runner = Callable[[Compiled, Inputs], dict[str, Floats]]


class Follow(Flag):
    """What follows the samples of a calibration."""

    #: Biases make up for what the rounding of weights changes in the mean.
    BIASES = auto()
    #: Tables cover what functions read in double precision, and are coarser where that is much.
    TABLES = auto()
    #: Weights are rounded for the inputs that they are multiplied with, and not each to the nearest.
    WEIGHTS = auto()
    #: The host takes something off inputs that are rounded less by it.
    INPUTS = auto()


ALL = Follow.BIASES | Follow.TABLES | Follow.WEIGHTS | Follow.INPUTS


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
        Root mean square error of the outputs of the NPU, relative to the reference; of several outputs the largest.
        Before a softmax of the host, because behind it only samples that are undecided would count.
    agreement : float
        Share of samples whose largest element of the first output is where it is in the reference.
    accuracy : float or None
        Share of samples whose largest element of the first output is the label, where there are labels.
    outputs : dict
        Results on the calibration data.
    follow : Follow
        What follows that data.
    """

    label: str
    compiled: Compiled
    error: float
    agreement: float
    accuracy: float | None = None
    outputs: Mapping[str, Floats] = field(default_factory=dict, repr=False, compare=False)
    follow: Follow = ALL

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


def relative_error(computed: Floats, reference: Floats) -> float:
    """Root mean square error relative to the root mean square of the reference; infinite if it is no number."""
    error = float(np.linalg.norm(computed - reference) / max(float(np.linalg.norm(reference)), 1e-30))
    return error if np.isfinite(error) else float("inf")


def function_ranges(graph: Graph, values: Mapping[str, Floats]) -> dict[str, Domain]:
    """Least and greatest values of the tensors that functions read whose tables depend on that.

    Of a normalisation these are means and variances, or means of squares, of what it works on.
    """
    found = {}
    for node in graph.nodes:
        if node.op == "Normalise":
            for what, moment in moments(graph, node, values[node.inputs[0]]).items():
                found[f"{node.name}/{what}"] = float(moment.min()), float(moment.max())
        if node.op == "Function" and depends(node.attrs["functions"]):
            (name,) = node.inputs
            found[name] = float(values[name].min()), float(values[name].max())
    return dict(sorted(found.items()))


def product_means(graph: Graph, values: Mapping[str, Floats]) -> dict[str, tuple[float, ...]]:
    """Mean of every input channel of convolutions and products, by node."""
    return {
        node.name: tuple(map(float, channel_means(node, values[node.inputs[0]])))
        for node in graph.nodes
        if node.op in ("Conv", "Dense")
    }


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
        self.rounder = Rounder(graph, self.values)
        self._found_centres: dict[Hashable, dict[str, float]] = {}

    def accuracy(self, best: Classes) -> float | None:
        """Share of samples that are in the right class, if labels tell."""
        return None if self.labels is None else float(np.mean(best == self.labels))

    def measure(self, label: str, config: NpuConfig, formats: Formats, follow: Follow = ALL) -> Candidate:
        """Compile with formats, in which what ``follow`` says is as the samples want it, and run.

        Raises
        ------
        ValueError
            If weights are to follow and biases are not: weights leave the mean to biases.
        """
        if Follow.WEIGHTS in follow and Follow.BIASES not in follow:
            raise ValueError(f"biases must follow where weights do, not {follow!r}")
        ranges = self.ranges if Follow.TABLES in follow else {}
        plain = good_enough(self.graph, self.values, config) if Follow.TABLES in follow else ()
        means = self.means if Follow.BIASES in follow else {}
        formats = replace(formats, ranges=ranges, plain=plain, means=means)
        compiled = compile_graph(self.graph, config, formats, batch=self.batch)
        weights = self.rounder.weights(compiled) if Follow.WEIGHTS in follow else {}
        centres = self._centres(compiled) if Follow.INPUTS in follow else {}
        if weights or centres:
            formats = replace(formats, weights=weights, centres=centres)
            compiled = compile_graph(self.graph, config, formats, batch=self.batch)
        bare = replace(compiled, package=replace(compiled.package, host=None))
        computed = self.run(bare, self.inputs)
        error = max(
            relative_error(x.reshape(self.values[name].shape), self.values[name]) for name, x in computed.items()
        )
        outputs = compiled.package.behind(self.inputs, computed)
        best = largest_elements(outputs[self.graph.outputs[0]])
        agreement = float(np.mean(best == self.best))
        return Candidate(label, compiled, error, agreement, self.accuracy(best), outputs, follow)

    def _centres(self, compiled: Compiled) -> dict[str, float]:
        """What the host takes off inputs; the same for the same vectors."""
        movable, config = sorted(compiled.lowered.movable), compiled.image.config
        arrays = [compiled.package.arrangement.inputs[name] for name in movable]
        key = config.act, config.native, *movable, *(array.tobytes() for array in arrays)
        if key not in self._found_centres:
            self._found_centres[key] = input_centres(compiled, self.inputs)
        return self._found_centres[key]
