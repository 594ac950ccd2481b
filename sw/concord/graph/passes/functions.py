"""Join functions of one element that follow each other: one table can do all of them [transfer-lut]."""

from __future__ import annotations

from concord.functions import function
from concord.graph.ir import Graph
from concord.graph.ops.elementwise import FunctionAttributes

#: Functions, one after the other, that the compiler makes one table of, although each is decomposed otherwise: the gate
#: of a Mish.
GATE = ("softplus", "tanh")
#: Functions, one after the other, that are another function, which has several tables where it is read over many powers
#: of two.
_KNOWN: dict[tuple[str, ...], str] = {("sqrt", "reciprocal"): "rsqrt"}


def run(graph: Graph) -> None:
    """A Function that is the only reader of another one takes it over, unless one of them is decomposed.

    What follows a function with a pole has no number at zero to go on with. A function with inputs of its own stays.
    """
    for node in list(graph.nodes):
        before = graph.producer(node.inputs[0]) if node.op == "Function" else None
        if before is None or before.op != "Function":
            continue
        between = before.outputs[0]
        if not graph.is_between(between) or len(graph.consumers(between)) > 1:
            continue
        first, second = (each.attributes(FunctionAttributes) for each in (before, node))
        if first.domain is not None or second.domain is not None:
            continue
        names = (*first.names, *second.names)
        if (names != GATE and any(function(name).decomposed for name in names)) or function(names[0]).pole:
            continue
        known = _KNOWN.get(names)
        functions = (*first.functions, *second.functions) if known is None else ((known, {}),)
        joined = node.replace(inputs=before.inputs).with_attrs(functions=functions)
        graph.nodes = [joined if n.name == node.name else n for n in graph.nodes if n.name != before.name]
        del graph.shapes[between]
