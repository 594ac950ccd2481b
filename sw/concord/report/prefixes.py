"""What every layer computes: the program is run as far as that layer, once per layer.

Later layers reuse the memory of a tensor, so it is read behind a ``halt`` in the place of the first instruction of the
next layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from concord.builder import ProgramBuilder
from concord.compiler.emit import REGIONS
from concord.compiler.formats import Inputs
from concord.compiler.layers import AnyLayer, Layer
from concord.compiler.layout import PAD, Ids, Storage
from concord.compiler.lower import Lowered
from concord.compiler.model import Compiled
from concord.graph.ir import Floats
from concord.host import connect
from concord.host.device import Device
from concord.image import Image, Port
from concord.spec.isa import Mem
from concord.spec.memmap import Reg, RegionId

#: What the counters count in a prefix.
Counts = dict[Reg, int]
COUNTED = (Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.VECTORS)


@dataclass(frozen=True)
class Part:
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
    values: dict[Mem, Floats]
    blocks: Floats | None

    @property
    def best(self) -> Floats:
        """The wide values where there are any, else the narrow ones."""
        return self.values.get(Mem.WIDE, next(iter(self.values.values())))


def parts(lowered: Lowered, layer: AnyLayer) -> list[Part]:
    """What a layer computes: the tensor of a chain; all states of a recurrent block, its sequence first."""
    if isinstance(layer, Layer):
        return [Part(layer.tensor, layer.target.root, _elements(layer.ids, [layer.target]))]
    found = []
    names = [name for node in lowered.graph.nodes if layer.source_tensor in node.inputs for name in node.outputs]
    for storage in filter(None, (layer.target, layer.c)):
        mine = {storage.vector(vector) for vector in range(storage.vectors)}
        for name in filter(None, names):
            ids = lowered.views[name]
            inside = [s for s in lowered.storages.of(ids) if s.root is storage.root]
            elements = _elements(ids, inside)
            vectors = np.array(sorted(mine))
            elements[~np.isin(elements // storage.native, vectors)] = PAD
            if (elements != PAD).any():
                found.append(Part(name, storage.root, elements))
    return found


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


def ends(compiled: Compiled) -> list[int]:
    """Behind every layer, the address of the instruction that ``halt`` replaces."""
    return [*compiled.starts[1:], len(compiled.image.program) - 1]


def halt() -> int:
    """The instruction word."""
    builder = ProgramBuilder()
    builder.halt()
    return builder.words()[0]


def results(compiled: Compiled, inputs: Inputs) -> Iterator[tuple[list[Result], Counts]]:
    """What every layer computes on the emulator, and the counters of a run as far as that layer."""
    samples = len(np.asarray(next(iter(inputs.values()))))
    ports = compiled.package.arrangement.pack(inputs)
    with connect("emulator", compiled.image.config) as device:
        for layer, end in zip(compiled.lowered.layers, ends(compiled), strict=True):
            wanted = parts(compiled.lowered, layer)
            device.load(_prefix(compiled, end, wanted))
            outputs = device.run(ports)
            counters = device.counters()
            found = [_result(compiled, k, part, outputs, samples) for k, part in enumerate(wanted)]
            yield found, {reg: counters[reg.name] or 0 for reg in COUNTED}


def _prefix(compiled: Compiled, end: int, wanted: list[Part]) -> Image:
    """The image that stops at ``end``, with an output for every copy of a part."""
    image, outputs = compiled.image, []
    for k, part in enumerate(wanted):
        for mem in Mem:
            copy = compiled.plan.copy(part.root, mem)
            if copy is not None:
                shape = (part.root.vectors, part.root.native)
                outputs.append(Port(_port(k, mem), REGIONS[mem], copy.addr, shape))
    return replace(image, program=(*image.program[:end], halt()), outputs=tuple(outputs))


def _port(part: int, mem: Mem) -> str:
    return f"{part}.{mem.name}"


def _result(compiled: Compiled, k: int, part: Part, outputs: dict[str, Floats], samples: int) -> Result:
    batch = compiled.package.arrangement.batch
    used = part.elements.reshape(batch, -1) != PAD
    wanted = part.elements[part.elements != PAD]
    values, blocks = {}, None
    for mem in Mem:
        found = outputs.get(_port(k, mem))
        if found is None:
            continue
        flat = found.astype(np.float64).reshape(len(found), -1)
        values[mem] = flat[:, wanted].reshape(len(found) * batch, -1)[:samples]
        if mem is Mem.NARROW:
            vectors = np.unique(wanted // part.root.native)
            blocks = np.abs(flat.reshape(len(found), -1, part.root.native)[:, vectors]).max(axis=2)
    return Result(part.tensor, used[0], values, blocks)


def cycles(compiled: Compiled, device: Device, inputs: Inputs) -> list[int]:
    """Cycles of every layer for one run on a device that counts them: differences of consecutive prefixes."""
    batch = compiled.package.arrangement.batch
    ports = compiled.package.arrangement.pack({name: np.asarray(x)[:batch] for name, x in inputs.items()})
    device.load(compiled.image)
    totals = [0]
    for end in ends(compiled):
        device.write(RegionId.PROGRAM, end, [halt()])
        device.run(ports)
        device.write(RegionId.PROGRAM, end, [compiled.image.program[end]])
        count = device.counters()[Reg.CYCLES.name]
        if count is None:
            raise ValueError("device must count cycles, as the RTL does")
        totals.append(count)
    return [int(count) for count in np.diff(totals)]
