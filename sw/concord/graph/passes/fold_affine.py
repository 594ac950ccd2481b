"""Make constants per channel part of the convolution or product in front of them: bias, BatchNormalization, scales."""

from __future__ import annotations

import numpy as np

from concord.graph.ir import Graph, Node
from concord.graph.ops import OperatorWeights, operator_of
from concord.graph.ops.elementwise import BinaryAttributes, constant_of
from concord.utils.arrays import FloatArray


def run(graph: Graph) -> None:
    """Fold Add, Sub and Mul with a constant per channel into the product with a weight that nothing else reads.

    Weights that an exporter has quantised are not multiplied.
    """
    for node in list(graph.nodes):
        operand = constant_of(node, "Add", "Sub", "Mul")
        layer = None if operand is None else graph.producer(node.inputs[0])
        weights = None if layer is None else operator_of(layer).affine
        if operand is None or layer is None or weights is None or not _may_fold(graph, layer, node):
            continue
        constant = _per_channel(graph, layer, weights, node, operand)
        if constant is not None:
            merged = _merged(layer, weights, node, constant).replace(outputs=node.outputs)
            graph.nodes = [merged if n.name == layer.name else n for n in graph.nodes if n.name != node.name]
            del graph.shapes[layer.outputs[0]]


def _may_fold(graph: Graph, layer: Node, node: Node) -> bool:
    between = layer.outputs[0]
    read_once = graph.is_between(between) and len(graph.consumers(between)) == 1
    scales = node.op == "Mul" or node.attributes(BinaryAttributes).constant_first
    return read_once and not (scales and layer.name in graph.weight_quantization)


def _per_channel(
    graph: Graph, layer: Node, weights: OperatorWeights, node: Node, constant: FloatArray
) -> FloatArray | None:
    """The constant of a node as one number per output channel of the layer in front; ``None`` if it is not that."""
    shape = graph.shapes[layer.outputs[0]]
    if graph.shapes[node.outputs[0]] != shape:
        return None
    sizes = (1,) * (len(shape) - constant.ndim) + constant.shape
    channel = weights.channel(len(shape))
    if any(size != 1 for axis, size in enumerate(sizes) if axis != channel):
        return None
    return np.broadcast_to(constant.reshape(-1), (shape[channel],))


def _merged(layer: Node, weights: OperatorWeights, node: Node, constant: FloatArray) -> Node:
    (key,) = weights.names
    weight, bias = weights.weight_of(layer), weights.bias_of(layer)
    if node.op == "Mul":
        factor = constant.reshape(-1, *[1] * (weight.ndim - 1))
        weight, bias = weight * factor, bias * constant
    elif node.op == "Add":
        bias = bias + constant
    elif node.attributes(BinaryAttributes).constant_first:
        weight, bias = -weight, constant - bias
    else:
        bias = bias - constant
    return layer.with_attrs(**{key: weight, weights.bias: bias})
