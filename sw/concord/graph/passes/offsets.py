"""Make one constant of those that are added one after the other, such as a class token and positions."""

from __future__ import annotations

from concord.graph.ir import Graph, Node
from concord.graph.ops.elementwise import constant_of


def run(graph: Graph) -> None:
    """An Add takes over the Add in front of it that nothing else reads."""
    for node in list(graph.nodes):
        constant = constant_of(node, "Add")
        before = None if constant is None else graph.producer(node.inputs[0])
        first = None if before is None else constant_of(before, "Add")
        if constant is None or before is None or first is None or not _fits(graph, before, node):
            continue
        joined = node.replace(inputs=before.inputs).with_attrs(constant=first + constant)
        graph.nodes = [joined if n.name == node.name else n for n in graph.nodes if n.name != before.name]
        del graph.shapes[before.outputs[0]]


def _fits(graph: Graph, before: Node, node: Node) -> bool:
    (between,) = before.outputs
    return graph.is_between(between) and len(graph.consumers(between)) == 1
