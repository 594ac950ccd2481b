"""Batch normalisation: its numbers by their definition in fractions, its derivative in double precision, and that what
is judged is what is written."""

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.golden.normalise import nearest, reciprocal_root
from concord.image.packing import rounded_matrix
from concord.spec.formats import Rounding
from concord.spec.presets import PRESETS
from concord.spec.training import TrainingFormat, TrainingFormats
from concord.train import CannotTrain, Samples, Settings, Trainer, described, export_onnx, shards
from concord.train.layers.base import PassContext
from concord.train.layers.normalised import Normalised
from concord.train.losses import ONLY, OutputLoss
from concord.train.network import TrainableNetwork, batch
from concord.train.norm import Running, Statistics, on_one_grid
from concord.train.tensor import Dyadic, Tensor
from support.exact_numbers import away, short, up, worth
from support.expressions import network, tensor
from support.train_digits import FORMATS as MORE
from support.train_digits import assert_a_break_changes_nothing, digits, few, on_emulator

CNN = [
    {"op": "conv", "channels": 6, "pad": 1, "name": "first"}, {"op": "batch_norm"}, {"op": "relu"}, {"op": "max_pool"},
    {"op": "depthwise", "pad": 1}, {"op": "batch_norm", "momentum": 0.75}, {"op": "tanh"}, {"op": "max_pool"},
    {"op": "flatten"}, {"op": "dense", "outputs": 10}, {"op": "batch_norm"},
]  # fmt: skip


@pytest.mark.slow
def test_quotients_and_roots_are_the_nearest_numbers():
    rng = random.Random(1)
    for case in range(4000):
        num, den = (rng.randrange(1, 1 << rng.randrange(1, most)) for most in (60, 40))
        if case % 7 == 0:
            num, den = 1 << rng.randrange(50), 1
        if case % 11 == 0:
            num, den = (1 << rng.randrange(1, 50)) - 1, 1 << rng.randrange(5)
        exp, width, sign = rng.randrange(-40, 40), rng.choice([2, 3, 8, 16, 31]), rng.choice([1, -1])
        exact = worth(num, exp) / den
        mant, at = nearest(sign * num, den, exp, width)
        assert 1 << width - 1 <= sign * mant < 1 << width
        assert abs(worth(sign * mant, at) - exact) * 2 <= worth(1, at)
        mant, at = reciprocal_root(num, den, exp, width)
        assert 1 << width - 1 <= mant < 1 << width
        below = Fraction(1, 4) if mant == 1 << width - 1 else Fraction(1, 2)
        ends = [(worth(1, at) * (mant + step)) ** 2 for step in (-below, Fraction(1, 2))]
        assert ends[0] <= 1 / exact <= ends[1]
    assert nearest(0, 3, 5, 16) == (0, 0) and nearest(-3, 2, 0, 1) == (-1, 1)
    with pytest.raises(ValueError, match="under a root must be above 0, not 0 / 3"):
        reciprocal_root(0, 3, 0, 16)


def test_numbers_on_one_grid():
    found = on_one_grid([(3, 0), (-5, 10), (0, 0), (1, -40)], 20)
    assert (found.exp, found.mant.tolist(), found.peak) == (-7, [384, -655360, 0, 0], 655360)
    assert on_one_grid([(0, 0)], 8).mant.tolist() == [0]


def some_bits(x, width):
    """The nearest number of a width."""
    number = Dyadic.nearest(x, width)
    return number.value


def by_definition(y, exp, g, g_exp, scale, epsilon):
    """Normal elements, gradients of scale and input, of one channel, for whole numbers y and g; roots and all."""
    count = len(y)
    fine = max(0, 30 - max(abs(int(v)) for v in y).bit_length())
    centre = away(Fraction(int(sum(y)) << fine, count))
    unit = Fraction(2) ** (exp - fine)
    centred, _ = short([((int(v) << fine) - centre) * unit for v in y], exp - fine)
    spread = sum(c * c for c in centred) / count + epsilon
    root = worth(*reciprocal_root(spread.numerator, spread.denominator, 0, 16))
    products = [c * root for c in centred]
    at = up(max(abs(p) for p in products)) - 15
    normal = [max(min(away(p / Fraction(2) ** at), 32767), -32767) * Fraction(2) ** at for p in products]
    fine = max(0, 30 - max(abs(int(v)) for v in g).bit_length())
    grid = Fraction(2) ** (g_exp - fine)
    values = [worth(v, g_exp) for v in g]
    crossed = sum(a * b for a, b in zip(values, normal, strict=True))
    slope = some_bits(crossed / count / grid, 16)
    mean = away(sum(values) / count / grid)
    left = [(v / grid - mean - away(n * slope)) * grid for v, n in zip(values, normal, strict=True)]
    inner, _ = short(left, g_exp - fine)
    factor = some_bits(scale * root, 16)
    return normal, crossed, [v * factor for v in inner]


def one_layer(channels, formats=None):
    """A product with an identity, and a normalisation."""
    graph = described([{"op": "dense", "outputs": channels}, {"op": "batch_norm"}], (channels,))
    graph.nodes[0].attrs["weight"] = np.eye(channels) / 2
    return TrainableNetwork(graph, formats or TrainingFormats())


@pytest.mark.parametrize("seed", range(6))
def test_passes_by_their_definition(seed):
    """One channel, so that its exponents are those of the tensor."""
    rng = np.random.default_rng(seed)
    (layer,) = one_layer(1).layers
    count, top = int(rng.integers(2, 40)), [127, 3, 127, 100, 64, 127][seed]
    x = np.clip(rng.normal(rng.normal() * 40, 30, (count, 1, 1)).round(), -top, top)
    x[0] = top
    given = Tensor(x.astype(np.float32), -5, 127)
    context = PassContext(TrainingFormats())
    (out,), memory = layer.forward([given], context)
    y = layer.product.weight.tensor.mant[0, 0] * x.reshape(-1)
    exp = given.exp + layer.product.weight.tensor.exp
    g = rng.integers(-32767, 32768, (count, 1, 1))
    scale = Fraction(float(layer.norm.scale.values[0]))
    normal, crossed, back = by_definition(y, exp, g.reshape(-1), -20, scale, layer.norm.epsilon.value)
    assert memory.normal.values.reshape(-1).tolist() == [float(v) for v in normal]
    assert out.values.reshape(-1).tolist() == [float(v * scale) for v in normal]
    layer.product.backward = lambda grads, memory, context: (grads, {})
    (found,), changes = layer.backward([Tensor(g.astype(np.float64), -20, 32767)], memory, context)
    assert [Fraction(float(v)) for v in found.values.reshape(-1)] == back
    assert changes["scale"].values.tolist() == [float(crossed)]
    assert changes["shift"].values.tolist() == [float(g.sum()) * 2.0**-20]


@pytest.mark.parametrize("kind", ["conv", "dense"])
def test_passes_follow_double_precision(kind):
    """Values and the whole gradient, through mean and variance, within what 16 bits leave."""
    rng = np.random.default_rng(3)
    layers = {
        "conv": [{"op": "conv", "channels": 5, "pad": 1}],
        "dense": [{"op": "flatten"}, {"op": "dense", "outputs": 7}],
    }
    net = TrainableNetwork(described([*layers[kind], {"op": "batch_norm"}], (2, 6, 6)), TrainingFormats(), seed=3)
    layer = net.layers[-1]
    channels = len(layer.norm.scale.values)
    for parameter, values in (
        (layer.norm.scale, rng.uniform(0.5, 2, channels)),
        (layer.norm.shift, rng.normal(size=channels)),
    ):
        fresh = type(parameter).begin("p", values, parameter.fmt, parameter.accumulator)
        parameter.replace(fresh.weight, fresh.acc, fresh.exp)
    x = batch(rng.normal(0.4, 1, (24, 2, 6, 6)), net.graph, net.formats)
    context = PassContext(net.formats)
    out, memories = net.forward(x, context)
    plain, _ = layer.product.forward([x if kind == "conv" else x.reshaped(24, 1, 72)], PassContext(net.formats))
    axes = (0, 1, 3, 4) if kind == "conv" else (0, 1)
    along = (-1, 1, 1) if kind == "conv" else (-1,)
    y = plain[0].values
    mean, spread = y.mean(axes, keepdims=True), np.sqrt(y.var(axes, keepdims=True) + 1e-5)
    normal, scale = (y - mean) / spread, layer.norm.scale.values.reshape(along)
    want = normal * scale + layer.norm.shift.values.reshape(along)
    most = np.abs(normal).max()
    assert np.abs(out.values - want).max() < (most * scale.max() + np.abs(want).max()) * 2.0**-14
    statistics = context.seen[layer.norm.name]
    assert np.allclose(np.ldexp(np.array(statistics.sums, float), statistics.exp) / statistics.count, mean.reshape(-1))
    g = rng.normal(size=y.shape)
    mants = np.rint(g * 2.0**26)
    kept = []
    layer.product.backward = lambda grads, memory, context: (kept.extend(grads) or [None], {})
    _, changes = layer.backward([Tensor(mants, -26, int(np.abs(mants).max()))], memories[-1], context)
    inner = g - g.mean(axes, keepdims=True) - normal * (g * normal).mean(axes, keepdims=True)
    back = inner * scale / spread
    error = np.abs(kept[0].values - back).max()
    assert error < (np.abs(g).max() * 2.0**-14 + np.abs(inner).max() * 2.0**-15) * (scale / spread).max() and error > 0
    exact = (g * normal).sum(axes)
    assert np.abs(changes["scale"].values - exact).max() < y.size / channels * np.abs(g).max() * most * 2.0**-15
    assert np.allclose(changes["shift"].values, g.sum(axes), atol=1e-4)
    assert np.abs(kept[0].values.sum(axes)).max() < 1e-2  # nothing is left along the constant


def test_channels_that_are_constant_or_far_apart():
    """A spread of zero gives the shift alone; channels of other orders of magnitude are as exact as others."""
    net = one_layer(3)
    layer = net.layers[0]
    rng = np.random.default_rng(5)
    x = np.stack([np.full(50, 3.0), rng.integers(-127, 128, 50), rng.integers(0, 4, 50) * 1.0], 1).reshape(50, 1, 3)
    x[0, 0, 1] = 127
    out, memory = layer.forward([Tensor(x.astype(np.float32), 3, 127)], PassContext(net.formats))
    y = out[0].values.reshape(50, 3)
    assert not y[:, 0].any()
    for k in (1, 2):
        normal = (x[:, 0, k] - x[:, 0, k].mean()) / x[:, 0, k].std() * layer.norm.scale.values[k]
        assert np.abs(y[:, k] - normal).max() < 2.0**-12
    alone, _ = layer.forward([Tensor(x[:1].astype(np.float32), 3, 127)], PassContext(net.formats))
    assert not alone[0].mant.any()
    found = layer.backward([Tensor(np.ones((50, 1, 3)), 0, 1)], memory, PassContext(net.formats))[1]
    assert found["shift"].values.tolist() == [50, 50, 50]


@pytest.mark.slow
def test_the_order_of_samples_changes_nothing():
    net = TrainableNetwork(described(CNN, (1, 8, 8)), TrainingFormats(), seed=1)
    samples = few(60)
    labels, rows = samples.y, np.random.default_rng(1).permutation(60)
    found = []
    for order in (np.arange(60), rows):
        context = PassContext(net.formats)
        out, memories = net.forward(batch(samples.inputs(order), net.graph, net.formats), context)
        g = np.zeros(out.mant.shape)
        g[np.arange(60), 0, labels[order]] = -5.0
        changes = net.backward(Tensor(g, -10, 5), memories, context)
        values = {name: change.values.tolist() for name, change in changes.items()}
        found.append((out.values[np.argsort(order)].tolist(), values, context.seen))
    assert found[0] == found[1]


def test_running_numbers_follow_exactly():
    rng = random.Random(2)
    run, factor = Running.begin([0.0, 1.0, -3.25, 1e-9]), Dyadic.nearest(Fraction(1, 10))
    for _ in range(20):
        old = [worth(*number) for number in run.numbers]
        new = [(rng.randrange(-(1 << 40), 1 << 40), rng.randrange(1, 500), rng.randrange(-40, 3)) for _ in old]
        run.follow(new, factor)
        for before, (num, den, exp), number in zip(old, new, run.numbers, strict=True):
            exact = before + factor.value * (worth(num, exp) / den - before)
            assert worth(*number) == some_bits(exact, 31)
    assert run.mant.dtype == np.int32 and run.exp.dtype == np.int16


def test_variances_are_estimates_and_epsilon_counts():
    (layer,) = one_layer(1).layers
    layer.norm.follow(Statistics(5, [20], 0, [40], [0]))
    share = layer.norm.momentum.value
    assert abs(layer.norm.mean.values[0] - float(share * 4)) < 1e-8
    assert abs(layer.norm.variance.values[0] - float(1 + share * (10 - 1))) < 1e-8
    assert abs(worth(*layer.norm.root(0, 1, 0)) - Fraction(316.2277)) < Fraction(1, 100)


def trained(layers=CNN, **settings):
    got = Trainer(described(layers, (1, 8, 8)), few(), Settings(**settings), few(40), random=True)
    return got


FORMATS = {
    "default": TrainingFormats(),
    "blocks": replace(MORE["blocks"], bias=TrainingFormat(8, 4)),
    "stochastic": TrainingFormats(gradient=TrainingFormat(10, rounding=Rounding.STOCHASTIC)),
}


@pytest.mark.slow
@pytest.mark.parametrize("formats", FORMATS)
def test_a_break_changes_nothing(formats, tmp_path):
    settings = {"epochs": 2, "batch": 20, "formats": FORMATS[formats]}
    whole, second = assert_a_break_changes_nothing(lambda: trained(**settings), tmp_path / "c.npz")
    for name, norm in whole.network.norms.items():
        assert all(np.array_equal(a, second.network.norms[name].state[key]) for key, a in norm.state.items())
        assert all(a.dtype.kind == "i" for a in norm.state.values())
    with np.load(tmp_path / "c.npz") as arrays:
        assert all(arrays[name].dtype.kind == "i" for name in arrays.files if name != "header")


@pytest.mark.parametrize("formats", FORMATS)
def test_what_is_judged_is_what_is_written(formats):
    """Bit for bit: the folded network of the file gives the same mantissas, exponents and weights as evaluation."""
    got = trained(epochs=1, formats=FORMATS[formats])
    got.fit()
    graph = import_model(export_onnx(got.trained()))
    assert "BatchNorm" not in {node.op for node in graph.nodes}
    formats = FORMATS[formats]
    x = batch(got.test.inputs(slice(None)), graph, formats)
    judged, _ = got.network.forward(x, PassContext(formats, training=False))
    layers = {layer.name: layer for layer in got.network.layers}
    again = TrainableNetwork(graph, formats)
    values = {graph.inputs[0]: x}
    folded = 0
    for node, layer in zip(graph.nodes, again.layers, strict=True):
        if isinstance(layers[node.name], Normalised):
            folded += 1
            weight, bias = layers[node.name].folded
            assert np.array_equal(node.attrs["weight"], weight.values)
            assert np.array_equal(node.attrs["bias"], bias.values)
            layer.weight, layer.bias = weight, bias
            assert np.array_equal(bias.values.astype(np.float16).astype(np.float64), bias.values)
        found, _ = layer.forward([values[name] for name in layer.inputs], PassContext(formats, training=False))
        values.update(zip(layer.outputs, found, strict=False))
    assert folded == 3 and values[again.output].exp == judged.exp
    assert np.array_equal(values[again.output].mant, judged.mant)


def test_batches_are_judged_with_the_running_numbers():
    """The statistics of a batch count in training only."""
    network, rng = one_layer(3), np.random.default_rng(8)
    mean, variance = [0.5, -1.0, 0.0], [1.0, 0.25, 4.0]
    (norm,) = network.norms.values()
    norm.mean, norm.variance = Running.begin(mean), Running.begin(variance)
    x, labels = rng.integers(-100, 101, (40, 3)) / 16, rng.integers(0, 3, 40)
    judged = shards.judged(network, Samples(x, labels), network.formats, {ONLY: OutputLoss()}, None)
    value, right = judged[ONLY]
    logits = (x / 2 - mean) / np.sqrt(variance)
    lost = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(40), labels]
    assert abs(value - lost.sum()) < 0.01 * lost.sum() and right == (logits.argmax(axis=1) == labels).sum()


@pytest.mark.slow
def test_digits_are_learned_and_the_npu_holds_the_folded_weights():
    train, test = digits()
    got = Trainer(described(CNN, (1, 8, 8)), train, Settings(epochs=4), test, random=True)
    accuracy = got.fit()[-1].test_accuracy
    assert accuracy > 0.88
    compiled = compile_graph(import_model(export_onnx(got.trained())), PRESETS["ecp5-85f"])
    for node in got.trained().nodes:
        if node.op == "Dense" or (node.op == "Conv" and node.attrs["group"] == 1):
            weight = np.moveaxis(node.attrs["weight"], 1, -1)
            assert np.array_equal(rounded_matrix(weight, compiled.image.config), weight)
    assert abs((on_emulator(compiled, test).argmax(axis=1) == test.y).mean() - accuracy) < 0.02


def onnx_file(training=0, momentum=0.9, conv_bias=True, between=None):
    """Conv, BatchNormalization, Relu, and a product with a normalisation of its own."""
    rng = np.random.default_rng(8)
    arrays = {
        "w": rng.normal(size=(3, 1, 3, 3)), "b": rng.normal(size=3), "s": rng.uniform(0.5, 2, 3),
        "t": rng.normal(size=3), "m": rng.normal(size=3), "v": rng.uniform(0.5, 3, 3),
        "d": rng.normal(size=(10, 108)) / 10,
        "s2": np.ones(10), "t2": np.zeros(10), "m2": np.zeros(10), "v2": np.ones(10),
    }  # fmt: skip
    more = {"epsilon": 1e-3, "momentum": momentum} | ({"training_mode": 1} if training else {})
    outputs = [["n", *(["rm", "rv"] if training else [])], ["y", *(["rm2", "rv2"] if training else [])]]
    nodes = [
        helper.make_node("Conv", ["x", "w", *(["b"] if conv_bias else [])], ["c"], name="conv"),
        helper.make_node("BatchNormalization", [between or "c", "s", "t", "m", "v"], outputs[0], name="norm", **more),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "d"], ["g"], name="gemm", transB=1),
        helper.make_node("BatchNormalization", ["g", "s2", "t2", "m2", "v2"], outputs[1], name="norm2", **more),
    ]
    if between:
        nodes.insert(1, helper.make_node("Tanh", ["c"], [between], name="tanh"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in
            (("x", ["N", 1, 8, 8]), ("y", ["N", 10]))]  # fmt: skip
    constants = [numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("training", [0, 1])
@pytest.mark.parametrize("conv_bias", [True, False])
def test_normalisations_of_a_file_are_kept(training, conv_bias):
    from concord.graph import execute

    kept = import_model(onnx_file(training, conv_bias=conv_bias), batchnorm=True)
    assert [node.op for node in kept.nodes].count("BatchNorm") == 2
    folded = import_model(onnx_file(0, conv_bias=conv_bias))
    x = few(30).inputs(slice(None))
    runs = [execute.run(graph, {"x": x})["y"] for graph in (kept, folded)]
    assert np.allclose(*runs, atol=1e-9)
    formats = TrainingFormats(weight=TrainingFormat(14), bias=TrainingFormat(14), activation=TrainingFormat(14))
    net = TrainableNetwork(kept, formats)
    out, _ = net.forward(batch(x, kept, formats), PassContext(formats, training=False))
    assert np.abs(out.values - runs[0].reshape(out.mant.shape)).max() < 2e-2  # of about 10: the bias has 11 bits
    norm = net.norms["norm"]
    assert (norm.epsilon, norm.momentum) == (Dyadic.nearest(1e-3), Dyadic.nearest(Fraction(1, 10)))


def test_files_of_training_are_refused_where_normalisations_are_folded():
    with pytest.raises(ValueError, match="must be in inference mode"):
        import_model(onnx_file(1))


def test_normalisations_that_cannot_be_trained():
    with pytest.raises(CannotTrain, match=r"norm \(BatchNormalization, not behind a Conv or Dense whose result"):
        TrainableNetwork(import_model(onnx_file(between="h"), batchnorm=True), TrainingFormats())
    layers = [{"op": "conv", "channels": 2, "name": "c"}, {"op": "batch_norm"}, {"op": "add", "to": "c"}]
    with pytest.raises(CannotTrain, match="whose result nothing else reads"):
        TrainableNetwork(described(layers, (1, 8, 8)), TrainingFormats())
    rows = dict.fromkeys(("scale", "bias", "mean", "variance"), np.ones(4)) | {"epsilon": 1e-5, "momentum": 0.9}
    normal = tensor(1, 4, 3).same().then("BatchNorm", **rows)
    with pytest.raises(CannotTrain, match="along an axis that is not that of the outputs"):
        TrainableNetwork(network(normal), TrainingFormats())
    for change, message in (
        ({"epsilon": 0.0}, "epsilon above 0"), ({"momentum": 1.5}, "momentum in 0..1"),
        ({"variance": np.full(4, -1.0)}, "variances from 0 on"),
    ):  # fmt: skip
        normal = tensor(1, 4).same().then("BatchNorm", **rows | change)
        with pytest.raises(ValueError, match=message):
            TrainableNetwork(network(normal), TrainingFormats())


CONFIG = """
[model]
file = "net.onnx"
start = "{start}"
batchnorm = "{batchnorm}"
[data]
file = "digits.npz"
scale = 0.0625
[train]
epochs = 1
rate = "1/16"
"""


@pytest.mark.parametrize("start", ["random", "pretrained"])
@pytest.mark.parametrize("batchnorm", ["train", "fold"])
def test_the_command_trains_or_folds(start, batchnorm, tmp_path):
    (tmp_path / "net.toml").write_text(CONFIG.format(start=start, batchnorm=batchnorm))
    (tmp_path / "net.onnx").write_bytes(onnx_file())
    samples = few()
    np.savez(tmp_path / "digits.npz", x_train=samples.x, y_train=samples.y)
    done = CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    with np.load(tmp_path / "out" / "checkpoint.npz") as arrays:
        assert ("norm/variance" in arrays.files) == (batchnorm == "train")
    assert b"BatchNormalization" not in (tmp_path / "out" / "network.onnx").read_bytes()


def test_a_configuration_that_is_not_understood(tmp_path):
    (tmp_path / "net.toml").write_text(CONFIG.format(start="random", batchnorm="yes"))
    done = CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 1 and 'batchnorm must be "train" or "fold"' in done.output.replace("\n", " ")


def test_samples_are_needed_by_nobody_else():
    """Evaluation leaves running statistics alone."""
    got = trained(epochs=1)
    before = [a.copy() for norm in got.network.norms.values() for a in norm.state.values()]
    got.judge(Samples(few(8).x, few(8).y, 1 / 16))
    after = [a for norm in got.network.norms.values() for a in norm.state.values()]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
