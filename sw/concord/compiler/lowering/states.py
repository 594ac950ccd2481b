"""States that the NPU keeps between runs: what a run leaves in the place of an input is what the next one reads.

A state is an input of the network and an output of the same shape. The output is written into the storage of the
input, as soon as it is computed if nothing else needs the input, and then whoever reads the output finds it there; a
window that moves by a position is moved in its place. Else it is written when all else is done.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from concord.compiler.ir.layers import Layer, MfuStep, Reduction
from concord.compiler.ir.layout import PAD, LayoutError
from concord.compiler.lowering import operands
from concord.compiler.lowering.layout_copies import chains_into, copy, is_together, lanes_of
from concord.compiler.lowering.lower import Lowering
from concord.compiler.lowering.lowered import Lowered
from concord.graph.ir import Graph, Node
from concord.spec.isa import Op
from concord.utils.arrays import Ids


def is_early(graph: Graph, name: str, result: str) -> bool:
    """True if an input is needed for nothing but the output that takes its place, and what is computed from that."""
    waiting, known = [name], {name}
    while waiting:
        tensor = waiting.pop()
        if tensor in graph.outputs and tensor != result:
            return False
        for node in graph.consumers(tensor) if tensor != result else ():
            new = [output for output in node.outputs if output and output not in known]
            waiting += new
            known.update(new)
    return result in known


class StateKeeper:
    """The states of a network that is lowered.

    Members
    -------
    late : dict
        Those that are written when all else is done: something else needs the input.
    """

    def __init__(self, lowering: Lowering):
        self.lowering, done = lowering, lowering.done
        self.late = {name: result for name, result in done.states.items() if not is_early(lowering.graph, name, result)}

    def computed(self, node: Node) -> None:
        """Write the states whose results a node has computed; who reads a result finds it in its place then."""
        done = self.lowering.done
        for name, result in done.states.items():
            if result in node.outputs and name not in self.late:
                keep(self.lowering, {name: result})
                done.gathered.setdefault(result, done.views[result])
                done.views[result] = done.views[name]

    def left(self) -> list[str]:
        """Write the other states, in whose places no output may lie, and return why that cannot be."""
        lowering, done, reasons = self.lowering, self.lowering.done, list[str]()
        places = {done.inputs[name][0] for name in self.late if name in done.inputs}
        for name in lowering.graph.outputs:
            if places.intersection(done.storages.of(lowering.view(name))):
                reasons += lowering.copied_output(name, LayoutError("must not lie in the place of a state"))
        try:
            keep(lowering, self.late)
        except LayoutError as error:
            reasons.append(f"states {', '.join(self.late)}: {error}")
        return reasons


def keep(lowering: Lowering, states: Mapping[str, str]) -> None:
    """Append the chains that write results into the places of their states, none of which is needed any more.

    Raises
    ------
    LayoutError
        If a result is not computed element by element, or the host would lay out windows of the state.
    """
    done = lowering.done
    for name in states:
        lowering.view(name)
    places = {done.inputs[name][0] for name in states}
    sources = {}
    for name, result in states.items():
        ids = lowering.view(result)
        of_states = places.intersection(done.storages.of(ids))
        sources[name] = _copied(lowering, result) if of_states and len(states) > 1 else ids
    for name, result in states.items():
        _, order = done.inputs[name]
        if np.unique(order).size != order.size or order.min() < 0:
            raise LayoutError("a state must not be read in windows that the host lays out")
        view = sources[name].reshape(-1)[order]
        chains = _in_place(_chains(lowering, name, result, view)) if is_together(done.storages, view) else None
        if chains is None:
            chains = _chains(lowering, name, result, _copied(lowering, result).reshape(-1)[order])
        done.layers += chains


def _chains(lowering: Lowering, name: str, result: str, view: Ids) -> list[Layer]:
    """Chains that write a view ``[height, width, channel]`` into the place of a state, zeros in lanes beyond it."""
    graph, (storage, order) = lowering.graph, lowering.done.inputs[name]
    node = Node("Copy", lowering.fresh(f"{name}/kept"), (result,), (result,), {"shape": order.shape, "lanes": 2})
    chains = chains_into(lowering, node, view, storage)
    for layer in chains:
        if order.shape[2] % lowering.config.native:
            ids = layer.ids[layer.ids != PAD].reshape(*layer.out[:2], -1)
            layer.append([MfuStep(Op.VV_MUL, operands.constant(np.ones(ids.shape), ids, layer.target, 0.0))])
        elements = np.full(order.size, PAD)
        elements[order.reshape(-1)] = layer.ids.reshape(-1)
        layer.ids, layer.nodes = elements.reshape(graph.shapes[result]), []  # no node's work
    return chains


def rounded_states(lowered: Lowered) -> list[str]:
    """States whose elements change lanes when they are written, which is a product: they are rounded in front of it."""
    rounded = {layer.target.root for layer in lowered.layers if isinstance(layer, Layer) and layer.weight is not None}
    return [name for name in lowered.states if lowered.inputs[name][0] in rounded]


def _in_place(chains: list[Layer]) -> list[Layer] | None:
    """Chains in an order in which each vector is read before another takes its place; ``None`` if there is none."""
    reads, writes = [_reads(chain) for chain in chains], [_writes(chain) for chain in chains]
    if not all(map(_reads_first, chains, reads, writes)):
        return None
    waiting, ordered = list(range(len(chains))), list[Layer]()
    while waiting:
        free = (
            k for k in waiting if not any(np.isin(writes[k], reads[other]).any() for other in waiting if other != k)
        )
        if (k := next(free, None)) is None:
            return None
        waiting.remove(k)
        ordered.append(chains[k])
    return ordered


def _reads_first(chain: Layer, reads: Ids, writes: Ids) -> bool:
    """True if a chain reads every vector before it writes it."""
    if chain.reduction is not Reduction.NONE or not reads.size:
        return not np.isin(reads, writes).any()
    written_at = np.full(int(max(reads.max(), writes.max())) + 1, len(writes))
    written_at[writes] = np.arange(len(writes))
    return bool((written_at[reads] >= np.arange(len(reads))).all())


def _reads(chain: Layer) -> Ids:
    """Vectors of the state that a chain reads, in order; none if it reads another tensor."""
    walk, (height, width, tiles) = chain.source, chain.out
    if walk.storage.root is not chain.target.root:
        return np.arange(0)
    if chain.reduction is not Reduction.NONE:
        return np.arange(walk.storage.root.vectors)
    y, x, tile = np.ogrid[:height, :width, :tiles]
    return np.asarray(walk.storage.vector(walk.start + y * walk.row_stride + x * walk.stride + tile)).reshape(-1)


def _writes(chain: Layer) -> Ids:
    """Vectors of the state that a chain writes, in order."""
    return np.asarray(chain.target.vector(np.arange(chain.target.vectors)))


def _copied(lowering: Lowering, tensor: str) -> Ids:
    """Elements of a copy of a tensor."""
    graph, done = lowering.graph, lowering.done
    shape, count = graph.shapes[tensor], len(done.layers)
    name = lowering.fresh(f"copy of {tensor}")
    node = Node("Copy", name, (tensor,), (name,), {"shape": shape, "lanes": lanes_of(lowering, tensor, shape)})
    copy(lowering, node)
    for layer in done.layers[count:]:
        if isinstance(layer, Layer) and layer.tensor == name:
            layer.tensor, layer.nodes = tensor, []
    return done.views.pop(name)
