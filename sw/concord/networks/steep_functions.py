"""Functions that go from one end of their range to the other within the rounding of what they read.

The sigmoid of numbers up to 3,000 is 0 or 1 nearly everywhere, and right; beside its step, results are those of the
rounding. So few inputs are wrong, and these by much: an error that is measured on samples does not tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from concord.compiler.model import Compiled
from concord.functions import evaluate, function
from concord.golden import binary16
from concord.golden.blocks import quantize, to_binary16
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import ClipAttributes, FunctionAttributes, constant_of
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Share of the range of a function that the rounding of what it reads is worth, from which on it is told.
STEEP = 0.25
#: Functions one after the other, each a name with its parameters.
_Chain = tuple[tuple[str, Mapping[str, float]], ...]
_SIGMOID: _Chain = (("sigmoid", {}),)


@dataclass(frozen=True)
class SteepFunction:
    """A function whose step is as narrow as the rounding of what it reads.

    Parameters
    ----------
    node : str
        Name of the node.
    functions : str
        Names of the functions.
    largest : float
        Greatest magnitude of the numbers that are summed up in front of it.
    error : float
        Root mean square of the error of what it reads, by the rounding of these numbers alone.
    """

    node: str
    functions: str
    largest: float
    error: float

    @property
    def text(self) -> str:
        """One line about it, without what helps."""
        what = f"reads sums of numbers up to {self.largest:.3g}, whose rounding moves them by {self.error:.2g}"
        return f"{self.node}: {self.functions} {what}: beside its step the result may be any"


def steep_functions(compiled: Compiled, values: Mapping[str, FloatArray]) -> Iterator[SteepFunction]:
    """Functions with two ends whose step is as narrow as the rounding of what products in front of them read.

    Parameters
    ----------
    compiled : Compiled
        The network.
    values : mapping of str to array
        Its tensors in double precision, ``[samples, ...]``.
    """
    graph, config = compiled.graph, compiled.image.config
    for node in graph.nodes:
        kind = _kind(node)
        if kind is None:
            continue
        product, slope = (node, 1.0) if operator_of(node).recurrence else _in_front(graph, node.inputs[0])
        if product is None or product.inputs[0] not in values:
            continue
        held = operator_of(product).weights
        if held is None:
            continue
        weight = held.weight_of(product)
        windows = product.op == "Conv"
        if weight.ndim > 2 and not windows and not operator_of(product).recurrence:  # transposed
            continue
        x = values[product.inputs[0]]
        axis = x.ndim - (weight.ndim - 1 if windows else 1)
        squares = (weight * weight).sum(axis=tuple(range(1, weight.ndim)) if windows else -1)
        moved = _rms(rounded(x, axis, config) - x) * float(np.sqrt(squares.mean()))
        name, change = kind
        if change(slope * moved) > STEEP:
            yield SteepFunction(node.name, name, float(np.abs(x).max(initial=0.0)), moved)


def rounded(x: FloatArray, axis: int, config: NpuConfig) -> FloatArray:
    """A tensor in the format of activations; elements along an axis share exponents."""
    last = np.moveaxis(np.clip(x, -float(BINARY16_MAX), float(BINARY16_MAX)), axis, -1)
    missing = -last.shape[-1] % config.native
    padded = np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, missing)])
    blocks = quantize(binary16.encode(padded.reshape(-1, config.native)), config.act)
    values = binary16.decode(to_binary16(blocks.mant, blocks.exp)).reshape(padded.shape)
    return np.asarray(np.moveaxis(values[..., : last.shape[-1]], -1, axis), dtype=np.float64)


def _kind(node: Node) -> tuple[str, Callable[[float], float]] | None:
    """Name of a function with two ends, and its change by an error of what it reads, as a share of its range."""
    if operator_of(node).recurrence:
        return f"{node.op}'s gate", partial(_change, _SIGMOID)
    if node.op.endswith("Softmax"):  # by the difference of two numbers
        return node.op.lower(), lambda error: _change(_SIGMOID, np.sqrt(2.0) * error)
    if node.op == "Clip":
        limits = node.attributes(ClipAttributes)
        ends = limits.max - limits.min
        return ("clip", lambda error: error / ends) if 0 < ends < np.inf else None
    if node.op != "Function":
        return None
    attributes = node.attributes(FunctionAttributes)
    if not _span(attributes.functions):
        return None
    return "+".join(attributes.names), partial(_change, attributes.functions)


def _span(functions: _Chain) -> float:
    """Distance of the ends of a function; 0 if it has none."""
    low, high = function(functions[-1][0]).range
    return float(high - low) if np.isfinite([low, high]).all() else 0.0


def _change(functions: _Chain, error: float) -> float:
    """Change of a function by an error of what it reads where it is steepest, as a share of its range."""
    around = np.linspace(-4.0, 4.0, 33)
    with np.errstate(all="ignore"):
        ends = [evaluate(functions, around + sign * error) for sign in (-1.0, 1.0)]
    return float(np.abs(ends[1] - ends[0]).max()) / 2 / _span(functions)


def _in_front(graph: Graph, name: str) -> tuple[Node | None, float]:
    """The product that makes a tensor, maybe moved, scaled or shifted, or ``None``, and the scale."""
    slope = 1.0
    while (node := graph.producer(name)) is not None and operator_of(node).affine is None:
        constant = constant_of(node, "Mul", "Add")
        single = constant if constant is not None and constant.size == 1 else None
        if node.op == "Mul" and single is not None:
            slope *= abs(float(single.item()))
        elif not operator_of(node).view and single is None:
            return None, slope
        name = node.inputs[0]
    return node, slope


def _rms(x: FloatArray) -> float:
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0
