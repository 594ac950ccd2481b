"""Graph to layers: every node becomes a chain, part of one, or a view that costs nothing.

Element-wise operations are fused into the chain that computes their input, as long as nothing else reads it and the
multifunction units have a stage left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol, TypeVar

import numpy as np

from concord.compiler.ir.layers import AnyLayer, Layer, LayerWindow, MfuStep, Recurrent, Reduction
from concord.compiler.ir.layout import PAD, LayoutError, Storage, Storages, Walk
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.lowering import inputs, legality, operands
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lowered import Lowered, Unsupported, VarianceRange
from concord.graph.ir import Graph, Node, fresh
from concord.graph.ops import operator_of
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray, Ids
from concord.utils.matrices import MatrixTooLarge

_Joined = TypeVar("_Joined")
_NOWHERE: Ids = np.empty(0, dtype=np.int64)
_ALONE = LayerWindow()


@dataclass(frozen=True)
class Computation:
    """Computation of a layer on the vectors of a window: what it sums with which weights, or compares.

    Parameters
    ----------
    reduction : Reduction
    weight : array, optional
        As :class:`concord.compiler.ir.layers.Layer` has it.
    window : LayerWindow
    stack : int
        Matrices beside each other, 1 or more.
    """

    reduction: Reduction = Reduction.NONE
    weight: FloatArray | None = None
    window: LayerWindow = _ALONE
    stack: int = 1


class StateWriter(Protocol):
    """Writes the states of a network into the places of their inputs."""

    def computed(self, node: Node) -> None:
        """Write those whose results a node has computed, if that may be."""

    def left(self) -> list[str]:
        """Write all others when all else is done, and return why one of them cannot be."""


@dataclass(frozen=True)
class LoweringRules:
    """Rules by which nodes are lowered, by operator.

    Parameters
    ----------
    expansions : mapping of str to callable
        Lowering and node -> the nodes that compute together what the node does, or ``None`` if it is lowered as it is.
        They are asked when its turn comes, as it depends on where its operands lie.
    handlers : mapping of str to callable
        What appends the layers of a node to a lowering, or fuses it into one that is there.
    fallback : callable
        The nodes in the place of one that does not find elements where it needs them, or ``None``.
    output_copy : callable
        The node that copies a tensor to an output: lowering, name of the tensor, name of the output.
    states : callable
        What writes states into their places (:mod:`concord.compiler.lowering.states`).
    """

    expansions: Mapping[str, Expansion]
    handlers: Mapping[str, Handler]
    fallback: Expansion
    output_copy: Callable[[Lowering, str, str], Node]
    states: Callable[[Lowering], StateWriter]

    def knows(self, node: Node) -> bool:
        """True if there is a way to lower an operator."""
        return node.op in self.handlers or node.op in self.expansions or operator_of(node).view

    def expand(self, lowering: Lowering, node: Node) -> list[Node] | None:
        """The nodes in the place of a node; ``None`` if it is lowered as it is."""
        expansion = self.expansions.get(node.op)
        return None if expansion is None else expansion(lowering, node)


class Lowering:
    """Lowers a graph for ``config`` by rules.

    The host may unfold as much of a first window as ``unfold`` says; ``formats`` are those of tensors and weights;
    ``variance_range`` is for normalisations of which they have no range.
    """

    def __init__(
        self,
        graph: Graph,
        config: NpuConfig,
        rules: LoweringRules,
        unfold: Unfold = Unfold.BOTH,
        formats: Formats = DEFAULT,
        variance_range: VarianceRange = VarianceRange.ANY,
    ):
        self.rules = rules
        self.graph = graph.copy()
        self.formats = formats
        self.config = config
        self.unfold = unfold
        self.done = Lowered(
            self.graph, Storages(config.native), unfold, variance_range=variance_range, narrow=formats.narrow
        )
        self.readers = _readers(self.graph, rules)
        # In the order of the inputs: chains are the same in whatever order states are named.
        self.done.states = {name: graph.states[name] for name in graph.inputs if name in graph.states}
        self._states = rules.states(self)

    def run(self) -> Lowered:
        """Lower all nodes; :class:`Unsupported` lists everything that cannot be."""
        reasons: list[str] = []
        failed: set[str] = set()
        refused: dict[str, str] = {}  # why nodes were refused before their operands were copied
        index = 0
        while index < len(self.graph.nodes):
            node = self.graph.nodes[index]
            index += 1
            if failed.intersection(node.inputs):  # only to find every reason
                failed.update(node.outputs)
                if not self.rules.knows(node):
                    reasons.append(f"{node.op} '{node.name}': {_NOT_SUPPORTED}")
                continue
            done = len(self.done.layers)
            try:
                expanded = self.rules.expand(self, node)
                if expanded is None:
                    self._node(node)
                    self._states.computed(node)
            except (LayoutError, MatrixTooLarge) as error:
                expanded = self.rules.fallback(self, node) if self.rules.knows(node) else None
                if expanded is None:
                    named = self.graph.consumers(node.outputs[0])[0] if node.op == "Copy" else node
                    reason = f"{named.op} '{named.name}': {refused.get(named.name, error)}"
                    reasons += [reason] if reason not in reasons else []
                    failed.update(node.outputs)
                else:
                    refused[node.name] = str(error)
                    self._undo(node, done)
            if expanded is not None:
                index -= 1
                self.graph.nodes[index : index + 1] = expanded
                self.readers = _readers(self.graph, self.rules)
        results = set(self.done.states.values())
        self.graph.outputs = [name for name in self.graph.outputs if name not in results]
        for name in filter(lambda name: name not in failed, self.graph.outputs):
            try:
                self._output(name)
            except LayoutError as error:
                reasons += self.copied_output(name, error)
        if not reasons:
            reasons += self._states.left()
        if reasons:
            raise Unsupported(self.graph.name, reasons)
        self._leave_out_unread()
        return self.done

    def _leave_out_unread(self) -> None:
        """Leave out layers, and inputs, of which nothing is read: a view after a node may take some of its parts."""
        done = self.done
        read = {storage.root for name in self.graph.outputs for storage in done.storages.of(done.views[name])}
        read.update(done.inputs[name][0] for name in done.states)
        layers: list[AnyLayer] = []
        for layer in reversed(done.layers):
            if layer.target.root in read or isinstance(layer, Recurrent):  # which reads its own states
                layers.append(layer)
                read.update(storage.root for storage, _, _ in layer.reads)
        done.layers = layers[::-1]
        done.inputs = {name: (storage, order) for name, (storage, order) in done.inputs.items() if storage.root in read}

    def _undo(self, node: Node, done: int) -> None:
        """Take back what a node has appended after the first ``done`` layers before it was refused."""
        self.done.layers[done:] = [layer for layer in self.done.layers[done:] if node.name not in layer.nodes]
        for name in node.outputs:
            self.done.views.pop(name, None)

    def fresh(self, stem: str) -> str:
        """A name that no node, tensor or layer has."""
        return fresh(self.graph, stem, [layer.name for layer in self.done.layers])

    def new_node(self, node: Node, op: str, what: str, inputs: tuple[str, ...], **attrs: Any) -> Node:
        """A node that does some of the work of ``node``; its shape is noted."""
        name = self.fresh(f"{node.name}/{what}")
        made = Node(op, name, inputs, (name,), attrs)
        (self.graph.shapes[name],) = operator_of(made).shape(made, [self.graph.shapes[tensor] for tensor in inputs])
        return made

    def _output(self, name: str) -> None:
        """See to it that an output lies in one storage, in whatever order: the host looks up every element."""
        ids = self.view(name)
        if (ids == PAD).any():
            raise LayoutError("elements must all be computed, none be padding")
        try:
            self.whole(name)
        except LayoutError:
            storages = self.done.storages
            stacked = self._together(ids, lambda parts: storages.stack(parts, "elements", self._readable(parts)))
            self.done.gathered[name], self.done.views[name] = ids, stacked

    def copied_output(self, name: str, error: LayoutError) -> list[str]:
        """Copy an output that does not lie in one storage, and return why that cannot be."""
        reasons = [f"output '{name}': {error}"]
        producer = self.graph.producer(name)
        if producer is None or not operator_of(producer).view or name not in self.done.views:
            return reasons
        parts = fresh(self.graph, f"{name}/parts")

        def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(parts if tensor == name else tensor for tensor in names)

        nodes = self.graph.nodes
        nodes[:] = [node.replace(inputs=renamed(node.inputs), outputs=renamed(node.outputs)) for node in nodes]
        self.graph.shapes[parts], self.done.views[parts] = self.graph.shapes[name], self.done.views.pop(name)
        copy = self.rules.output_copy(self, parts, name)
        nodes.append(copy)
        try:
            self._node(copy)
            self._output(name)
        except LayoutError:
            return reasons
        return []

    def _node(self, node: Node) -> None:
        if node.op in self.rules.handlers:
            self.rules.handlers[node.op](self, node)
            legality.check_weights(node, self.config)
        elif not self.rules.knows(node):  # what only moves elements is looked up by those who read them
            raise LayoutError(_NOT_SUPPORTED)

    # Tensors -----------------------------------------------------------------------------------

    def view(self, tensor: str) -> Ids:
        """Elements of a tensor in storage; an input gets its storage when something reads it for the first time."""
        if tensor not in self.done.views:
            producer = self.graph.producer(tensor)
            if producer is None:
                self.store_input(tensor, inputs.preferred_order(self.graph, tensor))
            else:
                self.done.views[tensor] = inputs.moved(producer, [self.view(name) for name in producer.inputs])
        return self.done.views[tensor]

    def whole(self, tensor: str) -> Ids:
        """Elements of a tensor, in one storage from now on: several are brought together, or copies of them."""
        ids = self.view(tensor)
        if len(self.done.storages.of(ids)) > 1:
            storages = self.done.storages
            image = ids.ndim in (3, 4) and ids.shape[0] == 1
            together = self._together(
                ids,
                lambda parts: storages.gather(
                    parts, "elements", self._readable(parts), inputs.as_map(parts) if image else None
                ),
            )
            self.done.gathered[tensor], self.done.views[tensor] = ids, together
            return together
        return ids

    def store_input(self, tensor: str, order: Ids) -> Storage:
        """Let the host write ``order[height, width, channel]``, elements of the sample, and find all of them again."""
        storage = self.done.storages.new(tensor, *order.shape)
        legality.check_storage(storage)
        storage.fixed = True
        ids = storage.view(order.shape[2])
        shape = self.graph.shapes[tensor]
        where = np.full(int(np.prod(shape, dtype=int)), PAD)
        used = order != PAD
        where[order[used][::-1]] = ids[used][::-1]
        self.done.views[tensor] = where.reshape(shape)
        self.done.inputs[tensor] = storage, order
        return storage

    def walk(self, ids: Ids, what: str) -> Walk:
        """Loops for a view, after bringing several storages together where that costs nothing."""
        storages = self.done.storages
        if len(storages.of(ids)) == 1:
            return storages.walk(ids, what)
        return self._together(ids, lambda parts: storages.join(parts, what, self._readable(parts)))

    def _together(self, ids: Ids, join: Callable[[Ids], _Joined]) -> _Joined:
        """Result of ``join`` for a view, or for one with copies of storages that cannot be placed any more."""
        try:
            return join(ids)
        except LayoutError as error:
            refused = error
        count = len(self.done.layers)
        for across in (False, True):
            try:
                return join(self._copied(ids, across))
            except LayoutError as error:
                refused = error
                for layer in self.done.layers[count:]:
                    del self.done.copied[layer.name]
                del self.done.layers[count:]
        raise refused

    def _readable(self, ids: Ids) -> Callable[[], None]:
        """A check that the layers so far can read the storages of a view wherever these are placed."""
        storages = self.done.storages.of(ids)

        def check() -> None:
            for layer in self.done.layers:
                if any(storage in storages for storage, _, _ in layer.reads):
                    legality.check_reads(layer)

        return check

    def _copied(self, ids: Ids, across: bool) -> Ids:
        """A view with copies of those storages that cannot become part of another one: a chain each.

        With ``across``, those that a layer reads across positions are copied, too.
        """
        storages, moved = self.done.storages, ids.copy()
        reads = [read for layer in self.done.layers for read in layer.reads] if across else []
        crossed = {storage for storage, start, loops in reads if not storage.in_positions(start, loops)}
        for storage in storages.of(ids):
            if storage.parent is None and not storage.fixed and storage not in crossed:
                continue
            own = (ids != PAD) & storages.within(ids, storage)
            walk = operands.box(storages, ids[own])
            out = (walk.height, walk.width, walk.tiles)
            name = self.fresh(f"{storage.name}.copy{len(self.done.layers)}")
            target = storages.new(name, out[0], out[1], out[2] * self.config.native)
            moved[own] = operands.shifted(ids[own], walk, target)
            self.done.layers.append(Layer.copied(walk, target, moved[own], storage.name, name))
            self.done.copied[name] = ids[own]
        return moved

    # Layers ------------------------------------------------------------------------------------

    def add(
        self, node: Node, source: Walk, work: Computation, out: tuple[int, int, int], view: Callable[[Storage], Ids]
    ) -> Layer:
        """Append a layer for ``node`` with a new storage; ``view`` gives the ids of its output.

        Raises
        ------
        LayoutError
            If it is larger than a chain can be.
        """
        layer = self._layer(node, source, work, out, view)
        self._append(layer)
        return layer

    def _layer(
        self, node: Node, source: Walk, work: Computation, out: tuple[int, int, int], view: Callable[[Storage], Ids]
    ) -> Layer:
        """Layer of :meth:`add` that is not yet one of those that are done."""
        tensor = node.outputs[0]
        target = self.done.storages.new(tensor, out[0], out[1], out[2] * self.config.native)
        what = (work.reduction, work.weight, work.window)
        layer = Layer(node.name, source, *what, out, tensor, target, _NOWHERE, node.inputs[0], stack=work.stack)
        layer.nodes.append(node.name)
        legality.check(layer, self.config)
        legality.check_storage(target)
        layer.ids = view(target).reshape(self.graph.shapes[tensor])
        return layer

    def _append(self, layer: Layer) -> None:
        """A layer is done."""
        self.done.layers.append(layer)
        self.done.views[layer.tensor] = layer.ids

    def extend(self, layer: Layer, node: Node, more: list[MfuStep]) -> None:
        """Fuse ``node`` into a layer."""
        layer.append(more)
        layer.nodes.append(node.name)
        layer.tensor = node.outputs[0]
        self.done.views[layer.tensor] = layer.ids

    def open_layer(self, tensor: str) -> Layer | None:
        """The layer that computes ``tensor``, if nothing else than one more node reads what it computes."""
        storages = self.done.storages.of(self.view(tensor))
        layer = next((la for la in reversed(self.done.layers) if [la.target] == storages), None)  # most often the last
        if (
            not isinstance(layer, Layer)
            or len(self.readers[layer.tensor]) != 1
            or layer.ids.size != self.view(tensor).size
        ):
            return None
        return layer

    def elementwise(self, node: Node, make: Callable[[Ids, Storage], list[MfuStep]], tensor: str) -> None:
        """Do ``make(view of the result, its storage)`` on every element of ``tensor``, fused or in a chain."""
        ids = self.view(tensor)
        layer = self.open_layer(tensor)
        if layer is not None:
            more = make(ids, layer.target)
            if layer.fits(more) and self._earlier(more, layer):
                layer.ids = ids
                self.extend(layer, node, more)
                return
        ids = self.whole(tensor)
        walk = operands.box(self.done.storages, ids)
        out = (walk.height, walk.width, walk.tiles)
        layer = self._layer(node, walk, Computation(), out, lambda target: operands.shifted(ids, walk, target))
        layer.target.uniform = walk.storage.uniform
        more = make(layer.ids, layer.target)
        if not layer.fits(more):
            raise LayoutError("needs more stages than the multifunction units have")
        layer.append(more)
        self._append(layer)

    def _earlier(self, more: list[MfuStep], layer: Layer) -> bool:
        """True if the tensors that steps read are computed before ``layer``."""
        later = takewhile(lambda other: other is not layer, reversed(self.done.layers))
        targets = [layer.target, *(other.target for other in later)]
        return not any(mfu_op.operand is not None and mfu_op.operand.storage in targets for mfu_op in more)


class NodeBuilder:
    """Makes the nodes that together compute what a node does.

    Members
    -------
    nodes : list of Node
        Nodes that are made, in order.
    """

    def __init__(self, lowering: Lowering, node: Node):
        self.lowering, self.node, self.nodes = lowering, node, list[Node]()

    def add(self, op: str, what: str, *inputs: str, **attrs: Any) -> str:
        """Append a node, and return its output."""
        self.nodes.append(self.lowering.new_node(self.node, op, what, inputs, **attrs))
        return self.nodes[-1].outputs[0]

    def ending(self, op: str, *inputs: str, **attrs: Any) -> list[Node]:
        """All nodes, and one at the end that has the name and the output of the node in whose place they are."""
        return [*self.nodes, Node(op, self.node.name, inputs, self.node.outputs, attrs)]

    def renamed(self) -> list[Node]:
        """All nodes, the last of which gets the name and the output of the node in whose place they are."""
        *nodes, last = self.nodes
        del self.lowering.graph.shapes[last.outputs[0]]
        return [*nodes, last.replace(name=self.node.name, outputs=self.node.outputs)]


_NOT_SUPPORTED = "operator is not supported on the NPU"


def _readers(graph: Graph, rules: LoweringRules) -> dict[str, list[str]]:
    """Nodes that compute from a tensor, seen through those that only move elements; outputs of the graph count."""
    readers: dict[str, list[str]] = {name: [] for name in graph.shapes}
    for name in graph.outputs:
        readers[name].append("")
    for node in reversed(graph.nodes):
        if operator_of(node).view:
            successors = [reader for name in node.outputs if name for reader in readers[name]]
        else:
            successors = [node.name]
        for name in node.inputs:
            if name:
                readers[name] += successors
    return readers


Expansion = Callable[[Lowering, Node], list[Node] | None]
Handler = Callable[[Lowering, Node], None]
