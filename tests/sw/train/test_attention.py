"""Attention: products of two tensors, factors, masks and Softmax, their derivatives, and training."""

import math
from fractions import Fraction

import numpy as np
import pytest

import concord
from concord.frontend import import_model
from concord.golden.softmax import probabilities
from concord.graph import execute
from concord.graph.ir import Node
from concord.graph.ops import OPS
from concord.spec.formats import MASKED
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described, export_onnx
from concord.train.layers.base import PassContext
from concord.train.losses import cross_entropy
from concord.train.network import CannotTrain, TrainableNetwork
from concord.train.noise import raw
from concord.train.overflow_settings import OverflowSettings
from concord.train.tensor import Tensor, narrow
from support import expressions
from support.exact_numbers import away, slopes
from support.train_digits import FORMATS, assert_a_break_changes_nothing

WIDE = TrainingFormats(
    weight=TrainingFormat(24), bias=TrainingFormat(24), activation=TrainingFormat(24), gradient=TrainingFormat(28),
    accumulator=AccumulatorFormat(8),
)  # fmt: skip
#: Keys and values, and pairs of a sample; behind them stands the key that is asked for.
KEYS = VALUES = PAIRS = 4
LAYERS = [
    {"op": "embedding", "rows": KEYS * VALUES + KEYS, "outputs": 8, "name": "words"},
    {"op": "attention", "heads": 2, "name": "ask"}, {"op": "add", "to": "words"}, {"op": "layer_norm"},
    {"op": "dense", "outputs": VALUES},
]  # fmt: skip


def behind(op, shapes, attrs=None):
    """The operator on tensors that products with one compute from slices of one input."""
    rows = [math.prod(shape[1:-1]) for shape in shapes]
    x, at, operands = expressions.tensor(1, sum(rows), max(shape[-1] for shape in shapes)), 0, []
    for shape, count in zip(shapes, rows, strict=True):
        operands.append(x[:, at : at + count, : shape[-1]].same().reshape(*shape))
        at += count
    return expressions.network(operands[0].then(op, *operands[1:], name="op", **(attrs or {})))


def read_by_another(graph):
    """The graph with a Relu at its end."""
    graph.nodes.append(Node("Relu", "last", ("y",), ("z",)))
    graph.shapes["z"], graph.outputs, graph.batched = graph.shapes["y"], ["z"], {"x", "z"}
    return graph


def layer_of(op, shapes, attrs=None, formats=WIDE):
    """The layer of an operator that reads tensors of these shapes."""
    return TrainableNetwork(read_by_another(behind(op, shapes, attrs)), formats).layers[-2]


def whole(rng, top, exp, *shape):
    mant = rng.integers(-top, top + 1, shape)
    mant.reshape(-1)[0] = top
    return Tensor(mant.astype(np.float64), exp, top)


# Products of two tensors ---------------------------------------------------------------------------------

SHAPES = {
    "matrices": ((1, 3, 4), (1, 4, 5)),
    "heads": ((1, 2, 3, 4), (1, 2, 4, 5)),
    "one for all heads": ((1, 2, 3, 4), (1, 1, 4, 5)),
    "all heads for one": ((1, 1, 3, 4), (1, 2, 4, 5)),
    "fewer axes": ((1, 2, 3, 4), (1, 4, 5)),
    "one element": ((1, 1, 1), (1, 1, 1)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_a_product_is_that_of_the_graph_and_backward_its_derivative(shapes):
    rng = np.random.default_rng(1)
    layer, node = layer_of("MatMul", shapes), behind("MatMul", shapes).nodes[-1]
    (a, b), (da, db) = ([whole(rng, 90, -3, 2, *shape) for shape in shapes] for _ in range(2))
    context = PassContext(WIDE)

    def product(first, second):
        (y,) = OPS["MatMul"].evaluate(node, [first.values, second.values])
        return y

    (y,), memory = layer.forward([a, b], context)
    assert np.array_equal(y.values, product(a, b))
    g = whole(rng, 1000, -7, *y.mant.shape)
    (back_a, back_b), changes = layer.backward([g], memory, context)
    assert not changes and back_a.mant.shape == a.mant.shape and back_b.mant.shape == b.mant.shape
    assert np.sum(g.values * product(da, b)) == np.sum(back_a.values * da.values)
    assert np.sum(g.values * product(a, db)) == np.sum(back_b.values * db.values)


def test_factors_of_a_product_have_blocks_along_what_is_summed_up():
    rng = np.random.default_rng(2)
    formats = TrainingFormats(activation=TrainingFormat(5, 2))
    layer = layer_of("MatMul", ((1, 3, 4), (1, 4, 5)), formats=formats)
    a, b = whole(rng, 3000, -3, 2, 1, 3, 4), whole(rng, 3000, -3, 2, 1, 4, 5)
    (y,), _ = layer.forward([a, b], PassContext(formats))
    short = [narrow(x, formats.activation, axis=axis).values for x, axis in ((a, -1), (b, -2))]
    assert np.array_equal(y.values, short[0] @ short[1])


def test_a_product_of_a_tensor_with_itself_has_both_gradients():
    a = expressions.tensor(1, 3, 3).same("one")
    network, context = TrainableNetwork(expressions.network(a @ a.transpose(0, 2, 1)), WIDE), PassContext(WIDE)
    rng = np.random.default_rng(3)
    x, g = whole(rng, 9, 0, 2, 1, 3, 3), whole(rng, 9, 0, 2, 1, 3, 3)
    _, memories = network.forward(x, context)
    change = network.backward(g, memories, context)["one.weight"]
    a, h = x.values[:, 0], g.values[:, 0]
    want = sum((k + k.T) @ v for k, v in zip(h, a, strict=True))  # by what the square reads, which is x
    assert np.array_equal(change.values, sum(((k + k.T) @ v).T @ v for k, v in zip(h, a, strict=True)))
    assert want.any()


# Factors and masks ---------------------------------------------------------------------------------------


def test_a_factor_has_16_bits():
    rng = np.random.default_rng(4)
    layer = layer_of("Mul", ((1, 3, 4),), {"constant": np.full((1, 1), 1 / np.sqrt(3))})
    factor = layer.factor.value
    assert abs(factor - Fraction(1 / math.sqrt(3))) <= Fraction(1, 1 << 17) and factor.denominator <= 1 << 16
    assert layer.attributes["constant"].tolist() == [[float(factor)]]
    x, g = whole(rng, 90, -3, 2, 1, 3, 4), whole(rng, 900, -3, 2, 1, 3, 4)
    (y,), memory = layer.forward([x], PassContext(WIDE))
    (back,), changes = layer.backward([g], memory, PassContext(WIDE))
    assert np.array_equal(y.values, x.values * float(factor)) and not changes
    assert np.array_equal(back.values, g.values * float(factor))
    nothing = layer_of("Mul", ((1, 3, 4),), {"constant": np.zeros(())})
    assert not nothing.forward([x], PassContext(WIDE))[0][0].mant.any()


def causal(formats=WIDE):
    """An attention of one head over three positions that do not see what comes behind them."""
    layers = [{"op": "dense", "outputs": 4}, {"op": "attention", "causal": True, "name": "ask"}]
    return TrainableNetwork(described(layers, (3, 4)), formats, seed=2)


def test_nothing_is_left_of_what_is_masked():
    network, context = causal(TrainingFormats()), PassContext(TrainingFormats())
    values = {"x": whole(np.random.default_rng(5), 127, -10, 2, 1, 3, 4)}
    for layer in network.layers:
        outputs, _ = layer.forward([values[name] for name in layer.inputs], context)
        values |= dict(zip(layer.outputs, outputs, strict=True))
    shares = values["ask.shares"].mant[:, 0, 0]
    later = np.triu(np.ones((3, 3), bool), 1)
    assert not shares[:, later].any() and shares[:, ~later].all()
    assert shares[:, 0, 0].tolist() == [1 << 30] * 2
    before, after = values["ask.scores"].values, values["ask.masked"].values
    seen = np.broadcast_to(~later, before.shape)
    assert np.abs(after[seen] - before[seen]).max() <= 2.0**-17  # 32 bits beside the mask
    (mask,) = [node.attrs["constant"] for node in network.trained().nodes if node.name == "ask.masked"]
    assert np.array_equal(mask, np.where(later, MASKED, 0))


# Softmax -------------------------------------------------------------------------------------------------


def shortened(values, width):
    """Whole numbers without the bits that a width does not have, and how many these are."""
    top = max(map(abs, values))
    drop = max((top - 1).bit_length() - (width - 1), 0) if top else 0
    most = (1 << width - 1) - 1
    return [max(min(away(Fraction(v, 1 << drop)), most), -most) for v in values], drop


def softmax_by_definition(p, g, g_exp):
    """The gradient of the input ``[groups][elements]`` with its exponent, number by number."""
    fine = max(0, 30 - max(abs(v) for group in g for v in group).bit_length())
    left = []
    for shares, group in zip(p, g, strict=True):
        total = sum(s * v for s, v in zip(shares, group, strict=True))
        mean = away(Fraction(total << fine, 1 << 30))
        left += [(v << fine) - mean for v in group]
    short, drop = shortened(left, 16)
    flat = [s for shares in p for s in shares]
    back, more = shortened([a * s for a, s in zip(short, flat, strict=True)], 32)
    return back, g_exp - fine + drop - 30 + more


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_softmax_by_its_definition(seed, axis):
    rng, shape = np.random.default_rng(seed), (1, [2, 3, 1, 4][seed], 3, 5)
    layer = layer_of("Softmax", (shape,), {"axis": axis})
    x = whole(rng, [7, 1 << 10, (1 << 31) - 1, 200][seed], [-2, -8, -29, -3][seed], 2, *shape)
    context = PassContext(TrainingFormats())
    (y,), memory = layer.forward([x], context)

    def groups(mant):
        return np.moveaxis(mant, axis + 1, -1).reshape(-1, shape[axis]).astype(np.int64)

    rows = x.with_mant(groups(x.mant))
    assert y.exp == -30 and np.array_equal(groups(y.mant), probabilities(rows.mant.astype(np.int64), rows.exp))
    assert np.abs(groups(y.mant).sum(axis=1) - (1 << 30)).max() <= shape[axis]
    g = whole(rng, [32767, 32767, 100, 1][seed], -12, 2, *shape)
    (back,), changes = layer.backward([g], memory, context)
    assert not changes and back.mant.shape == x.mant.shape
    want, exp = softmax_by_definition(groups(y.mant).tolist(), groups(g.mant).tolist(), -12)
    assert groups(back.mant).reshape(-1).tolist() == want
    assert back.exp == exp or not any(want)


def test_equal_gradients_go_nowhere():
    """Probabilities add up to 1, up to the last of 30 bits of each."""
    layer, context = layer_of("Softmax", ((1, 1, 8),), {"axis": 2}), PassContext(TrainingFormats())
    (_,), memory = layer.forward([Tensor(np.zeros((2, 1, 1, 8)), 0, 0)], context)
    (back,), _ = layer.backward([Tensor(np.full((2, 1, 1, 8), 100.0), 0, 100)], memory, context)
    assert not back.mant.any()


@pytest.mark.parametrize("masked", [False, True])
def test_values_are_those_of_the_graph_and_gradients_those_of_differences(masked):
    layers = [{"op": "dense", "outputs": 6, "name": "in"}, {"op": "positions", "name": "places"},
              {"op": "attention", "heads": 2, "causal": masked, "name": "ask"}, {"op": "add", "to": "places"},
              {"op": "layer_norm"}, {"op": "dense", "outputs": 3}]  # fmt: skip
    network = TrainableNetwork(described(layers, (4, 5)), WIDE, seed=3)
    graph, context = network.trained(), PassContext(WIDE)
    rng = np.random.default_rng(6)
    x, labels = whole(rng, 90, -5, 3, 1, 4, 5), rng.integers(0, 3, (3, 4))
    y, memories = network.forward(x, context)

    def outputs():
        return execute.run(graph, {"x": x.values[:, 0]})[graph.outputs[0]].reshape(3, 4, 3)

    def loss():
        z = outputs()
        chosen = np.take_along_axis(z, labels[..., None], axis=2)[..., 0]
        return float(np.sum(np.log(np.exp(z).sum(axis=2)) - chosen))

    assert np.abs(y.values.reshape(3, 4, 3) - outputs()).max() < 1e-3
    changes = network.backward(cross_entropy(y, labels, WIDE).gradient, memories, context)
    assert set(changes) == set(network.parameters)
    for key, change in changes.items():
        name, _, part = key.rpartition(".")
        array = next(node for node in graph.nodes if node.name == name).attrs[part]
        for at, want in slopes(array, [*np.ndindex(array.shape)][::5], loss):
            assert abs(change.values[at] - want) < 3e-3 * max(1, abs(want)), (key, at)


# Training ------------------------------------------------------------------------------------------------


def recalled(count, place=0):
    """Pairs of a key and a value, a word each, then a key, whose value is the label of the last position."""
    drawn = raw(7, (8, place, 3), count * (KEYS + PAIRS + 1)).reshape(count, -1)
    keys = np.argsort(drawn[:, :KEYS], axis=1)[:, :PAIRS]
    values = (drawn[:, KEYS:-1] % np.uint64(VALUES)).astype(np.int64)
    asked = (drawn[:, -1] % np.uint64(PAIRS)).astype(np.int64)
    row = np.arange(count)
    words = np.concatenate([keys * VALUES + values, KEYS * VALUES + keys[row, asked][:, None]], axis=1)
    labels = np.full(words.shape, -1)
    labels[:, -1] = values[row, asked]
    return Samples(words, labels)


def trainer(train=None, test=None, layers=LAYERS, **settings):
    return Trainer(described(layers, (PAIRS + 1,)), train or recalled(60), Settings(**settings), test, random=True)


@pytest.mark.slow
def test_what_was_asked_for_is_found_and_compiles():
    train, test = recalled(1500), recalled(200, 1)
    settings = {"epochs": 8, "rate": Fraction(1, 16)}
    one = trainer(train, test, **settings)
    accuracy = one.fit()[-1].test_accuracy
    without = trainer(train, test, [layer for layer in LAYERS if layer["op"] not in ("attention", "add")], **settings)
    assert accuracy > 0.97 and without.fit()[-1].test_accuracy < 0.5
    for name, parameter in trainer(train).network.parameters.items():
        if not name.endswith("keys.bias"):  # adds the same to all scores of a position
            assert not np.array_equal(one.network.parameters[name].values, parameter.values), name
    graph = import_model(export_onnx(one.trained()))
    assert {"MatMul", "Mul", "Softmax", "Normalise"} <= {node.op for node in graph.nodes}
    got, want = (execute.run(g, {g.inputs[0]: test.x.astype(float)})[g.outputs[0]] for g in (graph, one.trained()))
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
    answers = want.reshape(200, PAIRS + 1, VALUES)[:, -1].argmax(axis=1)
    assert (answers == test.y[:, -1]).mean() == pytest.approx(accuracy, abs=0.02)
    (y,) = concord.compile(export_onnx(one.trained()), preset="ecp5-85f").run(test.x).values()
    compiled = y.reshape(200, PAIRS + 1, VALUES)[:, -1].argmax(axis=1)
    assert (compiled == test.y[:, -1]).mean() == pytest.approx(accuracy, abs=0.03)


def test_a_masked_attention_is_written_and_compiles():
    network = causal(TrainingFormats())
    file, x = export_onnx(network.trained()), np.random.default_rng(8).integers(-90, 90, (6, 3, 4)) / 64
    graph = import_model(file)
    got, want = (execute.run(g, {g.inputs[0]: x})[g.outputs[0]] for g in (graph, network.trained()))
    assert np.abs(got - want).max() < 1e-5
    (y,) = concord.compile(file, preset="ecp5-85f").run(x).values()
    assert np.abs(y.reshape(want.shape) - want).max() < 0.1 * np.abs(want).max()


@pytest.mark.slow
@pytest.mark.parametrize("formats", FORMATS)
def test_a_break_and_shards_change_nothing(formats, tmp_path):
    layers = [*LAYERS[:1], {"op": "attention", "heads": 2, "causal": True}, *LAYERS[2:]]
    settings = {"epochs": 2, "batch": 16, "shards": 2, "formats": FORMATS[formats], "decay": Fraction(1, 100)}
    test = recalled(20, 1)
    assert_a_break_changes_nothing(lambda: trainer(test=test, layers=layers, **settings), tmp_path / "c.npz")


def test_a_checkpoint_belongs_to_its_factors(tmp_path):
    def begun(factor):
        graph = described(LAYERS, (PAIRS + 1,))
        at = next(k for k, node in enumerate(graph.nodes) if node.op == "Mul")
        graph.nodes[at] = graph.nodes[at].with_attrs(constant=np.asarray(factor))
        return Trainer(graph, recalled(20), Settings(), random=True)

    begun(0.5).save(tmp_path / "c.npz")
    begun(0.5).restore(tmp_path / "c.npz")
    with pytest.raises(ValueError, match="must be of this network, with these settings and data, and is of others"):
        begun(0.25).restore(tmp_path / "c.npz")


# What cannot be trained ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"constant": np.ones(4)}, "Mul by a constant that is not one finite number"),
        ({"constant": np.asarray(np.inf)}, "Mul by a constant that is not one finite number"),
        ({"constant": np.ones((1, 1, 1, 1))}, "Mul by a constant that is not one finite number"),
    ],
)
def test_factors_that_are_refused(attrs, why):
    with pytest.raises(CannotTrain, match=rf"op \({why}\)"):
        layer_of("Mul", ((1, 3, 4),), attrs)


def test_what_is_refused():
    with pytest.raises(CannotTrain, match=r"op \(Mul of two tensors\)"):
        layer_of("Mul", ((1, 3, 4), (1, 3, 4)))
    with pytest.raises(CannotTrain, match=r"op \(LogSoftmax\)"):
        layer_of("LogSoftmax", ((1, 3, 4),), {"axis": 2})
    graph = described([{"op": "dense", "outputs": 4}, {"op": "attention", "causal": True}], (3, 4))
    at = next(k for k, node in enumerate(graph.nodes) if node.op == "Add")
    graph.nodes[at] = graph.nodes[at].with_attrs(constant=np.full((3, 3), -np.inf))
    with pytest.raises(CannotTrain, match=r"attention1.masked \(Add of a constant\)"):
        TrainableNetwork(graph, WIDE)
    plain = Samples(np.ones((4, 3, 4)), np.zeros((4, 3), int))
    layers = [{"op": "dense", "outputs": 4}, {"op": "attention", "name": "ask"}]
    with pytest.raises(ValueError, match=r"Mul, masks and Softmax with \[overflow\]: ask.products, ask.scores, ask.sh"):
        Trainer(described(layers, (3, 4)), plain, Settings(overflow=OverflowSettings(accumulator_bits=16)), random=True)


@pytest.mark.parametrize(
    ("options", "shape", "why"),
    [
        ({"heads": 3}, (3, 4), "heads must be a whole number that divides 4 features, not 3"),
        ({"heads": 0}, (3, 4), "heads must be a whole number that divides 4 features, not 0"),
        ({"causal": 1}, (3, 4), "causal must be true or false, not 1"),
        ({}, (4,), r"it must have positions with features, a sample of two axes, not \[4\]"),
    ],
)
def test_descriptions_that_are_refused(options, shape, why):
    with pytest.raises(ValueError, match=f"layer attention1 must fit what is in front of it: {why}"):
        described([{"op": "attention", **options}], shape)


def test_a_softmax_at_the_end_that_something_else_reads_is_a_layer_too():
    graph = behind("Softmax", ((1, 3, 3),), {"axis": 2})
    graph.nodes.append(Node("MatMul", "more", ("y", "y"), ("z",)))
    graph.shapes["z"] = (1, 3, 3)
    network = TrainableNetwork(graph, WIDE)
    assert network.output == "reshape2.out" and [layer.name for layer in network.layers[-2:]] == ["op", "more"]
    x = whole(np.random.default_rng(9), 9, 0, 1, 1, 3, 3)
    assert np.array_equal(network.forward(x, PassContext(WIDE))[0].values, x.values)
