"""Networks with more weights than the matrix memory holds: the bits of an NPU that holds them all."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.calibration.suggestions import suggestions
from concord.compiler.emission.copied_weights import (
    CopiesAhead,
    CopyBuffer,
    DenseWeights,
    WeightBlock,
    blocks_of,
    copied,
    groups_of_block,
)
from concord.compiler.ir.tensor_formats import DEFAULT
from concord.compiler.model import compile_graph
from concord.cycles import count
from concord.derive.backends.python_file import write_numpy
from concord.derive.model import derive_package
from concord.networks.calibrated import emulate
from concord.program import trace
from concord.program.allocator import CapacityError
from concord.program.builder import ProgramBuilder
from concord.spec.isa import COPY_UNIT, decode
from concord.spec.memmap import RegionId
from concord.spec.operations import Op
from concord.spec.presets import ECP5_85F, presets_of
from support.compiled_nets import perceptron, recurrent

#: A matrix memory of a few tiles; with one and with several tile engines.
SMALL = ECP5_85F.replace(name="small", native=8, lanes=4, integer_chains=False, matrix_depth=32, table_depth=2048)
ENGINES = SMALL.replace(name="small-engines", engines=2)
CONFIGS = [SMALL, ENGINES]


def large(config):
    """The same NPU with a matrix memory for all weights, and no other."""
    return config.replace(matrix_depth=1 << 14, dram="", dram_refresh=0)


def check(graph, config, samples=3, seed=0):
    """Compare results; returns the copies of the program."""
    rng = np.random.default_rng(seed)
    x = {name: rng.normal(0, 1, (samples, *graph.sample_shape(name))) for name in graph.inputs}
    small, whole = (compile_graph(graph, each) for each in (config, large(config)))
    want = emulate(whole, x)
    for name, values in emulate(small, x).items():
        assert values.tobytes() == want[name].tobytes(), name
    image = small.package.image
    assert trace(whole.package.image.program, large(config)).copies == ()
    assert count(image.program, config).cycles > count(whole.package.image.program, large(config)).cycles
    return trace(image.program, config).copies


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("widths", [(40, 40, 24), (100, 17), (9, 70, 65, 3)])
def test_perceptrons(config, widths):
    copies = check(perceptron(*widths), config)
    assert copies and all(copy.column % COPY_UNIT == 0 for copy in copies)


PEEPHOLES = np.random.default_rng(3).normal(0, 0.5, (1, 72))


@pytest.mark.parametrize(
    ("op", "attrs", "depth", "often"),
    [
        ("LSTM", {}, 64, {7}),
        ("LSTM", {}, 96, {3, 7}),
        ("LSTM", {"P": PEEPHOLES}, 128, {2, 7}),
        ("LSTM", {"P": PEEPHOLES}, 256, {1, 7}),
        ("GRU", {"direction": "bidirectional", "sequence": True}, 128, {2, 7}),
        ("RNN", {"direction": "reverse"}, 40, {3}),
    ],
)
def test_input_weights_are_copied_once_for_several_steps(op, attrs, depth, often):
    """As many as wide memory has room for; the last chunk has the rest of the steps."""
    copies = check(recurrent(op, 24, 20, 7, **attrs), SMALL.replace(wide_depth=depth))
    assert set(Counter(copy.column for copy in copies).values()) == often


def test_a_network_that_fits_has_the_same_program():
    graph = perceptron(12, 20, 5)
    with_memory, without = (compile_graph(graph, config) for config in (SMALL, SMALL.replace(dram="", dram_refresh=0)))
    assert with_memory.package.image.program == without.package.image.program
    assert with_memory.package.image.segments == without.package.image.segments


def test_a_result_vector_whose_weights_do_not_fit():
    with pytest.raises(CapacityError, match="matrix memory has 32 words, but 34 are needed"):
        compile_graph(perceptron(8 * 17, 8), SMALL)


def test_more_weights_than_the_external_memory_has_room_for():
    part = SMALL.sdram.columns // SMALL.row_columns * SMALL.native
    with pytest.raises(CapacityError, match=r"external memory has 16777216 columns, but \d+ weights need \d+"):
        compile_graph(perceptron(4096, part // 4096 + 8), SMALL)


def test_which_weights_stay():
    """Those of recurrent layers first, then the smallest, by groups; the buffer is as small as the program allows."""
    weights = [DenseWeights("often", 4, 2, 25), DenseWeights("small", 2, 4), DenseWeights("large", 40, 8)]
    assert copied(weights, 400, SMALL, SMALL.program_depth) == ({}, None)
    assert copied(weights, 90, SMALL, SMALL.program_depth) == ({"large": 7}, CopyBuffer(8))
    assert copied(weights, 31, SMALL, SMALL.program_depth) == ({"small": 1, "large": 0}, CopyBuffer(8))
    assert copied(weights, 12, SMALL, SMALL.program_depth) == (
        {"small": 0, "large": 0, "often": 2},
        CopyBuffer(8, 1),
    ), "no room for two parts"
    both = [DenseWeights("a", 200, 8), DenseWeights("b", 200, 8)]
    assert copied(both, 96, SMALL, 1088) == ({"a": 0, "b": 0}, CopyBuffer(48))
    assert copied(both, 96, SMALL, 1087) == ({"a": 6, "b": 0}, CopyBuffer(48, 1)), "few blocks"
    assert copied(both, 96, SMALL, 64) == ({"a": 0, "b": 0}, CopyBuffer(96, 1)), "as few as can be"
    twice = [replace(item, places=2) for item in both]
    assert copied(twice, 96, SMALL, 2 * 1088) == ({"a": 0, "b": 0}, CopyBuffer(48))
    assert copied([DenseWeights("row", 3, 100)], 90, SMALL, SMALL.program_depth) == ({}, None)


@pytest.mark.parametrize(("rows", "count", "place"), [(16, 2, 1), (100, 2, 2), (16, 1, None)])
def test_the_second_copy_of_a_layer_stands_between_those_in_front(rows, count, place):
    """Where the first one is over, as far as steps tell, or in front of the layer; none without a second block."""
    builder, ahead = ProgramBuilder(), CopiesAhead(32, CopyBuffer(8), 5)
    blocks = [WeightBlock(k, 1, 7 * k, rows) for k in range(count)]
    ahead.begin(builder)
    places = []
    for steps in (100, 200, 0):
        places.append(len(builder))
        ahead.between(builder, blocks, steps)
        builder.set(Op.SET_SHAPE, rows=1 + steps, cols=1)
    assert [ahead.copy(builder, block) for block in blocks] == [32, 40][:count]
    builder.halt()
    found = [decode(word) for word in builder.words()]
    copies = {at: (values["dram"], values["matrix"]) for at, (form, values) in enumerate(found) if form.op is Op.COPY}
    assert copies == {0: (0, 32)} | ({} if place is None else {places[place]: (7, 40)})
    assert found[-2][0].op is Op.FENCE, "products wait for the last block"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_blocks_cover_all_results(config):
    weights, vectors = DenseWeights("w", 7, 6), 7 * config.engines
    blocks = blocks_of(weights, 0, vectors, 20, config)
    assert groups_of_block(weights, 20, config) == 3
    assert [block.first for block in blocks] == [0, 3 * config.engines, 6 * config.engines]
    assert sum(block.count for block in blocks) == vectors
    assert [block.rows for block in blocks] == [3 * 3 * config.rows] * 2 + [3 * config.rows]
    ends = [block.unit * COPY_UNIT + block.rows * config.row_columns for block in blocks]
    assert all(end <= block.unit * COPY_UNIT for end, block in zip(ends, blocks[1:], strict=False))
    stay, *others = blocks_of(weights, 4, vectors, 20, config)
    assert stay == WeightBlock(0, 4 * config.engines)
    assert others == [WeightBlock(4 * config.engines, 3 * config.engines, 0, 3 * 3 * config.rows)]


def test_columns_are_constants_of_the_image():
    image = compile_graph(perceptron(40, 40, 24), SMALL).package.image
    columns = [part for part in image.segments if part.region is RegionId.DRAM]
    assert columns and image.loaded()[RegionId.DRAM][0] == sum(part.count for part in columns)


@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("graph", [perceptron(40, 40, 24), recurrent("GRU", 24, 20, 5)], ids=["perceptron", "GRU"])
def test_derived_software_is_the_same(graph, flags, tmp_path):
    """All but the addresses of chains in comments, and the constants bit for bit."""
    texts, constants = [], []
    for config in (SMALL.replace(wide_depth=64), large(SMALL)):
        folder = tmp_path / str(config.matrix_depth)
        folder.mkdir()
        write_numpy(derive_package(compile_graph(graph, config).package, flags=flags), folder / "net.py")
        texts.append(re.sub(r"[Cc]hains? at [\d, ]+", "", (folder / "net.py").read_text()))
        constants.append(dict(np.load(folder / "net.npz")))
    assert texts[0] == texts[1]
    assert constants[0].keys() == constants[1].keys()
    assert all(constants[0][name].tobytes() == constants[1][name].tobytes() for name in constants[0])


def test_boards_without_the_memory_are_not_suggested():
    """The same preset takes the network where the board has an external memory, and nowhere else."""
    graph, config = perceptron(600, 520, 4), presets_of("orangecrab-85f")[0]
    with pytest.raises(CapacityError) as caught:
        compile_graph(graph, config)
    lines = suggestions(graph, config, DEFAULT, 1, caught.value)
    assert "it fits into ecp5-85f (--board ulx3s-85f)" in lines
