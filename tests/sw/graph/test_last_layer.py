"""Networks in front of their last layer and behind it, and last layers with more classes."""

import numpy as np
import pytest

from concord.frontend import import_model
from concord.graph.execute import run
from concord.graph.ir import Graph, Node
from concord.graph.last_layer import joined, split_last_layer, with_classes
from concord.train import described
from support.trained import DATA, needs_data

RNG = np.random.default_rng(4)
LAYERS = [
    {"op": "conv", "channels": 3}, {"op": "relu"}, {"op": "flatten"}, {"op": "dense", "outputs": 6}, {"op": "relu"},
    {"op": "dense", "outputs": 4},
]  # fmt: skip


def network(*more):
    """Random weights, and some operators behind the last Dense."""
    graph = described(LAYERS, (1, 5, 5), "net")
    graph.nodes = [
        node.with_attrs(**{key: RNG.normal(size=node.attrs[key].shape) for key in ("weight", "bias")})
        if "weight" in node.attrs
        else node
        for node in graph.nodes
    ]
    for name, attrs in more:
        graph.nodes.append(Node(name, name.lower(), (graph.outputs[0],), (name.lower(),), attrs))
        graph.shapes[name.lower()] = graph.shapes[graph.outputs[0]]
        graph.outputs = [name.lower()]
        graph.batched = {"x", name.lower()}
    return graph


SOFTMAX = ("Softmax", {"axis": 1})


@pytest.mark.parametrize("more", [(), (SOFTMAX,), (("Relu", {}), SOFTMAX)])
def test_both_parts_compute_what_the_network_does(more):
    graph, x = network(*more), RNG.normal(size=(3, 1, 5, 5))
    features, last = split_last_layer(graph)
    features.check()
    last.check()
    assert features.outputs == last.inputs == ["relu2"] and last.outputs == graph.outputs
    assert [node.op for node in last.nodes] == ["Dense", *(name for name, _ in more)]
    assert set(features.shapes).intersection(last.shapes) == {"relu2"}
    assert features.batched == {"x", "relu2"} and last.batched == {"relu2", *graph.outputs}
    between = run(features, {"x": x})["relu2"]
    expected = run(graph, {"x": x})[graph.outputs[0]]
    assert np.array_equal(run(last, {"relu2": between})[graph.outputs[0]], expected)
    whole = joined(features, last)
    assert np.array_equal(run(whole, {"x": x})[graph.outputs[0]], expected)
    assert (whole.nodes, whole.inputs, whole.outputs, whole.batched, whole.shapes) == (
        graph.nodes, graph.inputs, graph.outputs, graph.batched, graph.shapes,
    )  # fmt: skip


def test_new_classes_have_weights_of_zero():
    graph, x = network(("Relu", {})), RNG.normal(size=(3, 1, 5, 5))
    features, last = split_last_layer(graph)
    wider = with_classes(last, 7)
    wider.check()
    assert wider.shapes["relu"] == (1, 7) and last.shapes["relu"] == (1, 4), "the first one stays"
    results = run(joined(features, wider), {"x": x})["relu"]
    assert np.array_equal(results[:, :4], run(graph, {"x": x})["relu"]) and not results[:, 4:].any()
    with pytest.raises(ValueError, match="classes must be at least 7, those that there are, not 6"):
        with_classes(wider, 6)


def test_only_classifiers_are_divided():
    bare = described([{"op": "conv", "channels": 3}], (1, 5, 5), "bare")
    with pytest.raises(ValueError, match="network bare must have a Dense layer"):
        split_last_layer(bare)
    graph = network()
    graph.outputs.append("relu1")
    with pytest.raises(ValueError, match="must depend on its last Dense 'dense2' alone, not on relu1"):
        split_last_layer(graph)
    graph = network()
    graph.nodes.append(Node("Add", "sum", ("dense2", "dense1"), ("sum",), {}))
    with pytest.raises(ValueError, match="not on dense1 as well"):
        split_last_layer(Graph("net", graph.nodes, ["x"], ["sum"], {**graph.shapes, "sum": (1, 4)}, {"x", "sum"}))


def test_parts_of_other_networks_are_not_joined():
    features, _ = split_last_layer(network())
    _, last = split_last_layer(described([{"op": "dense", "outputs": 2}], (6,)))
    with pytest.raises(ValueError, match=r"features must be \['x'\], which the last layer reads, not \['relu2'\]"):
        joined(features, last)


@needs_data
@pytest.mark.parametrize("name", ["kws_dscnn", "mnist_cnn", "digits_lstm64", "kws_crnn", "digits_transformer"])
def test_real_networks_are_divided(name):
    graph = import_model(DATA / "models" / f"{name}.onnx")
    features, last = split_last_layer(graph)
    x = {name: RNG.normal(size=(2, *graph.sample_shape(name))) for name in graph.inputs}
    expected, results = run(graph, x), run(joined(features, last), x)
    assert all(np.array_equal(results[name], expected[name]) for name in graph.outputs)
    assert with_classes(last, 20).shapes[last.outputs[0]] == (1, 20)
