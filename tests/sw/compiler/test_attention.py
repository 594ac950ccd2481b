"""Products of two tensors, softmax inside a network, sums and maxima over axes."""

import math

import numpy as np
import pytest

from concord.compiler.ir.activations import shared
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph.cost import macs
from concord.graph.execute import run
from concord.networks.calibrated import emulate
from concord.report import analyse
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import attention, random_product
from support.expressions import ROOMY, check, exact, network, tensor, whole

CONFIGS = {"tiny": ROOMY, "ecp5-85f": ECP5_85F.replace(narrow_depth=4096, wide_depth=4096, matrix_depth=16384)}
EXACT = [(name, seed) for name in CONFIGS for seed in range(40)]


@pytest.mark.parametrize("name, seed", EXACT)
def test_products_of_two_tensors(name, seed):
    """With and without batch axes, broadcast or not, either factor transposed: small integers stay exact."""
    rng = np.random.default_rng(seed)
    graph, inner = random_product(rng, 9)
    compiled = check(graph, rng, CONFIGS[name])
    assert macs(graph) == macs(compiled.graph) == math.prod(graph.shapes["y"]) * inner


@pytest.mark.parametrize("shape", [(5, 7), (3, 2), (1, 5), (9, 1)])
def test_a_tensor_times_itself(shape):
    """The host writes one factor, which is read narrow and wide."""
    x = tensor(*shape)
    exact(x @ x.transpose(1, 0))
    exact(x.transpose(1, 0) @ x)


def test_heads_in_lanes_meet_as_they_are():
    """Scores need no matrix to bring factors together; their weights are spread over the lanes of the values."""
    compiled = compile_graph(attention(), TINY)
    assert [node.name for node in compiled.graph.nodes if node.op == "Expand"] == ["mix/spread"]
    layers = {layer.name: layer for layer in compiled.lowered.layers}
    assert layers["scores/products"].reduction.value == "none"
    assert layers["mix/spread"].nodes == ["mix/spread", "mix/products"]
    assert layers["mix"].reduction.value == "depthwise"


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("tokens, heads, width", [(1, 1, 4), (3, 2, 4), (4, 1, 8), (6, 4, 8), (9, 3, 12), (20, 1, 4)])
def test_attention(name, tokens, heads, width):
    graph = attention(tokens, heads, width)
    compiled = compile_graph(graph, CONFIGS[name])
    x = {"x": np.random.default_rng(7).normal(0, 1, (5, tokens, width))}
    want, got = run(graph, x)["y"], emulate(compiled, x)["y"]
    assert 0 < np.abs(got - want).max() < 0.03 * np.abs(want).max()


def test_the_report_knows_the_parts_of_attention():
    x = {"x": np.random.default_rng(7).normal(0, 1, (5, 3, 4))}
    graph = attention()
    compiled = compile_graph(graph, TINY)
    analysis = analyse(compiled, x)
    parts = {layer.name: layer for layer in analysis.layers}
    assert all(layer.error.relative < 0.03 and not layer.flagged for layer in analysis.layers)
    assert [(read.tensor, read.memory) for read in parts["scores/products"].reads] == [
        ("scores/rows", "wide"), ("scores/columns", "wide"),
    ]  # fmt: skip
    assert [(read.tensor, read.memory) for read in parts["mix/spread"].reads] == [
        ("mix/rows", "narrow"), ("mix/columns", "wide"),
    ]  # fmt: skip
    assert sum(layer.work.macs for layer in analysis.layers) == macs(graph)


SOFTMAX = [(name, seed) for name in CONFIGS for seed in range(30)]


@pytest.mark.slow
@pytest.mark.parametrize("op, error", [("Softmax", 0.05), ("LogSoftmax", 0.15)])
@pytest.mark.parametrize("name, seed", SOFTMAX)
def test_softmax_inside_a_network(name, seed, op, error):
    """Over positions or lanes, of inputs and of computed tensors: within what tables and 8-bit sums allow."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 5)))
    x = tensor(*shape)
    before = [x.same(), x.relu(), x][seed % 3]
    graph = network(before.softmax(int(rng.integers(len(shape))), op).same())
    x = {"x": rng.normal(0, 2, (4, *graph.sample_shape("x")))}
    compiled = compile_graph(graph, CONFIGS[name])
    assert compiled.host_graph is None
    assert np.abs(emulate(compiled, x)["y"] - run(graph, x)["y"]).max() < error


def test_softmax_of_very_different_numbers():
    """What lies far below the largest is zero, and values that are no elements do not count."""
    graph = network(tensor(1, 5).softmax(1).same())
    x = {"x": np.array([[-900.0, -901, -2000, -903, -5000], [3000.0, 0, -3000, 3000, 0]])}
    np.testing.assert_allclose(emulate(compile_graph(graph, ROOMY), x)["y"], run(graph, x)["y"], atol=0.02)


def test_tables_are_shared_where_slots_are_short():
    """Those whose ranges differ least; functions that are not the same never."""
    tanh, sqrt = ((("tanh", ()),)), ((("sqrt", ()),))
    specs = [(sqrt, (0.0, 1.0)), (sqrt, (0.5, 1.5)), (sqrt, (0.0, 9.0)), (tanh, None)]
    assert shared(specs, 4) == {spec: spec for spec in specs}
    both = (sqrt, (0.0, 1.5))
    assert shared(specs, 3) == {specs[0]: both, specs[1]: both, specs[2]: specs[2], specs[3]: specs[3]}
    assert set(shared(specs, 2).values()) == set(shared(specs, 1).values()) == {(sqrt, (0.0, 9.0)), (tanh, None)}


def test_more_ranges_than_slots_compile():
    sums = [tensor(1, 4)]
    for k in range(6):
        sums.append((sums[-1] if k == 0 else sums[-1].function("sqrt")).combined("Add", float(k), name=f"a{k}"))
    graph = network(sums[-1].function("sqrt"))
    x = {"x": np.linspace(0.5, 2.0, 12).reshape(3, 4)}
    want = run(graph, x, keep="all")
    names = [f"a{k}.out" for k in range(6)]
    ranges = {name: (float(want[name].min()), float(want[name].max())) for name in names}
    got = emulate(compile_graph(graph, TINY, Formats(ranges=ranges)), x)
    np.testing.assert_allclose(got["y"], want["y"], rtol=0.02)


def test_a_final_softmax_stays_on_the_host():
    compiled = compile_graph(network(tensor(1, 5).softmax(1)), TINY)
    assert [node.op for node in compiled.host_graph.nodes] == ["Softmax"] and not compiled.lowered.layers


@pytest.mark.parametrize("op", ["Sum", "Max"])
@pytest.mark.parametrize("axes", [(3,), (1,), (2, 3), (2,)])
@pytest.mark.parametrize("shape", [(1, 4, 3, 5), (1, 6, 2, 3)])
def test_sums_and_maxima(op, axes, shape):
    """Of a map whose channels are lanes: the second axis. Lanes that are no channels have values of their own."""
    a = tensor(*shape).conv(np.eye(shape[1])[:, :, None, None], np.full(shape[1], -4.0))
    exact(a.reduce(op, *axes))


def test_lanes_that_are_no_elements_are_no_maximum():
    """Of some channels of an input, where the others are greater and all are less than zero."""
    x = tensor(1, 6, 2, 3)
    graph = network(x + x[:, :3].reduce("Max", 1))
    x = -np.random.default_rng(7).integers(2, 9, (5, 6, 2, 3)).astype(float)
    x[:, 3:] = -1
    y = emulate(compile_graph(graph, ROOMY), {"x": x})["y"]
    np.testing.assert_array_equal(y, x + x[:, :3].max(axis=1, keepdims=True))


def test_a_sum_of_lanes_meets_every_lane():
    """It is there in all lanes, not only in the first."""
    x = tensor(1, 6)
    exact(x * x.reduce("Sum", 1))


@pytest.mark.parametrize("swapped", [False, True])
def test_sums_of_rows_meet_sums_of_columns(swapped):
    x = tensor(5, 6)
    sums = [x.reduce("Sum", 1), x.reduce("Sum", 0)]
    exact(sums[swapped] * sums[not swapped], limit=1)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max"])
@pytest.mark.parametrize("seed", range(6))
def test_both_operands_are_broadcast(op, seed):
    rows, columns, width = (int(n) for n in np.random.default_rng(seed).integers(1, 6, 3))
    exact(tensor(rows, 1, width).relu().combined(op, tensor(columns, width, name="z")))


@pytest.mark.parametrize("axes, keep", [((1,), (5, 1)), ((0,), (1, 6))])
def test_what_is_the_same_in_every_lane_meets_any(axes, keep):
    """A mean over lanes scales all lanes, also behind constants and tables of its own."""
    x = tensor(5, 6)
    a = x.reduce("Sum", *axes)
    exact((x - (a + whole(*keep))) * a, limit=1)


def groups_across_positions(rows):
    """Softmax over ten elements each, which are neither positions nor whole vectors, and its sum, which is 1."""
    groups = tensor(rows, 6).same().reshape(rows * 6 // 10, 10)
    return network(groups.softmax(1).reduce("Sum", 1))


def test_groups_across_positions_are_set_apart():
    x = {"x": np.random.default_rng(0).normal(0, 1, (4, 5, 6))}
    y = emulate(compile_graph(groups_across_positions(5), ROOMY), x)["y"]
    np.testing.assert_allclose(y, 1, rtol=0.03)  # a reciprocal by 73 entries


def test_groups_that_one_product_cannot_set_apart_are_copied():
    """The product would be too long: chains copy what lies alike."""
    x = {"x": np.random.default_rng(0).normal(0, 1, (2, 70, 6))}
    compiled = compile_graph(groups_across_positions(70), ROOMY)
    assert any(node.op == "Copy" for node in compiled.graph.nodes)
    np.testing.assert_allclose(emulate(compiled, x)["y"], 1, rtol=0.05)
