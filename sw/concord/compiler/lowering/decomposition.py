"""Decomposition of functions that no single table holds at every scale: a bounded table, times or plus the input.

A table has one step everywhere and ends somewhere. A function that follows its input near zero and far away cannot be
one: its small values drown in the step, its large ones are cut off. But what it makes of the input can: a Gelu is the
input times a number between 0 and 1, a Softplus is the positive part of the input plus something that vanishes. So the
table holds that number, which covers the same inputs in all networks, and the multifunction units do the rest:

============================ =========================================================================
gelu, gelu_tanh, silu        ``x gate(x)`` with a gate from 0 to 1
tanh, erf                    ``clip(x ratio(|x|), -1, 1)`` with a ratio from 1 to 1/4
elu, celu                    ``max(x ratio(x), -alpha)``; elu with another slope at zero in two halves
softplus                     ``max(x, 0) + softplus(-|x|)``
exp                          ``exp(c) (1 + x - c)`` with a multiple c of 1/8 or 1/4 near x
softsign                     ``x r`` with r from ``1 / (1 + |x|)`` by a table, and ``r = r (2 - (1 + |x|) r)`` twice
tanh(softplus), of a Mish    the gate, from 0 to 1
sqrt, rsqrt, log             without samples: the largest of several tables, each for some powers of two
reciprocal                   the same with ``|x|``, then ``r = r (2 - |x| r)``, then ``x r r``
============================ =========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from concord.compiler.ir.activations import domain_of
from concord.compiler.ir.table_segments import MARGIN, divided
from concord.compiler.ir.table_specs import Domain, InputSpan
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.functions import function
from concord.functions.segmented import TableSegment
from concord.functions.tables import standard_range
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import FunctionAttributes, codes_of, names_of
from concord.graph.ops.recurrent import RecurrentAttributes
from concord.graph.rewriting import Emit, rewrite
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Inputs beyond which gates are constant: logistic ones, and steeper ones.
_LOGISTIC, _STEEP = InputSpan(-8.0, 8.0, (0.0, 1.0)), InputSpan(-4.0, 4.0, (0.0, 1.0))
#: Magnitudes for which ratios are read: beyond that tanh and erf are limited.
_RATIO = InputSpan(0.0, 4.0)
#: Relative error of functions that may be one table.
_ENOUGH = 0.004
#: Below this number, in units of the slope at zero, exponentials are nothing.
_VANISHED = -8.0
#: Inputs of an exponential and log2 of multiples per unit, for table memories with at least so many entries.
_EXPONENTIALS = ((1024, InputSpan(-17.5, 11.125, (0.0, None), 3)), (0, InputSpan(-12.0, 11.25, (0.0, None), 2)))

#: Entries of a table of codes, those of 8 bits.
_CODES = 256
#: Limit of ``1 + |x|`` of a Softsign, which changes the result by less than one part in so many.
_SOFTSIGNS = ((1024, InputSpan(1.0, 512.0, scale=1)), (0, InputSpan(1.0, 65.0, scale=1)))


def decompose(graph: Graph, config: NpuConfig, formats: Formats = DEFAULT) -> Graph:
    """A copy of a graph with the nodes of :data:`RULES` in the place of their functions.

    Parameters
    ----------
    graph : Graph
        The network.
    config : NpuConfig
        Whose table memory it is for.
    formats : Formats
        Names functions that stay as they are: by several tables for samples, or good enough. Those that say what their
        table covers do, too.
    """
    made = graph.copy()
    kept = {*formats.table_segments, *formats.plain}
    count = _tables_of_powers(graph, config, formats)
    for node in graph.nodes:
        if node.op != "Function" or node.name in kept:
            continue
        functions = node.attributes(FunctionAttributes)
        if functions.domain is not None or functions.segment is not None:
            continue
        (name, parameters), *_ = functions.functions
        rule = RULES.get(functions.names)
        if rule is not None:
            complete = function(name).complete(parameters)
            rewrite(made, node, partial(rule, x=node.inputs[0], config=config, **complete))
        elif _open(node, formats) and count[0] > 1:
            domain = _domain(graph, node, formats)
            rewrite(made, node, partial(_power, x=node.inputs[0], name=name, domain=domain, count=count))
    return made


def is_power(node: Node) -> bool:
    """True if a function is steep near zero, and read over many powers of two."""
    names = names_of(node)
    return len(names) == 1 and function(names[0]).octaves > 0


def _open(node: Node, formats: Formats) -> bool:
    x = node.inputs[0]
    return is_power(node) and node.name not in formats.plain and x not in formats.ranges and x in formats.bounds


def _domain(graph: Graph, node: Node, formats: Formats) -> Domain:
    """Inputs of a power; all of one sign that have the same function share its tables."""
    own = formats.bounds[node.inputs[0]]
    alike = [other for other in graph.nodes if names_of(other) == names_of(node) and _open(other, formats)]
    bounds = [formats.bounds[other.inputs[0]] for other in alike]
    bounds = [each for each in bounds if min(each[0], own[0]) >= 0] or [own]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def _tables_of_powers(graph: Graph, config: NpuConfig, formats: Formats) -> tuple[int, int]:
    """Number of tables that a function that is a power may have without samples, and entries of each."""
    powers = _functions(node for node in graph.nodes if _open(node, formats))
    taken = tables_of_functions(graph, powers)
    codes = {codes_of(node) for node in graph.nodes if node.op == "FakeQuantize"}
    depth = config.table_depth // 2 if codes else config.table_depth  # tables of codes have the other half
    count = max((config.table_slots - taken - min(len(codes), depth // _CODES)) // max(len(powers), 1), 0)
    return count, depth // (taken + max(count * len(powers), 1))


def _functions(nodes: Iterable[Node]) -> set[str]:
    """Functions in the tables of nodes, each once, with the part of their inputs that a table is for."""
    made = [node.attributes(FunctionAttributes) for node in nodes if node.op == "Function"]
    return {str(each.functions) + (f" {each.segment}" if each.segment is not None else "") for each in made}


def tables_of_functions(graph: Graph, powers: Collection[str] = ()) -> int:
    """Number of tables that a network needs, but for those of some functions and of codes."""
    others = _functions(graph.nodes) - {*powers}
    cells = [node.attributes(RecurrentAttributes) for node in graph.nodes if operator_of(node).recurrence]
    others |= {name for cell in cells for names in cell.activations for name in names}
    softmaxes = {node.op for node in graph.nodes} & {"Softmax", "LogSoftmax"}
    return len(others) + sum("exp" in name for name in others) + 2 * len(softmaxes)


def covers_all(node: Node, formats: Formats) -> bool:
    """True if the inputs of a function make no difference to its tables."""
    return node.name not in formats.plain and names_of(node) in RULES


def decomposed_nodes(graph: Graph, formats: Formats) -> tuple[str, ...]:
    """Functions in the place of which there are other nodes."""
    nodes = [node for node in graph.nodes if node.name not in formats.table_segments]
    return tuple(node.name for node in nodes if covers_all(node, formats) or _open(node, formats))


def one_table_suffices(graph: Graph, values: Mapping[str, FloatArray], config: NpuConfig) -> tuple[str, ...]:
    """Functions of a network with constant ends that err little enough as one table, which takes a chain less.

    Parameters
    ----------
    graph : Graph
        The network.
    values : mapping of str to array
        What functions read.
    config : NpuConfig
        Whose table memory all tables share.
    """
    tables, plain = len(_functions(graph.nodes)), []
    for node in graph.nodes:
        names = names_of(node)
        if len(names) == 1 and function(names[0]).decomposed and function(names[0]).constant_ends:
            low, high, scale = standard_range(names[0], config, config.table_depth // max(tables, 2))
            x = values[node.inputs[0]]
            codes = np.clip(np.rint(np.ldexp(np.clip(x, -BINARY16_MAX, BINARY16_MAX), scale)), low, high)
            want, got = (function(names[0]).values(each) for each in (x, np.ldexp(codes, -scale)))
            if np.linalg.norm(got - want) <= _ENOUGH * np.linalg.norm(want):
                plain.append(node.name)
    return tuple(plain)


def _table(emit: Emit, x: str, name: str, domain: InputSpan, **parameters: float) -> str:
    return emit("Function", x, functions=((name, parameters),), domain=domain)


def _constant(emit: Emit, op: str, x: str, value: float) -> str:
    return emit(op, x, constant=np.asarray(value))


def _gated(emit: Emit, x: str, config: NpuConfig, *, name: str, span: InputSpan) -> None:
    """``x`` times a gate."""
    emit("Mul", _table(emit, x, name, span), x)


def _odd(emit: Emit, x: str, config: NpuConfig, *, name: str) -> None:
    """``x`` times a ratio, which is the same for both signs, limited."""
    size = emit("Max", _constant(emit, "Mul", x, -1.0), x)
    emit("Clip", emit("Mul", _table(emit, size, name, _RATIO), x), min=-1.0, max=1.0)


def _celu(emit: Emit, x: str, config: NpuConfig, alpha: float) -> None:
    ratio = _table(emit, x, "celu_ratio", InputSpan(_VANISHED * alpha, 0.0), alpha=alpha)
    _constant(emit, "Max", emit("Mul", ratio, x), -min(alpha, float(BINARY16_MAX)))


def _elu(emit: Emit, x: str, config: NpuConfig, alpha: float) -> None:
    """Elu; with another slope below zero than above there is a half for each."""
    if alpha == 1.0:
        _celu(emit, x, config, alpha)
        return
    above, below = emit("Relu", x), emit("Clip", x, min=_VANISHED, max=0.0)
    functions: tuple[tuple[str, dict[str, float]], ...] = (("celu_ratio", {}), ("linear", {"slope": alpha}))
    ratio = emit("Function", below, functions=functions, domain=InputSpan(_VANISHED, 0.0))
    emit("Add", emit("Mul", ratio, below), above)


def _softplus(emit: Emit, x: str, config: NpuConfig) -> None:
    above = emit("Relu", x)
    below = emit("Min", _constant(emit, "Mul", x, -1.0), x)
    emit("Add", _table(emit, below, "softplus", InputSpan(_VANISHED, 0.0, (0.0, None))), above)


def _newton(emit: Emit, reciprocal: str, x: str) -> str:
    """A reciprocal of x whose relative error is the square of that of the one that is given."""
    rest = emit("Sub", emit("Mul", reciprocal, x), constant=np.asarray(2.0), reversed=True)
    return emit("Mul", rest, reciprocal)


def _softsign(emit: Emit, x: str, config: NpuConfig) -> None:
    """Inputs are limited to what the table covers: beyond that the result hardly changes."""
    span = next(span for entries, span in _SOFTSIGNS if config.table_depth >= entries)
    x = emit("Clip", x, min=2.0 - span.high, max=span.high - 2.0)
    whole = _constant(emit, "Add", emit("Max", _constant(emit, "Mul", x, -1.0), x), 1.0)
    reciprocal = _newton(emit, _newton(emit, _table(emit, whole, "reciprocal", span), whole), whole)
    emit("Mul", reciprocal, x)


def _exp(emit: Emit, x: str, config: NpuConfig) -> None:
    """Both tables have the same codes: one has the power of a multiple, the other one the multiple less one."""
    span = next(span for entries, span in _EXPONENTIALS if config.table_depth >= entries)
    rest = emit("Sub", x, _table(emit, x, "linear", replace(span, ends=(None, None)), offset=-1.0))
    emit("Mul", _table(emit, x, "exp", span), rest)


@lru_cache(maxsize=64)
def _segments(name: str, domain: Domain, count: int, entries: int) -> tuple[TableSegment, ...] | None:
    """Tables for numbers of all sizes in a domain; ``None`` if there is no room."""
    high = min(domain[1], BINARY16_MAX / (1 + MARGIN))
    low = max(domain[0], high * 2.0 ** -function(name).octaves)
    x = np.exp2(np.linspace(np.log2(low), np.log2(high), 4096)) if low < high else np.array([high])
    if name != "log":
        return divided(((name, ()),), x, count, count * entries)
    # Around 1 all counts alike, not what is relative to 0.
    segments = divided((("sqrt", ()),), x, count, count * entries)
    return None if segments is None else (replace(segments[0], low=1), *segments[1:])


def _power(emit: Emit, x: str, name: str, domain: Domain, count: tuple[int, int]) -> None:
    """Several tables side by side, each for some powers of two; of a reciprocal a step of Newton's after them."""
    segments, size = _segments(name, domain, *count), x
    if segments is None:
        emit("Function", x, functions=((name, {}),), domain=domain_of(((name, ()),), domain))
        return
    if name == "reciprocal" and domain[0] < 0:
        size = emit("Max", _constant(emit, "Mul", x, -1.0), x)
    if name != "sqrt":  # less than the first step is beyond the table, and a flag; not where there are no elements
        size = emit("Max", size, constant=np.asarray(0.0), beyond=1.0)
    estimate = ""
    for segment in segments:
        part = emit("Function", size, functions=((name, {}),), segment=segment)
        estimate = emit("Max", estimate, part) if estimate else part
    if name == "reciprocal":
        estimate = _newton(emit, estimate, size)
        if domain[0] < 0:
            emit("Mul", emit("Mul", estimate, x), estimate)


def _mish_gate(emit: Emit, x: str, config: NpuConfig) -> None:
    emit("Function", x, functions=(("softplus", {}), ("tanh", {})), domain=_LOGISTIC)


#: Rules that make nodes for functions that follow each other: ``rule(emit, x, config, **parameters of the first one)``.
RULES: dict[tuple[str, ...], Callable[..., None]] = {
    ("gelu",): partial(_gated, name="normal_cdf", span=_STEEP),
    ("gelu_tanh",): partial(_gated, name="gelu_tanh_gate", span=_STEEP),
    ("silu",): partial(_gated, name="sigmoid", span=_LOGISTIC),
    ("tanh",): partial(_odd, name="tanh_ratio"),
    ("erf",): partial(_odd, name="erf_ratio"),
    ("celu",): _celu,
    ("elu",): _elu,
    ("softplus",): _softplus,
    ("exp",): _exp,
    ("softsign",): _softsign,
    ("softplus", "tanh"): _mish_gate,
}
