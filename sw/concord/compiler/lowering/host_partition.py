"""Partition of a graph: what the host computes in front of the NPU, what the NPU computes, and what the host does then.

An operator of the kind HOST has no instruction, so the host computes it: with everything that it depends on, in front
of the NPU, or with everything that depends on it, after. Which of the two, products decide: they are what the NPU is
for. A softmax at the end is for the host, too.

A graph can also say which nodes are for the NPU (``Graph.npu_nodes``). Then the host computes what depends on them
after it, and all others in front; what it has at hand does not travel.

The NPU could compare inputs, but would round them before: the host compares them in front, if it may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy.typing as npt

from concord.compiler.lowering.input_assumptions import SIGNS
from concord.compiler.lowering.lowered import Unsupported
from concord.graph.cost import node_macs
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_rules import has_operations
from concord.graph.ir import Graph, Node, Shape, fresh
from concord.graph.ops import OperatorKind, operator_of
from concord.graph.ops.host import LookupAttributes

#: Multiply-accumulates of a node that the host computes, in seconds: it takes some 20 ns for one.
MOST_MACS = 1 << 28


@dataclass(frozen=True)
class Parts:
    """A graph in parts.

    Parameters
    ----------
    front : Graph or None
        What the host computes from the inputs of the network.
    rest : Graph
        What the NPU and then the host compute; its inputs are such of the network, and results of the first part.
    """

    front: Graph | None
    rest: Graph

    @property
    def rounded_comparisons(self) -> list[str]:
        """Names of the nodes that compare inputs which the NPU has rounded."""
        return [node.name for node in self.rest.nodes if node.op == "Compare" and not self._of_states(node)]

    def _of_states(self, node: Node) -> bool:
        """True if a node reads elements of states alone, which are such numbers."""
        return all(name in self.rest.states for name in _sources(self.rest, node))

    def inputs(self, samples: Mapping[str, npt.ArrayLike]) -> dict[str, npt.ArrayLike]:
        """Inputs of the rest, ``[samples, *shape of a sample]``, from those of the network."""
        if self.front is None:
            return dict(samples)
        own = {name: values for name, values in samples.items() if name in self.rest.inputs}
        return own | run_on_host(self.front, {name: samples[name] for name in self.front.inputs})


def without_front(graph: Graph) -> Parts:
    """Part off what the host must compute in front of the NPU.

    Raises
    ------
    Unsupported
        With every node for the host that ``graph.partition`` does not let it compute, and why.
    """
    if graph.partition == "none":
        if host := [node for node in graph.nodes if not _for_npu(graph, node)]:
            remedy = "--partition ends lets the host compute it"
            raise Unsupported(graph.name, [f"{_title(node)}: no instruction computes it; {remedy}" for node in host])
        return Parts(None, graph)
    compared, names = _with_comparisons(graph)
    if names:
        with suppress(Unsupported):  # if nothing else is left, the NPU compares
            return _parted(compared, names)
    return _parted(graph, frozenset())


def _parted(graph: Graph, compared: frozenset[str]) -> Parts:
    """The parts of a graph, of which the nodes with these names are for the host, too.

    Raises
    ------
    Unsupported
        As for :func:`without_front`.
    """
    if graph.npu_nodes is not None:
        graph = replace(graph, npu_nodes=graph.npu_nodes - compared)
    host = [node for node in graph.nodes if node.name in compared or not _for_npu(graph, node)]
    if not host:
        return Parts(None, graph)
    front, back = _chosen(graph, host) if graph.npu_nodes is None else _around(graph, graph.npu_nodes)
    reasons = [*_not_for_the_host(graph, front | back)]
    if not reasons and not any(_computes(node) for node in graph.nodes if node.name not in front | back):
        remedy = "run it without one, such as in ONNX Runtime, or compile it together with the layers in front of it"
        reasons = [f"nothing is left for the NPU: the host would compute all of the network; {remedy}"]
    if reasons:
        raise Unsupported(graph.name, reasons)
    graph, front = _without_passing(graph, front, back)
    return _cut(graph, front) if front else Parts(None, graph)


def split(graph: Graph) -> tuple[Graph, Graph | None]:
    """The part of a graph for the NPU, and the part that the host computes from its outputs, if there is one.

    A node is for the host if it is of that kind, or if no product reads what it computes and its operator is one that
    the host's share may begin with, or if it follows such a node. Where the graph says what is for the NPU, all others
    are for the host.
    """
    host: set[str] = set()
    late: set[str] = set()  # nodes with a product behind them
    readers = graph.readers()
    producers = {name: node.name for node in graph.nodes for name in node.outputs}
    for node in reversed(graph.nodes):
        if any(
            c.name in late or operator_of(c).kind is OperatorKind.QUANTISED
            for name in node.outputs
            for c in readers.get(name, ())
        ):
            late.add(node.name)
    for node in graph.nodes:
        follows = any(producers.get(name) in host for name in node.inputs if name)
        begins = (
            operator_of(node).host_partition
            and graph.partition != "none"
            and graph.npu_nodes is None
            and node.name not in late
        )
        if follows or begins or not _for_npu(graph, node):
            host.add(node.name)
    if not host:
        return graph, None
    npu_nodes = [node for node in graph.nodes if node.name not in host]
    theirs = [node for node in graph.nodes if node.name in host]
    computed = {name for node in npu_nodes for name in node.outputs} | set(graph.inputs)
    crossing = list(dict.fromkeys(name for node in theirs for name in node.inputs if name in computed))
    known = [name for name in crossing if name in graph.from_host | graph.whole and name not in graph.outputs]
    read = {name for node in npu_nodes for name in node.inputs}
    inputs = [name for name in graph.inputs if name not in known or name in read]
    outputs = list(dict.fromkeys([*crossing, *(name for name in graph.outputs if name in computed)]))
    outputs = [name for name in outputs if name not in known]
    batched = graph.batched | {name for name in crossing if graph.shapes[name][:1] == (1,)}
    npu = Graph(graph.name, npu_nodes, inputs, outputs, graph.shapes, batched, states=graph.states)
    kept = set(graph.states.values())
    if read_by_host := sorted(kept.intersection(crossing)):
        raise Unsupported(graph.name, [f"state {name}: the host computes from it" for name in read_by_host])
    title = f"{graph.name} on the host"
    theirs_in = [name for name in (*known, *outputs) if name not in kept]
    theirs_out = [name for name in graph.outputs if name not in kept]
    return npu, Graph(title, theirs, theirs_in, theirs_out, graph.shapes, batched)


def _title(node: Node) -> str:
    return f"{node.op} '{node.name}'"


def _for_npu(graph: Graph, node: Node) -> bool:
    if graph.npu_nodes is None:
        return operator_of(node).kind is not OperatorKind.HOST and graph.whole.isdisjoint(node.outputs)
    return node.name in graph.npu_nodes


def _computes(node: Node) -> bool:
    return operator_of(node).kind is not OperatorKind.MOVING


def _chosen(graph: Graph, host: list[Node]) -> tuple[set[str], set[str]]:
    """Names of the nodes in front of the NPU, and of those after it.

    Of the nodes for the host, those in front that read what is moved or made by the host alone, and then in the order
    of execution, the first ones are in front and the others after it: where the NPU keeps most multiply-accumulates, of
    several such places where it keeps most nodes, of these the last.
    """
    above, below = _closures(graph, graph.nodes, down=False), _closures(graph, graph.nodes[::-1], down=True)
    moves = {node.name for node in graph.nodes if operator_of(node).view} | {node.name for node in host}
    host = sorted(host, key=lambda node: not above[node.name] <= moves)  # the NPU loses nothing by the first ones
    macs = {node.name: node_macs(graph, node) for node in graph.nodes}
    work = {node.name: (macs[node.name], int(_computes(node))) for node in graph.nodes}

    def kept(count: int) -> tuple[set[str], set[str], tuple[int, int]]:
        front: set[str] = set().union(*(above[node.name] for node in host[:count]))
        back: set[str] = set().union(*(below[node.name] for node in host[count:]))
        left = [work[name] for name in work if name not in front | back]
        return front, back, (sum(m for m, _ in left), sum(n for _, n in left))

    front, back, _ = max((kept(count) for count in reversed(range(len(host) + 1))), key=lambda parts: parts[2])
    if graph.partition == "ends" and (lost := [name for name in (*front, *back) if macs[name]]):
        between = [node for node in host if {*above[node.name]} & {*lost} or {*below[node.name]} & {*lost}]
        raise Unsupported(
            graph.name,
            [
                f"{_title(node)}: no instruction computes it, and products are in front of it and behind it; "
                "--partition any lets the host compute what is on one side of it"
                for node in between
            ],
        )
    return front, back


def _around(graph: Graph, npu_nodes: Collection[str]) -> tuple[set[str], set[str]]:
    """Names of the nodes that do not depend on these ones, and of those that do."""
    front, back = set[str](), set[str]()
    dependent = set[str]()  # tensors that depend on these nodes
    for node in graph.nodes:
        if node.name not in npu_nodes:
            (front if dependent.isdisjoint(node.inputs) else back).add(node.name)
        if node.name not in front:
            dependent.update(name for name in node.outputs if name)
    return front, back


def _closures(graph: Graph, nodes: list[Node], down: bool) -> dict[str, set[str]]:
    """Nodes on which each node depends, or that depend on it, itself included, by node; ``nodes`` come after those."""
    readers = graph.readers()
    producers = {name: node.name for node in graph.nodes for name in node.outputs if name}
    reached: dict[str, set[str]] = {}
    for node in nodes:
        if down:
            neighbours = [reader.name for name in node.outputs if name for reader in readers.get(name, ())]
        else:
            neighbours = [producers[name] for name in node.inputs if name in producers]
        reached[node.name] = {node.name}.union(*(reached[name] for name in neighbours))
    return reached


def _not_for_the_host(graph: Graph, names: Collection[str]) -> Iterator[str]:
    for node in graph.nodes:
        if node.name in names and not has_operations(node):
            yield f"{_title(node)}: lies beside what the host computes, and the host has no operations for it"
        elif node.name in names and (count := node_macs(graph, node)) > MOST_MACS:
            text = f"at most {MOST_MACS:,} multiply-accumulates to be for the host, which are seconds, not {count:,}"
            yield f"{_title(node)}: must have {text}"


def _sources(graph: Graph, node: Node) -> set[str]:
    """Inputs that a node depends on."""
    producers = {name: node for node in graph.nodes for name in node.outputs}
    waiting, seen = [*node.inputs], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += producers[name].inputs if name in producers else ()
    return seen.intersection(graph.inputs)


def _with_comparisons(graph: Graph) -> tuple[Graph, frozenset[str]]:
    """The graph in which comparisons of inputs share no moves with other nodes, and names of those for the host."""
    hosted = {node.name for node in graph.nodes if not _for_npu(graph, node)}
    known = {name for name in graph.inputs if name not in graph.states}
    names, moves = set[str](), set[str]()
    for node in graph.nodes:
        if not known.issuperset(node.inputs) or not has_operations(node):
            continue
        if node.op == "Compare":
            names.add(node.name)
        elif node.name in hosted or operator_of(node).view:
            known.update(node.outputs)
            moves |= {node.name} - hosted
    if not names:
        return graph, frozenset()
    made, copies = graph.copy(), _Copies(graph, moves)
    made.nodes = []
    for node in graph.nodes:
        compares = node.name in names
        inputs = tuple(map(copies.of, node.inputs)) if compares else node.inputs
        made.nodes += [*copies.taken(), node.replace(inputs=inputs)]
    made.shapes |= copies.shapes
    read, kept = {*graph.outputs}, list[Node]()
    for node in reversed(made.nodes):  # without moves that comparisons alone had read
        if node.name not in moves or not read.isdisjoint(node.outputs):
            kept.append(node)
            read.update(node.inputs)
    made.nodes = kept[::-1]
    return made, frozenset(names)


class _Copies:
    """Makes copies of nodes that move elements, so that the host has results of its own."""

    def __init__(self, graph: Graph, moves: Collection[str]):
        self.graph, self.shapes, self.names = graph, dict[str, Shape](), dict[str, str]()
        self.made: list[Node] = []
        self.producers = {name: node for node in graph.nodes if node.name in moves for name in node.outputs}

    def of(self, name: str) -> str:
        """The tensor that has what another one has; that itself if nothing moves elements to it."""
        if name not in self.names and name in self.producers:
            node = self.producers[name]
            self.add(name, node.replace(inputs=tuple(map(self.of, node.inputs))))
        return self.names.get(name, name)

    def add(self, name: str, node: Node) -> None:
        """Make a copy of a node that makes the tensor."""
        self.names[name] = copy = fresh(self.graph, f"{name}/given", [*self.shapes])
        self.shapes[copy] = self.graph.shapes[name]
        self.made.append(node.replace(name=copy, outputs=(copy,)))

    def taken(self) -> list[Node]:
        """The nodes that were made since they were taken last."""
        made, self.made = self.made, []
        return made


def _cut(graph: Graph, front: set[str]) -> Parts:
    nodes = [node for node in graph.nodes if node.name in front]
    rest = [node for node in graph.nodes if node.name not in front]
    read = {name for node in rest for name in node.inputs}
    by_front = {name for node in nodes for name in node.inputs}
    crossing = [name for node in nodes for name in node.outputs if name in read or name in graph.outputs]
    inputs = [name for name in graph.inputs if name in read or name in graph.outputs or name not in by_front]
    batched = graph.batched | {name for name in crossing if graph.shapes[name][:1] == (1,)}
    first = Graph(
        f"{graph.name} in front of the NPU",
        nodes,
        [name for name in graph.inputs if name in by_front],
        crossing,
        graph.shapes,
        batched,
    )
    ranges = graph.known_ranges | dict(_ranges_of(nodes, crossing))
    there = {*inputs, *crossing}.union(*(node.outputs for node in rest))
    own = {node.name for node in rest}
    whole = replace(
        graph,
        nodes=rest,
        inputs=[*inputs, *crossing],
        batched=batched,
        known_ranges=ranges,
        quantization={name: codes for name, codes in graph.quantization.items() if name in there},
        weight_quantization={name: codes for name, codes in graph.weight_quantization.items() if name in own},
    )
    at_hand = crossing if graph.npu_nodes is None else [*crossing, *(name for name in inputs if name in by_front)]
    return Parts(first, replace(whole, from_host=frozenset(at_hand)))


def _without_passing(graph: Graph, front: set[str], back: set[str]) -> tuple[Graph, set[str]]:
    """The graph in which what is computed in front, whole numbers and inputs do not pass the NPU to the host.

    A result that is computed in front gets its name after the NPU, and inputs that later nodes read, of which binary16
    does not hold all numbers, get one in front; with the names of the nodes in front.
    """
    late = back | {node.name for node in graph.nodes if node.name not in front and not _for_npu(graph, node)}
    results = {x for node in graph.nodes if node.name in front for x in node.outputs if x in graph.outputs}
    rounded = {x for x in graph.inputs if x in graph.whole or x not in graph.element_types} - {*graph.states}
    moves, known = set[str](), {*rounded}
    for node in graph.nodes:
        if node.name not in front | late and operator_of(node).view and known.issuperset(node.inputs):
            moves.add(node.name)
            known.update(node.outputs)
    read = {x for node in graph.nodes if node.name in late for x in node.inputs if x in known}
    if graph.npu_nodes is not None:  # of these inputs the host has all that it reads in front
        read -= {x for node in graph.nodes if node.name in front for x in node.inputs if x not in graph.whole}
    if not results and not read:
        return graph, front
    made, copies = graph.copy(), _Copies(graph, moves)
    for name in sorted(read & rounded):
        copies.add(name, Node("Reshape", name, (name,), (name,), {"shape": graph.shapes[name]}))
    copied = {name: copies.of(name) for name in sorted(read)}
    first = copies.taken()
    made.shapes |= copies.shapes
    computed = dict[str, str]()
    for name in sorted(results):
        computed[name] = fresh(made, f"{name}/computed")
        made.shapes[computed[name]] = made.shapes[name]
    ends = [Node("Reshape", inner, (inner,), (name,), {"shape": made.shapes[name]}) for name, inner in computed.items()]

    def renamed(node: Node) -> Node:
        names = computed | copied if node.name in late else computed
        inputs = tuple(names.get(name, name) for name in node.inputs)
        return node.replace(inputs=inputs, outputs=tuple(computed.get(name, name) for name in node.outputs))

    made.nodes = [*first, *map(renamed, made.nodes), *ends]
    whole = graph.whole | results | {*computed.values(), *copies.shapes}
    return replace(made, whole=whole), front | {node.name for node in first}


def _ranges_of(nodes: list[Node], crossing: list[str]) -> Iterator[tuple[str, tuple[float, float, str]]]:
    """Ranges of comparisons, and of what is looked up in tables, and moved at most."""
    known: dict[str, tuple[float, float]] = {}
    for node in nodes:
        if node.op == "Lookup":
            table = node.attributes(LookupAttributes).table
            known[node.outputs[0]] = float(table.min()), float(table.max())
        elif operator_of(node).view and node.op != "Pad" and all(name in known for name in node.inputs):
            ends = [known[name] for name in node.inputs]
            known[node.outputs[0]] = min(low for low, _ in ends), max(high for _, high in ends)
    for name in crossing:
        if name in known and known[name][0] < known[name][1]:
            yield name, (*known[name], "entries of its table")
    for node in nodes:
        if node.op == "Compare" and node.outputs[0] in crossing:
            yield node.outputs[0], (-1.0, 1.0, SIGNS)
