"""Assumptions about inputs without samples, and synthetic samples that are like them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from concord.compiler.ir.input_record import UNSEEN
from concord.compiler.ir.table_specs import Domain
from concord.graph.cost import macs
from concord.graph.ir import Graph
from concord.graph.ops.elementwise import codes_of
from concord.utils.arrays import FloatArray

#: Reason for the range of an input: the host compares, so it is -1, 0 or 1.
SIGNS = "signs that the host computes"
#: An input of floats of which nothing is known is standard normal, with this many deviations on either side.
DEVIATIONS = 8.0
#: Synthetic samples, fewer of large networks: this many multiply-accumulates in all.
SYNTHETIC, _WORK = 32, 1 << 30
_SEED = 12
#: Difference of inputs that are nearly equal, in terms of that of independent ones.
_NEAR = 1 / 32


@dataclass(frozen=True)
class Assumption:
    """Assumption about an input: its range, whether it is normal or uniform in it, and the reason."""

    low: float
    high: float
    normal: bool
    reason: str

    @property
    def text(self) -> str:
        """Text of the assumption for a message."""
        what = "normal, deviation 1, within" if self.normal else "values in"
        return f"{what} {self.low:g} to {self.high:g} ({self.reason})"


def assumed(graph: Graph, ranges: Mapping[str, Domain] | None = None) -> dict[str, Assumption]:
    """Assumptions about all inputs.

    Parameters
    ----------
    graph : Graph
        The network.
    ranges : mapping of str to pair of floats, optional
        Ranges of inputs that are known.

    Raises
    ------
    ValueError
        If a range is of no input, or its ends are not finite or not in order.
    """
    ranges = ranges or {}
    for name, (low, high) in ranges.items():
        if name not in graph.inputs:
            raise ValueError(f"input with a range must be one of {', '.join(graph.inputs)}, not {name!r}")
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"range of {name} must be two finite numbers low < high, not {low!r}, {high!r}")
    assumptions = {}
    for name in graph.inputs:
        if name in ranges:
            synthetic = graph.npu_nodes is not None and name in graph.from_host
            reason = "of synthetic inputs" if synthetic else "given"
            assumptions[name] = Assumption(float(ranges[name][0]), float(ranges[name][1]), False, reason)
        elif name in graph.known_ranges:
            low, high, reason = graph.known_ranges[name]
            assumptions[name] = Assumption(low, high, False, reason)
        elif codes := _codes(graph, name):
            low, high = (float(pick(end)) for pick, end in zip((np.min, np.max), zip(*codes, strict=True), strict=True))
            assumptions[name] = Assumption(low, high, False, "what its codes mean")
        else:
            assumptions[name] = Assumption(-DEVIATIONS, DEVIATIONS, True, UNSEEN)
    return assumptions


def _codes(graph: Graph, name: str) -> list[tuple[float, float]]:
    """Ends of what the codes of an input stand for, if all that read it read codes."""
    if name in graph.quantization:
        schemes = [graph.quantization[name]]
    else:
        readers = graph.consumers(name)
        quantised = name not in graph.outputs and all(node.op == "FakeQuantize" for node in readers)
        schemes = [codes_of(node) for node in readers] if quantised else []
    return [(float(low.min()), float(high.max())) for low, high in (scheme.span for scheme in schemes)]


def synthetic_samples(graph: Graph, inputs: Mapping[str, Assumption], most: int = SYNTHETIC) -> dict[str, FloatArray]:
    """Seeded random inputs within what is assumed of them: in turn white, alike in all elements, and half of each.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to Assumption
        Of every input (:func:`assumed`).
    most : int
        Greatest number of samples; fewer of large networks, but three at least.

    Returns
    -------
    dict
        ``[samples, *shape of a sample]`` by input; the same for the same arguments.
    """
    rng = np.random.default_rng(_SEED)
    count = int(np.clip(_WORK // max(macs(graph), 1), 3, most))
    samples = {}
    for name, assumption in inputs.items():
        shape = graph.sample_shape(name)
        white, alike = rng.normal(size=(count, *shape)), rng.normal(size=(count, *[1] * len(shape)))
        common = np.array([0.0, 1.0, 0.5])[np.arange(count) % 3].reshape(-1, *[1] * len(shape))
        mixed = np.sqrt(1 - common) * white + np.sqrt(common) * alike
        if assumption.normal:
            samples[name] = np.clip(mixed, assumption.low, assumption.high)
        else:  # about uniform: the logistic function is near the distribution function of normal numbers
            share = 1 / (1 + np.exp(-1.702 * mixed))
            samples[name] = assumption.low + (assumption.high - assumption.low) * share
        if name in graph.whole - graph.element_types.keys():  # for the host alone, such as an index
            samples[name] = np.zeros_like(white)
        elif name in graph.element_types:
            samples[name] = np.rint(samples[name])
        elif assumption.reason == SIGNS:  # of floats, which hardly ever equal each other
            samples[name] = np.copysign(1.0, samples[name])
    return samples


def other_samples(
    graph: Graph, inputs: Mapping[str, Assumption], most: int = SYNTHETIC
) -> dict[str, dict[str, FloatArray]]:
    """Synthetic samples on which a network may lose more than on mixed ones, by what they are, in words.

    Mixed samples have large results where their elements are alike, beside which errors of others are small. So there
    are independent elements alone, those of codes an eighth of the range of the codes in deviation; and, of several
    inputs of one shape, such as are nearly equal, since differences of these keep few bits.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to Assumption
        Of every input (:func:`assumed`).
    most : int
        How many there are of each kind, at most.

    Returns
    -------
    dict
        By description ``[samples, *shape of a sample]`` by input; the same for the same arguments.
    """
    rng = np.random.default_rng(_SEED)
    count = int(np.clip(_WORK // max(macs(graph), 1), 1, most))
    others = graph.whole | graph.element_types.keys()
    floats = [name for name, assumption in inputs.items() if name not in others and assumption.reason != SIGNS]
    samples = synthetic_samples(graph, inputs, 3)
    samples = {name: np.repeat(values[:1], count, axis=0) for name, values in samples.items()}
    for name in floats:
        low, high = inputs[name].low, inputs[name].high
        middle, deviation = (0.0, 1.0) if inputs[name].normal else ((low + high) / 2, (high - low) / 8)
        white = middle + deviation * rng.normal(size=samples[name].shape)
        samples[name] = np.clip(white, low, high)
    kinds = {"independent elements": samples} if floats else {}
    near = nearly_equal(graph, samples, {name: inputs[name] for name in floats})
    return kinds | ({"inputs that are nearly equal": near} if near else {})


def nearly_equal(
    graph: Graph, samples: Mapping[str, FloatArray], kinds: Mapping[str, Hashable]
) -> dict[str, FloatArray]:
    """Samples in which inputs of one shape and kind are nearly equal to the first of these.

    Parameters
    ----------
    graph : Graph
        The network.
    samples : mapping of str to array
        ``[samples, *shape of a sample]`` by input: differences become a 32nd of what they are.
    kinds : mapping of str to hashable
        Inputs that may be compared, each with what it must have in common with another one.

    Returns
    -------
    dict
        All inputs; empty if no two are of one shape and kind.
    """
    near, first = dict(samples), dict[Hashable, str]()
    for name, kind in kinds.items():
        other = first.setdefault((graph.sample_shape(name), kind), name)
        if other != name and name not in graph.states:
            near[name] = samples[other] + (samples[name] - samples[other]) * _NEAR
    return near if any(near[name] is not samples[name] for name in near) else {}
