"""Simplify chains of Reshape and Transpose."""

from __future__ import annotations

from concord.graph.ir import Graph, Node
from concord.graph.ops.moving import TransposeAttributes


def run(graph: Graph) -> None:
    """A Transpose that keeps the order of axes longer than 1 becomes a Reshape; two of a kind in a row become one."""
    graph.nodes = [_as_reshape(graph, node) for node in graph.nodes]
    for index, node in enumerate(graph.nodes):
        before = graph.producer(node.inputs[0]) if node.op in ("Reshape", "Transpose") else None
        if before is not None and before.op == node.op and node.inputs[0] not in graph.quantization:
            joined = node.replace(inputs=before.inputs)
            if node.op == "Transpose":
                first, second = (each.attributes(TransposeAttributes).perm for each in (before, node))
                joined = joined.with_attrs(perm=tuple(first[axis] for axis in second))
            graph.nodes[index] = _as_reshape(graph, joined)
    _remove_unread(graph)


def _as_reshape(graph: Graph, node: Node) -> Node:
    if node.op != "Transpose":
        return node
    shape = graph.shapes[node.inputs[0]]
    long = [axis for axis in node.attributes(TransposeAttributes).perm if shape[axis] > 1]
    return node.replace(op="Reshape", attrs={"shape": graph.shapes[node.outputs[0]]}) if long == sorted(long) else node


def _remove_unread(graph: Graph) -> None:
    """Remove the first node of a pair that nothing else reads."""
    for node in list(reversed(graph.nodes)):
        result = node.outputs[0]
        if node.op in ("Reshape", "Transpose") and result not in graph.outputs and not graph.consumers(result):
            graph.nodes.remove(node)
            del graph.shapes[result]
