"""Bounds on the tensors of a network without samples: carried through it, in the worst case and by statistics.

The worst case holds for every input in its range, and grows with every product until it says nothing. Statistics say
what is to be expected: the network in double precision on seeded random inputs, some with elements that have nothing in
common, some with elements that are all alike, as neighbouring pixels nearly are. Of both the tighter end is taken, and
:attr:`Bound.source` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from concord.compiler.ir.activations import depends
from concord.compiler.ir.table_specs import Domain
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.decomposition import covers_all, is_power
from concord.compiler.lowering.input_assumptions import DEVIATIONS, Assumption, assumed, synthetic_samples
from concord.compiler.lowering.moments import moments
from concord.functions import function
from concord.graph import execute
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import FunctionAttributes, LogSoftmaxAttributes, NormaliseAttributes
from concord.graph.ops.linear import AffineAttributes
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Stands for infinity, so that differences stay numbers.
_HUGE = 1e30


@dataclass(frozen=True)
class Bound:
    """Bounds and moments of the values of a tensor.

    Parameters
    ----------
    low, high : float
        Least and greatest value that must be reckoned with.
    mean, sigma : float
        Mean and standard deviation to be expected, over all elements.
    worst : Domain
        Range that no input within its range leaves; infinite where that is not known.
    source : str
        Origin of ``low`` and ``high``: ``"worst case"``, ``"statistics"`` or, one end each, ``"both"``.
    """

    low: float
    high: float
    mean: float
    sigma: float
    worst: Domain
    source: str

    @property
    def rms(self) -> float:
        """Root mean square to be expected."""
        return float(np.hypot(self.mean, self.sigma))

    @property
    def domain(self) -> Domain:
        """Both ends."""
        return self.low, self.high


def bounds(graph: Graph, ranges: Mapping[str, Domain] | None = None) -> dict[str, Bound]:
    """Bounds on all tensors of a network.

    Parameters
    ----------
    graph, ranges
        As for :func:`assumed`.

    Raises
    ------
    ValueError
        As :func:`assumed`.
    """
    inputs = assumed(graph, ranges)
    return _bounds(graph, inputs, _values(graph, inputs))


def _values(graph: Graph, inputs: Mapping[str, Assumption]) -> dict[str, FloatArray]:
    """All tensors for random inputs."""
    with np.errstate(all="ignore"):
        return execute.run(graph, synthetic_samples(graph, inputs), keep="all")


def _bounds(graph: Graph, inputs: Mapping[str, Assumption], values: Mapping[str, FloatArray]) -> dict[str, Bound]:
    worst = _worst(graph, inputs)
    return {name: _bound(np.nan_to_num(values[name], posinf=_HUGE, neginf=-_HUGE), worst[name]) for name in values}


def with_bounds(graph: Graph, formats: Formats) -> Formats:
    """Formats with bounds on what functions read where there are no samples and their tables depend on it.

    Where nothing is known of an input, powers and logarithms are to be right for numbers of any size. Of normalisations
    there are variances to be expected: their median, and what nine out of ten are below.
    """
    functions = [node for node in graph.nodes if node.op == "Function" and not covers_all(node, formats)]
    reading = {node.inputs[0]: node for node in functions if depends(node.attributes(FunctionAttributes).spec)}
    missing = {name: node for name, node in reading.items() if formats.domain(name) is None}
    normalisations = [
        node for node in graph.nodes if node.op == "Normalise" and f"{node.name}/variance" not in formats.ranges
    ]
    inputs = assumed(graph, formats.inputs)
    known = not any(assumption.normal for assumption in inputs.values())
    if not missing and not normalisations:
        return formats
    values = _values(graph, inputs)
    computed = _bounds(graph, inputs, values)
    domains = {name: computed[name].domain for name in missing}
    for name, node in missing.items():
        if not known and is_power(node) and node.name not in formats.plain:
            domains[name] = 0.0 if computed[name].worst[0] >= 0 else -float(BINARY16_MAX), float(BINARY16_MAX)
    for node in normalisations:
        variances = np.nan_to_num(moments(graph, node, values[node.inputs[0]])["variance"], nan=0.0, posinf=_HUGE)
        low, high = np.quantile(variances, (0.5, 0.9))
        domains[f"{node.name}/expected"] = float(low), float(high)
    return replace(formats, bounds={**formats.bounds, **domains})


def _bound(values: FloatArray, worst: tuple[FloatArray, FloatArray]) -> Bound:
    """The tighter ends of what random samples and the worst case say."""
    ends = float(worst[0].min()), float(worst[1].max())
    with np.errstate(over="ignore"):
        mean, sigma = float(values.mean()), float(values.std())
    low = max(ends[0], min(mean - DEVIATIONS * sigma, float(values.min())))
    high = min(ends[1], max(mean + DEVIATIONS * sigma, float(values.max())))
    sources = {"worst case" if end == limit else "statistics" for end, limit in ((low, ends[0]), (high, ends[1]))}
    known = float(ends[0]) if ends[0] > -_HUGE else -np.inf, float(ends[1]) if ends[1] < _HUGE else np.inf
    return Bound(low, high, mean, sigma, known, "both" if len(sources) > 1 else sources.pop())


# The worst case ----------------------------------------------------------------------------------

#: Least and greatest values of the elements of a tensor, after an axis of length 1.
Ends = tuple[FloatArray, FloatArray]


def _worst(graph: Graph, inputs: Mapping[str, Assumption]) -> dict[str, Ends]:
    """Ends of all tensors, for every input in its range."""
    worst: dict[str, Ends] = {}
    for name in graph.inputs:
        shape = (1, *graph.shapes[name])
        worst[name] = np.full(shape, inputs[name].low), np.full(shape, inputs[name].high)
    for node in graph.nodes:
        ends = [worst[name] for name in node.inputs if name]
        rule = _RULES.get(node.op, _rising if operator_of(node).rises else _unknown)
        for name, (low, high) in zip(node.outputs, rule(graph, node, ends), strict=True):
            if name:
                worst[name] = (
                    np.nan_to_num(low, nan=-_HUGE, posinf=_HUGE, neginf=-_HUGE).clip(-_HUGE, _HUGE),
                    (np.nan_to_num(high, nan=_HUGE, posinf=_HUGE, neginf=-_HUGE).clip(-_HUGE, _HUGE)),
                )
    return worst


def _evaluate(node: Node, *inputs: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        return operator_of(node).evaluate(node, list(inputs))[0]


def _rising(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """No element falls when another one rises: the ends are the results of the ends."""
    low, high = (operator_of(node).evaluate(node, [pair[k] if pair else None for pair in ends]) for k in (0, 1))
    return list(zip(low, high, strict=True))


def _linear(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """Products with constants: the middle, and the radius times the sizes of the weights."""
    low, high = ends[0]
    middle = _evaluate(node, (low + high) / 2)
    attributes = node.attributes(AffineAttributes)
    sizes = node.with_attrs(weight=np.abs(attributes.weight), bias=np.zeros_like(attributes.bias))
    radius = _evaluate(sizes, (high - low) / 2)
    return [(middle - radius, middle + radius)]


def _product(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """Products of two tensors."""
    (a, b) = (((pair[0] + pair[1]) / 2, (pair[1] - pair[0]) / 2) for pair in ends if pair is not None)
    middle = _evaluate(node, a[0], b[0])
    radius = _evaluate(node, np.abs(a[0]) + a[1], np.abs(b[0]) + b[1]) - _evaluate(node, np.abs(a[0]), np.abs(b[0]))
    return [(middle - radius, middle + radius)]


def _binary(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """Sums, products, maxima: the extremes are at the corners; a square is not below zero."""
    first = ends[0]
    if len(ends) == 1:
        results = [_evaluate(node, end) for end in first]
    elif node.inputs[0] == node.inputs[1]:
        points = _points(first)
        return [_everywhere(_evaluate(node, points, points), (1, *graph.shapes[node.outputs[0]]))]
    else:
        results = [_evaluate(node, a, b) for a in first for b in ends[1]]
    return [(np.minimum.reduce(results), np.maximum.reduce(results))]


def _unary(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """Functions of one element: the ends where they rise all the way, else many points of what all elements cover."""
    if node.op == "Clip" or all(function(name).rises for name in node.attributes(FunctionAttributes).names):
        low, high = (_evaluate(node, np.clip(end, -BINARY16_MAX, BINARY16_MAX)) for end in ends[0])
        return [(low, high)]
    values = _evaluate(node, _points(ends[0]))
    return [_everywhere(values, (1, *graph.shapes[node.outputs[0]]))]


def _points(ends: Ends) -> FloatArray:
    """Numbers that a tensor may have, in the range of binary16: evenly spread over all, and densely around zero."""
    low, high = (float(np.clip(end, -BINARY16_MAX, BINARY16_MAX)) for end in (ends[0].min(), ends[1].max()))
    tiny = 2.0**-24
    even = np.concatenate([np.linspace(low, high, 4097), np.linspace(-16, 16, 4097), [-tiny, 0.0, tiny]])
    return np.asarray(np.clip(even, low, high))


def _everywhere(values: FloatArray, shape: tuple[int, ...]) -> Ends:
    """The least and the greatest of values, which are points of a curve, with a little room, for every element."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    slack = 2.0**-12
    return np.full(shape, low - slack * abs(low)), np.full(shape, high + slack * abs(high))


def _softmax(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    shape = (1, *graph.shapes[node.outputs[0]])
    return [(np.zeros(shape), np.ones(shape))]


def _log_softmax(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """The greatest element is at most the logarithm of their number below the logarithm of the sum."""
    low, high = ends[0]
    axis = node.attributes(LogSoftmaxAttributes).axis + 1
    return [(low - high.max(axis=axis, keepdims=True) - np.log(high.shape[axis]), np.zeros_like(high))]


def _normalise(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """All of what is divided may be one element."""
    shape, attributes = graph.shapes[node.outputs[0]], node.attributes(NormaliseAttributes)
    most = np.sqrt(float(np.prod([shape[axis] for axis in attributes.axes]))) * np.abs(attributes.scale)
    limit = np.broadcast_to(most, (1, *shape))
    return [(-limit, limit)]


def _unknown(graph: Graph, node: Node, ends: list[Ends]) -> list[Ends]:
    """Ends of values of which nothing is known, as of recurrent layers; statistics alone say what is to be expected."""
    shapes = [(1, *graph.shapes[name]) if name else (1,) for name in node.outputs]
    return [(np.full(shape, -_HUGE), np.full(shape, _HUGE)) for shape in shapes]


Rule = Callable[[Graph, Node, list[Ends]], list[Ends]]
#: Operators whose ends have a rule of their own. Of others the record says whether they rise; else nothing is known.
_RULES: dict[str, Rule] = {
    "Conv": _linear,
    "Dense": _linear,
    "MatMul": _product,
    **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min", "Compare"), _binary),
    **dict.fromkeys(("Clip", "Function"), _unary),
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Normalise": _normalise,
}
