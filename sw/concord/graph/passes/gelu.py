"""Find a Gelu in what exporters make of it: ``x * (1 + erf(x / sqrt(2))) / 2``, products in any order."""

from __future__ import annotations

import math

from concord.graph.ir import Graph, Node
from concord.graph.ops.elementwise import constant_of, names_of
from concord.graph.passes import dead

#: Relative error of constants, which exporters round.
_TOLERANCE = 1e-3


def run(graph: Graph) -> None:
    """Put a Function in the place of the last product; what nothing reads any more goes."""
    for node in list(graph.nodes):
        match = _last_product(graph, node)
        if match is not None:
            last, x = match
            gelu = Node("Function", last.name, (x,), last.outputs, {"functions": (("gelu", {}),)})
            graph.nodes = [gelu if other.name == last.name else other for other in graph.nodes]
            dead.run(graph)


def _last_product(graph: Graph, node: Node) -> tuple[Node, str] | None:
    """The product that a Gelu ends with, and what the Gelu reads, if ``node`` is the error function of one."""
    scaled = graph.producer(node.inputs[0]) if names_of(node) == ("erf",) else None
    if scaled is None or not _constant(scaled, "Mul", math.sqrt(0.5)):
        return None
    x, sum_ = scaled.inputs[0], _reader(graph, node)
    if sum_ is None or node.inputs[0] in graph.quantization or not _constant(sum_, "Add", 1.0):
        return None
    halved, times, value = False, False, sum_
    while not (halved and times):
        following = _reader(graph, value)
        if following is None or following.op != "Mul":
            return None
        if _constant(following, "Mul", 0.5) and not halved:
            halved = True
        elif len(following.inputs) == 2 and not times:
            (other,) = {*following.inputs} - {value.outputs[0]} or {""}
            halving = graph.producer(other) if other not in graph.quantization else None
            if other != x:
                if halved or halving is None or not _constant(halving, "Mul", 0.5) or halving.inputs[0] != x:
                    return None
                halved = True
            times = True
        else:
            return None
        value = following
    return (value, x) if graph.shapes[value.outputs[0]] == graph.shapes[x] else None


def _constant(node: Node | None, op: str, value: float) -> bool:
    """True if a node is this operation with this number."""
    constant = None if node is None else constant_of(node, op)
    if constant is None or constant.size != 1:
        return False
    return math.isclose(float(constant.reshape(-1)[0]), value, rel_tol=_TOLERANCE)


def _reader(graph: Graph, node: Node) -> Node | None:
    """The only node that reads what a node computes."""
    (output,) = node.outputs
    readers = graph.consumers(output)
    return readers[0] if len(readers) == 1 and graph.is_between(output) else None
