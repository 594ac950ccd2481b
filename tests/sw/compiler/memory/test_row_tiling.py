"""Networks whose first layers are computed in row tiles: the same bits as in one piece."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.calibration.formats import static_exponents
from concord.compiler.emission.arranging import arranged
from concord.compiler.emission.row_tiled import KINDS
from concord.compiler.ir.layers import Reduction
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.memory.copies import peak
from concord.compiler.memory.dataflow import data_types
from concord.compiler.memory.row_tiling import RowTiling, planned, row_vectors
from concord.compiler.model import compile_graph, in_one_piece
from concord.golden import binary16
from concord.golden.blocks import dequantize, quantize
from concord.graph import execute
from concord.host import connect
from concord.networks.calibrated import emulate
from concord.program.allocator import CapacityError
from concord.report.prefixes import HALT, ends
from concord.spec.formats import ExponentMode
from concord.spec.isa import Mem
from concord.spec.presets import ECP5_85F, TINY
from concord_bench.tasks import TASKS, load, top_one
from support.expressions import network, tensor
from support.row_tiled_nets import (
    choices,
    image_in_one_piece,
    image_in_row_tiles,
    outputs_of,
    random_net,
    separable,
)
from support.trained import DATA, needs_data


def samples(graph, count=3, seed=7):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(48))
def test_row_tiles_of_any_height_give_the_same_bits(seed):
    rng = np.random.default_rng(seed)
    graph, unfold = random_net(seed), rng.choice(list(Unfold))
    (name,), inputs = graph.outputs, samples(graph)
    lowered, found = choices(graph, unfold=unfold)
    arrangement = arranged(lowered, {tensor: graph.sample_shape(tensor) for tensor in ("x", name)})
    ports = arrangement.pack(inputs)
    want = outputs_of(image_in_one_piece(lowered), ports)[name]
    for prefix in found:
        height = prefix.source.height
        for rows in {1, int(rng.integers(1, height + 1)), height if prefix is found[-1] else 2}:
            even, kinds = bool(rng.integers(2)), int(rng.choice([1, KINDS]))
            image, tiling = image_in_row_tiles(lowered, prefix, rows, even=even, kinds=kinds)
            got = outputs_of(image, ports)[name]
            np.testing.assert_array_equal(got, want, f"{len(prefix.layers)} layers, {rows} rows, {even}, {kinds}")
            assert len(image.phases) == tiling.phases == -(-height // rows)
            assert even or len(tiling.tiles) == tiling.phases


def test_the_random_networks_have_something_of_everything():
    """Row tiles that keep rows, reversed ones, in both memories, residual sums, several tensors written in tiles."""
    kept, reductions, memories = 0, set(), set()
    for seed in range(48):
        lowered, found = choices(random_net(seed))
        for prefix in found:
            tiling = prefix.schedule(2)
            kept += any(tiling.kept.values())
            reductions |= {layer.reduction for layer in prefix.layers}
            plan = planned(lowered, data_types(lowered), RowTiling((tiling,)))
            memories |= {mem for s in tiling.sliding for mem in Mem if tiling.kept[s] and plan.copy(s, mem) is not None}
    assert kept > 20 and reductions == set(Reduction) - {Reduction.LANES} and memories == set(Mem)


def test_the_input_stays_while_further_tiles_read_it():
    """Of the random networks of 150 seeds this one had another tensor in its place."""
    lowered, found = choices(random_net(62), unfold=Unfold.NONE)
    arrangement = arranged(
        lowered, {tensor: lowered.graph.sample_shape(tensor) for tensor in ("x", *lowered.graph.outputs)}
    )
    ports = arrangement.pack(samples(lowered.graph, 1))
    (prefix,) = (prefix for prefix in found if len(prefix.layers) == 3)
    image, tiling = image_in_row_tiles(lowered, prefix, 2, even=True)
    assert len(tiling.tiles) > tiling.phases
    (name,) = lowered.graph.outputs
    np.testing.assert_array_equal(outputs_of(image, ports)[name], outputs_of(image_in_one_piece(lowered), ports)[name])


def test_even_row_tiles_need_less_memory():
    """No layer computes more rows than in a tile with new rows of the input, and all rows are computed."""
    less, further = 0, 0
    for seed in range(48):
        lowered, found = choices(random_net(seed))
        for prefix in found:
            plain, even = prefix.schedule(1), prefix.schedule(1, even=True)
            further += len(even.tiles) > even.phases
            for layer in prefix.layers:
                steps = [
                    [
                        layer.computed(tile[layer.target.root].stop) - layer.computed(tile[layer.target.root].new)
                        for tile in tiling.tiles
                    ]
                    for tiling in (plain, even)
                ]
                assert max(steps[1]) <= max(1, *steps[0][:-1]) and sum(steps[1]) == layer.out[0]
            sizes = [
                sum(peak(planned(lowered, data_types(lowered), RowTiling((t,))).within(mem)) for mem in Mem)
                for t in (plain, even)
            ]
            assert sizes[1] <= sizes[0] + even.size(even.source) * row_vectors(even.source), "the input stays longer"
            less += sizes[1] < sizes[0]
    assert less > 20 and further > 20


# What the compiler chooses -------------------------------------------------------------------------


def small(graph, **less):
    """The network for a configuration that it does not fit in one piece, and for one that it does."""
    config = TINY.replace(matrix_depth=256, program_depth=512, **less)
    tiled, in_one = (
        compile_graph(graph, config),
        compile_graph(graph, config.replace(narrow_depth=1024, wide_depth=1024)),
    )
    assert tiled.row_tiling is not None and in_one.row_tiling is None
    return tiled, in_one


@pytest.mark.slow
def test_a_network_larger_than_memory():
    graph = separable(24)
    tiled, in_one = small(graph, narrow_depth=64)
    inputs = samples(graph, 5)
    np.testing.assert_array_equal(emulate(tiled, inputs)["y"], emulate(in_one, inputs)["y"])
    sizes = [tiled.row_tiling.groups[0].size(storage) for storage in tiled.row_tiling.groups[0].sliding]
    assert all(size < storage.height for size, storage in zip(sizes, tiled.row_tiling.groups[0].sliding, strict=True))
    parts = [part for phase in tiled.image.phases for part in phase.inputs]
    assert [part.first for part in parts] == sorted(part.first for part in parts) and len(parts) >= 4
    assert {phase.outputs == () for phase in tiled.image.phases[:-1]} == {True}
    want = execute.run(graph, inputs)["y"]
    assert np.abs(emulate(tiled, inputs)["y"] - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.slow
def test_programs_are_cut_behind_a_layer_in_all_row_tiles():
    """Steps and vectors of every layer are those of the network in one piece, and what is moved."""
    tiled, in_one = small(separable(24), narrow_depth=64)
    counts = []
    for compiled in (tiled, in_one):
        image, found = compiled.image, []
        for places in ends(compiled):
            program = [HALT if pc in places else word for pc, word in enumerate(image.program)]
            with connect("emulator", image.config) as device:
                device.load(replace(image, program=tuple(program)))
                compiled.package.run(device, samples(compiled.graph, 2))
                counters = device.counters()
            found.append([counters[name] for name in ("DENSE_STEPS", "DEPTHWISE_STEPS", "VECTORS")])
        counts.append(np.diff(found, axis=0, prepend=0))
    assert len(tiled.tile_starts) == 2 and np.array_equal(counts[0][:, :2], counts[1][:, :2])
    moved = counts[0][:, 2] - counts[1][:, 2]
    assert (moved >= 0).all() and (moved > 0).tolist() == [False, True, False, True, False, False]


@pytest.mark.slow
def test_row_tiles_that_are_alike_share_their_instructions():
    """Twice as many rows are more row tiles, but only an instruction more each."""
    short, long = (small(separable(height), narrow_depth=depth)[0] for height, depth in ((48, 72), (96, 96)))
    assert short.row_tiling.groups[0].rows == long.row_tiling.groups[0].rows == 2 and (
        len(short.image.phases),
        len(long.image.phases),
    ) == (
        12,
        24,
    )
    assert len(long.image.program) == len(short.image.program) + 12


@pytest.mark.slow
def test_larger_memories_have_larger_row_tiles():
    graph = separable(24)
    rows = [small(graph, narrow_depth=depth)[0].row_tiling.groups[0].rows for depth in (64, 96, 128)]
    assert rows[0] < rows[1] < rows[2]


@pytest.mark.slow
def test_static_exponents_stay_in_row_tiles():
    graph = separable()
    inputs = samples(graph, 6)
    values = execute.run(graph, inputs, keep="all")
    _, in_one = small(graph, narrow_depth=48)
    formats = Formats(exponents=static_exponents(in_one, values))
    assert formats.exponents
    config = in_one.image.config.replace(narrow_depth=48, wide_depth=64)
    tiled = compile_graph(graph, config, formats)
    assert tiled.row_tiling is not None
    again = compile_graph(graph, in_one.image.config, formats)
    np.testing.assert_array_equal(emulate(tiled, inputs)["y"], emulate(again, inputs)["y"])


def test_inputs_that_later_layers_read_are_written_once():
    rng = np.random.default_rng(1)
    first = tensor(1, 1, 16, 4).conv(rng.normal(0, 0.3, (4, 1, 3, 3)), pads=1).pool("MaxPool", 2, 2)
    graph = network(first + tensor(1, 4, 8, 2, name="z").conv(rng.normal(0, 0.5, (4, 4, 1, 1))))
    tiled, in_one = small(graph, narrow_depth=80, wide_depth=52)
    names = [[part.port for part in phase.inputs] for phase in tiled.image.phases]
    assert names == [["x", "z"], *[["x"]] * (len(names) - 1)] and len(names) > 1
    inputs = samples(graph)
    np.testing.assert_array_equal(emulate(tiled, inputs)["y"], emulate(in_one, inputs)["y"])


def test_what_does_not_fit_in_row_tiles_either_is_told():
    graph = separable()
    with pytest.raises(CapacityError, match=r"narrow memory has 16 vectors, but \d+ are needed"):
        compile_graph(graph, TINY.replace(narrow_depth=16, program_depth=512))
    with pytest.raises(CapacityError, match=r"matrix memory has 16 words, but \d+ are needed"):
        compile_graph(graph, TINY.replace(narrow_depth=44, matrix_depth=16, program_depth=512))


# Moving rows to the front --------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [None, -9, -3, 4])
def test_a_narrow_vector_that_is_converted_again_is_the_same(exponent):
    """Every mantissa with every exponent: the greatest of a vector, beside smaller ones."""
    act = TINY.act
    mant = np.arange(-act.q_max, act.q_max + 1)
    values = np.concatenate([mant[:, None] * [2.0**e] * [[1.0, 0.5, -0.25, 0.0]] for e in range(-24, 9)])
    values = np.concatenate([values, np.random.default_rng(2).normal(0, 4, (4000, 4)), np.zeros((1, 4))])
    settings = {} if exponent is None else {"mode": ExponentMode.STATIC, "exp": exponent}
    once = quantize(binary16.encode(values), act, **settings)
    again = quantize(binary16.encode(dequantize(once.mant, once.exp)), act, **settings)
    np.testing.assert_array_equal(again.mant, once.mant)
    np.testing.assert_array_equal(again.exp, once.exp)


# Trained networks ----------------------------------------------------------------------------------


@pytest.mark.slow
@needs_data
def test_mobilenet_in_row_tiles_has_the_bits_of_a_larger_npu():
    task = next(task for task in TASKS if task.model == "vww_mobilenetv1_025")
    graph, inputs, labels = load(task, DATA)
    tiled = compile_graph(graph, ECP5_85F)
    assert tiled.row_tiling is not None and len(tiled.image.program) <= ECP5_85F.program_depth
    (given,), (name,) = graph.inputs, graph.outputs
    got = emulate(tiled, {given: inputs})[name]
    np.testing.assert_array_equal(got[:12], emulate(in_one_piece(tiled), {given: inputs[:12]})[name])
    want = execute.run(graph, {given: inputs})[name]
    assert top_one(got, inputs, labels) >= top_one(want, inputs, labels) - 0.005
    assert np.mean(got.argmax(axis=1) == want.argmax(axis=1)) > 0.95
