"""Bring nodes into an order that follows from the graph alone: operands before results, first outputs first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from concord.graph.ir import Graph

_Item = TypeVar("_Item", bound=Hashable)


def run(graph: Graph) -> None:
    """Put what the first output depends on in front, the first operand of every node before the second.

    Everything that depends on the order of nodes, such as addresses and which node a chain takes over, then depends on
    what the network computes, and not on how a file lists it. Nodes that no output depends on come last, by name.
    """
    producers = {name: k for k, node in enumerate(graph.nodes) for name in node.outputs if name}
    operands = [[producers[name] for name in node.inputs if name in producers] for node in graph.nodes]
    unread = sorted(range(len(graph.nodes)), key=lambda k: graph.nodes[k].name)
    begin = [producers[name] for name in graph.outputs if name in producers]
    graph.nodes = [graph.nodes[k] for k in depth_first([*begin, *unread], dict(enumerate(operands)))]


def depth_first(begin: Iterable[_Item], operands: Mapping[_Item, Sequence[_Item]]) -> Iterator[_Item]:
    """Items that others are made of before those, each once.

    Parameters
    ----------
    begin : iterable
        What is wanted, in this order.
    operands : mapping
        What an item is made of, in this order. There must be no circle: what closes one is left where it is.

    Yields
    ------
    item
        Everything that is wanted or needed for it.
    """
    known: set[_Item] = set()
    for item in begin:
        stack = [] if item in known else [(item, iter(operands[item]))]
        known.add(item)
        while stack:
            item, rest = stack[-1]
            needed = next((operand for operand in rest if operand not in known), None)
            if needed is None:
                yield item
                stack.pop()
            else:
                known.add(needed)
                stack.append((needed, iter(operands[needed])))
