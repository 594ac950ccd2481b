"""Training from end to end: what is learned, that nothing else decides it, and what is refused."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.cli.train import trainer_of
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.ir import Node
from concord.image.packing import rounded_matrix
from concord.spec.formats import Rounding
from concord.spec.presets import PRESETS
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Figures, Settings, Trainer, described, export_onnx
from concord.train.checkpoint import fingerprint
from concord.train.console import updates_lost
from concord.train.network import TrainableNetwork
from concord.train.noise import permutation, uniform
from concord.train.optimiser import Optimiser
from concord.train.parameters import Parameter, UpdateCounts
from concord.train.settings import read_formats, read_plan
from concord.train.tensor import Dyadic, Tensor
from support import onnx_models as onnx
from support.train_digits import FORMATS, assert_a_break_changes_nothing, bits, digits, few, on_emulator

MLP = [{"op": "flatten"}, {"op": "dense", "outputs": 32}, {"op": "relu"}, {"op": "dense", "outputs": 10}]
CNN = [
    {"op": "conv", "channels": 4, "pad": 1, "name": "first"}, {"op": "relu", "name": "a"}, {"op": "max_pool"},
    {"op": "depthwise", "pad": 1}, {"op": "conv", "channels": 4, "kernel": 1, "name": "b"}, {"op": "tanh"},
    {"op": "average_pool"}, {"op": "flatten"}, {"op": "dense", "outputs": 10},
]  # fmt: skip


def trainer(layers=MLP, samples=None, test=None, **settings):
    return Trainer(described(layers, (1, 8, 8)), samples or few(), Settings(**settings), test, random=True)


def float_training(train, test, settings):
    """The same network, start, order and rates in float32."""
    sizes = [(32, 64), (10, 32)]
    w = [
        (uniform(settings.seed, (1, k), o * i).reshape(o, i) * np.sqrt(6 / i)).astype(np.float32)
        for k, (o, i) in zip((1, 3), sizes, strict=True)
    ]
    b = [np.zeros(o, np.float32) for o, _ in sizes]
    momentum = [np.zeros_like(p) for p in w + b]
    x, x_test = (s.inputs(slice(None)).reshape(len(s), -1).astype(np.float32) for s in (train, test))
    for epoch in range(settings.epochs):
        order = permutation(settings.seed, (2, epoch), len(x))
        for start in range(0, len(x), settings.batch):
            rows = order[start : start + settings.batch]
            h = np.maximum(x[rows] @ w[0].T + b[0], 0)
            z = h @ w[1].T + b[1]
            p = np.exp(z - z.max(axis=1, keepdims=True))
            g = p / p.sum(axis=1, keepdims=True) - np.eye(10, dtype=np.float32)[train.y[rows]]
            gh = (g @ w[1]) * (h > 0)
            gradients = [gh.T @ x[rows], g.T @ h, gh.sum(axis=0), g.sum(axis=0)]
            for v, gradient, p in zip(momentum, gradients, w + b, strict=True):
                v *= np.float32(settings.momentum)
                v += gradient / len(rows)
                p -= np.float32(settings.rate) * v
    return float(((np.maximum(x_test @ w[0].T + b[0], 0) @ w[1].T + b[1]).argmax(axis=1) == test.y).mean())


@pytest.mark.slow
def test_digits_are_learned_as_well_as_in_float32_and_compile():
    train, test = digits()
    settings = Settings(epochs=12, rate=Fraction(1, 16))
    got = Trainer(described(MLP, (1, 8, 8)), train, settings, test, random=True)
    accuracy = got.fit()[-1].test_accuracy
    reference = float_training(train, test, settings)
    assert reference > 0.93 and accuracy > reference - 0.02
    graph = import_model(export_onnx(got.trained()))
    compiled = compile_graph(graph, PRESETS["ecp5-85f"])
    for node in graph.nodes:
        if node.op == "Dense":  # the NPU holds what was trained
            parameter = got.network.parameters[f"{node.name}.weight"]
            assert np.array_equal(node.attrs["weight"], parameter.values)
            assert np.array_equal(rounded_matrix(parameter.values, compiled.image.config), parameter.values)
    assert abs((on_emulator(compiled, test).argmax(axis=1) == test.y).mean() - accuracy) < 0.02


@pytest.mark.slow
def test_without_accumulators_nothing_is_learned_at_a_rate_that_suits_them():
    """What lazy update is for: most updates are far below the last bit of a weight."""
    train, test = digits()
    formats = TrainingFormats(accumulator=AccumulatorFormat(point=0))
    lost = trainer(
        samples=train, test=test, epochs=2, rate=Fraction(1, 64), momentum=Fraction(0), formats=formats
    ).fit()
    kept = trainer(samples=train, test=test, epochs=2, rate=Fraction(1, 64), momentum=Fraction(0)).fit()
    assert kept[-1].test_accuracy > lost[-1].test_accuracy + 0.1
    assert lost[-1].counts.vanished > lost[-1].counts.elements // 2


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("layers", [MLP, CNN], ids=["mlp", "cnn"])
def test_a_break_changes_nothing(layers, formats, tmp_path):
    settings = {"epochs": 2, "batch": 20, "formats": FORMATS[formats], "decay": Fraction(1, 1000)}
    whole, _ = assert_a_break_changes_nothing(lambda: trainer(layers, test=few(40), **settings), tmp_path / "c.npz")
    other = trainer(layers, test=few(40), **{**settings, "seed": 2})
    other.fit()
    assert bits(other.network) != bits(whole.network)


def test_no_parameter_is_a_float(tmp_path):
    got = trainer(CNN, epochs=1)
    got.fit()
    got.save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as arrays:
        kinds = {name: arrays[name].dtype.kind for name in arrays.files if name != "header"}
    assert set(kinds.values()) == {"i"} and any(name.endswith("velocity") for name in kinds)
    for parameter in got.network.parameters.values():
        assert all(a.dtype.kind == "i" for a in vars(parameter).values() if isinstance(a, np.ndarray))


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing():
    script = (
        "import sys; sys.path[:0] = ['tests', 'tests/sw/train']; import hashlib, test_trainer as t;"
        "a = t.trainer(t.CNN, t.few(32), epochs=1); a.fit();"
        "print(hashlib.sha256(repr(t.bits(a.network)).encode()).hexdigest())"
    )
    root = Path(__file__).parents[3]
    found = set()
    for threads in "12":
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=root, capture_output=True, text=True)
        found.add(done.stdout)
        assert done.returncode == 0, done.stderr
    assert len(found) == 1


def test_trained_weights_survive_export_and_a_new_start():
    """Fine-tuning from a file begins with what was written."""
    got = trainer(CNN, epochs=1)
    got.fit()
    graph = import_model(export_onnx(got.trained()))
    again = Trainer(graph, few(), Settings())
    for name, parameter in got.network.parameters.items():
        other = again.network.parameters[name]
        assert np.array_equal(other.values, parameter.values) or parameter.weight.max() == 0


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_at_the_end_belongs_to_the_loss(op):
    """It changes no bit of what is learned, and it is in the file."""
    plain = described(MLP, (1, 8, 8))
    (last,) = plain.outputs
    end = Node(op, "end", (last,), ("shares",), {"axis": 1})
    shapes = plain.shapes | {"shares": plain.shapes[last]}
    graph = replace(
        plain, nodes=[*plain.nodes, end], outputs=["shares"], shapes=shapes, batched=plain.batched | {"shares"}
    )
    found = [Trainer(one, few(8), Settings(epochs=1), None, random=True) for one in (plain, graph)]
    for one in found:
        one.fit()
    assert bits(found[0].network) == bits(found[1].network)
    assert import_model(export_onnx(found[1].trained())).nodes[-1].op == op


def test_schedules_and_rates_are_numbers_of_sixteen_bits():
    settings = Settings(rate=Fraction(1, 10), schedule=((2, Fraction(1, 2)), (4, Fraction(1, 4))))
    rates = [settings.rate_of(epoch) for epoch in range(6)]
    assert abs(rates[0] - Fraction(1, 10)) < Fraction(1, 10 << 15) and rates[0].numerator < 1 << 16
    assert rates == [rates[0]] * 2 + [rates[0] / 2] * 2 + [rates[0] / 8] * 2


def broken(**changes):
    return lambda: Trainer(described(MLP, (1, 8, 8)), replace(few(8), **changes), Settings(), random=True)


def targets(row, value, test=False):
    """Targets of a squared error of which one is not finite."""

    def make():
        y = np.zeros((8, 10))
        whole = replace(few(8), y=y)
        part = replace(few(8), y=np.where(np.arange(8)[:, None] * 10 + np.arange(10) == 10 * row + 9, value, y))
        settings = Settings(loss="mse", batch=2)
        pair = (whole, settings, part) if test else (part, settings)
        return Trainer(described(MLP, (1, 8, 8)), *pair, random=True)

    return make


NAN = np.full((8, 1, 8, 8), 0.5)
NAN[3, 0, 2, 2] = np.nan


@pytest.mark.parametrize(
    "make, message",
    [
        (broken(x=NAN), "training data must be finite, and sample 3 has an infinity or NaN"),
        (broken(x=np.zeros((8, 1, 8, 9))), r"must have the shape \[1, 8, 8\], not \[1, 8, 9\]"),
        (broken(x=np.zeros((0, 1, 8, 8)), y=np.zeros(0, int)), "must have at least one sample"),
        (broken(y=np.zeros(7, int)), "must have a label for each of 8 samples, not"),
        (broken(y=np.full(8, 10)), r"must be in 0\.\.9, not 10\.\.10"),
        (broken(y=np.zeros(8)), "must be whole numbers, one per sample"),
        (targets(0, np.nan), "targets of the training data must be finite, not infinite or NaN"),
        (targets(7, np.nan), "targets of the training data must be finite, not infinite or NaN"),
        (targets(7, -np.inf), "targets of the training data must be finite, not infinite or NaN"),
        (targets(7, np.inf, test=True), "targets of the test data must be finite, not infinite or NaN"),
        (broken(scale=np.nan), "scale and zero must be finite"),
        (broken(x=np.full((8, 1, 8, 8), "a")), "must be numbers"),
        (lambda: trainer(epochs=0), "epochs must be a whole number from 1 on, not 0"),
        (lambda: trainer(batch=1.5), "batch must be a whole number"),
        (lambda: trainer(rate=Fraction(0)), "rate must be above 0"),
        (lambda: trainer(momentum=Fraction(1)), "momentum must be from 0 to below 1"),
        (lambda: trainer(loss="hinge"), "loss must be one of cross_entropy, mse, not 'hinge'"),
        (lambda: trainer(schedule=((1, Fraction(0)),)), "schedule must have"),
        (lambda: trainer(loss="mse"), "must have 10 elements per sample"),
        (lambda: described([{"op": "convolution"}], (1, 8, 8)), "must have an op of conv"),
        (lambda: described([{"op": "conv", "channels": 2, "size": 3}], (1, 8, 8)), "must have channels, kernel"),
        (lambda: described([{"op": "conv"}], (1, 8, 8)), "must have channels, kernel"),
        (lambda: described([{"op": "conv", "channels": 2, "kernel": 9}], (1, 8, 8)), "must fit what is in front"),
        (lambda: described([{"op": "add", "to": "none"}], (1, 8, 8)), "must fit what is in front"),
        (lambda: described([], (0, 8)), "input must be a shape"),
        (lambda: read_formats({"weights": 8}, "f"), "f must have weight, bias"),
        (lambda: read_formats({"weight": {"rounding": "up"}}, "f"), "rounding must be one of nearest_even"),
    ],
)
def test_errors_before_the_first_step(make, message):
    with pytest.raises(ValueError, match=message):
        make()


CONFIG = """
[model]
input = [1, 8, 8]
layers = [{op = "flatten"}, {op = "dense", outputs = 10}]
[data]
file = "digits.npz"
scale = 0.0625
test_x = "x_train"
test_y = "y_train"
[train]
epochs = 2
rate = "1/16"
schedule = [[1, 0.5]]
[formats]
gradient = {bits = 12, rounding = "stochastic"}
"""


def command(tmp_path, *arguments, config=CONFIG):
    (tmp_path / "net.toml").write_text(config)
    samples = few()
    np.savez(tmp_path / "digits.npz", x_train=samples.x, y_train=samples.y)
    return CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out"), *arguments])


def test_the_command_trains_exports_and_goes_on(tmp_path):
    done = command(tmp_path)
    assert done.exit_code == 0, done.output
    assert "epoch 2: loss" in done.output and "test accuracy" in done.output
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["checkpoint.npz", "history.json", "network.onnx"]
    plan = read_plan(tmp_path / "net.toml")
    assert plan.settings.formats.gradient == TrainingFormat(12, rounding=Rounding.STOCHASTIC)
    assert plan.settings.schedule == ((1, Fraction(1, 2)),) and plan.settings.rate == Fraction(1, 16)
    again = command(tmp_path)
    assert again.exit_code == 1 and "is there already; give --resume" in again.output
    first = (tmp_path / "out" / "network.onnx").read_bytes()
    longer = command(tmp_path, "--resume", config=CONFIG.replace("epochs = 2", "epochs = 3"))
    assert longer.exit_code == 0 and "epoch 3: loss" in longer.output and "epoch 2: loss" not in longer.output
    assert "network.onnx: trained; concord compile" in longer.output
    assert (tmp_path / "out" / "network.onnx").read_bytes() != first
    first = (tmp_path / "out" / "network.onnx").read_bytes()
    for epochs in (1, 3):
        over = command(tmp_path, "--resume", config=CONFIG.replace("epochs = 2", f"epochs = {epochs}"))
        assert over.exit_code == 0 and ": trained" not in over.output
        assert "network.onnx: nothing was trained, as " in over.output and "has 3 epochs already;" in over.output
        assert (tmp_path / "out" / "network.onnx").read_bytes() == first
    other = command(tmp_path, "--resume", config=CONFIG.replace("1/16", "1/8"))
    assert other.exit_code == 1 and "must be of this network, with these settings and data" in other.output


HUGE = """
[model]
file = "net.onnx"
start = "pretrained"
[data]
file = "x.npz"
x = "x"
y = "y"
test_x = "x"
test_y = "y"
scale = 1267650600228229401496703205376  # 2 to the power of 100
[train]
epochs = 2
batch = 40
"""


def test_numbers_beyond_the_greatest_exponent_are_told(tmp_path):
    rng = np.random.default_rng(0)
    v, w = (rng.uniform(0.5, 1, shape).astype(np.float32) * np.float32(2**33) for shape in ((20, 8), (8, 3)))
    triples = ("MatMul", ["x", "v"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "w"], ["y"])
    proto = onnx.model([onnx.node(*triple) for triple in triples], {"x": (1, 20)}, constants={"v": v, "w": w})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(tmp_path / "x.npz", x=rng.integers(1, 16, (80, 20)), y=rng.integers(0, 3, 80))
    (tmp_path / "net.toml").write_text(HUGE)
    done = CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    counts = [epoch["counts"]["saturated"] for epoch in history]
    assert counts[0] >= 8 * 80, "all that the first layer gives, at least"
    assert f"saturated {counts[0]:,}" in done.output.splitlines()[0]
    assert re.search(r"grown +saturated", done.output)
    assert (
        f"{sum(counts):,} numbers needed an exponent above 127 and were cut off (saturated), from epoch 1 on"
        in done.output
    )
    trainer = trainer_of(read_plan(tmp_path / "net.toml"))
    trainer.step()
    assert re.search(r", saturated [1-9][\d,]*$", trainer.running)


def test_updates_that_are_lost_are_told():
    """Refused ones of the epoch with the most, vanished ones of the last."""

    def figures(epoch, refused, vanished):
        return Figures(epoch, 0.25, counts=UpdateCounts(elements=100, refused=refused, vanished=vanished))

    first, later, last = figures(0, 20, 60), figures(1, 30, 90), figures(2, 1, 50)
    (text,) = updates_lost([first, later, last])
    assert text.startswith("30.00 % of the updates of epoch 2 were larger than accumulators hold")
    assert updates_lost([last]) == [], "no more than half have vanished"
    assert updates_lost([figures(0, 5, 0)]) == [], "no more than a twentieth was refused"
    (text,) = updates_lost([first, figures(1, 5, 51)])[1:]
    assert text.startswith("51.00 % of the updates of the last epoch were too small for accumulators")


def test_an_interruption_loses_nothing(tmp_path, monkeypatch):
    import signal

    from concord.train.trainer import Trainer as Real

    step, count = Real.step, [0]

    def counted(self):
        count[0] += 1
        if count[0] == 5:
            signal.raise_signal(signal.SIGINT)
        return step(self)

    monkeypatch.setattr(Real, "step", counted)
    stopped = command(tmp_path)
    assert stopped.exit_code == 130 and "--resume" in stopped.output
    assert not (tmp_path / "out" / "network.onnx").exists()
    assert command(tmp_path, "--resume").exit_code == 0
    resumed = (tmp_path / "out" / "network.onnx").read_bytes()
    (tmp_path / "out" / "checkpoint.npz").unlink()
    assert command(tmp_path).exit_code == 0
    assert (tmp_path / "out" / "network.onnx").read_bytes() == resumed


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("[model]", "[models]", "must have model, data, augment, train, formats, overflow only, not models"),
        ("epochs = 2", "epoch = 2", "must have epochs, batch"),
        ('"digits.npz"', '"net.toml"', "must be an npz file"),
        ("input = [1, 8, 8]", "input = [1, 8, 7]", "must have the shape"),
        ("[model]", "[model", "must be TOML"),
        ("scale = 0.0625", 'scale = "a"', "scale must be a number such as"),
    ],
)
def test_configurations_that_are_not_understood(tmp_path, old, new, message):
    done = command(tmp_path, config=CONFIG.replace(old, new))
    assert done.exit_code == 1 and message in done.output.replace("\n", " ") and "Traceback" not in done.output


def test_fingerprints_of_checkpoints_stay_what_they_are():
    ops = ["batch_norm", "relu", "max_pool", "average_pool", "flatten", "tanh"]
    layers = [{"op": "conv", "channels": 2}, *({"op": op} for op in ops), {"op": "dense", "outputs": 2}]
    network = TrainableNetwork(described(layers, (1, 10, 10)), TrainingFormats(), 3)
    assert fingerprint(network, {})[:16] == "d265fad18e3c3e4f"


def test_a_damaged_checkpoint_is_refused(tmp_path):
    got = trainer(epochs=1)
    got.save(tmp_path / "c.npz")
    data = bytearray((tmp_path / "c.npz").read_bytes())
    for changed in (data[:200], data[: len(data) // 2] + b"\x00" * 8 + data[len(data) // 2 + 8 :], b"no"):
        (tmp_path / "d.npz").write_bytes(changed)
        with pytest.raises(ValueError, match="checkpoint"):
            got.restore(tmp_path / "d.npz")


def test_a_checkpoint_of_the_same_bytes_of_another_type_is_refused(tmp_path):
    signed = replace(few(20), x=few(20).x.astype(np.int8) - np.int8(5))
    unsigned = replace(signed, x=signed.x.view(np.uint8))
    trainer(samples=signed, epochs=1).save(tmp_path / "c.npz")
    trainer(samples=signed, epochs=1).restore(tmp_path / "c.npz")
    with pytest.raises(ValueError, match="with these settings and data"):
        trainer(samples=unsigned, epochs=1).restore(tmp_path / "c.npz")


def test_widths_whose_sums_do_not_fit_are_one_message(tmp_path):
    done = command(tmp_path, config=CONFIG.replace("[formats]", "[formats]\nactivation = {bits = 32}"))
    assert done.exit_code == 1 and "must fit in 63 bits" in " ".join(done.output.split())


@pytest.mark.parametrize("momentum", [Fraction(0), Fraction(9, 10)])
@pytest.mark.parametrize("rate", ["1e-12", "1e-38", "1e-45", "1e-60", "1e-300"])
def test_updates_of_tiny_rates_are_told(rate, momentum):
    """Those in which no element of a weight moves, however far below the least exponent they are."""
    run = trainer(epochs=1, rate=Fraction(rate), momentum=momentum)
    before = [parameter.weight.copy() for parameter in run.network.parameters.values()]
    history = run.fit()
    parameters = run.network.parameters.values()
    assert all(np.array_equal(*pair) for pair in zip(before, (p.weight for p in parameters), strict=True))
    usual = trainer(epochs=1, rate=Fraction(1, 16), momentum=momentum).fit()[0].counts
    assert history[0].counts.vanished > 0.9 * (usual.elements - few_gradients(usual))
    assert any("(vanished): a larger rate" in text for text in updates_lost(history))


def few_gradients(counts):
    """Elements without a gradient, such as those of pixels that are always 0: at the most a half."""
    return counts.elements // 2


def test_a_tiny_decay_is_told():
    """Of parameters without a gradient, too."""
    run = trainer(epochs=1, rate=Fraction("1e-45"), momentum=Fraction(0), decay=Fraction(1, 10))
    plain = trainer(epochs=1, rate=Fraction("1e-45"), momentum=Fraction(0))
    assert run.fit()[0].counts.vanished > plain.fit()[0].counts.vanished


#: Numbers that TOML has, too.
PLAIN = ("nan", "inf", "-inf")


@pytest.mark.parametrize("text", [*PLAIN, "1/0", "abc", "1e999999999", "9" * 200, ""])
def test_numbers_that_cannot_be_rates(text, tmp_path):
    """One message that names the file, at once."""
    head = '[model]\nlayers = [{op = "flatten"}]\ninput = [4]\n[data]\nfile = "x.npz"\n[train]\n'
    for line in [f'rate = "{text}"', f'schedule = [[1, "{text}"]]'] + ([f"momentum = {text}"] if text in PLAIN else []):
        (tmp_path / "net.toml").write_text(head + line)
        with pytest.raises(ValueError, match=r"net\.toml: a rate or factor must be"):
            read_plan(tmp_path / "net.toml")


@pytest.mark.parametrize("value", ["nan", "inf", '"one"', "true"])
@pytest.mark.parametrize("name", ["scale", "zero"])
def test_data_are_scaled_by_numbers(name, value, tmp_path):
    text = f'[model]\nlayers = [{{op = "flatten"}}]\ninput = [4]\n[data]\nfile = "x.npz"\n{name} = {value}\n'
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(ValueError, match=rf"net\.toml \[data\] {name} must be a number"):
        read_plan(tmp_path / "net.toml")


def test_data_are_scaled_by_fractions(tmp_path):
    """As rates are, and exactly as the decimal number that they are."""
    head = '[model]\nlayers = [{op = "flatten"}]\ninput = [4]\n[data]\nfile = "x.npz"\n'
    (tmp_path / "net.toml").write_text(f'{head}scale = "1/256"\nzero = "0.5"\n')
    plan = read_plan(tmp_path / "net.toml")
    assert (plan.scale, plan.zero) == (0.00390625, 0.5)


@pytest.mark.parametrize("momentum", [Fraction(0), Fraction(1, 2)])
def test_weights_decay_and_biases_do_not(momentum):
    """Without a gradient the decay is the whole update: a weight moves by a unit, of the hidden state's, too."""
    formats, values = TrainingFormats(), np.array([[64.0, -32.0, 16.0, 0.0]])
    optimiser = Optimiser(Dyadic.nearest(momentum), Fraction(1, 2))
    gradient = Tensor(np.zeros((1, 4), np.float32), 0, 0)
    decayed, kept = [[63.0, -31.0, 15.0, 0.0]], values.tolist()
    names = {"fc.weight": decayed, "gru.weight0": decayed, "gru.recurrent1": decayed, "fc.bias": kept}
    names |= dict.fromkeys(("gru.bias0", "gru.hidden_bias1", "norm.scale", "norm.shift", "weight.bias"), kept)
    for name, want in names.items():
        parameter = Parameter.begin(name, values, formats.weight, formats.accumulator)
        optimiser.step(parameter, gradient, 4, Fraction(1, 2), formats, None)
        assert parameter.values.tolist() == want, name
