"""What a network costs, whatever it runs on."""

from __future__ import annotations

from math import prod

from concord.graph.ir import Graph, Node


def macs(graph: Graph) -> int:
    """Multiply-accumulates of one sample: convolutions, products and recurrent layers, without any padding."""
    return sum(_macs(graph, node) for node in graph.nodes)


def _macs(graph: Graph, node: Node) -> int:
    if node.op in ("Conv", "Dense"):
        weight = node.attrs["weight"]
        return prod(graph.shapes[node.outputs[0]]) * int(weight[0].size)
    if node.op in ("LSTM", "GRU", "RNN"):
        return graph.shapes[node.inputs[0]][0] * int(node.attrs["W"].size + node.attrs["R"].size)
    return 0
