"""The products of a network, as integer arithmetic sees them: which elements meet which weights, in which order.

Taps of a convolution come one after the other, channels within a tap, as on the NPU. A recurrent layer has a product
with what it reads and one with its state, ``NAME.W`` and ``NAME.R``: both have ranges of their own. The state is that
of the float reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from concord.functions import by_recurrent_name
from concord.graph import execute
from concord.graph.cost import node_macs
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.base import aligned
from concord.graph.ops.linear import ConvAttributes, DenseAttributes
from concord.graph.ops.recurrent import GruAttributes, RecurrentAttributes, directions
from concord.graph.ops.windows import windows
from concord.sums.counting import ProductBlock
from concord.utils.arrays import FloatArray, Integers

#: Elements of windows that are taken at once.
_ELEMENTS = 1 << 23


@dataclass(frozen=True)
class LayerProduct:
    """One product of a layer.

    Parameters
    ----------
    name, operator : str
        Of the node; of a recurrent layer with ``.W`` or ``.R``, and the number of the direction if there are two.
    x, w : float arrays
        What is multiplied: what the layer reads, and its parameters or the second factor.
    bias : float array ``[outputs]`` or None
        What is added.
    tensor : str
        Name of the input of the network that ``x`` is; empty for other tensors.
    arrange : callable
        ``arrange(x, w, bias) -> blocks`` of arrays like these, but of integers.
    rows : callable or None
        Weights ``[outputs, K]`` that one output meets; nothing where both factors are computed.
    """

    name: str
    operator: str
    x: FloatArray
    w: FloatArray
    bias: FloatArray | None
    tensor: str
    arrange: Callable[[Integers, Integers, Integers | None], Iterator[ProductBlock]]
    rows: Callable[[Integers], Integers] | None

    def part(self, samples: slice) -> LayerProduct:
        """The product for some of the samples, which are along the first axis of all that is computed."""
        computed = self.rows is None and len(self.w) == len(self.x)
        return replace(self, x=self.x[samples], w=self.w[samples] if computed else self.w)


def products(graph: Graph, inputs: Mapping[str, Any]) -> Iterator[LayerProduct]:
    """All products of a network with the values they have for some samples, in the order of execution.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to array
        ``[samples, *graph.sample_shape(name)]`` for every input.

    Raises
    ------
    ValueError
        If an operator has products that are not counted here.
    """
    for node in graph.nodes:
        if node.op not in _MAKERS and node_macs(graph, node):
            raise ValueError(f"products must be those of {', '.join(_MAKERS)}, not of {node.op} ({node.name})")
    read = {name for node in graph.nodes if node.op in _MAKERS for name in node.inputs if name}
    values = execute.run(graph, inputs, keep=read)
    for node in graph.nodes:
        make = _MAKERS.get(node.op)
        if make is not None:
            operands = [values[n].reshape(-1, *graph.shapes[n]) if n else None for n in node.inputs]
            source = node.inputs[0] if node.inputs[0] in graph.inputs else ""
            yield from make(node, operands, source)


def _conv(node: Node, operands: list[Any], source: str) -> Iterator[LayerProduct]:
    attributes = node.attributes(ConvAttributes)
    weight, group = attributes.weight, attributes.group
    rank = weight.ndim - 2

    def rows(w: Integers) -> Integers:
        return np.asarray(np.moveaxis(w, 1, -1).reshape(len(w), -1))

    def arrange(x: Integers, w: Integers, bias: Integers | None) -> Iterator[ProductBlock]:
        images = x.reshape(-1, *x.shape[2:])
        by_group = rows(w).reshape(group, len(w) // group, -1)
        bias = None if bias is None else bias.reshape(group, -1)
        step = max(1, _ELEMENTS // (prod(x.shape[2:]) * prod(weight.shape[2:])))
        for first in range(0, len(images), step):
            view = windows(attributes, weight.shape[2:], images[first : first + step], 0)
            kernel, counts = tuple(range(2 + rank, 2 + 2 * rank)), tuple(range(2, 2 + rank))
            ordered = view.transpose(*kernel, 1, 0, *counts)
            taps, channels = prod(weight.shape[2:]), view.shape[1] // group
            columns = ordered.reshape(taps, group, channels, -1).swapaxes(0, 1)
            yield ProductBlock(columns.reshape(group, taps * channels, -1), by_group, bias)

    yield LayerProduct(node.name, node.op, operands[0], weight, _bias(attributes.bias), source, arrange, rows)


def _dense(node: Node, operands: list[Any], source: str) -> Iterator[LayerProduct]:
    attributes = node.attributes(DenseAttributes)
    weight, bias = attributes.weight, _bias(attributes.bias)
    yield LayerProduct(node.name, node.op, operands[0], weight, bias, source, _matrix, _itself)


def _matmul(node: Node, operands: list[Any], source: str) -> Iterator[LayerProduct]:
    rank = max(x.ndim for x in operands) - 1
    first, second = (aligned(x, rank) for x in operands)

    def arrange(x: Integers, w: Integers, bias: Integers | None) -> Iterator[ProductBlock]:
        shape = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
        a = np.broadcast_to(x, (*shape, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
        b = np.broadcast_to(w, (*shape, *w.shape[-2:])).reshape(-1, *w.shape[-2:])
        yield ProductBlock(a.swapaxes(1, 2), b.swapaxes(1, 2))

    yield LayerProduct(node.name, node.op, first, second, None, source, arrange, None)


def _recurrent(node: Node, operands: list[Any], source: str) -> Iterator[LayerProduct]:
    x, attributes = operands[0], node.attributes(RecurrentAttributes)
    hidden = attributes.hidden_size
    states = operator_of(node).evaluate(node, operands)[0]  # [samples, steps, directions, batch, hidden]
    several = len(attributes.W) > 1
    for d, backward in enumerate(directions(node)):
        number = f".{d}" if several else ""
        w, r = attributes.W[d], attributes.R[d]
        input_bias, bias = np.split(attributes.B[d], 2)
        name = f"{node.name}{number}"
        yield LayerProduct(f"{name}.W", node.op, x, w, _bias(input_bias), source, _matrix, _itself)
        ordered = states[:, ::-1, d] if backward else states[:, :, d]
        before = np.concatenate([_initial(node, operands, d)[:, None], ordered[:, :-1]], axis=1)
        if isinstance(attributes, GruAttributes) and not attributes.linear_before_reset:
            reset = _reset(attributes, d, x[:, ::-1] if backward else x, before)
            gates = slice(0, 2 * hidden), slice(2 * hidden, None)
            for part, state, rows in zip(("R", "R_h"), (before, reset * before), gates, strict=True):
                yield LayerProduct(f"{name}.{part}", node.op, state, r[rows], _bias(bias[rows]), "", _matrix, _itself)
            continue
        yield LayerProduct(f"{name}.R", node.op, before, r, _bias(bias), "", _matrix, _itself)


def _initial(node: Node, operands: list[Any], d: int) -> FloatArray:
    """State h before the first step, ``[samples, batch, hidden]``."""
    samples, batch = len(operands[0]), operands[0].shape[2]
    state = operands[1] if len(operands) > 1 else None
    if state is not None:
        return np.asarray(state[:, d])
    attributes = node.attributes(RecurrentAttributes)
    constant = attributes.initial_h
    constant = np.zeros((d + 1, batch, attributes.hidden_size)) if constant is None else constant
    return np.broadcast_to(constant[d], (samples, *constant[d].shape))


def _reset(attributes: GruAttributes, d: int, x: FloatArray, before: FloatArray) -> FloatArray:
    """The reset gate of a GRU at every step."""
    hidden = attributes.hidden_size
    rows = slice(hidden, 2 * hidden)
    input_bias, bias = np.split(attributes.B[d], 2)
    gate = x @ attributes.W[d][rows].T + before @ attributes.R[d][rows].T + input_bias[rows] + bias[rows]
    if attributes.clip is not None:
        gate = np.clip(gate, -attributes.clip, attributes.clip)
    function = by_recurrent_name()[attributes.activations[d][0]]
    return np.asarray(function.values(gate, **attributes.activation_parameters[d][0]))


def _matrix(x: Integers, w: Integers, bias: Integers | None) -> Iterator[ProductBlock]:
    """Vectors along the last axis, each with all rows."""
    columns = x.reshape(-1, x.shape[-1]).T
    yield ProductBlock(columns[None], w[None], None if bias is None else bias[None])


def _itself(w: Integers) -> Integers:
    return w


def _bias(values: FloatArray) -> FloatArray | None:
    """Bias; ``None`` if all elements are zero: such a layer has no addition of them."""
    return values if values.any() else None


_MAKERS: dict[str, Callable[[Node, list[Any], str], Iterator[LayerProduct]]] = {
    "Conv": _conv,
    "Dense": _dense,
    "MatMul": _matmul,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
}
