"""Products of two tensors, softmax inside a network, sums and maxima over axes."""

import math

import numpy as np
import pytest

from concord.compiler.ir.activations import shared
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph.cost import macs
from concord.graph.execute import run
from concord.graph.ir import Node
from concord.networks.calibrated import emulate
from concord.report import analyse
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import ROOMY, attention, check, graph_of, integers, random_product

CONFIGS = {"tiny": ROOMY, "ecp5-85f": ECP5_85F.replace(narrow_depth=4096, wide_depth=4096, matrix_depth=16384)}
EXACT = [(name, seed) for name in CONFIGS for seed in range(40)]


def ops(compiled):
    return [node.op for node in compiled.graph.nodes]


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
    rng = np.random.default_rng(1)
    turn = Node("Transpose", "turn", ("x",), ("t",), {"perm": (1, 0)})
    for names in (("x", "t"), ("t", "x")):
        check(graph_of([turn, Node("MatMul", "product", names, ("y",))], x=shape), rng, ROOMY)


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
    eye = {"weight": np.eye(shape[-1]), "bias": np.zeros(shape[-1])}
    before = [Node("Dense", "before", ("x",), ("a",), eye), Node("Relu", "before", ("x",), ("a",)), None][seed % 3]
    nodes = [
        *([before] if before else []),
        Node(op, "softmax", ("a" if before else "x",), ("p",), {"axis": int(rng.integers(len(shape)))}),
        Node("Dense", "behind", ("p",), ("y",), eye),
    ]
    graph = graph_of(nodes, x=shape)
    x = {"x": rng.normal(0, 2, (4, *graph.sample_shape("x")))}
    compiled = compile_graph(graph, CONFIGS[name])
    assert compiled.host_graph is None
    assert np.abs(emulate(compiled, x)["y"] - run(graph, x)["y"]).max() < error


def test_softmax_of_very_different_numbers():
    """What lies far below the largest is zero, and values that are no elements do not count."""
    eye = {"weight": np.eye(5), "bias": np.zeros(5)}
    nodes = [Node("Softmax", "softmax", ("x",), ("p",), {"axis": 1}), Node("Dense", "behind", ("p",), ("y",), eye)]
    x = np.array([[[-900.0, -901, -2000, -903, -5000]], [[3000.0, 0, -3000, 3000, 0]]])
    graph = graph_of(nodes, x=(1, 5))
    got = emulate(compile_graph(graph, ROOMY), {"x": x[:, 0]})["y"]
    np.testing.assert_allclose(got, run(graph, {"x": x[:, 0]})["y"], atol=0.02)


def test_tables_are_shared_where_slots_are_short():
    """Those whose ranges differ least; functions that are not the same never."""
    tanh, sqrt = ((("tanh", ()),)), ((("sqrt", ()),))
    specs = [(sqrt, (0.0, 1.0)), (sqrt, (0.5, 1.5)), (sqrt, (0.0, 9.0)), (tanh, None)]
    assert shared(specs, 4) == {spec: spec for spec in specs}
    both = (sqrt, (0.0, 1.5))
    assert shared(specs, 3) == {specs[0]: both, specs[1]: both, specs[2]: specs[2], specs[3]: specs[3]}
    assert set(shared(specs, 2).values()) == set(shared(specs, 1).values()) == {(sqrt, (0.0, 9.0)), (tanh, None)}


def test_more_ranges_than_slots_compile():
    nodes, name = [], "x"
    for k in range(6):
        nodes += [
            Node("Add", f"add{k}", (name,), (f"a{k}",), {"constant": np.asarray(float(k))}),
            Node("Function", f"sqrt{k}", (f"a{k}",), (f"s{k}",), {"functions": (("sqrt", {}),)}),
        ]
        name = f"s{k}"
    graph = graph_of(nodes, x=(1, 4))
    x = {"x": np.linspace(0.5, 2.0, 12).reshape(3, 4)}
    want = run(graph, x, keep="all")
    ranges = {f"a{k}": (float(want[f"a{k}"].min()), float(want[f"a{k}"].max())) for k in range(6)}
    got = emulate(compile_graph(graph, TINY, Formats(ranges=ranges)), x)
    np.testing.assert_allclose(got["s5"], want["s5"], rtol=0.02)


def test_a_final_softmax_stays_on_the_host():
    graph = graph_of([Node("Softmax", "softmax", ("x",), ("y",), {"axis": 1})], x=(1, 5))
    compiled = compile_graph(graph, TINY)
    assert [node.op for node in compiled.host_graph.nodes] == ["Softmax"] and not compiled.lowered.layers


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
@pytest.mark.parametrize("axes", [(3,), (1,), (2, 3), (2,)])
@pytest.mark.parametrize("shape", [(1, 4, 3, 5), (1, 6, 2, 3)])
def test_sums_and_maxima(op, axes, shape):
    """Of a map whose channels are lanes: the second axis. Lanes that are no channels have values of their own."""
    rng = np.random.default_rng(5)
    ones = {"weight": np.eye(shape[1])[:, :, None, None], "bias": np.full(shape[1], -4.0), "group": 1}
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    nodes = [
        Node("Conv", "conv", ("x",), ("a",), ones | attrs),
        Node(op, "reduce", ("a",), ("y",), {"axes": axes, "keepdims": True}),
    ]
    check(graph_of(nodes, x=shape), rng, ROOMY)


def test_lanes_that_are_no_elements_are_no_maximum():
    """Of some channels of an input, where the others are greater and all are less than zero."""
    nodes = [
        Node("Slice", "some", ("x",), ("a",), {"axes": (1,), "starts": (0,), "stops": (3,), "steps": (1,)}),
        Node("ReduceMax", "reduce", ("a",), ("b",), {"axes": (1,), "keepdims": True}),
        Node("Add", "join", ("x", "b"), ("y",)),
    ]
    x = -np.random.default_rng(7).integers(2, 9, (5, 6, 2, 3)).astype(float)
    x[:, 3:] = -1
    y = emulate(compile_graph(graph_of(nodes, x=(1, 6, 2, 3)), ROOMY), {"x": x})["y"]
    np.testing.assert_array_equal(y, x + x[:, :3].max(axis=1, keepdims=True))


def test_a_sum_of_lanes_meets_every_lane():
    """It is there in all lanes, not only in the first."""
    nodes = [
        Node("ReduceSum", "sum", ("x",), ("a",), {"axes": (1,), "keepdims": True}),
        Node("Mul", "scale", ("x", "a"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 6)), np.random.default_rng(8), ROOMY)


@pytest.mark.parametrize("swapped", [False, True])
def test_sums_of_rows_meet_sums_of_columns(swapped):
    nodes = [
        Node("ReduceSum", "rows", ("x",), ("a",), {"axes": (1,), "keepdims": True}),
        Node("ReduceSum", "columns", ("x",), ("b",), {"axes": (0,), "keepdims": True}),
        Node("Mul", "table", ("b", "a") if swapped else ("a", "b"), ("y",)),
    ]
    check(graph_of(nodes, x=(5, 6)), np.random.default_rng(9), ROOMY, limit=1)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max"])
@pytest.mark.parametrize("seed", range(6))
def test_both_operands_are_broadcast(op, seed):
    rng = np.random.default_rng(seed)
    rows, columns, width = (int(n) for n in rng.integers(1, 6, 3))
    nodes = [Node("Relu", "relu", ("x",), ("a",)), Node(op, "op", ("a", "z"), ("y",))]
    check(graph_of(nodes, x=(rows, 1, width), z=(columns, width)), rng, ROOMY)


@pytest.mark.parametrize("axes, keep", [((1,), (5, 1)), ((0,), (1, 6))])
def test_what_is_the_same_in_every_lane_meets_any(axes, keep):
    """A mean over lanes scales all lanes, also behind constants and tables of its own."""
    rng = np.random.default_rng(6)
    nodes = [
        Node("ReduceSum", "sum", ("x",), ("a",), {"axes": axes, "keepdims": True}),
        Node("Add", "shift", ("a",), ("b",), {"constant": integers(rng, keep)}),
        Node("Sub", "centre", ("x", "b"), ("c",)),
        Node("Mul", "scale", ("c", "a"), ("y",)),
    ]
    check(graph_of(nodes, x=(5, 6)), rng, ROOMY, limit=1)


def groups_across_positions(rows):
    """Softmax over ten elements each, which are neither positions nor whole vectors, and its sum, which is 1."""
    nodes = [
        Node("Dense", "dense", ("x0",), ("x",), {"weight": np.eye(6), "bias": np.zeros(6)}),
        Node("Reshape", "split", ("x",), ("a",), {"shape": (rows * 6 // 10, 10)}),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("ReduceSum", "sum", ("p",), ("y",), {"axes": (1,), "keepdims": True}),
    ]
    return graph_of(nodes, x0=(rows, 6))


def test_groups_across_positions_are_set_apart():
    x = {"x0": np.random.default_rng(0).normal(0, 1, (4, 5, 6))}
    y = emulate(compile_graph(groups_across_positions(5), ROOMY), x)["y"]
    np.testing.assert_allclose(y, 1, rtol=0.03)  # a reciprocal by 73 entries


def test_groups_that_one_product_cannot_set_apart_are_copied():
    """The product would be too long: chains copy what lies alike."""
    x = {"x0": np.random.default_rng(0).normal(0, 1, (2, 70, 6))}
    compiled = compile_graph(groups_across_positions(70), ROOMY)
    assert any(node.op == "Copy" for node in compiled.graph.nodes)
    np.testing.assert_allclose(emulate(compiled, x)["y"], 1, rtol=0.05)
