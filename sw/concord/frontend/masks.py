"""Masks in front of a softmax, -infinity or far below all numbers, become numbers of binary16.

The greatest element is taken off, so what is 32,752 lower becomes zero exactly: ``exp`` of less than -18 is zero in
binary16, and of less than -746 in double precision. Other elements must be within 32,000, as those of a softmax are.
"""

from __future__ import annotations

import numpy as np

from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import constant_of
from concord.spec.formats import BINARY16_MAX

#: Nothing is left of elements that are so low; added to another one it does not overflow.
_LOWEST = -BINARY16_MAX / 2


def limit(graph: Graph) -> None:
    """Raise constants that are added in front of softmaxes alone to the lowest number that they need."""
    readers: dict[str, set[str]] = {name: set() for name in graph.shapes}
    for name in graph.outputs:
        readers[name].add("")
    for node in reversed(graph.nodes):
        ops = {node.op}
        if operator_of(node).view:
            ops = set().union(*(readers[name] for name in node.outputs if name))
        for name in filter(None, node.inputs):
            readers[name] |= ops
    for k, node in enumerate(graph.nodes):
        constant = constant_of(node, "Add")
        if constant is not None and readers[node.outputs[0]] == {"Softmax"}:
            graph.nodes[k] = node.with_attrs(constant=np.maximum(constant, _LOWEST))
