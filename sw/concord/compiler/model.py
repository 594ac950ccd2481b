"""Compile a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from concord.compiler.emission.banded import in_bands
from concord.compiler.emission.emit import Emitter, whole
from concord.compiler.emission.inventory import inventory
from concord.compiler.emission.package import Device, Package
from concord.compiler.ir.arrangement import Arrangement, Grid
from concord.compiler.ir.layout import BORDER, PAD
from concord.compiler.ir.quantized import Inexact, exponents_of, grids_of, inexact
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.lowering.assumptions import Assumed, assumptions
from concord.compiler.lowering.bounds import with_bounds
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lower import Lowered, Norms
from concord.compiler.lowering.scaled import on_npu, replaced
from concord.compiler.lowering.table import lowered as lower
from concord.compiler.memory.bands import Bands
from concord.compiler.memory.footprint import check_weights_fit
from concord.compiler.memory.plan import Plan, check_outputs
from concord.golden import half
from concord.graph.ir import Floats, Graph, Shape
from concord.graph.passes.batch import with_batch
from concord.image import Image
from concord.image.feeder_layout import Feed, Feeding
from concord.image.feeder_scripts import few_of
from concord.program.allocator import CapacityError, Item
from concord.program.flags import Raised
from concord.spec.config import NpuConfig
from concord.spec.feeder import CODES_DEPTH
from concord.spec.isa import VECTOR_ADDR_BITS, Mem
from concord.spec.limits import PROGRAM_DEPTH_MAX
from concord.spec.memmap import RegionId

#: In the metadata of an image, what speaks for its accumulator, a line each: samples have decided, and are not kept.
ACCUMULATOR = "accumulator"


@dataclass(frozen=True)
class Compiled:
    """A network compiled for a configuration.

    Parameters
    ----------
    graph : Graph
        The network, with the nodes that take the place of those that are no layers by themselves.
    lowered : Lowered
        Its layers on the NPU.
    package : Package
        What it takes to run it.
    starts : tuple of int
        Address of the first instruction of every layer.
    plan : Plan
        Where tensors lie.
    items : dict
        Tenants of the memories: weights, constants, tables, tensors.
    inexact : tuple of Inexact
        What of an already quantised model the NPU does not hold exactly.
    bands : Bands or None
        How the first layers are computed in bands of rows, if they are; ``starts`` are those of the last band.
    segments : tuple of tuples of int
        Starts of the layers in bands, for every part of the program that other bands enter.
    assumptions : tuple of Assumed
        What was taken for granted of inputs and tables, because no samples say it.
    raised : tuple of Raised
        Flags that the samples raised for which formats were chosen.
    """

    graph: Graph
    lowered: Lowered
    package: Package
    starts: tuple[int, ...]
    plan: Plan
    items: dict[str, Item]
    inexact: tuple[Inexact, ...] = ()
    bands: Bands | None = None
    segments: tuple[tuple[int, ...], ...] = ()
    assumptions: tuple[Assumed, ...] = ()
    raised: tuple[Raised, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What a user should know before trusting the results, a line each."""
        return [one.text for group in (self.inexact, self.assumptions, self.raised) for one in group]

    @property
    def strips(self) -> tuple[str, ...]:
        """Layers whose residual operand is kept narrow only, because it does not fit otherwise."""
        return tuple(self.lowered.layers[index].name for index in self.plan.strips)

    @property
    def image(self) -> Image:
        """Program and constants."""
        return self.package.image

    @property
    def host_graph(self) -> Graph | None:
        """What the host computes from the outputs of the NPU."""
        return self.package.host_graph

    def run(self, device: Device, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """Results of a batch on a device that has the image loaded."""
        return self.package.run(device, inputs)


def compile_graph(graph: Graph, config: NpuConfig, formats: Formats = DEFAULT, *, batch: int = 1) -> Compiled:
    """Compile a network.

    Parameters
    ----------
    graph : Graph
        The network.
    config : NpuConfig
        What to compile it for.
    formats : Formats
        Static exponents, ranges of tables and inputs, and mantissas of weights. Where the model is quantised already,
        the exponents that its scales mean take precedence; where ranges of tables are missing, bounds take their place.
    batch : int
        Samples per run. While one drains from the pipe the others are computed: a network of matrix products alone is
        faster that way.

    Raises
    ------
    BatchError
        If ``batch`` is not 1 and the network has more than products and element-wise operations.
    Unsupported
        With every node that cannot be lowered.
    CapacityError
        If it does not fit, with what would be needed.
    ValueError
        If a mantissa width is not possible, or for a layer that is not there or has no weights; if a range is not
        possible, or of no input; if an output cannot leave as mantissas and exponents.
    """
    check_weights_fit(graph, config)
    given, formats = formats, with_bounds(graph, formats)
    *first, last = Norms if any(node.op == "Normalise" for node in graph.nodes) else [Norms.ANY]
    for norms in first:
        try:
            return _fitting(graph, config, given, formats, batch, norms, {RegionId.PROGRAM})
        except CapacityError:
            continue
    try:
        return _fitting(graph, config, given, formats, batch, last, set())
    except CapacityError as error:
        if not (names := replaced(graph, formats)):
            raise
        lacking = error
    try:  # one table each takes less of everything
        return compile_graph(graph, config, replace(given, plain=(*given.plain, *names)), batch=batch)
    except CapacityError:
        raise lacking from None


def _fitting(
    graph: Graph, config: NpuConfig, given: Formats, formats: Formats, batch: int, norms: Norms, enough: set[RegionId]
) -> Compiled:
    """In one piece or in bands, with as much of the first window unfolded as fits.

    :class:`CapacityError` if nothing does, or as soon as only memories are too small that ``enough`` are.
    """
    failures: list[CapacityError] = []
    known: list[Lowered] = []
    for banded in (False, True):
        tried = []
        for lowered in known if banded else _lowered(graph, config, formats, batch, norms, known):
            try:
                compiled = _compile(graph, config, lowered, formats, batch, banded)
                taken = assumptions(graph, given, formats, compiled.lowered, config)
                return replace(compiled, assumptions=taken)
            except CapacityError as error:
                if enough and set(error.short) <= enough:
                    raise
                tried.append(error)
        failures.append(min(tried, key=lambda error: error.excess))
    raise CapacityError("; ".join(map(str, failures)), failures[0].short)


def _lowered(
    graph: Graph, config: NpuConfig, formats: Formats, batch: int, norms: Norms, known: list[Lowered]
) -> Iterator[Lowered]:
    """The ways to lower a network, more and less unfolded by the host; those that are taken are ``known`` then."""
    npu, _ = on_npu(graph, config, formats)
    if batch != 1:
        npu = with_batch(npu, batch)
    for unfold in reversed(Unfold):
        if not known or unfold.value < known[-1].unfolded.value:
            known.append(lower(npu, config, unfold, formats, norms))
            yield known[-1]


def _compile(graph: Graph, config: NpuConfig, lowered: Lowered, formats: Formats, batch: int, banded: bool) -> Compiled:
    npu, host = on_npu(graph, config, formats)
    shapes = {name: npu.sample_shape(name) for name in (*npu.inputs, *npu.outputs)}
    formats.check(lowered.layers, config)
    check_outputs(lowered)
    formats = replace(formats, exponents={**formats.exponents, **exponents_of(graph, config)})
    emitter = in_bands(lowered, config, formats) if banded else whole(lowered, config, formats)
    centres = {name: centre for name, centre in formats.centres.items() if name in lowered.movable}
    compiled = _compiled(graph, emitter, arranged(lowered, shapes, batch, grids_of(graph, config), centres), host)
    made = lowered.graph if batch == 1 else npu  # of a batch there are only nodes that become layers as they are
    nodes = [*made.nodes, *(host.nodes if host is not None else [])]
    return replace(compiled, graph=replace(graph, nodes=nodes, shapes=graph.shapes | made.shapes))


def _compiled(graph: Graph, emitter: Emitter, arrangement: Arrangement, host: Graph | None) -> Compiled:
    """Everything about a program that has been written."""
    plan, formats = emitter.plan, emitter.formats
    lost = inexact(graph, plan.lowered.layers, _narrow(plan), emitter.config, formats)
    image = emitter.sheet.image(emitter.builder.words(), inventory(graph, emitter, lost))
    if emitter.config.inbox:
        image = replace(image, feeding=feeding(plan.lowered, arrangement, image))
    package = Package(image, arrangement, host, formats)
    starts, items = tuple(emitter.starts), emitter.sheet.items
    bands, segments = emitter.bands, tuple(emitter.segments)
    return Compiled(graph, plan.lowered, package, starts, plan, items, lost, bands, segments)


def feeding(lowered: Lowered, arrangement: Arrangement, image: Image) -> Feeding:
    """How a feeder lays out the inputs and collects the outputs; without inputs that it cannot lay out."""
    feeds, config = [], image.config
    for name, (_, order) in lowered.inputs.items():
        feed = lowered.feeds.get(name, Feed(name, order.shape, windows=order.shape[:2]))
        border = int(half.encode(np.array(-arrangement.centres[name]))) if name in arrangement.centres else 0
        feed = replace(feed, border=border)
        laid, wanted = feed.order(config.native), arrangement.inputs[name]
        if laid.shape != wanted.shape or np.any((laid < 0) != (wanted < 0)):
            continue
        element = np.full(feed.elements, PAD)
        element[laid[laid >= 0]] = wanted[laid >= 0]
        if np.array_equal(element[laid[laid >= 0]], wanted[laid >= 0]):
            feeds.append(feed)
    vectors = {port.name: port.vectors(config) for port in image.outputs}
    lanes = {name: _used(ids, vectors[name], config.native) for name, ids in arrangement.outputs.items()}
    few = (name for name, grid in arrangement.grids.items() if grid.greatest - grid.least < CODES_DEPTH)
    return Feeding(tuple(feeds), lanes, tuple(few))


def _used(ids: npt.NDArray[np.int64], vectors: int, native: int) -> tuple[int, ...]:
    """Lanes of each vector up to the last one that an element lies in, at least one."""
    counts = np.ones(vectors, np.int64)
    np.maximum.at(counts, ids.ravel() // native, ids.ravel() % native + 1)
    return tuple(counts.tolist())


def with_narrow(graph: Graph, compiled: Compiled, names: Sequence[str]) -> Compiled:
    """The same network, outputs with these names leaving as mantissas with an exponent per native vector.

    They are rounded to the nearest, of two to the even one; the largest of a vector decides on its exponent.
    """
    formats, batch = compiled.package.formats, compiled.package.arrangement.batch
    made = compile_graph(graph, compiled.image.config, replace(formats, narrow=tuple(names)), batch=batch)
    return replace(made, assumptions=compiled.assumptions, raised=compiled.raised)


def expecting(compiled: Compiled, inputs: Mapping[str, npt.ArrayLike]) -> Compiled:
    """The same network, which knows from samples as how many bytes its inputs will travel."""
    image, package = compiled.image, compiled.package
    ports = package.arrangement.pack(inputs)
    raws = {feed.port: image.feeding.raw(feed, ports[feed.port], image.config.native) for feed in image.feeding.feeds}
    few = few_of({name: raw for name, raw in raws.items() if raw is not None})
    image = replace(image, feeding=replace(image.feeding, few=few))
    return replace(compiled, package=replace(package, image=image))


def in_one_piece(compiled: Compiled) -> Compiled:
    """A network in bands once more without, for the largest memories that there can be: its results are the same.

    Raises
    ------
    CapacityError
        If it does not fit into those either.
    """
    depth = 1 << VECTOR_ADDR_BITS
    config = compiled.image.config.replace(narrow_depth=depth, wide_depth=depth, program_depth=PROGRAM_DEPTH_MAX)
    emitter = whole(compiled.lowered, config, compiled.package.formats)
    return _compiled(compiled.graph, emitter, compiled.package.arrangement, compiled.host_graph)


def _narrow(plan: Plan) -> list[str]:
    """Inputs and results of layers that lie in narrow memory."""
    stored = [(name, storage) for name, (storage, _) in plan.lowered.inputs.items()]
    stored += [(layer.tensor, layer.target) for layer in plan.lowered.layers]
    return [name for name, storage in stored if plan.copy(storage, Mem.NARROW) is not None]


def arranged(
    lowered: Lowered,
    shapes: Mapping[str, Shape],
    batch: int = 1,
    grids: Mapping[str, Grid] | None = None,
    centres: Mapping[str, float] | None = None,
) -> Arrangement:
    """How samples become the ports of a lowered graph, and back."""
    graph = lowered.graph
    inputs, outputs = {}, {}
    for name, (storage, order) in lowered.inputs.items():
        full = np.full((storage.height, storage.width, storage.tiles * storage.native), PAD)
        full[..., : order.shape[2]] = np.where(order == PAD, BORDER, order) if name in lowered.movable else order
        full[..., order.shape[2] :] = full[..., order.shape[2] - 1 : order.shape[2]]  # spare lanes hold copies
        inputs[name] = full.reshape(-1, storage.native)
    for name in graph.outputs:
        (storage,) = lowered.storages.of(lowered.views[name])
        outputs[name] = (lowered.views[name] - storage.base).reshape(-1)
    return Arrangement(inputs, outputs, dict(shapes), batch, dict(grids or {}), dict(centres or {}))
