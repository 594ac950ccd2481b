"""Remove nodes whose result is their input."""

from __future__ import annotations

from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of


def run(graph: Graph) -> None:
    """Remove them; names of inputs and outputs of the network stay, for which such a node may have to stay."""
    for name in [node.name for node in graph.nodes]:
        node = next(node for node in graph.nodes if node.name == name)  # others before it may have renamed its input
        if _changes_nothing(graph, node):
            _bypass(graph, node)


def _changes_nothing(graph: Graph, node: Node) -> bool:
    """True if the output of a node always equals its first input."""
    shapes = graph.shapes
    codes, others = (graph.quantization.get(name) for name in (node.inputs[0], node.outputs[0]))
    if codes is not None and others is not None and codes != others:
        return False  # one tensor cannot have both
    return len(node.outputs) == 1 and operator_of(node).identity(node, shapes[node.inputs[0]], shapes[node.outputs[0]])


def _bypass(graph: Graph, node: Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    if result not in graph.outputs:
        graph.nodes.remove(node)
        _let_go(graph, result, source)
    elif source not in graph.outputs and source not in graph.inputs:
        graph.nodes.remove(node)
        graph.nodes = [n.replace(outputs=tuple(result if t == source else t for t in n.outputs)) for n in graph.nodes]
        _let_go(graph, source, result)


def _let_go(graph: Graph, gone: str, kept: str) -> None:
    """Use ``kept`` wherever ``gone`` was used."""
    graph.rename({gone: kept})
    del graph.shapes[gone]
    if gone in graph.quantization:
        graph.quantization.setdefault(kept, graph.quantization[gone])
        del graph.quantization[gone]
