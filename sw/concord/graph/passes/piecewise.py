"""Functions made of straight lines become products, sums, maxima and minima: exact but for rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from concord.functions import function
from concord.graph.ir import Graph
from concord.graph.ops.elementwise import FunctionAttributes
from concord.graph.rewriting import Emit, rewrite

#: Room around the corners of a steep function, beyond which its inputs are cut off: nothing overflows after it.
_ROOM = 0.01


def run(graph: Graph) -> None:
    """Rewrite every Function that is one of :data:`LINES`."""
    for node in list(graph.nodes):
        functions = node.attributes(FunctionAttributes).functions if node.op == "Function" else ()
        if len(functions) == 1 and functions[0][0] in LINES:
            name, parameters = functions[0]
            rewrite(graph, node, partial(LINES[name], x=node.inputs[0], **function(name).complete(parameters)))


def _times(emit: Emit, x: str, factor: float) -> str:
    return emit("Mul", x, constant=np.asarray(float(factor)))


def leaky_relu(emit: Emit, x: str, alpha: float) -> str:
    """The larger of ``x`` and ``alpha x``; of steep ones the sum of both halves, as ``alpha x`` may overflow."""
    if abs(alpha) <= 1:
        return emit("Max", _times(emit, x, alpha), x)
    negative = emit("Clip", x, min=-math.inf, max=0.0)
    return emit("Add", _times(emit, negative, alpha), emit("Relu", x))


def hardsigmoid(emit: Emit, x: str, alpha: float, beta: float) -> str:
    """``alpha x + beta``, limited; in front of steep ones ``x`` is limited to what counts, as the sum may overflow."""
    if abs(alpha) > 1:
        low, high = sorted((-beta / alpha, (1 - beta) / alpha))
        room = _ROOM * max(high - low, abs(low), abs(high))
        x = emit("Clip", x, min=low - room, max=high + room)
    line = emit("Add", _times(emit, x, alpha), constant=np.asarray(float(beta)))
    return emit("Clip", line, min=0.0, max=1.0)


def hardswish(emit: Emit, x: str) -> str:
    """``x`` times a hard sigmoid."""
    return emit("Mul", hardsigmoid(emit, x, 1 / 6, 0.5), x)


#: Rules that make nodes for a function: ``rule(emit, x, **parameters)``; the last node has the result.
LINES: dict[str, Callable[..., str]] = {"leaky_relu": leaky_relu, "hardsigmoid": hardsigmoid, "hardswish": hardswish}
