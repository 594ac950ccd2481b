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
from concord.compiler.lowering.lowered import Unsupported
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
from concord.graph.passes.batch import BatchError, with_batch
from concord.graph.states import check_states
from concord.pipeline.manager import Pipeline, advance, pass_called
from concord.spec.isa import Mem


@pass_called("order")
def _ordered(state: Submitted) -> Ordered:
    """Bring nodes into an order that follows from the graph alone: operands before results, first outputs first.

    A graph that others may hold stays as it is.
    """
    graph = replace(state.graph)
    order.run(graph)
    return advance(state, Ordered, graph=graph)


@pass_called("weights fit")
def _weights_fit(state: Ordered) -> None:
    """Refuse a network at once whose weights are far too large."""
    check_weights_fit(state.graph, state.config)


@pass_called("exporter formats")
def _of_exporter(state: Ordered) -> Interpreted:
    """Find the static exponents, and grids of inputs, that the scales of a quantised model mean."""
    exponents, grids = exponents_of(state.graph, state.config), grids_of(state.graph, state.config)
    return advance(state, Interpreted, exponents=exponents, grids=grids)


@pass_called("host partition")
def _partitioned(state: Interpreted) -> Prepared:
    """Leave a final softmax, and what follows it, to the host."""
    npu, host = split(state.graph)
    return advance(state, Prepared, npu=npu, host=host)


@pass_called("equalisation")
def _equalised(state: Requested) -> Equalised:
    """Divide channels by powers of two, and inputs, which products multiply back."""
    return advance(state, Equalised, npu=equalised(state.npu, state.requested.channel_scales))


@pass_called("bounds")
def _bounded(state: Equalised) -> Bounded:
    """Find what tables have to cover where there are no samples.

    Exponents of the exporter take precedence.
    """
    formats = with_bounds(state.graph, state.requested)
    return advance(state, Bounded, formats=replace(formats, exponents={**formats.exponents, **state.exponents}))


@pass_called("function decomposition")
def _decomposed(state: Bounded) -> Decomposed:
    """Replace functions that one table does not hold at every scale by several nodes."""
    return advance(state, Decomposed, npu=decompose(state.npu, state.config, state.formats))


@pass_called("rounding to codes")
def _rounded(state: Decomposed) -> Rounded:
    """Find how codes that are coarser than mantissas are computed: by tables, or by sums."""
    return advance(state, Rounded, npu=spread(state.npu, state.config))


@pass_called("batch")
def _batched(state: Rounded) -> Batched:
    """Let the graph compute several samples side by side."""
    if state.npu.states and state.batch > 1:
        raise BatchError(f"batch must be 1 for a network with states, not {state.batch}")
    batched = state.npu if state.batch == 1 else with_batch(state.npu, state.batch)
    return advance(state, Batched, batched=batched)


@pass_called("lowering")
def _lowered(state: Decided) -> LoweredState:
    """Make layers of nodes, and fuse element-wise operations into them."""
    try:
        check_states(state.npu)
    except ValueError as error:  # the host would compute a state, or compute from it
        raise Unsupported(state.npu.name, [str(error)]) from error
    layers = lower(state.batched, state.config, state.unfold, state.formats, state.variance_range)
    return advance(state, LoweredState, lowered=layers)


@pass_called("legality")
def _legal(state: LoweredState) -> None:
    """Check that instructions can hold the sizes of all layers, and that formats are possible.

    :class:`Unsupported` with every layer whose sizes no instruction can hold; ``ValueError`` for wrong formats.
    """
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


@pass_called("data types")
def _typed(state: LoweredState) -> Typed:
    """Decide which tensors are narrow and which are wide [dtype-pass]."""
    return advance(state, Typed, types=data_types(state.lowered))


@pass_called("memory planning")
def _planned(state: Typed) -> Planned:
    """Decide which memories hold a tensor, and for how long."""
    return advance(state, Planned, plan=make_plan(state.lowered, state.types))


@pass_called("data section")
def _filled(state: Planned) -> Filled:
    """Give weights, constants and tables their addresses."""
    program = Emitter(state.plan, state.config, state.formats)
    program.data_section.fill()
    return advance(state, Filled, program=program)


@pass_called("allocation")
def _placed(state: Filled) -> Placed:
    """Give tensors their addresses."""
    state.program.place()
    state.program.allocator.check()  # what lies beyond the end cannot even be addressed
    return advance(state, Placed)


@pass_called("emission")
def _emitted(state: Placed) -> Emitted:
    """Write the instructions of all layers."""
    state.program.ports()
    state.program.layers(0)
    return advance(state, Emitted)


@pass_called("row tiling")
def _row_tiled(state: Typed) -> Emitted:
    """Choose the cheapest row tiles that fit: plan, data section, allocation and emission."""
    program = row_tiled(state.lowered, state.types, state.config, state.formats)
    return advance(state, Emitted, plan=program.plan, program=program)


@pass_called("arrangement")
def _arranged(state: Emitted) -> Arranged:
    """Find how samples become ports, and ports results."""
    npu, formats, lowered = state.npu, state.formats, state.lowered
    shapes = {name: npu.sample_shape(name) for name in (*npu.inputs, *npu.outputs)}
    offsets = {name: offset for name, offset in formats.input_offsets.items() if name in lowered.offsettable}
    scales = {name: scale for name, scale in formats.channel_scales.items() if name in npu.inputs}
    arrangement = arranged(lowered, shapes, state.batch, state.grids, offsets, scales)
    beside = frozenset(state.graph.inputs) - {*arrangement.inputs, *arrangement.states}
    return advance(state, Arranged, arrangement=replace(arrangement, beside=beside))


@pass_called("exactness")
def _exact(state: Arranged) -> Exact:
    """Find what of a quantised model the NPU does not hold exactly."""
    plan, layers = state.plan, state.plan.lowered.layers
    stored = [(name, storage) for name, (storage, _) in plan.lowered.inputs.items()]
    stored += [(layer.tensor, layer.target) for layer in layers]
    narrow, wide = (
        [name for name, storage in stored if plan.copy(storage, mem) is not None] for mem in (Mem.NARROW, Mem.WIDE)
    )
    lost = inexact(state.graph, layers, (narrow, wide), state.config, state.formats, state.exponents)
    return advance(state, Exact, lost=lost)


@pass_called("image")
def _linked(state: Exact) -> Linked:
    """Pack instructions, weights, constants and tables into memory words."""
    program, facts = state.program, inventory(state.graph, state.program, state.grids, state.lost)
    return advance(state, Linked, image=program.allocator.linked(program.builder.words(), facts))


@pass_called("proof")
def _verified(state: Linked) -> None:
    """Prove that addresses lie in the memories, and that nothing is read before it is written."""
    state.program.allocator.verify(state.image)


@pass_called("feeding")
def _fed(state: Linked) -> Fed:
    """Find how the feeder lays out raw inputs."""
    image = state.image
    if image.config.inbox:
        image = replace(image, feeding=feeding(state.lowered, state.arrangement, image))
    return advance(state, Fed, image=image)


#: Passes of every program after its layers.
_IMAGE = (_arranged, _exact, _linked, _verified, _fed)

PREPARE = Pipeline("prepare", Submitted, Prepared, (_ordered, _weights_fit, _of_exporter, _partitioned), LEVELS)
TABLES = Pipeline("choose tables", Requested, Batched, (_equalised, _bounded, _decomposed, _rounded, _batched), LEVELS)
LOWER = Pipeline("lower", Decided, Typed, (_lowered, _legal, _typed), LEVELS)
ONE_PIECE = Pipeline("one piece", Typed, Fed, (_planned, _filled, _placed, _emitted, *_IMAGE), LEVELS)
ROW_TILING = Pipeline("row tiling", Typed, Fed, (_row_tiled, *_IMAGE), LEVELS)
