"""Cost of a network, whatever it runs on."""

from __future__ import annotations

from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of


def macs(graph: Graph) -> int:
    """Multiply-accumulates of one sample: convolutions, products and recurrent layers, without any padding."""
    return sum(node_macs(graph, node) for node in graph.nodes)


def node_macs(graph: Graph, node: Node) -> int:
    """Multiply-accumulates of one node for one sample."""
    rule = operator_of(node).macs
    if rule is None:
        return 0
    inputs, outputs = ([graph.shapes[name] if name else None for name in ends] for ends in (node.inputs, node.outputs))
    return rule(node, inputs, outputs)
