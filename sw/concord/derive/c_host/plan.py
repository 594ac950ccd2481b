"""Plan of an image for a host in C: the way of its inputs, the program that runs, and the places of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from math import prod

import numpy as np
from numpy.typing import NDArray

from concord.compiler.emission.package import Package
from concord.compiler.ir.arrangement import Arrangement, InputGrid
from concord.compiler.ir.layout import BORDER, PAD
from concord.derive.c_host.spans import ElementSpan, spans
from concord.golden import binary16
from concord.golden.real_numbers import check_real_numbers
from concord.graph.ir import Graph, Shape
from concord.image import Image
from concord.image.code_book import CodeBook, Coding
from concord.image.feeder_layout import Feed
from concord.image.feeder_scripts import FeedError, InputTransfer, LinkFormat, OutputTransfer, route
from concord.image.phases import PortRange
from concord.image.ports import Port
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.utils.arrays import FloatArray, Ids

#: The numbers that the least and the greatest byte stand for.
ByteRange = tuple[float, float]


_BYTES = (0.0, 255.0)


class HostError(ValueError):
    """A network that no host in C is written for; the message says why."""


class GroupFormat(IntEnum):
    """Format in which a group of elements travels; the names are those of ``concord_host.h``."""

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
        Number of groups.
    address : int
        Address of the first word, where groups are words of a memory.
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
        Shape of the input of a run: several samples in a run are the first axis.
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
    book : array or None
        Where elements are bytes: by entry, the binary16 patterns of all 256.
    """

    name: str
    shape: Shape
    border: int
    grid: InputGrid | None
    offset: float
    powers: Ids
    middles: FloatArray
    inner: int
    book: NDArray[np.uint16] | None = None


@dataclass(frozen=True)
class HostOutput:
    """An output.

    Parameters
    ----------
    name : str
        Name in the network.
    shape : tuple of int
        Shape of the output of a run.
    complete : bool
        Whether all elements come from the device; others are zero.
    """

    name: str
    shape: Shape
    complete: bool


@dataclass(frozen=True)
class PhasePlan:
    """One start of the program: the address, and what is written before it and read after it."""

    pc: int
    inputs: tuple[HostPart, ...]
    outputs: tuple[HostPart, ...]


@dataclass(frozen=True)
class RoutePlan:
    """Way of samples through the feeder.

    Parameters
    ----------
    script, codes : tuple of int
        Words of the script, and of the code book.
    inputs, outputs : tuple of HostPart
        What is sent for a sample, and what it gives back.
    chunk : int
        Greatest number of bytes of a request.
    result_bytes : int
        Bytes that a sample gives back.
    depth : int
        Samples that may be sent before results are taken, so that the outbox has room for all of them.
    text : str
        What travels, in words.
    """

    script: tuple[int, ...]
    codes: tuple[int, ...]
    inputs: tuple[HostPart, ...]
    outputs: tuple[HostPart, ...]
    chunk: int
    result_bytes: int
    depth: int
    text: str


@dataclass(frozen=True)
class HostPlan:
    """All that a host does with an image.

    Parameters
    ----------
    image : Image
        What is loaded.
    batch : int
        Number of samples that a run computes together.
    inputs, outputs : tuple of HostInput and HostOutput
        In the order of the ports.
    phases : tuple of PhasePlan
        The starts of the program, if the host lays out the inputs.
    route : RoutePlan or None
        How samples go through the feeder, if they do.
    laid_out : str
        Why the host lays out the inputs; empty if they go through the feeder.
    left_out : str
        What the host would compute and does not.
    """

    image: Image
    batch: int
    inputs: tuple[HostInput, ...]
    outputs: tuple[HostOutput, ...]
    phases: tuple[PhasePlan, ...]
    route: RoutePlan | None
    laid_out: str
    left_out: str

    @property
    def config(self) -> NpuConfig:
        """Configuration of the image."""
        return self.image.config


def plan(
    image: Image, package: Package | None, bytes_of: Mapping[str, ByteRange] | None = None, npu_part: bool = False
) -> HostPlan:
    """The plan for an image, or for a compiled network.

    Parameters
    ----------
    image, package
        The image, and the network that it is of.
    bytes_of : mapping of str to pair of float, optional
        Inputs whose elements are bytes, and the numbers that 0 and 255 stand for.
    npu_part : bool
        Whether what the host computes in front of the NPU and after it is left out: inputs and outputs are those of
        the NPU then.

    Raises
    ------
    HostError
        If the host would have to do something that the library in C cannot.
    """
    image.check()
    left_out = ""
    if package is not None and npu_part:
        left_out = "; ".join(_host_parts(package))
        package = replace(package.of_npu, host_graph=None)
    if package is not None:
        _refuse(package)
    for what, ports in (("input", image.inputs), ("output", image.outputs)):
        if not ports:
            raise HostError(f"a host in C needs an {what}, and the image has none")
    orders = _input_orders(image, package)
    inverse = _output_orders(image, package)
    config, schedule = image.config, image.schedule()
    inputs, route, laid_out = _inputs(image, package, _all_bytes(package, bytes_of)), None, ""
    try:
        route = _route(image, inputs, orders, inverse)
    except FeedError as reason:
        laid_out = str(reason)
    phases = tuple(
        PhasePlan(
            phase.pc,
            tuple(_vectors(image.inputs, part, orders[part.port], config) for part in phase.inputs),
            tuple(_vectors(image.outputs, part, inverse[part.port], config) for part in phase.outputs),
        )
        for phase in schedule
    )
    batch = 1 if package is None else package.arrangement.batch
    outputs = _outputs(image, package, inverse)
    return HostPlan(image, batch, inputs, outputs, () if route else phases, route, laid_out, left_out)


def _refuse(package: Package) -> None:
    """Raise :class:`HostError` if the host computes something, or takes other numbers than floats."""
    if parts := _host_parts(package):
        raise HostError(
            f"the host computes {' and '.join(parts)}, which a host in C does not: with --npu-part it is left out, and "
            "inputs and outputs are those of the NPU"
        )
    others = {name: kind for name, kind in package.element_types.items() if name not in _typed_bytes(package)}
    if others or package.texts:
        kinds = ", ".join(f"{name} of {kind}" for name, kind in sorted(others.items()))
        raise HostError(f"a host in C takes floats and bytes, and gives floats, not {kinds or 'texts'}")


def _host_parts(package: Package) -> list[str]:
    """Parts of the network that the host computes, in words."""
    graphs = (package.front, "in front of"), (package.host_graph, "behind")
    return [f"{_operators(graph)} {where} the NPU" for graph, where in graphs if graph is not None]


def _all_bytes(package: Package | None, bytes_of: Mapping[str, ByteRange] | None) -> dict[str, ByteRange]:
    """Inputs that are bytes because somebody says so, or in the model."""
    return {**(bytes_of or {}), **({} if package is None else _typed_bytes(package))}


def _typed_bytes(package: Package) -> dict[str, ByteRange]:
    """Inputs that are bytes in the model."""
    return {name: _BYTES for name in package.arrangement.inputs if package.element_types.get(name) == "uint8"}


def _operators(graph: Graph) -> str:
    return ", ".join(sorted({node.op for node in graph.nodes})) or "an input or output"


# Where elements are ----------------------------------------------------------------------------------


def _input_orders(image: Image, package: Package | None) -> dict[str, Ids]:
    """Element of a sample, ``PAD`` or ``BORDER`` for every element ``[vectors, native]`` of a port, by input."""
    if package is not None:
        return dict(package.arrangement.inputs)
    return {port.name: _padded(np.arange(port.elements), port, image.config) for port in image.inputs}


def _output_orders(image: Image, package: Package | None) -> dict[str, Ids]:
    """Element of a sample for every element ``[vectors, native]`` of a port, or -1, by output."""
    orders = {}
    for port in image.outputs:
        ids = np.arange(port.elements) if package is None else package.arrangement.outputs[port.name].reshape(-1)
        if len(np.unique(ids)) < len(ids):
            raise HostError(f"output {port.name!r} has elements twice, which a host in C cannot write")
        of_sample = np.full(port.elements, PAD)
        of_sample[ids] = np.arange(len(ids))
        order = _padded(of_sample, port, image.config)
        lanes = image.feeding.lanes.get(port.name, (image.config.native,) * len(order))
        orders[port.name] = np.where(np.arange(image.config.native) < np.array(lanes)[:, None], order, PAD)
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


def _outputs(image: Image, package: Package | None, orders: Mapping[str, Ids]) -> tuple[HostOutput, ...]:
    shapes = {port.name: _shape(port.name, port, package) for port in image.outputs}
    return tuple(HostOutput(name, shape, (orders[name] != PAD).sum() == prod(shape)) for name, shape in shapes.items())


def _inputs(image: Image, package: Package | None, bytes_of: Mapping[str, ByteRange]) -> tuple[HostInput, ...]:
    if unknown := sorted(set(bytes_of) - {port.name for port in image.inputs}):
        raise ValueError(f"bytes must be of {[port.name for port in image.inputs]}, not of {unknown}")
    inputs = []
    for port in image.inputs:
        name, shape = port.name, _shape(port.name, port, package)
        if package is None:
            made = HostInput(name, shape, 0, None, 0.0, np.zeros(1, np.int64), np.zeros(1), prod(shape))
        else:
            arrangement = package.arrangement
            offset = arrangement.input_offsets.get(name, 0.0)
            border = int(binary16.encode(np.array(0.0 - offset)))
            scales = _scales(arrangement, name)
            made = HostInput(name, shape, border, arrangement.grids.get(name), offset, *scales)
        inputs.append(replace(made, book=_book(made, *bytes_of[name])) if name in bytes_of else made)
    return tuple(inputs)


def _book(made: HostInput, low: float, high: float) -> NDArray[np.uint16]:
    """Binary16 patterns ``[entries, 256]`` of the bytes of an input."""
    values = low + (high - low) * np.arange(256) / 255
    values = made.grid.round(values) if made.grid is not None else values
    values = np.ldexp(values - made.middles[:, None], -made.powers[:, None]) - made.offset
    return binary16.encode(check_real_numbers(f"bytes of input {made.name!r}", values))


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


# Through the feeder ------------------------------------------------------------------------------------


def _route(
    image: Image, inputs: tuple[HostInput, ...], orders: Mapping[str, Ids], inverse: Mapping[str, Ids]
) -> RoutePlan:
    """Way of samples through the feeder; :class:`FeedError` if there is none."""
    config, schedule, ports = image.config, image.schedule(), (image.inputs, image.outputs)
    feeds = {feed.port: feed for feed in image.feeding.feeds}
    borders = {made.name: made.border for made in inputs}
    elements = {name: _raw_elements(feed, orders[name], borders[name], config) for name, feed in feeds.items()}
    coded = [made for made in inputs if made.book is not None and made.name in feeds]
    pages, codings = _code_pages(coded, feeds, elements, config)
    chosen = route(image.feeding, schedule, ports, codings, config)
    if len(schedule) > 1 and chosen.result_bytes > config.outbox_depth:
        raise FeedError("a sample in several phases has more results than the outbox has room for")
    names = [port.name for port in image.inputs]
    sent = tuple(
        _raw_part(names.index(transfer.port.name), transfer, elements[transfer.port.name])
        for transfer in chosen.input_transfers
    )
    names = [port.name for port in image.outputs]
    taken = tuple(
        _result_part(names.index(output.port.name), output, inverse[output.port.name])
        for phase in chosen.output_transfers
        for output in phase
    )
    largest = max(1 if part.format is GroupFormat.CODES else 1 + config.mantissa_bytes * part.lanes for part in sent)
    if largest > chosen.chunk:
        raise FeedError(f"a vector takes {largest} bytes, and the inbox {chosen.chunk} at a time")
    most = max(output.size for phase in chosen.output_transfers for output in phase)
    if most > config.max_payload:
        raise FeedError(f"a vector of results has {most} bytes, and a reply {config.max_payload}")
    used = any(transfer.kind is LinkFormat.CODED for transfer in chosen.input_transfers)
    codes = CodeBook(tuple(pages), codings).words if used else ()
    depth = max(1, config.outbox_depth // chosen.result_bytes)
    return RoutePlan(chosen.script, codes, sent, taken, chosen.chunk, chosen.result_bytes, depth, chosen.text)


def _raw_elements(feed: Feed, order: Ids, border: int, config: NpuConfig) -> Ids:
    """Element of the sample for each element of an image; ``PAD`` for one that is nowhere.

    :class:`FeedError` if a sample can have several elements in the place of one of the image.
    """
    laid = feed.order(config.native)
    raw = np.full(feed.elements, PAD)
    raw[laid[laid >= 0]] = order[laid >= 0]
    if (np.where(order[laid < 0] == BORDER, border, 0) != feed.border).any():
        raise FeedError(f"elements outside of {feed.port!r} are not all the same")
    if (raw[laid[laid >= 0]] != order[laid >= 0]).any():
        raise FeedError(f"an element of {feed.port!r} is in several windows, and may differ there")
    return raw


def _code_pages(
    coded: list[HostInput], feeds: Mapping[str, Feed], elements: Mapping[str, Ids], config: NpuConfig
) -> tuple[list[NDArray[np.uint16]], dict[str, Coding]]:
    """Pages of the code book, and those that inputs of bytes have, as far as there are enough."""
    pages: list[NDArray[np.uint16]] = []
    codings = {}
    for made in coded:
        assert made.book is not None
        raw = elements[made.name].reshape(-1, feeds[made.name].image[2])
        entries = np.where(raw >= 0, raw // made.inner % len(made.powers), -1)
        by_channel = entries.max(axis=0)
        if ((entries != by_channel) & (entries >= 0)).any():
            continue  # the page would depend on the position
        single = len(set(by_channel.tolist())) == 1
        wanted = by_channel[:1] if single else by_channel
        if len(pages) + len(wanted) <= config.code_pages:
            codings[made.name] = Coding(len(pages), by_channel=not single)
            pages += [made.book[max(0, entry)] for entry in wanted.tolist()]
    return pages, codings


def _raw_part(number: int, transfer: InputTransfer, raw: Ids) -> HostPart:
    """An input as it is sent."""
    if transfer.kind is not LinkFormat.BLOCKS:
        coded = transfer.kind is LinkFormat.CODED
        form, ids = (GroupFormat.CODES, np.maximum(raw, 0)) if coded else (GroupFormat.WIDE, raw)
        return HostPart(number, form, 1, 1, 1, len(raw), 0, tuple(spans(ids)))
    native, channels = transfer.config.native, transfer.feed.image[2]
    last = channels - (transfer.headers - 1) * native
    groups = len(raw) // channels * transfer.headers
    return HostPart(number, GroupFormat.BLOCKS, native, last, transfer.headers, groups, 0, tuple(spans(raw)))


def _result_part(number: int, output: OutputTransfer, order: Ids) -> HostPart:
    """Vectors of an output as they come."""
    form = GroupFormat.WIDE if output.port.region is RegionId.WIDE else GroupFormat.BLOCKS
    rows = order[output.first : output.first + output.count, : output.lanes]
    return HostPart(number, form, output.lanes, output.lanes, 1, output.count, 0, tuple(spans(rows)))
