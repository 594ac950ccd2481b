"""Compile a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy.typing as npt

from concord.compiler.emission.emit import TileStarts
from concord.compiler.emission.package import Package, PackageDevice
from concord.compiler.ir.quantized import Inexact, exponents_of
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.lowering.assumptions import Assumed, assumptions
from concord.compiler.lowering.host_partition import Parts
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory.plan import Plan
from concord.compiler.memory.row_tiling import RowTiling
from concord.compiler.pipeline.column import ONE_PIECE
from concord.compiler.pipeline.states import Fed, Typed
from concord.compiler.pipeline.strategies import Considered, Search
from concord.graph.equalised import with_preparation
from concord.graph.ir import Graph
from concord.graph.passes.dtypes import Types
from concord.image import Image
from concord.image.code_book import code_book
from concord.program.allocator import Allocation
from concord.program.flags import FlagDiagnostic
from concord.spec.config import NpuConfig
from concord.spec.isa import VECTOR_ADDR_BITS
from concord.spec.limits import PROGRAM_DEPTH_MAX
from concord.utils.arrays import FloatArray

#: In the metadata of an image, what speaks for its accumulator, a line each: samples have decided, and are not kept.
ACCUMULATOR = "accumulator"


@dataclass(frozen=True)
class Compiled:
    """A network compiled for a configuration.

    Parameters
    ----------
    graph : Graph
        The network, with the nodes that take the place of those that are no layers by themselves.
    npu : Graph
        The part of the network that is lowered, for one sample.
    lowered : Lowered
        Its layers on the NPU.
    types : Types
        Which tensors the layers read and write narrow, and which wide.
    package : Package
        Image, arrangement of inputs and outputs, and the part of the host.
    starts : tuple of int
        Address of the first instruction of every layer.
    plan : Plan
        Where tensors lie.
    allocations : dict
        Addresses in the memories by name: weights, constants, tables, tensors.
    inexact : tuple of Inexact
        What of an already quantised model the NPU does not hold exactly.
    row_tiling : RowTiling or None
        How the first layers are computed in row tiles, if they are; ``starts`` are those of the last row tile.
    tile_starts : tuple of TileStarts
        Starts of the layers in row tiles, for every part of the program that other row tiles enter.
    assumptions : tuple of Assumed
        What was taken for granted of inputs and tables, because no samples say it.
    flag_diagnostics : tuple of FlagDiagnostic
        Flags that the samples raised for which formats were chosen.
    comparisons : tuple of str
        What compares inputs that the NPU has rounded, a line each.
    strategies : tuple of Considered
        The ways to compile it, in the order in which they were tried, with what has become of each.
    definition : Graph or None
        Of a network on codes the graph whose results in double precision are the numbers of the NPU.
    """

    graph: Graph
    npu: Graph
    lowered: Lowered
    types: Types
    package: Package
    starts: tuple[int, ...]
    plan: Plan
    allocations: dict[str, Allocation]
    inexact: tuple[Inexact, ...] = ()
    row_tiling: RowTiling | None = None
    tile_starts: tuple[TileStarts, ...] = ()
    assumptions: tuple[Assumed, ...] = ()
    flag_diagnostics: tuple[FlagDiagnostic, ...] = ()
    strategies: tuple[Considered, ...] = ()
    comparisons: tuple[str, ...] = ()
    definition: Graph | None = None

    @property
    def warnings(self) -> list[str]:
        """Warnings to a user about the results, a line each."""
        measured = self.package.quantised_model
        codes = [choice.text for choice in self.inexact] if measured is None else measured.warnings
        texts = (entry.text for group in (self.assumptions, self.flag_diagnostics) for entry in group)
        expected = [] if self.package.expected_error is None else self.package.expected_error.warnings
        return [*codes, *self.comparisons, *texts, *self.package.doubts, *expected]

    @property
    def streamed_residuals(self) -> tuple[str, ...]:
        """Layers whose residual operand is kept narrow only, because it does not fit otherwise."""
        return tuple(self.lowered.layers[index].name for index in self.plan.streamed)

    @property
    def image(self) -> Image:
        """Program and constants."""
        return self.package.image

    @property
    def host_graph(self) -> Graph | None:
        """Part of the network that the host computes from the outputs of the NPU."""
        return self.package.host_graph

    @property
    def carried(self) -> Compiled:
        """The network with states that the host carries: samples do not depend on each other."""
        return replace(self, package=self.package.carried)

    def run(self, device: PackageDevice, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
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
    search = Search(graph, config, formats, batch)
    state = search.run()
    taken = assumptions(graph, formats, state.formats, state.lowered, config)
    compiled = _compiled(state)
    return replace(compiled, graph=_complete(state), assumptions=taken, strategies=tuple(search.considered))


def _complete(state: Fed) -> Graph:
    """The network, with the nodes that take the place of those that are no layers by themselves."""
    # Of a batch there are only nodes that become layers as they are.
    made = with_preparation(state.lowered.graph if state.batch == 1 else state.npu, state.formats.channel_scales)
    nodes = [*made.nodes, *(state.host.nodes if state.host is not None else [])]
    return replace(state.graph, nodes=nodes, shapes=state.graph.shapes | made.shapes)


def _compiled(state: Fed) -> Compiled:
    """Results of the last passes, as one object."""
    program = state.program
    return Compiled(
        graph=state.graph,
        npu=state.npu,
        lowered=state.lowered,
        types=state.types,
        package=Package(state.image, state.arrangement, state.host, state.formats),
        starts=tuple(program.starts),
        plan=state.plan,
        allocations=program.allocator.allocations,
        inexact=state.lost,
        row_tiling=program.row_tiling,
        tile_starts=tuple(program.tile_starts),
    )


def with_narrow(graph: Graph, compiled: Compiled, names: Sequence[str]) -> Compiled:
    """Compiles the network once more, with outputs of these names as mantissas with an exponent per native vector.

    They are rounded to the nearest, of two to the even one; the largest of a vector decides on its exponent.
    """
    formats, batch = compiled.package.formats, compiled.package.arrangement.batch
    made = compile_graph(graph, compiled.image.config, replace(formats, narrow=tuple(names)), batch=batch)
    return replace(made, assumptions=compiled.assumptions, flag_diagnostics=compiled.flag_diagnostics)


def with_front(compiled: Compiled, parts: Parts, graph: Graph) -> Compiled:
    """The network with the part that the host computes in front of the NPU; ``graph`` is the whole network."""
    kinds, partition = graph.element_types, graph.partition
    package = replace(
        compiled.package,
        front=parts.front,
        element_types=kinds,
        partition=partition,
        npu_nodes=graph.npu_nodes,
        texts=graph.texts,
        float_types=graph.float_types,
    )
    return replace(compiled, package=package, comparisons=tuple(_rounded(parts)))


def _rounded(parts: Parts) -> Iterator[str]:
    """A line for every comparison of inputs that the NPU has rounded."""
    remedy = "; --partition ends lets the host compare them" if parts.rest.partition == "none" else ""
    what = "compares inputs that the NPU rounds to binary16: neighbouring numbers may count as equal, and 1e-8 as 0"
    yield from (f"{name}: {what}{remedy}" for name in parts.rounded_comparisons)


def expecting(compiled: Compiled, inputs: Mapping[str, npt.ArrayLike]) -> Compiled:
    """The network with the numbers of bytes, known from samples, as which its inputs will travel."""
    image, package = compiled.image, compiled.package
    ports = package.arrangement.pack({name: inputs[name] for name in package.arrangement.inputs})
    raws = {feed.port: image.feeding.raw(feed, ports[feed.port], image.config.native) for feed in image.feeding.feeds}
    laid = {name: raw for name, raw in raws.items() if raw is not None}
    codings = code_book(laid, image.feeding.channels, image.config).codings
    image = replace(image, feeding=replace(image.feeding, codings=codings))
    return replace(compiled, package=replace(package, image=image))


def in_one_piece(compiled: Compiled) -> Compiled:
    """Compiles a network in row tiles once more without them, for the largest memories that there can be.

    Its results are those of the row tiles.

    Raises
    ------
    CapacityError
        If it does not fit into those either.
    """
    depth = 1 << VECTOR_ADDR_BITS
    config = compiled.image.config.replace(narrow_depth=depth, wide_depth=depth, program_depth=PROGRAM_DEPTH_MAX)
    arrangement, formats, lowered = compiled.package.arrangement, compiled.package.formats, compiled.lowered
    state = Typed(
        graph=compiled.graph,
        config=config,
        batch=arrangement.batch,
        exponents=exponents_of(compiled.graph, config),
        grids=arrangement.grids,
        npu=compiled.npu,
        host=compiled.host_graph,
        requested=formats,
        formats=formats,
        batched=lowered.graph,
        unfold=lowered.unfold,
        variance_range=lowered.variance_range,
        lowered=lowered,
        types=compiled.types,
    )
    return _compiled(ONE_PIECE.run(state))
