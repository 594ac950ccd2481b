"""What a network costs, whatever it runs on."""

from __future__ import annotations

from math import prod

from concord.graph.ir import Graph, Node


def macs(graph: Graph) -> int:
    """Multiply-accumulates of one sample: convolutions, products and recurrent layers, without any padding."""
    return sum(node_macs(graph, node) for node in graph.nodes)


def node_macs(graph: Graph, node: Node) -> int:
    """Multiply-accumulates of one node for one sample."""
    if node.op in ("Conv", "Dense"):
        weight = node.attrs["weight"]
        return prod(graph.shapes[node.outputs[0]]) * int(weight[0].size)
    if node.op == "MatMul":
        return prod(graph.shapes[node.outputs[0]]) * graph.shapes[node.inputs[0]][-1]
    if node.attrs.get("product"):
        return prod(graph.shapes[node.inputs[0]])
    if node.op in ("LSTM", "GRU", "RNN"):
        return graph.shapes[node.inputs[0]][0] * int(node.attrs["W"].size + node.attrs["R"].size)
    return 0
