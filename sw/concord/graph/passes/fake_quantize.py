"""Take quantised tensors for tensors of floats where the formats of the NPU round as finely as their codes.

A FakeQuantize rounds and limits to codes. Where that costs about as much as the mantissas of the NPU do, it disappears,
and its tensor remembers the codes: a scale that is a power of two becomes a static exponent. It stays where rounding or
limiting is part of what the network computes:

* codes of less than 8 bits, and those that samples have shown to change their tensor much;
* two in a row with different codes, and several with different codes for readers of one tensor;
* after others of which only data-moving operators divide it, where few codes are in use or much is cut off;
* in front of one that stays, with nothing but data-moving operators between them;
* an input of the network that is read as it is, too; and an output of the network, for codes are what it is made of.

Exporters leave out a Relu where codes begin at zero, because rounding to codes does the same. Then it is put back; so
is the upper end of a ReLU6. Other values beyond the range of codes of 8 bits are not limited.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from concord.golden.codes import Codes
from concord.graph.ir import Graph, Node, fresh
from concord.graph.ops import OperatorKind, operator_of
from concord.graph.ops.elementwise import FakeQuantizeAttributes, codes_of
from concord.graph.signs import never_negative

#: Bits of codes that mantissas round as finely as.
_FINE = 8
#: Codes of 8 bits in use, of which fewer are coarse.
_FEW = 64
#: Steps of codes that they may cut off, by rounding.
_ROOM = 2
_RELU6_END = 6.0


def run(graph: Graph) -> None:
    """Let every FakeQuantize that may disappear do so; tensors remember codes in ``graph.quantization``."""
    _join_equal(graph)
    _move_up(graph)
    _join_equal(graph)
    stay = _staying(graph)
    for node in _quantisers(graph):
        if node.name in stay:
            graph.quantization[node.outputs[0]] = codes_of(node)
        else:
            _remember(graph, node)


def _quantisers(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "FakeQuantize"]


def _join_equal(graph: Graph) -> None:
    """Let one FakeQuantize serve all readers that want a tensor in the same codes."""
    kept: list[Node] = []
    for node in _quantisers(graph):
        node = next(other for other in graph.nodes if other.name == node.name)  # its input may have another name
        equal = (other for other in kept if other.inputs == node.inputs and codes_of(other) == codes_of(node))
        first = next(equal, None)
        if first is None or node.outputs[0] in graph.outputs:
            kept.append(node)
            continue
        graph.nodes.remove(node)
        if node.attributes(FakeQuantizeAttributes).stays:
            graph.nodes[graph.nodes.index(first)] = first = first.with_attrs(stays=True)
            kept = [first if other.name == first.name else other for other in kept]
        graph.rename({node.outputs[0]: first.outputs[0]})
        del graph.shapes[node.outputs[0]]


def _move_up(graph: Graph) -> None:
    """Codes for a whole tensor are those of what is moved: quantise in front of Reshape, Transpose and Concat."""
    waiting = _quantisers(graph)
    while waiting:
        node = waiting.pop()
        before = _movable(graph, node)
        if before is not None:
            waiting += _exchanged(graph, before, node)


def _movable(graph: Graph, node: Node) -> Node | None:
    """The operator that may as well follow a FakeQuantize as stand in front of it."""
    before, codes = graph.producer(node.inputs[0]), codes_of(node)
    if before is None or before.op not in ("Reshape", "Transpose", "Concat") or codes.axis is not None:
        return None
    if not _only_reader(graph, before.outputs[0]) or not all(_only_reader(graph, name) for name in before.inputs):
        return None
    above = [graph.producer(name) for name in before.inputs]
    codes_above = [codes_of(producer) for producer in above if producer is not None and producer.op == "FakeQuantize"]
    if before.op == "Concat" and not all(scheme == codes for scheme in codes_above):
        return None
    return before


def _only_reader(graph: Graph, tensor: str) -> bool:
    """True if a tensor is read by one input of one node alone."""
    return tensor not in graph.outputs and sum(node.inputs.count(tensor) for node in graph.nodes) == 1


def _exchanged(graph: Graph, before: Node, node: Node) -> list[Node]:
    """Quantise every input of ``before`` in place of its result; what does so."""
    graph.nodes.remove(node)
    del graph.shapes[before.outputs[0]]
    made: list[Node] = []
    for name in before.inputs:
        tensor = fresh(graph, f"{name}/codes")
        graph.shapes[tensor] = graph.shapes[name]
        label = fresh(graph, node.name, [quantizer.name for quantizer in made])
        made.append(node.replace(name=label, inputs=(name,), outputs=(tensor,)))
    at = graph.nodes.index(before)
    moved = before.replace(inputs=tuple(quantizer.outputs[0] for quantizer in made), outputs=node.outputs)
    graph.nodes[at : at + 1] = [*made, moved]
    return made


def _staying(graph: Graph) -> set[str]:
    """Names of those that stay; with one of them those in front of it, whose codes may be halves of its steps."""
    staying: set[str] = set()
    for node in reversed(_quantisers(graph)):
        codes, source = codes_of(node), node.inputs[0]
        above = list(_above(graph, source))
        directly = [quantizer for quantizer in above if quantizer.outputs[0] == source]
        if any(codes_of(quantizer) == codes for quantizer in directly):
            continue  # changes nothing
        others = [
            reader for reader in graph.consumers(source) if reader.op != "FakeQuantize" or codes_of(reader) != codes
        ]
        several = any(reader.op == "FakeQuantize" for reader in others)
        if codes.bits < _FINE or directly or several or (source in graph.inputs and others):
            staying.add(node.name)
        if node.attributes(FakeQuantizeAttributes).stays or _leaves(graph, node.outputs[0]):
            staying.add(node.name)
        for quantizer in above:
            first = codes_of(quantizer)
            if first != codes and (_coarse(codes, first) or _coarse(first, codes) or _cuts_off(codes, first)):
                staying.add(node.name)
        if node.name in staying:
            staying.update(quantizer.name for quantizer in above if codes_of(quantizer) != codes)
    return staying


def _leaves(graph: Graph, tensor: str) -> bool:
    """True if a tensor is an output of the network, as it is or with its elements moved."""
    views = (node for node in graph.consumers(tensor) if operator_of(node).view)
    return tensor in graph.outputs or any(_leaves(graph, node.outputs[0]) for node in views)


def _above(graph: Graph, tensor: str) -> Iterator[Node]:
    """Every FakeQuantize that a tensor comes from through operators that compute no other values."""
    node = graph.producer(tensor)
    if node is not None and node.op == "FakeQuantize":
        yield node
    elif node is not None and operator_of(node).kind is OperatorKind.MOVING:
        for name in node.inputs:
            yield from _above(graph, name)


def _coarse(codes: Codes, others: Codes) -> bool:
    """True if few codes are between the ends that both have."""
    (low, high), (least, greatest) = codes.span, others.span
    used = (np.minimum(high, greatest.max()) - np.maximum(low, least.min())) / codes.steps
    return bool(used.max() < _FEW)


def _cuts_off(codes: Codes, others: Codes) -> bool:
    """True if values of other codes are limited; not where a Relu does so."""
    (low, high), (least, greatest) = codes.span, others.span
    room = _ROOM * float(codes.steps.max())
    return bool(high.max() < greatest.max() - room or (low.any() and low.min() > least.min() + room))


def _remember(graph: Graph, node: Node) -> None:
    """Let a FakeQuantize be a Relu, a ReLU6 or nothing, whose result has codes."""
    (source,), (result,) = node.inputs, node.outputs
    codes, at = codes_of(node), graph.nodes.index(node)
    low, high = codes.span
    # The range of an input is the user's choice.
    if not low.any() and not never_negative(graph, source, inputs=True):
        six = np.all(np.abs(high - _RELU6_END) <= codes.steps)
        op, attrs = ("Clip", {"min": 0.0, "max": _RELU6_END}) if six else ("Relu", {})
        graph.nodes[at] = node.replace(op=op, attrs=attrs)
        graph.quantization[result] = codes
    else:
        graph.nodes[at] = node.replace(op="Reshape", attrs={"shape": graph.shapes[source]})
        graph.quantization[source] = codes
