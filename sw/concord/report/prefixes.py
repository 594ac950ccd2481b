"""Results of every layer: the program runs up to that layer, once per layer.

Later layers reuse the memory of a tensor, so it is read behind a ``halt`` in the place of the first instruction of the
next layer. Of layers in row tiles no tensor is ever there as a whole: such a network is run in one piece, as it
would be with larger memories. That gives the same bits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.compiler.calibration.calibration import Inputs
from concord.compiler.emission.emit import REGIONS
from concord.compiler.ir.layers import AnyLayer, Layer
from concord.compiler.ir.layout import PAD, Storage
from concord.compiler.lowering.lower import Lowered
from concord.compiler.model import Compiled, in_one_piece
from concord.cycles import counts_of
from concord.graph.ops import operator_of
from concord.host import connect
from concord.image import Image, Port
from concord.image.feeder_layout import Feeding
from concord.networks.window_steps import WindowSteps
from concord.program import Trace, trace
from concord.program.builder import ProgramBuilder
from concord.spec.isa import Mem
from concord.spec.memmap import Reg
from concord.utils.arrays import FloatArray, Ids

#: Arrays ``[runs, *shape]`` by port.
Outputs = Mapping[str, npt.NDArray[Any]]
#: What the counters count in a prefix.
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
    mine : array of bool
        Elements of a sample, flat, that the layer computes.
    values : dict
        By memory: these elements, ``[samples, elements]``.
    blocks : array or None
        Largest magnitude of every narrow vector that holds some of them, ``[runs, vectors]``.
    """

    tensor: str
    mine: npt.NDArray[np.bool_]
    values: dict[Mem, FloatArray]
    blocks: FloatArray | None

    @property
    def best(self) -> FloatArray:
        """The wide values where there are any, else the narrow ones."""
        return self.values.get(Mem.WIDE, next(iter(self.values.values())))


def parts(lowered: Lowered, layer: AnyLayer) -> list[LayerElements]:
    """What a layer computes: the tensor of a chain; all states of a recurrent block, its sequence first.

    A chain that only copies elements of a tensor computes these once more.
    """
    if layer.name in lowered.copied:
        return [_copied(lowered, layer)]
    if isinstance(layer, Layer):
        return [LayerElements(layer.tensor, layer.target.root, _elements(layer.ids, [layer.target]))]
    found = []
    nodes = [
        node for node in lowered.graph.nodes if operator_of(node).recurrence and node.inputs[0] == layer.source_tensor
    ]
    names = [name for node in nodes for name in node.outputs]
    for storage in filter(None, (layer.target, layer.c)):
        mine = {storage.vector(vector) for vector in range(storage.vectors)}
        for name in filter(None, names):
            ids = _computed(lowered, name)
            inside = [s for s in lowered.storages.of(ids) if s.root is storage.root]
            elements = _elements(ids, inside)
            vectors = np.array(sorted(mine))
            elements[~np.isin(elements // storage.native, vectors)] = PAD
            if (elements != PAD).any():
                found.append(LayerElements(name, storage.root, elements))
    return found


def _computed(lowered: Lowered, tensor: str) -> Ids:
    """Where the elements of a tensor are computed."""
    return lowered.gathered.get(tensor, lowered.views[tensor])


def _copied(lowered: Lowered, layer: AnyLayer) -> LayerElements:
    """The elements that a layer copies, of the tensor that has them."""
    source = lowered.copied[layer.name]
    for tensor, ids in _held(lowered):
        mine = np.isin(ids, source)
        if np.isin(source, ids).all():
            order = np.argsort(source)
            moved = np.full(ids.shape, PAD)
            moved[mine] = layer.ids[order[np.searchsorted(source, ids[mine], sorter=order)]]
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


def ends(compiled: Compiled) -> list[list[int]]:
    """Behind every layer, addresses of the instructions that ``halt`` replaces: one for every row tile that differs."""
    last = [[end] for end in (*compiled.starts[1:], len(compiled.image.program) - 1)]
    for starts in compiled.tile_starts:
        for index, end in enumerate(starts[1:]):
            last[index].append(end)
    return last


def layer_at(compiled: Compiled, pc: int) -> int:
    """The layer that an instruction belongs to."""
    starts = max((s for s in (*compiled.tile_starts, compiled.starts) if s[0] <= pc), key=lambda s: s[0])
    return bisect_right(starts, pc) - 1


def halt() -> int:
    """The instruction word."""
    builder = ProgramBuilder()
    builder.halt()
    return builder.words()[0]


@dataclass(frozen=True)
class ProgramPrefix:
    """The program as far as a layer.

    Parameters
    ----------
    image : Image
        Stops behind the layer, and has an output for every copy of what the layer computes.
    parts : list of LayerElements
        What the layer computes.
    batch : int
        Samples per run.
    """

    image: Image
    parts: list[LayerElements]
    batch: int

    def results(self, outputs: Outputs, samples: int) -> list[Result]:
        """Results of ``samples`` samples by prefix of the program, from the outputs of the image."""
        return [self._result(k, part, outputs, samples) for k, part in enumerate(self.parts)]

    def _result(self, k: int, part: LayerElements, outputs: Outputs, samples: int) -> Result:
        used = part.elements.reshape(self.batch, -1) != PAD
        wanted = part.elements[part.elements != PAD]
        values, blocks = {}, None
        for mem in Mem:
            found = outputs.get(_port(k, mem))
            if found is None:
                continue
            flat = found.astype(np.float64).reshape(len(found), -1)
            values[mem] = flat[:, wanted].reshape(len(found) * self.batch, -1)[:samples]
            if mem is Mem.NARROW:
                vectors = np.unique(wanted // part.root.native)
                blocks = np.abs(flat.reshape(len(found), -1, part.root.native)[:, vectors]).max(axis=2)
        return Result(part.tensor, used[0], values, blocks)


def prefixes(compiled: Compiled) -> Iterator[ProgramPrefix]:
    """The program up to every layer; of a network in row tiles, the program for the largest memories that are possible.

    Raises
    ------
    concord.program.allocator.CapacityError
        If a network in row tiles does not fit into those in one piece.
    """
    compiled = in_one_piece(compiled) if compiled.row_tiling is not None else compiled
    image, batch = compiled.image, compiled.package.arrangement.batch
    for layer, (end,) in zip(compiled.lowered.layers, ends(compiled), strict=True):
        wanted = parts(compiled.lowered, layer)
        outputs = tuple(port for k, part in enumerate(wanted) for port in _copies(compiled, k, part))
        yield ProgramPrefix(
            replace(image, program=(*image.program[:end], halt()), outputs=outputs, feeding=Feeding()), wanted, batch
        )


def _copies(compiled: Compiled, k: int, part: LayerElements) -> Iterator[Port]:
    """An output for every copy of a part."""
    for mem in Mem:
        copy = compiled.plan.copy(part.root, mem)
        if copy is not None:
            yield Port(_port(k, mem), REGIONS[mem], copy.addr, (part.root.vectors, part.root.native))


def _port(part: int, mem: Mem) -> str:
    return f"{part}.{mem.name}"


def results(compiled: Compiled, inputs: Inputs) -> Iterator[tuple[list[Result], Counts]]:
    """What every layer computes on the emulator, and the counters of a run as far as that layer."""
    samples = len(np.asarray(next(iter(inputs.values()))))
    ports = compiled.package.arrangement.pack(inputs)
    for prefix in prefixes(compiled):
        with connect("emulator", prefix.image.config) as device:
            device.load(prefix.image)
            found = prefix.results(device.run(ports), samples)
            counters = device.counters()
            yield found, {reg: counters[reg.name] or 0 for reg in COUNTED}


def without_overlap(cycles: Sequence[int], least: Sequence[int]) -> list[int]:
    """Cycles of layers, each with those that its steps need at least; the sum is the same.

    A program that stops behind a layer waits until that leaves the pipe, while the next layer goes on in the whole one:
    what the next layer has begun by then is its own.
    """
    ends = list(accumulate(cycles))
    for index in range(len(ends) - 1, 0, -1):
        ends[index - 1] = min(ends[index - 1], ends[index] - least[index])
    return [end - begin for begin, end in pairwise([0, *ends])]


def cycles(compiled: Compiled, steps: Sequence[WindowSteps] | None = None) -> list[int]:
    """Cycles of every layer for one run: differences of consecutive prefixes.

    Apart from ``steps``, those of the windows of sliding products by phase, they do not depend on the values, so row
    tiles may be cut short as well.
    """
    image, known = compiled.image, dict[tuple[int, Trace], int]()
    totals = [0]
    for places in ends(compiled):
        words = list(image.program)
        for end in places:
            words[end] = halt()
        total = 0
        for k, phase in enumerate(image.schedule()):
            found = trace(words, image.config, phase.pc)
            key = k if steps is not None and found.slides else -1, found
            if key not in known:
                known[key] = counts_of(found, image.config, steps[k] if steps is not None else None).cycles
            total += known[key]
        totals.append(total)
    return [int(count) for count in np.diff(totals)]
