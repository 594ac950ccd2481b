"""Invariants between passes: a pass that breaks one is told, with the name of the pass and of what is wrong."""

from dataclasses import replace
from functools import wraps

import numpy as np
import pytest

from concord.compiler.ir.layers import MfuStep
from concord.compiler.ir.tensor_formats import DEFAULT
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lowered import Unsupported, VarianceRange
from concord.compiler.pipeline.column import LOWER, ONE_PIECE, PREPARE, TABLES
from concord.compiler.pipeline.states import Decided, Requested, Submitted
from concord.golden.codes import Codes
from concord.graph.passes.dtypes import Dtype
from concord.image import MemorySegment
from concord.pipeline.instruments import PassError
from concord.pipeline.manager import advance
from concord.program import assembler
from concord.spec.isa import Mem, Op
from concord.spec.memmap import RegionId
from support.compiled_nets import perceptron, recurrent, residual
from support.expressions import ROOMY


def compiled(graph, passed="", damage=None, config=ROOMY):
    """The state behind all passes; ``damage`` changes that behind the pass of this name, or returns another one."""

    def damaged(step):
        @wraps(step.run)
        def run(state):
            made = step.run(state)
            return damage(made) or made

        return replace(step, run=run) if step.name == passed else step

    def run(pipeline, state):
        return replace(pipeline, passes=tuple(map(damaged, pipeline.passes))).run(state)

    state = run(PREPARE, Submitted(graph, config, 1))
    state = run(TABLES, advance(state, Requested, requested=DEFAULT))
    state = run(LOWER, advance(state, Decided, unfold=Unfold.BOTH, variance_range=VarianceRange.ANY))
    return run(ONE_PIECE, state)


def refused(text, passed, damage, graph=None):
    """The error begins with the pass and its value, and has the text in it."""
    with pytest.raises(PassError) as caught:
        compiled(residual() if graph is None else graph, passed, damage)
    assert str(caught.value).startswith(f"pass {passed} must make a consistent ")
    assert text in str(caught.value)


@pytest.mark.parametrize("graph", [residual(), perceptron(8, 8, 4), recurrent("LSTM", 6, 5, 3)], ids=lambda g: g.name)
def test_what_is_not_damaged_passes(graph):
    assert compiled(graph).image.program


# Graphs --------------------------------------------------------------------------------------------


def swapped(graph):
    graph.nodes[0], graph.nodes[1] = graph.nodes[1], graph.nodes[0]


def reshaped(graph):
    graph.shapes["b"] = (1, 4, 4, 5)


def doubled(graph):
    graph.nodes.append(graph.nodes[0].replace(name="again"))


def of_nothing(graph):
    graph.quantization["ghost"] = Codes(8, 0.5)


def weights_of_nothing(graph):
    graph.weight_quantization["ghost"] = Codes(8, 0.5)


def unknown(graph):
    graph.nodes[1] = graph.nodes[1].replace(op="Relux")


def unfit(graph):
    graph.nodes[-2] = graph.nodes[-2].with_attrs(weight=np.ones((5, 7)))


def shapeless(graph):
    del graph.shapes["c"]


def unmade(graph):
    graph.outputs = ["z"]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (swapped, "npu: relu reads 'a' before it is there"),
        (reshaped, "npu: relu (Relu) gives 'b' the shape (1, 4, 4, 4), not (1, 4, 4, 5)"),
        (doubled, "npu: again computes 'a' once more"),
        (of_nothing, "npu: 'ghost' has a quantisation, but does not exist"),
        (weights_of_nothing, "npu: weights of 'ghost' have a quantisation, but there is no such node"),
        (unknown, "npu: relu is of the operator 'Relux', which does not exist"),
        (unfit, "npu: dense (Dense) must have operands and attributes that fit: "),
        (shapeless, "npu: shape of 'c' is missing"),
        (unmade, "npu: output 'z' is never computed"),
    ],
)
def test_graphs(damage, text):
    refused(text, "function decomposition", lambda state: damage(state.npu))


# Layers --------------------------------------------------------------------------------------------


def out_of_order(lowered):
    lowered.layers.reverse()


def beyond(lowered):
    lowered.views["c"] = lowered.views["c"] + 10_000


def nowhere(lowered):
    lowered.views["c"] = lowered.views["c"] + (1 << 60)


def strange_node(lowered):
    lowered.layers[0].nodes.append("ghost")


def same_name(lowered):
    lowered.layers[1].name = lowered.layers[0].name


def too_tall(lowered):
    layer = lowered.layers[0]
    layer.out = (layer.out[0] + 1, *layer.out[1:])


def elsewhere(lowered):
    ids = lowered.layers[0].ids = lowered.layers[0].ids.copy()
    ids.flat[0] = lowered.layers[1].ids.flat[0]


def outside_parent(lowered):
    storage = lowered.layers[0].target
    parent = lowered.storages.new("parent", 1, 1, 1)
    storage.place(parent, 0, storage.row_stride, storage.stride)


def too_many_steps(lowered):
    lowered.layers[0].mfu_ops += [MfuStep(Op.V_RELU)] * 3


def lost_output(lowered):
    del lowered.views["y"]


def reads_beyond(lowered):
    layer = lowered.layers[1]
    layer.source = replace(layer.source, start=1000)


def operand_too_early(lowered):
    first, last = lowered.layers[0], lowered.layers[-1]
    mfu_op = next(
        mfu_op for layer in lowered.layers for mfu_op in layer.mfu_ops if mfu_op.operand and mfu_op.operand.storage
    )
    first.mfu_ops.append(replace(mfu_op, operand=replace(mfu_op.operand, storage=last.target, outer=0, inner=0, row=0)))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (out_of_order, "layer 'dense' reads f in f before it is written"),
        (beyond, "tensor 'c': elements must lie within the 16 vectors of c"),
        (nowhere, "tensor 'c' must lie in storages that exist"),
        (same_name, "layers must have names of their own, not 'first' both"),
        (strange_node, "layer 'first' covers 'ghost', which is no node"),
        (too_tall, "layer 'first' must write a as a whole, (4, 4, 1), not (5, 4, 1)"),
        (elsewhere, "layer 'first' must have all of its elements in a"),
        (outside_parent, "a part of parent must lie within its 1 vectors, not reach vector 15"),
        (too_many_steps, "layer 'first' must not need more stages than the multifunction units have"),
        (lost_output, "output 'y' must be computed"),
        (reads_beyond, "layer 'depthwise' must read b within the 16 vectors of a"),
        (operand_too_early, "layer 'first' reads b in g before it is written"),
    ],
)
def test_layers(damage, text):
    refused(text, "lowering", lambda state: damage(state.lowered))


def test_layers_that_no_instruction_can_hold_are_not_legal():
    def damage(state):
        first, second = state.lowered.layers[:2]
        first.window = replace(first.window, dilation=(32, 1))
        second.window = replace(second.window, kernel=(64, 1))

    with pytest.raises(Unsupported) as caught:
        compiled(residual(), "lowering", damage)
    assert caught.value.reasons[0] == "layer 'first': dilation must be at most 31, not 32"
    assert caught.value.reasons[1].startswith("layer 'depthwise': window must be at most 63, not 64")


# Memory plans --------------------------------------------------------------------------------------


def storage_of(plan, name):
    return next(storage for storage, _ in plan.copies if storage.name == name)


def dies_early(plan):
    plan.copies[storage_of(plan, "a"), Mem.NARROW].last_use = 0


def gone(plan):
    del plan.copies[storage_of(plan, "f"), Mem.NARROW]


def late_input(plan):
    next(copy for copy in plan.copies.values() if copy.storage.name == "x").first_use = 0


def backwards(plan):
    copy = plan.copies[storage_of(plan, "f"), Mem.NARROW]
    copy.first_use, copy.last_use = copy.last_use, copy.first_use


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (dies_early, "plan: layer 'depthwise' needs a in narrow memory, where it is not live"),
        (gone, "plan: layer 'mean' must have a place for f while it is computed"),
        (late_input, "plan: input x in narrow memory must live from the beginning, not from layer 0 on"),
        (backwards, "plan: f in narrow memory must live within layers -1..5, not "),
    ],
)
def test_plans_before_allocation(damage, text):
    refused(text, "memory planning", lambda state: damage(state.plan))


def on_top(plan):
    for name in "ac":
        plan.copies[storage_of(plan, name), Mem.NARROW].addr = 100


def too_far(plan):
    plan.copies[storage_of(plan, "a"), Mem.NARROW].addr = ROOMY.narrow_depth - 1


def in_constants(plan):
    plan.copies[storage_of(plan, "a"), Mem.WIDE].addr = 0


def in_no_place(plan):
    mean, first = (plan.copies[storage_of(plan, name), Mem.NARROW] for name in "fa")
    mean.over = first


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (on_top, "plan: c in narrow memory and a must not share words while both live"),
        (too_far, "plan: a in narrow memory must lie within 0..2047, not 2047..2062"),
        (in_constants, "plan: a in wide memory must lie within "),
        (in_no_place, "plan: f in narrow memory must take the place of a when that is read for the last time"),
    ],
)
def test_plans_behind_allocation(damage, text):
    refused(text, "allocation", lambda state: damage(state.plan))


def test_states_of_recurrent_layers_have_a_place():
    def damage(state):
        plan = state.plan
        del plan.copies[storage_of(plan, "x"), Mem.NARROW]

    refused("plan: layer 'cell' needs x in narrow memory", "memory planning", damage, recurrent("LSTM", 6, 5, 3))


def in_another_memory(plan):
    storage = storage_of(plan, "c")
    plan.copies[storage, Mem.WIDE] = replace(plan.copies[storage, Mem.NARROW], mem=Mem.WIDE)


def test_tensors_lie_in_the_memories_of_their_types():
    text = "plan: c must be in narrow memory, as its types say, not in narrow and wide"
    refused(text, "memory planning", lambda state: in_another_memory(state.plan))


def test_types_keep_the_rules_of_the_pass():
    def damage(state):
        types = state.types
        return replace(state, types=replace(types, inputs={**types.inputs, ("0 first", 0): Dtype.WIDE}))

    refused("types: input 0 of 0 first (quantised) must not be wide", "data types", damage)


# Programs and images -------------------------------------------------------------------------------


def without_end(program):
    program.builder._words.pop()


def illegal(program):
    program.builder._words[2] = (1 << 64) - 1


def layers_reversed(program):
    program.starts.reverse()


def layer_missing(program):
    program.starts.pop()


def constants_on_top(program):
    name, item = next(
        (name, item) for name, item in program.allocator.allocations.items() if name == "weight.depthwise"
    )
    program.allocator.allocations[name] = replace(item, addr=0)


def weights_too_far(program):
    name, item = next((name, item) for name, item in program.allocator.allocations.items() if name == "weight.dense")
    program.allocator.allocations[name] = replace(item, addr=ROOMY.matrix_depth)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (without_end, "program: program must end with halt"),
        (illegal, "program: instruction 2 must be legal: "),
        (layers_reversed, "program: layers must begin in order and within the program"),
        (layer_missing, "program: program must begin 5 layers, not 4"),
        (constants_on_top, "program: weight.depthwise and weight.first must not overlap in matrix memory"),
        (weights_too_far, "program: weight.dense must lie within the 8192 words of matrix memory"),
    ],
)
def test_programs(damage, text):
    refused(text, "emission", lambda state: damage(state.program))


def test_a_program_that_is_not_sound_is_refused():
    def damage(state):
        words = list(state.image.program)
        first = next(pc for pc, word in enumerate(words) if "mv_mul" in assembler.describe(word))
        del words[first - 1]
        return replace(state, image=replace(state.image, program=tuple(words)))

    with pytest.raises(ValueError, match=r"^the program is not sound: pc "):
        compiled(residual(), "image", damage)


def segment_again(image):
    return replace(image, segments=(*image.segments, image.segments[0]))


def segment_too_far(image):
    made = MemorySegment.from_words(RegionId.WIDE, image.config.wide_depth - 1, [0, 0], image.config)
    return replace(image, segments=(*image.segments, made))


def port_in_constants(image):
    return replace(image, outputs=(replace(image.outputs[0], address=0),))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (segment_again, "must not overlap in matrix memory"),
        (segment_too_far, "a segment of WIDE must lie in 0..2047, not 2047..2048"),
        (port_in_constants, "a segment and port y must not overlap in wide memory"),
    ],
)
def test_images(damage, text):
    refused(text, "feeding", lambda state: replace(state, image=damage(state.image)))
