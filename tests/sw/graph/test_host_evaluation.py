"""What the host computes: as the graph in double precision does, and with the same bits in every batch."""

import numpy as np
import pytest

from concord.graph import execute
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_functions import HOST_FUNCTIONS
from concord.graph.host_rules import has_operations
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS, OperatorKind, host, operator_of
from support.operator_examples import EXAMPLES, example

WHOLE = {"Lookup": (-5, 5), "Take": (-5, 5)}
NAMES = sorted(name for name in EXAMPLES if has_operations(example(name)[0]))


def graph_of(node, shapes):
    return Graph("host", [node], [*node.inputs], [*node.outputs], shapes, set())


def inputs_of(graph, count, seed):
    """Numbers, zeros of both signs and equal ones among them; indices where there must be such."""
    rng = np.random.default_rng(seed)
    inputs = {name: rng.normal(0, 3, (count, *graph.shapes[name])) for name in graph.inputs}
    for x in inputs.values():
        x[rng.random(x.shape) < 0.3] = 0.0
        x[rng.random(x.shape) < 0.1] = -0.0
        x[rng.random(x.shape) < 0.1] = 2.0
    op = graph.nodes[0].op
    if op in WHOLE:
        name = graph.inputs[-1]
        inputs[name] = rng.integers(*WHOLE[op], (count, *graph.shapes[name])).astype(float)
    if op in ("Divide", "Modulo"):
        inputs["b"] = np.where(inputs["b"] == 0, 3.0, inputs["b"])
    return inputs


def agree(graph, inputs):
    results, want = run_on_host(graph, inputs), execute.run(graph, inputs)
    for name, value in want.items():
        assert results[name].shape == value.shape
        np.testing.assert_allclose(results[name], value, rtol=1e-12, atol=1e-12)
    return results


def test_every_operator_of_the_host_has_operations():
    assert {name for name, operator in OPS.items() if operator.kind is OperatorKind.HOST} <= {*NAMES}


@pytest.mark.parametrize("op", NAMES)
def test_operations_are_the_graph(op):
    graph = graph_of(*example(op))
    inputs = inputs_of(graph, 9, len(op))
    results = agree(graph, inputs)
    for k in range(9):
        alone = run_on_host(graph, {name: x[k : k + 1] for name, x in inputs.items()})
        assert all(alone[name].tobytes() == value[k].tobytes() for name, value in results.items())
    assert not any(np.signbit(value[value == 0]).any() for value in results.values())


@pytest.mark.parametrize(
    "op, shape, attrs",
    [
        ("Normalise", (1, 3, 4), {"axes": (1, 2), "centred": True, "epsilon": 0.1, "scale": np.array([2.0])}),
        ("Sub", (1, 6), {"constant": np.array(0.25), "reversed": True}),
        ("ReduceMax", (1, 2, 5), {"axes": (2,), "keepdims": False}),
        ("MaxPool", (1, 2, 9), {"kernel": (3,), "strides": (2,), "dilations": (2,), "pads": (1, 2)}),
    ],
    ids=["mean over two axes", "constant on the left", "maximum of five", "window with gaps"],
)
def test_variants_that_are_no_example(op, shape, attrs):
    node = Node(op, "node", ("a",), ("y",), attrs)
    graph = graph_of(node, {"a": shape, "y": operator_of(node).shape(node, [shape])[0]})
    agree(graph, inputs_of(graph, 9, 0))


def test_the_layout_in_memory_decides_no_bit():
    """NumPy computes a graph with a node without operations, and adds up in an order that depends on the layout."""
    nodes = [
        Node("BatchNorm", "norm", ("a",), ("b",), EXAMPLES["BatchNorm"][0]),
        Node("ReduceMean", "mean", ("b",), ("y",), {"axes": (1, 2), "keepdims": False}),
    ]
    graph = Graph("host", nodes, ["a"], ["y"], {"a": (1, 3, 40), "b": (1, 3, 40), "y": (1,)}, {"a", "b", "y"})
    assert not has_operations(nodes[0])
    x = np.random.default_rng(1).normal(size=(5, 3, 40))
    results = [run_on_host(graph, {"a": values})["y"].tobytes() for values in (x, np.asfortranarray(x))]
    assert results[0] == results[1]


@pytest.mark.parametrize("name", sorted(HOST_FUNCTIONS))
def test_functions(name):
    node = Node("Function", "node", ("a",), ("y",), {"functions": ((name, {}),)})
    graph = graph_of(node, {"a": (1, 400), "y": (1, 400)})
    x = np.concatenate(
        [np.random.default_rng(1).normal(0, 4, 380), [0.0, -0.0, 1e-9, -1e-9, 300.0, -300.0] * 2, [1.0] * 8]
    )
    agree(graph, {"a": np.abs(x[None, None]) + 1e-9 if name in ("log", "sqrt", "reciprocal") else x[None, None]})


@pytest.mark.parametrize("channels, outputs, group", [(4, 4, 4), (4, 8, 4), (4, 6, 2), (3, 5, 1)])
@pytest.mark.parametrize("spatial, kernel", [((7,), (3,)), ((6, 5), (3, 2)), ((5, 4), (1, 1))])
def test_convolutions(channels, outputs, group, spatial, kernel):
    rng = np.random.default_rng(channels + outputs)
    rank = len(kernel)
    attrs = {
        "weight": rng.normal(size=(outputs, channels // group, *kernel)), "bias": rng.normal(size=outputs),
        "group": group, "strides": (2,) * rank, "pads": (1, 0) * rank, "dilations": (1,) * rank,
    }  # fmt: skip
    node = Node("Conv", "node", ("a",), ("y",), attrs)
    shape = (1, channels, *spatial)
    graph = graph_of(node, {"a": shape, "y": OPS["Conv"].shape(node, [shape])[0]})
    agree(graph, {"a": rng.normal(size=(3, *shape))})


@pytest.mark.parametrize("shapes", [[(1, 2, 3), (1, 3, 4)], [(2, 5, 3), (3, 4)], [(3, 3), (2, 3, 2)]], ids=str)
def test_products_of_tensors(shapes):
    node = Node("MatMul", "node", ("a", "b"), ("y",), {})
    graph = graph_of(node, {"a": shapes[0], "b": shapes[1], "y": OPS["MatMul"].shape(node, shapes)[0]})
    agree(graph, inputs_of(graph, 4, 0))


def test_selection_of_constants():
    for key in ("condition", "chosen", "other"):
        attrs = {key: np.arange(6.0) % 2}
        node = Node("Select", "node", ("a", "b"), ("y",), attrs)
        graph = graph_of(node, {"a": (1, 6), "b": (4, 1), "y": (4, 6)})
        agree(graph, inputs_of(graph, 3, 1))


@pytest.mark.parametrize("classes", [2, 3, 10, 30])
@pytest.mark.parametrize("spread", [1, 10, 100])
def test_shares_of_classes_settle_in_half_of_the_rounds(classes, spread, monkeypatch):
    pairs = classes * (classes - 1) // 2
    attrs = {"classes": classes, "slopes": -np.ones(pairs), "offsets": np.zeros(pairs)}
    node = Node("Coupling", "c", ("x",), ("y",), attrs)
    graph = graph_of(node, {"x": (1, pairs), "y": (1, classes)})
    x = {"x": np.random.default_rng(5).normal(0, spread, (300, 1, pairs))}
    want = execute.run(graph, x)["y"]
    monkeypatch.setattr(host, "COUPLING_ROUNDS", host.COUPLING_ROUNDS // 2)
    np.testing.assert_array_equal(execute.run(graph, x)["y"], want)
    np.testing.assert_allclose(want.sum(axis=-1), 1)
