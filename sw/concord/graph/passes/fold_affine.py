"""Make constants per channel part of the convolution or product in front of them: bias, BatchNormalization, scales."""

from __future__ import annotations

import numpy as np

from concord.graph.ir import Floats, Graph, Node


def run(graph: Graph) -> None:
    """Fold Add, Sub and Mul with a constant per channel into the Conv or Dense that nothing else reads.

    Weights that an exporter has quantised are not multiplied.
    """
    for node in list(graph.nodes):
        layer = (
            graph.producer(node.inputs[0]) if node.op in ("Add", "Sub", "Mul") and "constant" in node.attrs else None
        )
        if layer is None or not _may_fold(graph, layer, node):
            continue
        constant = per_channel(graph, layer, node)
        if constant is not None:
            merged = _merged(layer, node, constant).replace(outputs=node.outputs)
            graph.nodes = [merged if n.name == layer.name else n for n in graph.nodes if n.name != node.name]
            del graph.shapes[layer.outputs[0]]
            graph.quantization.pop(layer.outputs[0], None)


def _may_fold(graph: Graph, layer: Node, node: Node) -> bool:
    between = layer.outputs[0]
    read_once = between not in graph.outputs and len(graph.consumers(between)) == 1
    scales = node.op == "Mul" or node.attrs.get("reversed", False)
    return layer.op in ("Conv", "Dense") and read_once and not (scales and layer.name in graph.weight_quantization)


def per_channel(graph: Graph, layer: Node, node: Node) -> Floats | None:
    """The constant of a node as one number per output channel of the layer in front; ``None`` if it is not that."""
    shape = graph.shapes[layer.outputs[0]]
    constant: Floats = node.attrs["constant"]
    if graph.shapes[node.outputs[0]] != shape:
        return None
    sizes = (1,) * (len(shape) - constant.ndim) + constant.shape
    channel = 1 if layer.op == "Conv" else len(shape) - 1
    if any(size != 1 for axis, size in enumerate(sizes) if axis != channel):
        return None
    return np.broadcast_to(constant.reshape(-1), (shape[channel],))


def _merged(layer: Node, node: Node, constant: Floats) -> Node:
    weight, bias = layer.attrs["weight"], layer.attrs["bias"]
    if node.op == "Mul":
        factor = constant.reshape(-1, *[1] * (weight.ndim - 1))
        return layer.with_attrs(weight=weight * factor, bias=bias * constant)
    if node.op == "Add":
        return layer.with_attrs(bias=bias + constant)
    if node.attrs.get("reversed"):
        return layer.with_attrs(weight=-weight, bias=constant - bias)
    return layer.with_attrs(bias=bias - constant)
