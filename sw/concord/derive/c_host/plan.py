"""What of an image is for a host in C: how its inputs travel, what runs, and where results belong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np

from concord.compiler.emission.package import Package
from concord.compiler.ir.arrangement import Arrangement, InputGrid
from concord.compiler.ir.layout import PAD
from concord.derive.c_host.spans import ElementSpan, spans
from concord.golden import binary16
from concord.graph.ir import Graph, Shape
from concord.image import Image
from concord.image.phases import PortRange
from concord.image.ports import Port
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.utils.arrays import FloatArray, Ids


class HostError(ValueError):
    """A network that no host in C is written for; the message says why."""


class GroupFormat(IntEnum):
    """How a group of elements travels; the names are those of ``concord_host.h``."""

    WIDE = 0
    NARROW = 1
    BLOCKS = 2
    CODES = 3


@dataclass(frozen=True)
class HostPart:
    """Groups that follow each other, of one input or output.

    Parameters
    ----------
    port : int
        Number of the input or output.
    format : GroupFormat
        Of every group.
    lanes, last, tiles : int
        Elements of a group, those of the last of ``tiles`` groups, and ``tiles``.
    groups : int
        How many there are.
    address : int
        Of the first word, where groups are words of a memory.
    spans : tuple of ElementSpan
        Numbers of the elements of a sample; of results -1 for what belongs nowhere.
    """

    port: int
    format: GroupFormat
    lanes: int
    last: int
    tiles: int
    groups: int
    address: int
    spans: tuple[ElementSpan, ...]


@dataclass(frozen=True)
class HostInput:
    """An input, and what becomes of its numbers.

    Parameters
    ----------
    name : str
        Name in the network.
    shape : tuple of int
        Of what a run takes: with several samples in a run they are the first axis.
    border : int
        Binary16 pattern of the elements outside.
    grid : InputGrid or None
        What they are rounded to.
    offset : float
        What is subtracted at the end.
    powers, middles : array
        By entry: the power of two that elements are divided by, and what is subtracted before.
    inner : int
        Element k has the entry ``k // inner % len(powers)``.
    """

    name: str
    shape: Shape
    border: int
    grid: InputGrid | None
    offset: float
    powers: Ids
    middles: FloatArray
    inner: int


@dataclass(frozen=True)
class HostOutput:
    """An output: its name, and the shape of what a run gives."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class PhasePlan:
    """One start of the program: the address, and what is written before it and read behind it."""

    pc: int
    inputs: tuple[HostPart, ...]
    outputs: tuple[HostPart, ...]


@dataclass(frozen=True)
class HostPlan:
    """All that a host does with an image; ``batch`` are the samples that a run computes together."""

    image: Image
    batch: int
    inputs: tuple[HostInput, ...]
    outputs: tuple[HostOutput, ...]
    phases: tuple[PhasePlan, ...]

    @property
    def config(self) -> NpuConfig:
        """What the image is for."""
        return self.image.config


def plan(image: Image, package: Package | None) -> HostPlan:
    """The plan for an image, or for a compiled network.

    Raises
    ------
    HostError
        If the host would have to do something that the library in C cannot.
    """
    image.check()
    if package is not None:
        _refuse(package)
    for what, ports in (("input", image.inputs), ("output", image.outputs)):
        if not ports:
            raise HostError(f"a host in C needs an {what}, and the image has none")
    orders = _input_orders(image, package)
    inverse = _output_orders(image, package)
    config, schedule = image.config, image.schedule()
    phases = tuple(
        PhasePlan(
            phase.pc,
            tuple(_vectors(image.inputs, part, orders[part.port], config) for part in phase.inputs),
            tuple(_vectors(image.outputs, part, inverse[part.port], config) for part in phase.outputs),
        )
        for phase in schedule
    )
    batch = 1 if package is None else package.arrangement.batch
    return HostPlan(image, batch, _inputs(image, package), _outputs(image, package), phases)


def _refuse(package: Package) -> None:
    """Raise :class:`HostError` if the host computes something, or takes other numbers than floats."""
    for graph, where in ((package.front, "in front of"), (package.host_graph, "behind")):
        if graph is not None:
            raise HostError(
                f"the host computes {_operators(graph)} {where} the NPU, which a host in C does not: leave it out of "
                "the model, or compute it in the application"
            )
    if package.element_types or package.texts:
        kinds = ", ".join(f"{name} of {kind}" for name, kind in sorted(package.element_types.items()))
        raise HostError(f"a host in C takes and gives floats, not {kinds or 'texts'}")


def _operators(graph: Graph) -> str:
    return ", ".join(sorted({node.op for node in graph.nodes})) or "an input or output"


# Where elements are ----------------------------------------------------------------------------------


def _input_orders(image: Image, package: Package | None) -> dict[str, Ids]:
    """By input: the element of a sample, ``PAD`` or ``BORDER`` for every element ``[vectors, native]`` of its port."""
    if package is not None:
        return dict(package.arrangement.inputs)
    return {port.name: _padded(np.arange(port.elements), port, image.config) for port in image.inputs}


def _output_orders(image: Image, package: Package | None) -> dict[str, Ids]:
    """By output: the element of a sample for every element ``[vectors, native]`` of its port, or -1."""
    orders = {}
    for port in image.outputs:
        ids = np.arange(port.elements) if package is None else package.arrangement.outputs[port.name].reshape(-1)
        if len(np.unique(ids)) < len(ids):
            raise HostError(f"output {port.name!r} has elements twice, which a host in C cannot write")
        of_sample = np.full(port.elements, PAD)
        of_sample[ids] = np.arange(len(ids))
        order = _padded(of_sample, port, image.config)
        lanes = image.feeding.lanes.get(port.name, (image.config.native,) * len(order))
        if (order[np.arange(image.config.native) >= np.array(lanes)[:, None]] != PAD).any():
            raise HostError(f"output {port.name!r} has elements that are not sent")
        orders[port.name] = order
    return orders


def _padded(ids: Ids, port: Port, config: NpuConfig) -> Ids:
    """Elements of a port as vectors, ``PAD`` in what is added."""
    lines = ids.reshape(-1, port.shape[-1] if port.shape else 1)
    return np.pad(lines, ((0, 0), (0, -lines.shape[1] % config.native)), constant_values=PAD).reshape(-1, config.native)


def _vectors(ports: tuple[Port, ...], part: PortRange, order: Ids, config: NpuConfig) -> HostPart:
    """Native vectors of a port in a phase."""
    number = [port.name for port in ports].index(part.port)
    wide = ports[number].region is RegionId.WIDE
    rows = order[part.first : part.first + part.count]
    form = GroupFormat.WIDE if wide else GroupFormat.NARROW
    return HostPart(number, form, config.native, config.native, 1, part.count, part.address, tuple(spans(rows)))


# What becomes of numbers ---------------------------------------------------------------------------------


def _shape(name: str, port: Port, package: Package | None) -> Shape:
    if package is None:
        return port.shape
    arrangement = package.arrangement
    return ((arrangement.batch,) if arrangement.batch > 1 else ()) + tuple(arrangement.shapes[name])


def _outputs(image: Image, package: Package | None) -> tuple[HostOutput, ...]:
    return tuple(HostOutput(port.name, _shape(port.name, port, package)) for port in image.outputs)


def _inputs(image: Image, package: Package | None) -> tuple[HostInput, ...]:
    inputs = []
    for port in image.inputs:
        name, shape = port.name, _shape(port.name, port, package)
        if package is None:
            inputs.append(HostInput(name, shape, 0, None, 0.0, np.zeros(1, np.int64), np.zeros(1), prod(shape)))
            continue
        arrangement = package.arrangement
        offset = arrangement.input_offsets.get(name, 0.0)
        border = int(binary16.encode(np.array(0.0 - offset)))
        scales = _scales(arrangement, name)
        inputs.append(HostInput(name, shape, border, arrangement.grids.get(name), offset, *scales))
    return tuple(inputs)


def _scales(arrangement: Arrangement, name: str) -> tuple[Ids, FloatArray, int]:
    """Powers and middles by entry, and elements with the same entry that follow each other."""
    shape, scale = tuple(arrangement.shapes[name]), arrangement.channel_scales.get(name)
    if scale is None:
        return np.zeros(1, np.int64), np.zeros(1), prod(shape)
    whole = (1,) * (len(scale.shape) - len(shape)) + shape
    offsets = np.array(scale.offsets or (0.0,) * len(scale.exponents)).reshape(scale.shape)
    both = [np.broadcast_to(values, whole) for values in (scale.powers(), offsets)]
    varying = [k for k in range(len(whole)) if any((array != array.take([0], axis=k)).any() for array in both)]
    if not varying:
        return both[0].reshape(-1)[:1].astype(np.int64), both[1].reshape(-1)[:1].astype(np.float64), prod(shape)
    entries, inner = prod(whole[varying[0] : varying[-1] + 1]), prod(whole[varying[-1] + 1 :])
    powers, middles = (array.reshape(-1, entries, inner)[0, :, 0] for array in both)
    return powers.astype(np.int64), middles.astype(np.float64), inner
