"""Masks in front of a softmax, -infinity or far below all numbers, become numbers of binary16.

The greatest element is taken off, so what is 32,752 lower becomes zero exactly: ``exp`` of less than -18 is zero in
binary16, and of less than -746 in double precision. Other elements must be within 32,000, as those of a softmax are.
"""

from __future__ import annotations

import numpy as np

from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import constant_of
from concord.spec.formats import MASKED

#: Operators whose results are whole numbers, whatever their operands are.
_WHOLE = ("Sign", "Compare", "Round", "Truncate", "Less", "Equal", "Not", "Wrap", "ArgMax")
#: Reader of a mask that is added in front of a softmax.
_ADDED = "Add in front of Softmax"


def limit(graph: Graph) -> None:
    """Raise constants that are added in front of softmaxes alone to the lowest number that they need.

    A mask may be whole numbers times such a constant: it is zero where they are, and far below elsewhere.
    """
    readers: dict[str, set[str]] = {name: set() for name in graph.shapes}
    for name in graph.outputs:
        readers[name].add("")
    for node in reversed(graph.nodes):
        ops = {node.op}
        if node.op == "Add" and readers[node.outputs[0]] == {"Softmax"}:
            ops = {_ADDED}
        if operator_of(node).view:
            ops = set().union(*(readers[name] for name in node.outputs if name))
        for name in filter(None, node.inputs):
            readers[name] |= ops
    for k, node in enumerate(graph.nodes):
        constant = constant_of(node, "Add")
        if constant is not None and readers[node.outputs[0]] == {"Softmax"}:
            graph.nodes[k] = node.with_attrs(constant=np.maximum(constant, MASKED))
        factor = constant_of(node, "Mul")
        if factor is not None and readers[node.outputs[0]] == {_ADDED} and _is_whole(graph, node.inputs[0]):
            graph.nodes[k] = node.with_attrs(constant=np.maximum(factor, MASKED))


def _is_whole(graph: Graph, name: str) -> bool:
    """True if a tensor has whole numbers, which are zero or not less than 1 in magnitude."""
    node = graph.producer(name)
    if node is None:
        return name in graph.element_types
    constant = constant_of(node, "Add", "Sub", "Mul", "Max", "Min")
    if operator_of(node).view or (node.op in ("Add", "Sub", "Mul") and constant is None):
        return all(_is_whole(graph, operand) for operand in node.inputs)
    if constant is not None:
        return bool((constant == np.rint(constant)).all()) and _is_whole(graph, node.inputs[0])
    if node.op in ("Relu", "Max", "Min"):
        return all(_is_whole(graph, operand) for operand in node.inputs)
    return node.op in _WHOLE
