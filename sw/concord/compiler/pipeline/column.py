"""The column of passes from a graph to a proven image.

:data:`PREPARE` and :data:`TABLES` bring the graph into the form that is lowered, :data:`LOWER` makes layers of it, and
one of :data:`ONE_PIECE` and :data:`ROW_TILING` makes the image. :mod:`concord.compiler.pipeline.strategies` runs them.
"""

from __future__ import annotations

from dataclasses import replace

from concord.compiler.emission.arranging import arranged, feeding
from concord.compiler.emission.emit import Emitter
from concord.compiler.emission.inventory import inventory
from concord.compiler.emission.row_tiled import row_tiled
from concord.compiler.ir.arrangement import Arrangement, InputGrid
from concord.compiler.ir.layers import Layer
from concord.compiler.ir.layout import LayoutError
from concord.compiler.ir.quantized import Inexact, exponents_of, grids_of, inexact
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering import legality
from concord.compiler.lowering.bounds import with_bounds
from concord.compiler.lowering.decomposition import decompose
from concord.compiler.lowering.fake_quantization import spread
from concord.compiler.lowering.host_partition import split
from concord.compiler.lowering.lower import Lowered, Unsupported
from concord.compiler.lowering.rules import lowered as lower
from concord.compiler.memory.dataflow import data_types
from concord.compiler.memory.footprint import check_weights_fit
from concord.compiler.memory.plan import Plan, check_outputs, make_plan
from concord.compiler.pipeline.levels import LEVELS
from concord.graph.equalised import equalised
from concord.graph.ir import Graph
from concord.graph.passes import order
from concord.graph.passes.batch import with_batch
from concord.graph.passes.dtypes import Types
from concord.image import Image
from concord.pipeline.manager import Pass, Pipeline
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem


def _batched(npu: Graph, batch: int) -> Graph:
    return npu if batch == 1 else with_batch(npu, batch)


def _ordered(graph: Graph) -> Graph:
    """A graph that others may hold stays as it is."""
    ordered = replace(graph)
    order.run(ordered)
    return ordered


def _of_exporter(graph: Graph, config: NpuConfig) -> tuple[dict[str, int], dict[str, InputGrid]]:
    return exponents_of(graph, config), grids_of(graph, config)


def _formats(graph: Graph, given: Formats, exponents: dict[str, int]) -> Formats:
    """Bounds where there are no samples; exponents of the exporter take precedence."""
    formats = with_bounds(graph, given)
    return replace(formats, exponents={**formats.exponents, **exponents})


def _equalised(npu: Graph, given: Formats) -> Graph:
    return equalised(npu, given.channel_scales)


def _legal(lowered: Lowered, formats: Formats, config: NpuConfig) -> None:
    """:class:`Unsupported` with every layer whose sizes no instruction can hold; ``ValueError`` for wrong formats."""
    reasons = []
    for layer in lowered.layers:
        try:
            if isinstance(layer, Layer):
                legality.check(layer, config)
        except LayoutError as error:
            reasons.append(f"layer '{layer.name}': {error}")
    if reasons:
        raise Unsupported(lowered.graph.name, reasons)
    formats.check(lowered.layers, config)
    check_outputs(lowered)


def _data_section(plan: Plan, config: NpuConfig, formats: Formats) -> Emitter:
    program = Emitter(plan, config, formats)
    program.data_section.fill()
    return program


def _allocated(plan: Plan, program: Emitter) -> tuple[Plan, Emitter]:
    program.place()
    program.allocator.check()  # what lies beyond the end cannot even be addressed
    return plan, program


def _emitted(program: Emitter) -> Emitter:
    program.ports()
    program.layers(0)
    return program


def _row_tiling(lowered: Lowered, types: Types, config: NpuConfig, formats: Formats) -> tuple[Plan, Emitter]:
    program = row_tiled(lowered, types, config, formats)
    return program.plan, program


def _arranged(lowered: Lowered, npu: Graph, batch: int, grids: dict[str, InputGrid], formats: Formats) -> Arrangement:
    shapes = {name: npu.sample_shape(name) for name in (*npu.inputs, *npu.outputs)}
    offsets = {name: offset for name, offset in formats.input_offsets.items() if name in lowered.offsettable}
    scales = {name: scale for name, scale in formats.channel_scales.items() if name in npu.inputs}
    return arranged(lowered, shapes, batch, grids, offsets, scales)


def _lost(
    plan: Plan, graph: Graph, config: NpuConfig, formats: Formats, exponents: dict[str, int]
) -> tuple[Inexact, ...]:
    """What of a quantised model the NPU does not hold exactly, in narrow memory and in weights."""
    stored = [(name, storage) for name, (storage, _) in plan.lowered.inputs.items()]
    stored += [(layer.tensor, layer.target) for layer in plan.lowered.layers]
    narrow, wide = ([name for name, storage in stored if plan.copy(storage, mem) is not None]
                    for mem in (Mem.NARROW, Mem.WIDE))  # fmt: skip
    return inexact(graph, plan.lowered.layers, (narrow, wide), config, formats, exponents)


def _linked(program: Emitter, graph: Graph, grids: dict[str, InputGrid], lost: tuple[Inexact, ...]) -> Image:
    return program.allocator.linked(program.builder.words(), inventory(graph, program, grids, lost))


def _verified(program: Emitter, image: Image) -> None:
    program.allocator.verify(image)


def _fed(lowered: Lowered, arrangement: Arrangement, image: Image) -> Image:
    return replace(image, feeding=feeding(lowered, arrangement, image)) if image.config.inbox else image


#: What every program goes through behind its layers.
_IMAGE = (
    Pass("arrangement", ("lowered", "npu", "batch", "grids", "formats"), ("arrangement",), _arranged,
         "Find how samples become ports, and ports results."),
    Pass("exactness", ("plan", "graph", "config", "formats", "exponents"), ("lost",), _lost,
         "Find what of a quantised model the NPU does not hold exactly."),
    Pass("image", ("program", "graph", "grids", "lost"), ("image",), _linked,
         "Pack instructions, weights, constants and tables into memory words."),
    Pass("proof", ("program", "image"), (), _verified,
         "Prove that addresses lie in the memories, and that nothing is read before it is written."),
    Pass("feeding", ("lowered", "arrangement", "image"), ("image",), _fed,
         "Find how the feeder lays out raw inputs."),
)  # fmt: skip
_LOWERED = ("graph", "config", "formats", "exponents", "grids", "npu", "batch", "lowered", "types")

PREPARE = Pipeline(
    "prepare",
    ("graph", "config"),
    (
        Pass("order", ("graph",), ("graph",), _ordered, (order.__doc__ or "").partition("\n")[0]),
        Pass("weights fit", ("graph", "config"), (), check_weights_fit,
             "Refuse a network at once whose weights are far too large."),
        Pass("exporter formats", ("graph", "config"), ("exponents", "grids"), _of_exporter,
             "Find the static exponents, and grids of inputs, that the scales of a quantised model mean."),
        Pass("host partition", ("graph",), ("npu", "host"), split,
             "Leave a final softmax, and what follows it, to the host."),
    ),
    LEVELS,
)  # fmt: skip
TABLES = Pipeline(
    "choose tables",
    ("graph", "config", "given", "batch", "npu", "exponents"),
    (
        Pass("equalisation", ("npu", "given"), ("npu",), _equalised,
             "Divide channels by powers of two, and inputs, which products multiply back."),
        Pass("bounds", ("graph", "given", "exponents"), ("formats",), _formats,
             "Find what tables have to cover where there are no samples."),
        Pass("function decomposition", ("npu", "config", "formats"), ("npu",), decompose,
             "Replace functions that one table does not hold at every scale by several nodes."),
        Pass("rounding to codes", ("npu", "config"), ("npu",), spread,
             "Find how codes that are coarser than mantissas are computed: by tables, or by sums."),
        Pass("batch", ("npu", "batch"), ("batched",), _batched, "Let the graph compute several samples side by side."),
    ),
    LEVELS,
)  # fmt: skip
LOWER = Pipeline(
    "lower",
    ("batched", "config", "unfold", "formats", "variance_range"),
    (
        Pass("lowering", ("batched", "config", "unfold", "formats", "variance_range"), ("lowered",), lower,
             "Make layers of nodes, and fuse element-wise operations into them."),
        Pass("legality", ("lowered", "formats", "config"), (), _legal,
             "Check that instructions can hold the sizes of all layers, and that formats are possible."),
        Pass("data types", ("lowered",), ("types",), data_types,
             "Decide which tensors are narrow and which are wide [dtype-pass]."),
    ),
    LEVELS,
)  # fmt: skip
ONE_PIECE = Pipeline(
    "one piece",
    _LOWERED,
    (
        Pass("memory planning", ("lowered", "types"), ("plan",), make_plan,
             "Decide which memories hold a tensor, and for how long."),
        Pass("data section", ("plan", "config", "formats"), ("program",), _data_section,
             "Give weights, constants and tables their addresses."),
        Pass("allocation", ("plan", "program"), ("plan", "program"), _allocated, "Give tensors their addresses."),
        Pass("emission", ("program",), ("program",), _emitted, "Write the instructions of all layers."),
        *_IMAGE,
    ),
    LEVELS,
)  # fmt: skip
ROW_TILING = Pipeline(
    "row tiling",
    _LOWERED,
    (
        Pass("row tiling", ("lowered", "types", "config", "formats"), ("plan", "program"), _row_tiling,
             "Choose the cheapest row tiles that fit: plan, data section, allocation and emission."),
        *_IMAGE,
    ),
    LEVELS,
)  # fmt: skip
