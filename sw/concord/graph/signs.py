"""Signs of tensors: what is never negative, whatever the inputs of a network are."""

from __future__ import annotations

from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of


def never_negative(graph: Graph, tensor: str, inputs: bool = False) -> bool:
    """True if a tensor has no negative elements, whatever constants become by training.

    Parameters
    ----------
    graph : Graph
        The network.
    tensor : str
        One of its tensors.
    inputs : bool
        Whether inputs of the network are taken for such tensors.
    """
    known: dict[str, bool] = {}

    def holds(name: str) -> bool:
        if name not in known:
            known[name] = _by_producer(graph.producer(name))
        return known[name]

    def _by_producer(node: Node | None) -> bool:
        if node is None:
            return inputs
        rule, names = operator_of(node).never_negative, [name for name in node.inputs if name]
        whatever = rule(node, [False] * len(names))
        return whatever or (rule(node, [True] * len(names)) and rule(node, [holds(name) for name in names]))

    return holds(tensor)
