"""Graph convolutions: products with a constant on the left, whose numbers are not trained, and the bias behind them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from compiled_nets import around, graph_convolution, graph_of
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Graph, Node
from concord.host import connect
from concord.overflow.kinds import KINDS, kind_of
from concord.overflow.trained import compile_trained
from concord.spec.presets import ECP5_25F, ECP5_85F, TINY
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import CannotTrain, Samples, Settings, Trainer, adjacency_of, described, export_onnx
from concord.train.bound import norms, radius
from concord.train.layers.base import Pass
from concord.train.layers.bias import Bias
from concord.train.layers.dense import FixedDense
from concord.train.network import Network
from concord.train.overflow_settings import OverflowSettings
from concord.train.sites import never_negative
from concord.train.tensor import Tensor
from concord.train.watch import moved
from train_digits import FORMATS, bits, on_emulator

#: Nothing is rounded.
WIDE = TrainingFormats(
    weight=TrainingFormat(24), bias=TrainingFormat(24), activation=TrainingFormat(24), gradient=TrainingFormat(24),
    accumulator=AccumulatorFormat(8),
)  # fmt: skip
RING = [[k, (k + 1) % 6] for k in range(6)]
LAYERS = [
    {"op": "graph_conv", "outputs": 5, "edges": RING}, {"op": "relu"}, {"op": "graph_conv", "outputs": 4},
    {"op": "relu"}, {"op": "flatten"}, {"op": "dense", "outputs": 3},
]  # fmt: skip


def whole(rng, *shape):
    """Whole numbers; the greatest is no power of two, which would saturate as a weight."""
    values = rng.integers(-7, 8, shape).astype(float)
    values.reshape(-1)[0] = 7
    return values


def tensor(values):
    return Tensor(np.asarray(values, dtype=np.float32), 0, int(np.abs(values).max()))


def data(count=48, features=3):
    """Three classes: which nodes are bright."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 4, (count, 6, features)), rng.integers(0, 3, count)
    for sample, label in zip(x, y, strict=True):
        sample[2 * label : 2 * label + 2] += 9
    return Samples(x, y, 1 / 16)


def trainer(formats=None, layers=LAYERS, engine=None, shards=1, **overflow):
    settings = Settings(epochs=2, batch=12, rate=Fraction(1, 8), formats=formats or TrainingFormats(), shards=shards,
                        overflow=OverflowSettings(**overflow) if overflow else None)  # fmt: skip
    return Trainer(described(layers, (6, 3)), data(), settings, random=True, engine=engine)


# The layer ------------------------------------------------------------------------------------------------


def linear(rng, order, weight=None):
    """A graph convolution of 5 nodes with 3 features, without a function, and its constants."""
    a = whole(rng, 4, 5)
    a[1, 2] = 0
    w, b = whole(rng, 6, 3) if weight is None else weight, whole(rng, 6)
    dense = {"weight": w, "bias": np.zeros(6) if order == "A (X W)" else b}
    mix = {"weight": a, "bias": np.zeros(4), "fixed": True}
    if order == "A (X W)":
        nodes = [Node("Dense", "w", ("x",), ("p",), dense), *around(Node("Dense", "a", ("p",), ("q",), mix)),
                 Node("Add", "b", ("q",), ("y",), {"constant": b})]  # fmt: skip
    else:
        one = Node("Dense", "one", ("x",), ("i",), {"weight": np.eye(3), "bias": np.zeros(3)})
        nodes = [one, *around(Node("Dense", "a", ("i",), ("p",), mix)), Node("Dense", "w", ("p",), ("y",), dense)]
    return graph_of(nodes, x=(1, 5, 3))


def run(graph, x):
    return execute.run(graph, {"x": x[:, 0]})["y"].reshape(len(x), 1, 4, 6)


@pytest.mark.parametrize("order", ["A (X W)", "(A X) W"])
def test_forward_is_the_graph_and_backward_its_derivative(order):
    """Without a tolerance: it is linear in x and in every parameter, so differences are derivatives."""
    rng = np.random.default_rng(3)
    graph = linear(rng, order)
    net = Network(graph, WIDE)
    x, d = whole(rng, 3, 1, 5, 3), whole(rng, 3, 1, 5, 3)
    y, memories = net.forward(tensor(x), Pass(WIDE))
    assert np.array_equal(y.values, run(graph, x))
    g = whole(rng, *y.mant.shape)
    for layer in net.layers:
        layer.first = False
    found, arriving = {}, {"y": tensor(g)}
    for layer, memory in zip(reversed(net.layers), reversed(memories), strict=True):
        (back,), changes = layer.backward([arriving[layer.outputs[0]]], memory, Pass(WIDE))
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
    mix = {"weight": whole(rng, 5, 5), "bias": np.zeros(5), "fixed": True}
    one = Node("Dense", "one", ("x",), ("i",), {"weight": np.eye(5), "bias": np.zeros(5)})
    net = Network(graph_of([one, Node("Dense", "a", ("i",), ("y",), mix)], x=(1, 5)), WIDE)
    x, d = whole(rng, 2, 1, 5), whole(rng, 2, 1, 5)
    _, memories = net.forward(tensor(x), Pass(WIDE))
    g, layer = whole(rng, 2, 1, 5), net.layers[1]
    right = np.sum(g * (d @ mix["weight"].T))
    assert np.sum(layer.backward([tensor(g)], memories[1], Pass(WIDE))[0][0].values * d) == right
    turned = layer.weight.tensor.mant.T.copy()
    object.__setattr__(layer.weight.tensor, "mant", turned)
    assert np.sum(layer.backward([tensor(g)], memories[1], Pass(WIDE))[0][0].values * d) != right


@pytest.mark.parametrize("shape", [(6,), (4, 6), (1, 4, 6), (1, 6), (1, 1, 6)], ids=str)
def test_a_bias_of_any_shape_sums_what_it_was_added_to(shape):
    rng = np.random.default_rng(5)
    graph = linear(rng, "A (X W)")
    values = whole(rng, *shape)
    graph.nodes[-1] = graph.nodes[-1].with_attrs(constant=values)
    net = Network(graph, WIDE)
    layer = net.layers[-1]
    assert isinstance(layer, Bias) and np.array_equal(layer.attributes["constant"], values)
    x = tensor(whole(rng, 3, 1, 4, 6))
    assert np.array_equal(layer.forward([x], Pass(WIDE))[0][0].values, x.values + values)
    g = whole(rng, 3, 1, 4, 6)
    (back,), changes = layer.backward([tensor(g)], None, Pass(WIDE))
    want = g.sum(axis=0).reshape(4, 6)
    assert changes["constant"].mant.shape == shape and np.array_equal(back.values, g)
    assert np.array_equal(changes["constant"].values.reshape(-1, 6), want if 4 in shape else want.sum(axis=0)[None])


def test_there_is_no_second_bias_between_the_products():
    """One in front of the adjacency is there only if the file has it."""
    rng = np.random.default_rng(6)
    graph = linear(rng, "A (X W)")
    assert set(Network(graph, WIDE).parameters) == {"w.weight", "b.constant"}
    graph.nodes[0] = graph.nodes[0].with_attrs(bias=whole(rng, 6))
    assert set(Network(graph, WIDE).parameters) == {"w.weight", "w.bias", "b.constant"}
    nodes = [Node("Dense", "w", ("x",), ("p",), {"weight": whole(rng, 6, 3), "bias": np.zeros(6)}),
             Node("Dense", "v", ("p",), ("y",), {"weight": whole(rng, 2, 6), "bias": np.zeros(2)})]  # fmt: skip
    assert set(Network(graph_of(nodes, x=(1, 3)), WIDE).parameters) == {"w.weight", "w.bias", "v.weight", "v.bias"}


def test_a_bias_of_the_nodes_is_trained():
    rng = np.random.default_rng(7)
    mix = {"weight": whole(rng, 4, 5), "bias": whole(rng, 4), "fixed": True}
    net = Network(graph_of([Node("Dense", "a", ("x",), ("y",), mix)], x=(3, 5)), WIDE)
    assert set(net.parameters) == {"a.bias"} and set(net.constants) == {"a.weight"}
    y, _ = net.forward(tensor(whole(rng, 2, 3, 5)), Pass(WIDE))
    g = whole(rng, *y.mant.shape)
    back, changes = net.layers[0].backward([tensor(g)], None, Pass(WIDE))
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
            Network(graph, WIDE)
    nodes = [Node("Add", "mean", ("x",), ("a",), {"constant": whole(rng, 3)}),
             Node("Dense", "w", ("a",), ("y",), {"weight": whole(rng, 6, 3), "bias": np.zeros(6)})]  # fmt: skip
    with pytest.raises(CannotTrain, match="mean \\(Add of a constant\\)"):
        Network(graph_of(nodes, x=(1, 3)), WIDE)
    with pytest.raises(CannotTrain, match="must have weights to train"):
        mix = {"weight": whole(rng, 4, 5), "bias": np.zeros(4), "fixed": True}
        Network(graph_of([Node("Dense", "a", ("x",), ("y",), mix)], x=(3, 5)), WIDE)


def test_a_normalisation_is_not_trained_behind_a_constant():
    mix = {"weight": np.eye(4), "bias": np.zeros(4), "fixed": True}
    ones = {"scale": np.ones(4), "bias": np.zeros(4), "mean": np.zeros(4), "variance": np.ones(4)}
    nodes = [Node("Dense", "w", ("x",), ("p",), {"weight": np.eye(4), "bias": np.zeros(4)}),
             Node("Dense", "a", ("p",), ("q",), mix),
             Node("BatchNorm", "norm", ("q",), ("y",), {**ones, "epsilon": 1e-5, "momentum": 0.9})]  # fmt: skip
    with pytest.raises(CannotTrain, match=r"norm .*not behind a Conv or Dense"):
        Network(graph_of(nodes, x=(1, 4)), WIDE)


@pytest.mark.parametrize("formats", FORMATS, ids=str)
def test_training_leaves_the_adjacency_as_it_was_and_learns(formats):
    got = trainer(FORMATS[formats])
    before = {name: p.values.copy() for name, p in got.network.constants.items()}
    got.fit()
    assert before and all(np.array_equal(before[name], p.values) for name, p in got.network.constants.items())
    changed = {name: bool(np.any(p.values)) for name, p in got.network.parameters.items()}
    assert all(changed.values()) and "graph_conv1.features.bias" not in changed
    assert got.history[1].loss < got.history[0].loss
    written = {node.name: node.attrs for node in got.trained().nodes}
    step = 2.0 ** got.network.constants["graph_conv1.neighbours.weight"].exp.astype(float).max()
    assert np.abs(written["graph_conv1.neighbours"]["weight"] - adjacency_of(6, RING)).max() <= step / 2


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


@pytest.mark.filterwarnings("ignore")
def test_one_two_and_four_workers_leave_the_same_numbers():
    pytest.importorskip("distributed")
    from concord.parallel import Engine

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
    again, first = Network(graph, TrainingFormats()), got.network
    assert [type(layer) for layer in again.layers] == [type(layer) for layer in first.layers]
    assert [p.values.tolist() for p in again.constants.values()] == [
        p.values.tolist() for p in first.constants.values()
    ]
    assert len(again.parameters) == len(first.parameters) == 6


@pytest.mark.parametrize("bias", [False, True])
def test_a_constant_stays_one_wherever_it_is(bias):
    """Not only between two transpositions."""
    rng = np.random.default_rng(4)
    mix = {"weight": whole(rng, 4, 3), "bias": whole(rng, 4) * bias, "fixed": True}
    nodes = [Node("Dense", "w", ("x",), ("p",), {"weight": whole(rng, 3, 2), "bias": whole(rng, 3)}),
             Node("Dense", "a", ("p",), ("y",), mix)]  # fmt: skip
    before = graph_of(nodes, x=(1, 5, 2))
    graph = import_model(export_onnx(before))
    x = whole(rng, 6, 5, 2)
    assert np.array_equal(execute.run(graph, {"x": x})["y"], execute.run(before, {"x": x})["y"])
    assert [n.attrs["weight"].tolist() for n in graph.nodes if n.attrs.get("fixed")] == [mix["weight"].tolist()]


# Accumulators of few bits ---------------------------------------------------------------------------------


def test_both_products_have_an_accumulator_and_the_settings_of_the_kind():
    got = trainer(accumulator_bits=14, lanes=4, method="bound", grid="layer")
    assert {name: (site.tensor, site.positive, site.fixed) for name, site in got.watch.sites.items()} == {
        "graph_conv1.features": ("x", False, False),
        "graph_conv1.neighbours": ("graph_conv1.turned", False, True),
        "graph_conv2.features": ("relu1", True, False),
        "graph_conv2.neighbours": ("graph_conv2.turned", False, True),
        "dense1": ("flatten1", True, False),
    }
    assert got.watch.counting == KINDS["graph"].replace(width=14, output_width=14)
    assert (KINDS["graph"].threshold, KINDS["graph"].weight_share) == (0, 0.5)
    mixed_first = linear(np.random.default_rng(1), "(A X) W")
    assert not never_negative(mixed_first, "p")
    mixed_first.nodes[1:1] = [Node("Relu", "relu", ("i",), ("r",))]
    mixed_first.nodes[2] = mixed_first.nodes[2].replace(inputs=("r",))
    assert not never_negative(mixed_first, "p")  # the matrix has negative elements
    k = next(k for k, node in enumerate(mixed_first.nodes) if node.attrs.get("fixed"))
    mixed_first.nodes[k] = mixed_first.nodes[k].with_attrs(weight=np.abs(mixed_first.nodes[k].attrs["weight"]))
    assert never_negative(mixed_first, "p")
    mixed_first.nodes[k] = mixed_first.nodes[k].with_attrs(bias=-np.ones(4))
    assert not never_negative(mixed_first, "p")


def test_the_predictor_counts_every_product_and_every_partial_sum_of_both():
    """In Python integers, product by product."""
    got = trainer(accumulator_bits=9, lanes=1, method="plain", samples=3)
    rows = np.arange(12)
    got.watch.watch(len(rows))
    got._ahead(got.samples, rows, Pass(got.settings.formats))
    scale, found = got.watch.scales[0], {name: site.sums for name, site in got.watch.sites.items()}
    x = np.rint(got.samples.inputs(rows[:3]).reshape(3, 6, 3) * 2.0**-scale.exp).astype(int)
    w = got.network.parameters["graph_conv1.features.weight"].tensor.mant.astype(int)
    a = got.network.constants["graph_conv1.neighbours.weight"].tensor.mant.astype(int)
    products = [
        [int(x[s, n, k]) * int(w[o, k]) for k in range(3)] for s in range(3) for n in range(6) for o in range(5)
    ]
    check_counts(found["graph_conv1.features"], products)
    features = np.array([ended(terms) for terms in products]).reshape(3, 6, 5) * 2.0 ** (
        scale.exp + int(got.network.parameters["graph_conv1.features.weight"].exp[0])
    )
    read = np.clip(np.rint(features.astype(np.float16).astype(float) * 2.0**-scale.exp), -127, 127).astype(int)
    products = [[int(a[i, n]) * int(read[s, n, o]) for n in range(6)] for s in range(3) for o in range(5)
                for i in range(6)]  # fmt: skip
    check_counts(found["graph_conv1.neighbours"], products)


def ended(terms, most=255):
    """A sum in a register of 9 bits: the first term or sum that does not fit ends it."""
    total = 0
    for term in terms:
        for value in (term, total + term):
            if not -most - 1 <= value <= most:
                return most + 1 if value > 0 else -most - 2
        total += term
    return total


def check_counts(found, rows):
    flat = [p for row in rows for p in row]
    partial = [int(s) for row in rows for s in np.cumsum(row)[1:]]
    assert (found.product.total, found.sum.total) == (len(flat), len(partial))
    for width in range(2, 12):
        most = 2 ** (width - 1)
        beyond = [sum(not -most <= v < most for v in values) for values in (flat, partial)]
        assert [found.product.beyond(width), found.sum.beyond(width)] == beyond
        assert all(beyond) or width > 7


def test_a_sum_over_neighbours_ends_where_a_single_product_or_sum_leaves():
    """Nodes are positions: no lanes are added up in front of the register."""
    rng = np.random.default_rng(2)
    got = trainer(accumulator_bits=10, lanes=8, method="plain")
    layer = next(layer for layer in got.network.layers if isinstance(layer, FixedDense))
    x = Tensor(rng.integers(-30, 31, (4, 1, 5, 6)).astype(np.float32), got.watch.scales[0].exp, 127)
    y, _ = layer.forward([x], Pass(got.settings.formats, watch=got.watch))
    a = layer.weight.tensor
    want = [[int(a.mant[i, n]) * int(x.mant[s, 0, o, n]) for n in range(6)] for s in range(4) for o in range(5)
            for i in range(6)]  # fmt: skip
    values = np.array([ended(terms, 511) for terms in want]) * 2.0 ** (x.exp + a.exp)
    assert np.array_equal(y[0].values.reshape(-1), values.astype(np.float16))
    assert 0 < got.watch.counts.ended < len(values)


@pytest.mark.parametrize("grid", ["network", "layer"])
def test_a_constant_gets_within_the_bound_by_its_exponent(grid):
    """Trained weights are projected; the ratios of an adjacency stay."""
    got = trainer(accumulator_bits=8, lanes=2, method="bound", grid=grid)

    def told(current):
        for scale in current.watch.scales:
            limit = radius(8, current.watch._limits(scale)[1])
            assert all(norms(site.weight, site.positive).max() <= limit for site in scale.sites)
            assert len({int(site.weight.exp[0]) for site in scale.sites}) == 1
        return False

    got.fit(told)
    assert got.history[-1].overflow.ended == 0
    for site in (site for site in got.watch.sites.values() if site.fixed):
        step = 2.0 ** int(site.weight.exp[0])
        assert np.abs(site.weight.values - adjacency_of(6, RING)).max() <= step / 2 * (1 + 2.0**-14)


def test_the_least_exponent_within_the_bound_is_taken():
    got = trainer(accumulator_bits=8, lanes=1, method="bound", grid="layer")
    scale = next(scale for scale in got.watch.scales if scale.sites[0].fixed)
    (site,) = scale.sites
    limit, fmt, exp = radius(8, got.watch._limits(scale)[1]), site.weight.fmt, int(site.weight.exp[0])
    assert norms(site.weight, False).max() <= limit
    assert norms(moved(site.weight, exp - 1, replace(fmt, bits=16)), False).max() > limit


@pytest.mark.parametrize(
    ("bits_of", "method", "grid", "before"),
    [(16, "evidence", "network", ECP5_85F), (12, "evidence", "network", ECP5_25F), (12, "bound", "network", ECP5_25F),
     (12, "evidence", "layer", ECP5_85F)],
    ids=["16, evidence", "12, evidence", "12, bound", "12, evidence by layer"],
)  # fmt: skip
def test_the_npu_with_that_accumulator_gives_the_same_bits(bits_of, method, grid, before):
    got = trainer(accumulator_bits=bits_of, method=method, grid=grid, lanes=before.lanes)
    got.fit()
    network = export_onnx(got.trained())
    graph, evidence = import_model(network), got.evidence(network)
    inputs = {graph.inputs[0]: got.samples.inputs(slice(None))}
    found = compile_trained(graph, before, evidence, inputs)
    config = found.compiled.image.config
    assert config.acc_register == evidence.register == config.acc_width
    with connect("emulator", config) as device:
        device.load(found.compiled.image)
        (results,) = found.compiled.run(device, inputs).values()
        assert "ACC_OVERFLOW" not in {record.flag for record in found.compiled.package.flags(device)}
    output, _ = got._ahead(got.samples, slice(None), Pass(got.settings.formats, training=False))
    assert np.array_equal(results.reshape(48, -1), output.values.reshape(48, -1))
    assert {layer.name for layer in evidence.layers} == set(got.watch.sites)
    assert all(layer.observed <= bits_of and not layer.beyond for layer in evidence.layers)
    if method == "bound":
        assert all(layer.bound <= bits_of for layer in evidence.layers)


def test_a_bias_is_what_the_npu_adds():
    """In binary16, and no finer than its last bit."""
    rng = np.random.default_rng(3)
    watch = trainer(accumulator_bits=16, lanes=2).watch
    for exp, at in ((-9, -12), (-14, -28), (-3, -9), (-24, -24), (2, -26)):
        x = Tensor(rng.integers(-2000, 2001, (3, 40)).astype(np.float64), exp, 2000)
        bias = Tensor(rng.integers(-127, 128, 40).astype(np.float64), at, 127)
        exact = np.sign(bias.mant) * np.floor(np.abs(bias.mant) * 2.0 ** (at + 24) + 0.5) * 2.0**-24
        want = (x.values.astype(np.float16) + exact.astype(np.float16)).astype(float)
        got = watch.plus(Tensor(x.values.astype(np.float16).astype(float) * 2.0**24, -24, 1 << 40), bias)
        assert np.array_equal(got.values, want) and np.array_equal(got.mant, np.rint(got.mant))
        if np.array_equal(x.values.astype(np.float16), x.values):
            assert np.array_equal(watch.plus(x, bias).values, want)
    far = watch.plus(Tensor(np.full((1, 1), 65504.0), 0, 65504), Tensor(np.full(1, 100.0), 0, 100))
    assert far.values == 65504


# On the NPU -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_emulator_and_rtl_classify_alike():
    got = trainer()
    got.fit()
    graph = import_model(export_onnx(got.trained()))
    config = TINY.replace(program_depth=256, narrow_depth=512, wide_depth=512)
    compiled = compile_graph(graph, config)
    some = Samples(got.samples.x[:4], got.samples.y[:4], got.samples.scale)
    want = on_emulator(compiled, some)
    with connect("rtl", config) as device:
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
