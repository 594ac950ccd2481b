"""Results of every layer of a compiled network on the emulator, from one run.

Later layers reuse the memory of a tensor, so it is read when the last chain of its layer has been executed. Of layers
in row tiles no tensor is ever there as a whole: such a network is run in one piece, as it would be with larger
memories. That gives the same bits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.compiler.calibration.calibration import Inputs
from concord.compiler.ir.layers import AnyLayer, Layer
from concord.compiler.ir.layout import PAD, Storage
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.model import Compiled, in_one_piece
from concord.emulator.lanes import Lanes
from concord.emulator.plan import ChainSlice
from concord.graph.ops import operator_of
from concord.host.emulated import EmulatedDevice
from concord.program import Trace, trace
from concord.spec.isa import Mem
from concord.spec.memmap import Reg
from concord.utils.arrays import Bools, Float32s, FloatArray, Ids
from concord.utils.grouping import by_key

#: Vectors by memory, from one chunk of samples after the other.
Pieces = dict[Mem, list[Float32s]]
#: Counts of the counters up to the end of a layer.
Counts = dict[Reg, int]
COUNTED = (Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.VECTORS)


@dataclass(frozen=True)
class LayerElements:
    """Elements of a tensor that a layer computes.

    Parameters
    ----------
    tensor : str
        Name of the tensor.
    root : Storage
        Where they lie.
    elements : Ids
        In the shape of the tensor in the lowered graph: element of ``root``, ``PAD`` for those of other layers.
    """

    tensor: str
    root: Storage
    elements: Ids


@dataclass(frozen=True)
class Result:
    """A part as the NPU has it.

    Parameters
    ----------
    tensor : str
        Name of the tensor.
    computed : array of bool
        Elements of a sample, flat, that the layer computes.
    values : dict
        By memory: these elements, ``[samples, elements]``.
    blocks : array or None
        Largest magnitude of every narrow vector that holds some of them, ``[runs, vectors]``.
    """

    tensor: str
    computed: Bools
    values: dict[Mem, FloatArray]
    blocks: FloatArray | None

    @property
    def best(self) -> FloatArray:
        """The wide values where there are any, else the narrow ones."""
        return self.values.get(Mem.WIDE, next(iter(self.values.values())))


def parts(lowered: Lowered, layer: AnyLayer) -> list[LayerElements]:
    """Elements that a layer computes: the tensor of a chain; all states of a recurrent block, its sequence first.

    A chain that only copies elements of a tensor computes these once more.
    """
    if layer.name in lowered.copied:
        return [_copied(lowered, layer)]
    if isinstance(layer, Layer):
        return [LayerElements(layer.tensor, layer.target.root, _elements(layer.ids, [layer.target]))]
    computed = []
    nodes = [
        node for node in lowered.graph.nodes if operator_of(node).recurrence and node.inputs[0] == layer.source_tensor
    ]
    names = [name for node in nodes for name in node.outputs]
    for storage in filter(None, (layer.target, layer.c)):
        own = {storage.vector(vector) for vector in range(storage.vectors)}
        for name in filter(None, names):
            ids = _computed(lowered, name)
            inside = [s for s in lowered.storages.of(ids) if s.root is storage.root]
            elements = _elements(ids, inside)
            vectors = np.array(sorted(own))
            elements[~np.isin(elements // storage.native, vectors)] = PAD
            if (elements != PAD).any():
                computed.append(LayerElements(name, storage.root, elements))
    return computed


def _computed(lowered: Lowered, tensor: str) -> Ids:
    """Places in which the elements of a tensor are computed."""
    return lowered.gathered.get(tensor, lowered.views[tensor])


def _copied(lowered: Lowered, layer: AnyLayer) -> LayerElements:
    """The elements that a layer copies, of the tensor that has them."""
    source = lowered.copied[layer.name]
    for tensor, ids in _held(lowered):
        kept = np.isin(ids, source)
        if np.isin(source, ids).all():
            order = np.argsort(source)
            moved = np.full(ids.shape, PAD)
            moved[kept] = layer.ids[order[np.searchsorted(source, ids[kept], sorter=order)]]
            return LayerElements(tensor, layer.target.root, _elements(moved, [layer.target]))
    raise AssertionError(f"{layer.name} copies what no layer computes")


def _held(lowered: Lowered) -> Iterator[tuple[str, Ids]]:
    """Tensors that are in memory as such, and where: inputs, results of layers, and what was brought together."""
    yield from ((name, lowered.views[name]) for name in lowered.inputs)
    for layer in lowered.layers:
        if isinstance(layer, Layer) and layer.name not in lowered.copied:
            yield layer.tensor, layer.ids
    yield from ((name, lowered.views[name]) for name in lowered.gathered)
    for node in lowered.graph.nodes:
        if operator_of(node).recurrence:
            yield from ((name, _computed(lowered, name)) for name in node.outputs if name in lowered.views)


def _elements(ids: Ids, storages: list[Storage]) -> Ids:
    """Elements of the root in which the given storages of a view lie; ``PAD`` for all others."""
    elements = np.full(ids.shape, PAD)
    for storage in storages:
        local = ids - storage.base
        inside = (local >= 0) & (local < storage.vectors * storage.native)
        vector, lane = np.divmod(local[inside], storage.native)
        where = np.array([storage.vector(v) for v in range(storage.vectors)])
        elements[inside] = where[vector] * storage.native + lane
    return elements


def result_of(part: LayerElements, copies: Mapping[Mem, npt.NDArray[np.floating]], batch: int, samples: int) -> Result:
    """A part, from the vectors of its storage.

    Parameters
    ----------
    part : LayerElements
        What is wanted.
    copies : mapping of Mem to array
        By memory, vectors ``[runs, vectors, native]``.
    batch : int
        Samples per run.
    samples : int
        Number of samples.
    """
    used = part.elements.reshape(batch, -1) != PAD
    wanted = part.elements[part.elements != PAD]
    values, blocks = {}, None
    for mem, copy in copies.items():
        flat = copy.astype(np.float64).reshape(len(copy), -1)
        values[mem] = flat[:, wanted].reshape(len(copy) * batch, -1)[:samples]
        if mem is Mem.NARROW:
            vectors = np.unique(wanted // part.root.native)
            blocks = np.abs(flat.reshape(len(copy), -1, part.root.native)[:, vectors]).max(axis=2)
    return Result(part.tensor, used[0], values, blocks)


def results(compiled: Compiled, inputs: Inputs) -> Iterator[tuple[list[Result], Counts]]:
    """Results of every layer on the emulator, and the counters of a run as far as that layer.

    Parameters
    ----------
    compiled : Compiled
        The network.
    inputs : mapping of str to array
        ``[samples, *shape of a sample]`` for every input.

    Raises
    ------
    concord.program.allocator.CapacityError
        If a network in row tiles does not fit into the largest memories in one piece.
    """
    compiled = in_one_piece(compiled) if compiled.row_tiling is not None else compiled
    compiled = compiled.carried
    image, batch = compiled.image, compiled.package.arrangement.batch
    samples = len(np.asarray(next(iter(inputs.values()))))
    run = trace(image.program, image.config)
    last = _last_chains(compiled, run)
    layers = [parts(compiled.lowered, layer) for layer in compiled.lowered.layers]
    copies = [[_copies(compiled, part) for part in layer_parts] for layer_parts in layers]
    pieces: list[list[Pieces]] = [[{mem: [] for mem in copy} for copy in part] for part in copies]
    executed = 0

    def after(part: ChainSlice, lanes: Lanes, count: int) -> None:
        nonlocal executed
        if not part.last:
            return
        for index in last.get(executed, ()):
            for places, gathered in zip(copies[index], pieces[index], strict=True):
                for mem, where in places.items():
                    gathered[mem].append(np.moveaxis(lanes.memory(mem)[where, :, :count], -1, 0).copy())
        executed = (executed + 1) % len(run.chains)

    with EmulatedDevice(image.config, workers=1, after=after) as device:
        device.load(image)
        device.run(compiled.package.arrangement.pack(inputs))
    for index, layer_parts in enumerate(layers):
        values = [{mem: np.concatenate(arrays) for mem, arrays in piece.items()} for piece in pieces[index]]
        results = [result_of(part, piece, batch, samples) for part, piece in zip(layer_parts, values, strict=True)]
        yield results, _counts(compiled, run, next(k for k, ending in last.items() if index in ending) + 1)


def _last_chains(compiled: Compiled, run: Trace) -> dict[int, list[int]]:
    """Layers of which a chain is the last one, by the index of the chain in a run."""
    starts, last = compiled.starts, dict[int, int]()
    for k, chain in enumerate(run.chains):
        last[bisect_right(starts, chain.pc) - 1] = k
    return by_key((k, layer) for layer, k in last.items())


def _copies(compiled: Compiled, part: LayerElements) -> dict[Mem, slice]:
    """Words of the copies of a part, by memory."""
    copies = {mem: compiled.plan.copy(part.root, mem) for mem in Mem}
    return {mem: slice(copy.addr, copy.addr + part.root.vectors) for mem, copy in copies.items() if copy is not None}


def _counts(compiled: Compiled, run: Trace, chains: int) -> Counts:
    """The counters after the first chains of a run."""
    config, done = compiled.image.config, run.chains[:chains]
    dense, depthwise = sum(chain.dense_steps(config) for chain in done), sum(chain.depthwise_steps() for chain in done)
    return dict(zip(COUNTED, (dense, depthwise, sum(chain.vectors for chain in done)), strict=True))
