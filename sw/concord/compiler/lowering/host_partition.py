"""Partition of a graph: what the NPU computes, and what the host computes from its outputs, such as a final softmax."""

from __future__ import annotations

from concord.graph.ir import Graph
from concord.graph.ops import OperatorKind, operator_of


def split(graph: Graph) -> tuple[Graph, Graph | None]:
    """The part of a graph for the NPU, and the part that the host computes from its outputs, if there is one.

    A node is for the host if no product reads what it computes, and its operator is one that the host's share may begin
    with, or it follows such a node.
    """
    host: set[str] = set()
    late: set[str] = set()  # nodes with a product behind them
    readers = graph.readers()
    producers = {name: node.name for node in graph.nodes for name in node.outputs}
    for node in reversed(graph.nodes):
        if any(
            c.name in late or operator_of(c).kind is OperatorKind.QUANTISED
            for name in node.outputs
            for c in readers.get(name, ())
        ):
            late.add(node.name)
    for node in graph.nodes:
        follows = any(producers.get(name) in host for name in node.inputs if name)
        if follows or (operator_of(node).host_partition and node.name not in late):
            host.add(node.name)
    if not host:
        return graph, None
    npu_nodes = [node for node in graph.nodes if node.name not in host]
    theirs = [node for node in graph.nodes if node.name in host]
    computed = {name for node in npu_nodes for name in node.outputs} | set(graph.inputs)
    crossing = list(dict.fromkeys(name for node in theirs for name in node.inputs if name in computed))
    outputs = list(dict.fromkeys([*crossing, *(name for name in graph.outputs if name in computed)]))
    batched = graph.batched | {name for name in crossing if graph.shapes[name][:1] == (1,)}
    npu = Graph(graph.name, npu_nodes, list(graph.inputs), outputs, graph.shapes, batched)
    return npu, Graph(f"{graph.name} on the host", theirs, outputs, list(graph.outputs), graph.shapes, batched)
