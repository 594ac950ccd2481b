"""Put several nodes in the place of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from concord.graph.ir import Graph, Node, fresh
from concord.graph.ops import operator_of

#: Makes a node from its operator, inputs and attributes, and returns the name of its output.
Emit = Callable[..., str]


def rewrite(graph: Graph, node: Node, rule: Callable[[Emit], object]) -> None:
    """Replace ``node``, which has one output, by the nodes that ``rule`` makes; the last one computes that output."""
    nodes: list[Node] = []

    def emit(op: str, *inputs: str, **attrs: Any) -> str:
        name = fresh(graph, f"{node.name}/{op.lower()}", [made.name for made in nodes])
        made = Node(op, name, inputs, (name,), attrs)
        (graph.shapes[name],) = operator_of(made).shape(made, [graph.shapes[tensor] for tensor in inputs])
        nodes.append(made)
        return name

    rule(emit)
    last = nodes.pop()
    del graph.shapes[last.outputs[0]]
    nodes.append(last.replace(name=node.name, outputs=node.outputs))
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = nodes
