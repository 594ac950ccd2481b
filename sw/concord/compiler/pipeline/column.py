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
from concord.compiler.ir.layers import Layer
from concord.compiler.ir.layout import LayoutError
from concord.compiler.ir.quantized import exponents_of, grids_of, inexact
from concord.compiler.lowering import legality
from concord.compiler.lowering.bounds import with_bounds
from concord.compiler.lowering.decomposition import decompose
from concord.compiler.lowering.fake_quantization import spread
from concord.compiler.lowering.host_partition import split
from concord.compiler.lowering.lower import Unsupported
from concord.compiler.lowering.rules import lowered as lower
from concord.compiler.memory.dataflow import data_types
from concord.compiler.memory.footprint import check_weights_fit
from concord.compiler.memory.plan import check_outputs, make_plan
from concord.compiler.pipeline.levels import LEVELS
from concord.compiler.pipeline.states import (
    Arranged,
    Batched,
    Bounded,
    Decided,
    Decomposed,
    Emitted,
    Equalised,
    Exact,
    Fed,
    Filled,
    Interpreted,
    Linked,
    LoweredState,
    Ordered,
    Placed,
    Planned,
    Prepared,
    Requested,
    Rounded,
    Submitted,
    Typed,
)
from concord.graph.equalised import equalised
from concord.graph.passes import order
from concord.graph.passes.batch import with_batch
from concord.pipeline.manager import Pass, Pipeline, advance
from concord.spec.isa import Mem


def _ordered(state: Submitted) -> Ordered:
    """A graph that others may hold stays as it is."""
    graph = replace(state.graph)
    order.run(graph)
    return advance(state, Ordered, graph=graph)


def _weights_fit(state: Ordered) -> None:
    check_weights_fit(state.graph, state.config)


def _of_exporter(state: Ordered) -> Interpreted:
    exponents, grids = exponents_of(state.graph, state.config), grids_of(state.graph, state.config)
    return advance(state, Interpreted, exponents=exponents, grids=grids)


def _partitioned(state: Interpreted) -> Prepared:
    npu, host = split(state.graph)
    return advance(state, Prepared, npu=npu, host=host)


def _equalised(state: Requested) -> Equalised:
    return advance(state, Equalised, npu=equalised(state.npu, state.requested.channel_scales))


def _bounded(state: Equalised) -> Bounded:
    """Bounds where there are no samples; exponents of the exporter take precedence."""
    formats = with_bounds(state.graph, state.requested)
    return advance(state, Bounded, formats=replace(formats, exponents={**formats.exponents, **state.exponents}))


def _decomposed(state: Bounded) -> Decomposed:
    return advance(state, Decomposed, npu=decompose(state.npu, state.config, state.formats))


def _rounded(state: Decomposed) -> Rounded:
    return advance(state, Rounded, npu=spread(state.npu, state.config))


def _batched(state: Rounded) -> Batched:
    batched = state.npu if state.batch == 1 else with_batch(state.npu, state.batch)
    return advance(state, Batched, batched=batched)


def _lowered(state: Decided) -> LoweredState:
    layers = lower(state.batched, state.config, state.unfold, state.formats, state.variance_range)
    return advance(state, LoweredState, lowered=layers)


def _legal(state: LoweredState) -> None:
    """:class:`Unsupported` with every layer whose sizes no instruction can hold; ``ValueError`` for wrong formats."""
    reasons = []
    for layer in state.lowered.layers:
        try:
            if isinstance(layer, Layer):
                legality.check(layer, state.config)
        except LayoutError as error:
            reasons.append(f"layer '{layer.name}': {error}")
    if reasons:
        raise Unsupported(state.lowered.graph.name, reasons)
    state.formats.check(state.lowered.layers, state.config)
    check_outputs(state.lowered)


def _typed(state: LoweredState) -> Typed:
    return advance(state, Typed, types=data_types(state.lowered))


def _planned(state: Typed) -> Planned:
    return advance(state, Planned, plan=make_plan(state.lowered, state.types))


def _filled(state: Planned) -> Filled:
    program = Emitter(state.plan, state.config, state.formats)
    program.data_section.fill()
    return advance(state, Filled, program=program)


def _placed(state: Filled) -> Placed:
    state.program.place()
    state.program.allocator.check()  # what lies beyond the end cannot even be addressed
    return advance(state, Placed)


def _emitted(state: Placed) -> Emitted:
    state.program.ports()
    state.program.layers(0)
    return advance(state, Emitted)


def _row_tiled(state: Typed) -> Emitted:
    program = row_tiled(state.lowered, state.types, state.config, state.formats)
    return advance(state, Emitted, plan=program.plan, program=program)


def _arranged(state: Emitted) -> Arranged:
    npu, formats, lowered = state.npu, state.formats, state.lowered
    shapes = {name: npu.sample_shape(name) for name in (*npu.inputs, *npu.outputs)}
    offsets = {name: offset for name, offset in formats.input_offsets.items() if name in lowered.offsettable}
    scales = {name: scale for name, scale in formats.channel_scales.items() if name in npu.inputs}
    return advance(state, Arranged, arrangement=arranged(lowered, shapes, state.batch, state.grids, offsets, scales))


def _exact(state: Arranged) -> Exact:
    """What of a quantised model the NPU does not hold exactly, in narrow memory and in weights."""
    plan, layers = state.plan, state.plan.lowered.layers
    stored = [(name, storage) for name, (storage, _) in plan.lowered.inputs.items()]
    stored += [(layer.tensor, layer.target) for layer in layers]
    narrow, wide = ([name for name, storage in stored if plan.copy(storage, mem) is not None]
                    for mem in (Mem.NARROW, Mem.WIDE))  # fmt: skip
    lost = inexact(state.graph, layers, (narrow, wide), state.config, state.formats, state.exponents)
    return advance(state, Exact, lost=lost)


def _linked(state: Exact) -> Linked:
    program, facts = state.program, inventory(state.graph, state.program, state.grids, state.lost)
    return advance(state, Linked, image=program.allocator.linked(program.builder.words(), facts))


def _verified(state: Linked) -> None:
    state.program.allocator.verify(state.image)


def _fed(state: Linked) -> Fed:
    image = state.image
    if image.config.inbox:
        image = replace(image, feeding=feeding(state.lowered, state.arrangement, image))
    return advance(state, Fed, image=image)


#: What every program goes through behind its layers.
_IMAGE = (
    Pass("arrangement", _arranged, "Find how samples become ports, and ports results."),
    Pass("exactness", _exact, "Find what of a quantised model the NPU does not hold exactly."),
    Pass("image", _linked, "Pack instructions, weights, constants and tables into memory words."),
    Pass(
        "proof", _verified, "Prove that addresses lie in the memories, and that nothing is read before it is written."
    ),
    Pass("feeding", _fed, "Find how the feeder lays out raw inputs."),
)

PREPARE = Pipeline(
    "prepare",
    Submitted,
    Prepared,
    (
        Pass("order", _ordered, (order.__doc__ or "").partition("\n")[0]),
        Pass("weights fit", _weights_fit, "Refuse a network at once whose weights are far too large."),
        Pass(
            "exporter formats",
            _of_exporter,
            "Find the static exponents, and grids of inputs, that the scales of a quantised model mean.",
        ),
        Pass("host partition", _partitioned, "Leave a final softmax, and what follows it, to the host."),
    ),
    LEVELS,
)
TABLES = Pipeline(
    "choose tables",
    Requested,
    Batched,
    (
        Pass("equalisation", _equalised, "Divide channels by powers of two, and inputs, which products multiply back."),
        Pass("bounds", _bounded, "Find what tables have to cover where there are no samples."),
        Pass(
            "function decomposition",
            _decomposed,
            "Replace functions that one table does not hold at every scale by several nodes.",
        ),
        Pass(
            "rounding to codes",
            _rounded,
            "Find how codes that are coarser than mantissas are computed: by tables, or by sums.",
        ),
        Pass("batch", _batched, "Let the graph compute several samples side by side."),
    ),
    LEVELS,
)
LOWER = Pipeline(
    "lower",
    Decided,
    Typed,
    (
        Pass("lowering", _lowered, "Make layers of nodes, and fuse element-wise operations into them."),
        Pass(
            "legality",
            _legal,
            "Check that instructions can hold the sizes of all layers, and that formats are possible.",
        ),
        Pass("data types", _typed, "Decide which tensors are narrow and which are wide [dtype-pass]."),
    ),
    LEVELS,
)
ONE_PIECE = Pipeline(
    "one piece",
    Typed,
    Fed,
    (
        Pass("memory planning", _planned, "Decide which memories hold a tensor, and for how long."),
        Pass("data section", _filled, "Give weights, constants and tables their addresses."),
        Pass("allocation", _placed, "Give tensors their addresses."),
        Pass("emission", _emitted, "Write the instructions of all layers."),
        *_IMAGE,
    ),
    LEVELS,
)
ROW_TILING = Pipeline(
    "row tiling",
    Typed,
    Fed,
    (
        Pass(
            "row tiling",
            _row_tiled,
            "Choose the cheapest row tiles that fit: plan, data section, allocation and emission.",
        ),
        *_IMAGE,
    ),
    LEVELS,
)
