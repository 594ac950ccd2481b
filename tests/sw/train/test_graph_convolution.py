"""Graph convolutions: products with a constant on the left, whose numbers are not trained, and the bias behind them."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Graph
from concord.host import connect
from concord.overflow.kinds import kind_of
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import CannotTrain, Samples, adjacency_of, described, export_onnx
from concord.train.layers.base import PassContext
from concord.train.layers.bias import Bias
from concord.train.network import TrainableNetwork
from concord.train.tensor import Tensor
from support import expressions
from support.compiled_nets import graph_convolution
from support.expressions import network
from support.graph_nets import LAYERS, RING, linear, trainer, whole
from support.rtl_configs import FED
from support.train_digits import FORMATS, bits, on_emulator

#: Nothing is rounded.
WIDE = TrainingFormats(
    weight=TrainingFormat(24), bias=TrainingFormat(24), activation=TrainingFormat(24), gradient=TrainingFormat(24),
    accumulator=AccumulatorFormat(8),
)  # fmt: skip


def tensor(values):
    return Tensor(np.asarray(values, dtype=np.float32), 0, int(np.abs(values).max()))


def mixed(x, weight, bias=None):
    """A product with a constant, which is not trained."""
    bias = np.zeros(len(weight)) if bias is None else bias
    return x.then("Dense", name="a", weight=weight, bias=bias, fixed=True)


# The layer ------------------------------------------------------------------------------------------------


def run(graph, x):
    return execute.run(graph, {"x": x[:, 0]})["y"].reshape(len(x), 1, 4, 6)


@pytest.mark.parametrize("order", ["A (X W)", "(A X) W"])
def test_forward_is_the_graph_and_backward_its_derivative(order):
    """Without a tolerance: it is linear in x and in every parameter, so differences are derivatives."""
    rng = np.random.default_rng(3)
    graph = linear(rng, order)
    net = TrainableNetwork(graph, WIDE)
    x, d = whole(rng, 3, 1, 5, 3), whole(rng, 3, 1, 5, 3)
    y, memories = net.forward(tensor(x), PassContext(WIDE))
    assert np.array_equal(y.values, run(graph, x))
    g = whole(rng, *y.mant.shape)
    for layer in net.layers:
        layer.first = False
    found, arriving = {}, {"y": tensor(g)}
    for layer, memory in zip(reversed(net.layers), reversed(memories), strict=True):
        (back,), changes = layer.backward([arriving[layer.outputs[0]]], memory, PassContext(WIDE))
        arriving[layer.inputs[0]] = back
        found |= {(layer.name, key): change.values for key, change in changes.items()}
    assert np.sum(g * (run(graph, x + d) - run(graph, x))) == np.sum(arriving["x"].values * d)
    wanted = {("w", "weight"), ("b", "constant")} if order == "A (X W)" else {
        ("one", "weight"), ("w", "weight"), ("w", "bias")}  # fmt: skip
    assert set(found) == wanted  # not the adjacency
    for (name, key), change in found.items():
        step = whole(rng, *change.shape)
        nodes = [n.with_attrs(**{key: n.attrs[key] + step}) if n.name == name else n for n in graph.nodes]
        other = Graph("net", nodes, ["x"], ["y"], graph.shapes, graph.batched)
        assert np.sum(g * (run(other, x) - run(graph, x))) == np.sum(change * step), (name, key)


def test_the_check_of_a_derivative_can_fail():
    """With the matrix the wrong way round in the backward pass."""
    rng = np.random.default_rng(3)
    weight = whole(rng, 5, 5)
    net = TrainableNetwork(network(mixed(expressions.tensor(1, 5).same(), weight)), WIDE)
    x, d = whole(rng, 2, 1, 5), whole(rng, 2, 1, 5)
    _, memories = net.forward(tensor(x), PassContext(WIDE))
    g, layer = whole(rng, 2, 1, 5), net.layers[1]
    right = np.sum(g * (d @ weight.T))
    assert np.sum(layer.backward([tensor(g)], memories[1], PassContext(WIDE))[0][0].values * d) == right
    turned = layer.weight.tensor.mant.T.copy()
    object.__setattr__(layer.weight.tensor, "mant", turned)
    assert np.sum(layer.backward([tensor(g)], memories[1], PassContext(WIDE))[0][0].values * d) != right


@pytest.mark.parametrize("shape", [(6,), (4, 6), (1, 4, 6), (1, 6), (1, 1, 6)], ids=str)
def test_a_bias_of_any_shape_sums_what_it_was_added_to(shape):
    rng = np.random.default_rng(5)
    graph = linear(rng, "A (X W)")
    values = whole(rng, *shape)
    graph.nodes[-1] = graph.nodes[-1].with_attrs(constant=values)
    net = TrainableNetwork(graph, WIDE)
    layer = net.layers[-1]
    assert isinstance(layer, Bias) and np.array_equal(layer.attributes["constant"], values)
    x = tensor(whole(rng, 3, 1, 4, 6))
    assert np.array_equal(layer.forward([x], PassContext(WIDE))[0][0].values, x.values + values)
    g = whole(rng, 3, 1, 4, 6)
    (back,), changes = layer.backward([tensor(g)], None, PassContext(WIDE))
    want = g.sum(axis=0).reshape(4, 6)
    assert changes["constant"].mant.shape == shape and np.array_equal(back.values, g)
    assert np.array_equal(changes["constant"].values.reshape(-1, 6), want if 4 in shape else want.sum(axis=0)[None])


def test_there_is_no_second_bias_between_the_products():
    """One in front of the adjacency is there only if the file has it."""
    rng = np.random.default_rng(6)
    graph = linear(rng, "A (X W)")
    assert set(TrainableNetwork(graph, WIDE).parameters) == {"w.weight", "b.constant"}
    graph.nodes[0] = graph.nodes[0].with_attrs(bias=whole(rng, 6))
    assert set(TrainableNetwork(graph, WIDE).parameters) == {"w.weight", "w.bias", "b.constant"}
    both = expressions.tensor(1, 3).dense(whole(rng, 6, 3), name="w").dense(whole(rng, 2, 6), name="v")
    names = {"w.weight", "w.bias", "v.weight", "v.bias"}
    assert set(TrainableNetwork(network(both), WIDE).parameters) == names


def test_a_bias_of_the_nodes_is_trained():
    rng = np.random.default_rng(7)
    net = TrainableNetwork(network(mixed(expressions.tensor(3, 5), whole(rng, 4, 5), whole(rng, 4))), WIDE)
    assert set(net.parameters) == {"a.bias"} and set(net.constants) == {"a.weight"}
    y, _ = net.forward(tensor(whole(rng, 2, 3, 5)), PassContext(WIDE))
    g = whole(rng, *y.mant.shape)
    back, changes = net.layers[0].backward([tensor(g)], None, PassContext(WIDE))
    assert back == [None] and np.array_equal(changes["bias"].values, g.sum(axis=(0, 1)))


# Networks -------------------------------------------------------------------------------------------------


def test_the_adjacency_is_that_of_kipf_and_welling():
    found = adjacency_of(3, [[0, 1], [1, 0], [1, 2]])
    third, root = 1 / 3, 1 / np.sqrt(6)
    np.testing.assert_allclose(found, [[0.5, root, 0], [root, third, root], [0, root, 0.5]], rtol=1e-15)
    assert np.array_equal(adjacency_of(2, []), np.eye(2))


def test_a_described_network_computes_graph_convolutions():
    graph = described(LAYERS, (6, 3))
    assert kind_of(graph) == "graph" and graph.shapes["graph_conv1"] == (1, 6, 5)
    rng = np.random.default_rng(8)
    for k, node in enumerate(graph.nodes):
        key = {"Dense": "weight", "Add": "constant"}.get(node.op)
        if key and not node.attrs.get("fixed"):
            graph.nodes[k] = node.with_attrs(**{key: rng.normal(0, 1, node.attrs[key].shape)})
    attrs = {node.name: node.attrs for node in graph.nodes}
    x, a = rng.normal(0, 1, (4, 6, 3)), adjacency_of(6, RING)
    want = x
    for name in ("graph_conv1", "graph_conv2"):
        w, b = attrs[f"{name}.features"]["weight"], attrs[name]["constant"]
        want = np.maximum(a @ (want @ w.T) + b, 0)
    want = want.reshape(4, -1) @ attrs["dense1"]["weight"].T
    np.testing.assert_allclose(execute.run(graph, {"x": x})["dense1"].reshape(4, 3), want, atol=1e-12)
    pooled = described([*LAYERS[:4], {"op": "global_average"}, {"op": "dense", "outputs": 2}], (6, 3))
    assert pooled.shapes["global_average1"] == (1, 4)
    coarse = [{"op": "graph_conv", "outputs": 2, "adjacency": [[1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]]}]
    assert described(coarse, (6, 3)).shapes["graph_conv1"] == (1, 2, 2)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        ({"outputs": 2}, (6, 3), "must have edges or an adjacency"),
        ({"outputs": 2, "edges": RING, "adjacency": [[1]]}, (6, 3), "must have edges or an adjacency"),
        ({"edges": RING}, (6, 3), "must have outputs"),
        ({"outputs": 2, "edges": [[0, 6]]}, (6, 3), r"must be a pair of nodes in 0\.\.5, not \[0, 6\]"),
        ({"outputs": 2, "edges": [[0, 1, 2]]}, (6, 3), "must be a pair of nodes"),
        ({"outputs": 2, "edges": [3]}, (6, 3), "must be a pair of nodes"),
        ({"outputs": 2, "edges": [[0, True]]}, (6, 3), "must be a pair of nodes"),
        ({"outputs": 2, "adjacency": [[1, 0]]}, (6, 3), r"with 6 columns, .* not of the shape \[1, 2\]"),
        ({"outputs": 2, "adjacency": [[0] * 6]}, (6, 3), "not all of them zero"),
        ({"outputs": 2, "adjacency": [[float("nan")] * 6]}, (6, 3), "of finite numbers"),
        ({"outputs": 2, "edges": []}, (1, 8, 8), r"a sample of two axes, not \[1, 8, 8\]"),
    ],
)  # fmt: skip
def test_graph_convolutions_that_are_not_understood(layer, shape, message):
    with pytest.raises(ValueError, match=message):
        described([{"op": "graph_conv", **layer}], shape)


def test_what_is_added_elsewhere_is_no_bias():
    rng = np.random.default_rng(9)
    for constant in (np.array(0.5), whole(rng, 4, 1)):
        graph = linear(rng, "A (X W)")
        graph.nodes[-1] = graph.nodes[-1].with_attrs(constant=constant)
        with pytest.raises(CannotTrain, match="b \\(Add of a constant\\)"):
            TrainableNetwork(graph, WIDE)
    behind = expressions.tensor(1, 3).combined("Add", whole(rng, 3), name="mean").dense(whole(rng, 6, 3))
    with pytest.raises(CannotTrain, match="mean \\(Add of a constant\\)"):
        TrainableNetwork(network(behind), WIDE)
    with pytest.raises(CannotTrain, match="must have weights to train"):
        TrainableNetwork(network(mixed(expressions.tensor(3, 5), whole(rng, 4, 5))), WIDE)


def test_a_normalisation_is_not_trained_behind_a_constant():
    ones = {"scale": np.ones(4), "bias": np.zeros(4), "mean": np.zeros(4), "variance": np.ones(4)}
    constant = mixed(expressions.tensor(1, 4).same(), np.eye(4))
    normal = constant.then("BatchNorm", name="norm", epsilon=1e-5, momentum=0.9, **ones)
    with pytest.raises(CannotTrain, match=r"norm .*not behind a Conv or Dense"):
        TrainableNetwork(network(normal), WIDE)


@pytest.mark.parametrize("formats", FORMATS, ids=str)
def test_training_leaves_the_adjacency_as_it_was_and_learns(formats):
    got = trainer(FORMATS[formats])
    before = {name: p.values.copy() for name, p in got.network.constants.items()}
    got.fit()
    assert before and all(np.array_equal(before[name], p.values) for name, p in got.network.constants.items())
    changed = {name: bool(np.any(p.values)) for name, p in got.network.parameters.items()}
    assert all(changed.values()) and "graph_conv1.features.bias" not in changed
    assert not changed.keys() & before.keys(), "what is not trained is no parameter"
    assert got.history[1].loss < got.history[0].loss
    written = {node.name: node.attrs for node in got.trained().nodes}
    step = 2.0 ** got.network.constants["graph_conv1.neighbours.weight"].exp.astype(float).max()
    assert np.abs(written["graph_conv1.neighbours"]["weight"] - adjacency_of(6, RING)).max() <= step / 2


@pytest.mark.slow
def test_a_break_changes_nothing(tmp_path):
    for options in ({}, {"accumulator_bits": 12, "lanes": 2}, {"accumulator_bits": 12, "lanes": 2, "method": "bound"}):
        whole_run, first, second = (trainer(**options) for _ in range(3))
        whole_run.fit()
        first.fit(lambda current: current.epoch == 1 and current.done == 2)
        first.save(tmp_path / "c.npz")
        for p in second.network.constants.values():  # they come from the checkpoint, as all else does
            p.replace(p.weight * 0, p.acc * 0, p.exp)
        second.restore(tmp_path / "c.npz")
        second.fit()
        assert bits(whole_run.network) == bits(second.network) and whole_run.history == second.history
        assert all(
            np.array_equal(p.values, second.network.constants[name].values)
            for name, p in whole_run.network.constants.items()
        )


def test_a_checkpoint_belongs_to_its_adjacency(tmp_path):
    trainer().save(tmp_path / "c.npz")
    other = [{**LAYERS[0], "edges": RING[:5]}, *LAYERS[1:]]
    with pytest.raises(ValueError, match="must be of this network"):
        trainer(layers=other).restore(tmp_path / "c.npz")
    trainer().restore(tmp_path / "c.npz")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_one_two_and_four_workers_leave_the_same_numbers():
    pytest.importorskip("distributed")
    from concord.utils.parallel import Engine

    def steps(one):
        found = []
        one.fit(lambda current: bool(found.append(bits(current.network))))
        return found

    wanted = steps(trainer(shards=4))
    assert len(wanted) == 8
    with Engine(workers=1) as engine:
        for workers in (1, 2, 4):
            engine.grow(workers)
            assert steps(trainer(shards=4, engine=engine)) == wanted


# The way to ONNX and back ---------------------------------------------------------------------------------


def test_a_trained_network_is_read_again_as_it_is():
    got = trainer()
    got.fit()
    before = got.trained()
    graph = import_model(export_onnx(before))
    x = {graph.inputs[0]: got.samples.inputs(slice(None))}
    assert np.array_equal(execute.run(graph, x)[graph.outputs[0]], execute.run(before, x)[before.outputs[0]])
    again, first = TrainableNetwork(graph, TrainingFormats()), got.network
    assert [type(layer) for layer in again.layers] == [type(layer) for layer in first.layers]
    assert [p.values.tolist() for p in again.constants.values()] == [
        p.values.tolist() for p in first.constants.values()
    ]
    assert len(again.parameters) == len(first.parameters) == 6


@pytest.mark.parametrize("bias", [False, True])
def test_a_constant_stays_one_wherever_it_is(bias):
    """Not only between two transpositions."""
    rng = np.random.default_rng(4)
    weight, offsets = whole(rng, 4, 3), whole(rng, 4) * bias
    product = expressions.tensor(1, 5, 2).dense(whole(rng, 3, 2), whole(rng, 3))
    before = network(mixed(product, weight, offsets))
    graph = import_model(export_onnx(before))
    x = whole(rng, 6, 5, 2)
    assert np.array_equal(execute.run(graph, {"x": x})["y"], execute.run(before, {"x": x})["y"])
    assert [n.attrs["weight"].tolist() for n in graph.nodes if n.attrs.get("fixed")] == [weight.tolist()]


# On the NPU -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_emulator_and_rtl_classify_alike():
    got = trainer()
    got.fit()
    graph = import_model(export_onnx(got.trained()))
    compiled = compile_graph(graph, FED)
    some = Samples(got.samples.x[:4], got.samples.y[:4], got.samples.scale)
    want = on_emulator(compiled, some)
    with connect("rtl", FED) as device:
        device.load(compiled.image)
        (found,) = compiled.run(device, {graph.inputs[0]: some.inputs(slice(None))}).values()
    assert np.array_equal(found.reshape(4, -1), want)
    reference = execute.run(graph, {graph.inputs[0]: some.inputs(slice(None))})[graph.outputs[0]]
    assert np.abs(want - reference.reshape(4, -1)).max() < 0.1 * np.abs(reference).max()


def test_the_largest_of_a_compiled_network_is_that_of_floats():
    """What ``graph_convolution`` of the tests makes is what the operator means."""
    ring = adjacency_of(6, RING)
    graph = graph_convolution(ring, 3, 5, 4)
    x = np.random.default_rng(0).normal(0, 1, (5, 6, 3))
    want, attrs = x, {node.name: node.attrs for node in graph.nodes}
    for k in range(2):
        want = np.maximum(ring @ want @ attrs[f"features{k}"]["weight"].T + attrs[f"bias{k}"]["constant"], 0)
    np.testing.assert_allclose(execute.run(graph, {"x": x})["y"], want.mean(axis=1), atol=1e-12)
