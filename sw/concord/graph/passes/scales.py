"""Bring constants into the range of binary16 and of weights, by powers of two that are taken back after them.

Very small ones would lose bits or vanish, large ones are none of these numbers.
"""

from __future__ import annotations

import math

import numpy as np

from concord.graph.ir import Graph, Node, fresh
from concord.graph.ops import OperatorWeights, operator_of
from concord.graph.ops.elementwise import constant_of
from concord.spec.formats import BINARY16_EXP_MIN, BINARY16_FRAC, BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Weights whose largest magnitude is outside are scaled: blocks of smaller ones lose bits, larger ones have none.
WEIGHTS = (2.0**-10, 120.0)
#: log2 of what the largest magnitude of scaled weights is below: of small ones, and of large ones, beside which there
#: may be small ones that keep their bits.
_SMALL, _LARGE = -5, 6
#: Largest bias that is scaled with the weights: there is room for what it is added to.
_BIAS = BINARY16_MAX / 4


def run(graph: Graph) -> None:
    """Scale weights of products and constants of Mul, where that is exact and they need it."""
    for node in list(graph.nodes):
        weights = operator_of(node).affine
        if weights is not None:
            made = [] if node.name in graph.weight_quantization else _weights(graph, node, weights)
        elif (constant := constant_of(node, "Mul")) is not None and graph.whole.isdisjoint(node.outputs):
            made = _factor(graph, node, constant)
        else:
            continue
        if made:
            index = next(k for k, other in enumerate(graph.nodes) if other.name == node.name)
            graph.nodes[index : index + 1] = made


def _power(exponent: int) -> int:
    """The nearest exponent whose power of two is a binary16 number."""
    return min(max(exponent, -BINARY16_FRAC), BINARY16_MAX.bit_length() - 1)


def _followed_by(graph: Graph, node: Node, op: str, **attrs: object) -> list[Node]:
    """A node, and another one that works on what it computes and has its output."""
    name = fresh(graph, f"{node.name}/scaled")
    graph.shapes[name] = graph.shapes[node.outputs[0]]
    return [node.replace(outputs=(name,)), Node(op, name, (name,), node.outputs, dict(attrs))]


def _weights(graph: Graph, node: Node, weights: OperatorWeights) -> list[Node]:
    (key,) = weights.names
    weight, bias = weights.weight_of(node), weights.bias_of(node)
    largest = float(np.abs(weight).max(initial=0.0))
    if largest == 0 or WEIGHTS[0] <= largest < WEIGHTS[1]:
        return []
    back = _power(math.frexp(largest)[1] - (_SMALL if largest < WEIGHTS[0] else _LARGE))
    if largest * 2.0**-back >= WEIGHTS[1]:  # refused later, with the numbers of the model
        return []
    within = bool((np.abs(bias * 2.0**-back) < _BIAS).all())
    inside = bias * 2.0**-back if within else np.zeros_like(bias)
    scaled = node.with_attrs(**{key: weight * 2.0**-back, weights.bias: inside})
    made = _followed_by(graph, scaled, "Mul", constant=np.asarray(2.0**back))
    if within:
        return made
    rank = len(graph.shapes[node.outputs[0]])
    shape = (-1, *[1] * (rank - 1 - weights.channel(rank)))
    return [made[0], *_followed_by(graph, made[1], "Add", constant=bias.reshape(shape))]


def _factor(graph: Graph, node: Node, constant: FloatArray) -> list[Node]:
    largest = float(np.abs(constant).max(initial=0.0))
    kept = np.float16(constant).astype(np.float64) if largest <= BINARY16_MAX else np.inf
    small = 0 < largest < 2.0 ** (BINARY16_EXP_MIN + 1) and not np.array_equal(kept, constant)
    if not small and largest <= BINARY16_MAX:
        return []
    back = _power(math.frexp(largest)[1])
    return _followed_by(graph, node.with_attrs(constant=constant * 2.0**-back), "Mul", constant=np.asarray(2.0**back))
