"""Several outputs, each with a loss of its own: what is learned, figures, checkpoints, files, and what is refused."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

import concord
from concord.cli.main import main
from concord.frontend import import_model
from concord.graph import execute
from concord.host import connect
from concord.spec.presets import ECP5_85F
from concord.spec.training import TrainingFormats
from concord.train import (
    Augmentation,
    CannotTrain,
    Figures,
    OutputFigures,
    OutputLoss,
    Settings,
    Trainer,
    augmented,
    described,
    export_onnx,
)
from concord.train.console import convergence, line, summary
from concord.train.layers.base import PassContext
from concord.train.losses import ONLY, losses_of
from concord.train.network import TrainableNetwork, batch
from concord.train.npu import NpuTrainer
from concord.train.overflow_settings import OverflowSettings
from concord.train.settings import Convergence, read_plan
from concord.train.tensor import Tensor, added
from support.train_digits import assert_a_break_changes_nothing, bits, digits, few

#: A network that says which digit an image shows, and gives the image, through 24 numbers.
LAYERS = [
    {"op": "flatten"}, {"op": "dense", "outputs": 24, "name": "code"}, {"op": "relu", "name": "seen"},
    {"op": "dense", "outputs": 10, "name": "digit"}, {"op": "dense", "outputs": 64, "from": "seen", "name": "image"},
]  # fmt: skip
ENDS = ("digit", "image")
LOSSES = {"image": OutputLoss("mse", Fraction(3)), "digit": OutputLoss()}


def graph(outputs=ENDS):
    return described(LAYERS, (1, 8, 8), outputs=outputs)


def both(samples):
    """Digits and images as labels."""
    return replace(samples, y={"digit": samples.y, "image": samples.inputs(slice(None)).reshape(-1, 64)})


def trainer(samples=None, test=None, net=None, **settings):
    settings = {"epochs": 2, "batch": 32, "losses": LOSSES} | settings
    return Trainer(net or graph(), samples or both(few()), Settings(**settings), test, random=True)


def test_gradients_are_those_of_both_outputs():
    network, formats = TrainableNetwork(graph(), TrainingFormats(), seed=1), TrainingFormats()
    samples = both(few(16))
    outputs, memories = network.forward_all(batch(samples.inputs(slice(None)), network.graph, formats),
                                            PassContext(formats))  # fmt: skip
    assert list(outputs) == ["digit", "image"] and outputs["image"].mant.shape == (16, 1, 64)
    judged = {loss.output: loss.gradient for loss in losses_of(outputs, samples.labels, LOSSES, formats)}
    whole = network.backward(judged, memories, PassContext(formats))
    parts = [network.backward({name: judged[name]}, memories, PassContext(formats)) for name in ENDS]
    assert set(parts[0]) & set(parts[1]) == {"code.weight", "code.bias"} and set(whole) == set(network.parameters)
    for name, part in zip(ENDS, parts, strict=True):
        for key in (f"{name}.weight", f"{name}.bias"):
            assert np.array_equal(whole[key].values, part[key].values)
    exact = network.backward({name: g.with_mant(g.mant * 0) for name, g in judged.items()}, memories,
                             PassContext(formats))  # fmt: skip
    assert not any(change.mant.any() for change in exact.values())
    apart = added([part["code.weight"] for part in parts], formats.intermediate).values
    largest = np.abs(whole["code.weight"].values).max()
    assert np.abs(whole["code.weight"].values - apart).max() <= 2.0**-6 * largest  # gradients are rounded in between


def test_a_weight_is_a_factor_of_the_gradient():
    formats, rng = TrainingFormats(), np.random.default_rng(1)
    outputs = {"a": Tensor(rng.integers(-99, 99, (4, 1, 5)).astype(float), -4, 99)}
    labels = {"a": np.arange(4)}
    (plain,) = losses_of(outputs, labels, {"a": OutputLoss()}, formats)
    for weight in (Fraction(1, 4), Fraction(3), Fraction(1, 3)):
        by = OutputLoss(weight=weight)
        (weighted,) = losses_of(outputs, labels, {"a": by}, formats)
        want = plain.gradient.values * float(by.factor.value)
        assert np.abs(weighted.gradient.values - want).max() <= 2.0 ** (weighted.gradient.exp - 1)
        assert (weighted.value, weighted.right) == (plain.value, plain.right)
        assert abs(by.factor.value - weight) <= weight / (1 << 16)


def test_one_output_with_a_name_is_trained_as_one_without():
    alone = trainer(few(), net=graph(["digit"]), losses={})
    alone.fit()
    named = few()
    named = trainer(replace(named, y={"digit": named.y}), net=graph(["digit"]), losses={"digit": OutputLoss()})
    named.fit()
    assert bits(alone.network) == bits(named.network)
    assert [f.loss for f in named.history] == [f.loss for f in alone.history]
    assert [f.outputs["digit"].accuracy for f in named.history] == [f.accuracy for f in alone.history]
    assert not alone.history[0].outputs and named.history[0].accuracy is None


def test_files_of_one_output_are_what_they_were(tmp_path):
    one = trainer(few(), few(20), net=graph(["digit"]), losses={})
    one.fit(lambda t: t.epoch == 1 and t.done == 1)
    one.save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as file:
        progress = json.loads(str(file["header"]))["progress"]
    assert progress["sums"] == one._sums[ONLY] and "outputs" not in progress["history"][0]
    assert "losses" not in one.settings.facts


@pytest.mark.slow
def test_both_are_learned_and_written_and_compile():
    train, test = (both(part) for part in digits())
    one = trainer(train, test, epochs=8)
    one.fit()
    first, last = one.history[0], one.history[-1]
    assert last.outputs["digit"].test_accuracy > 0.9
    assert last.outputs["image"].test_loss < 0.5 * first.outputs["image"].test_loss
    assert last.outputs["image"].accuracy is last.accuracy is last.test_accuracy is None
    for figures in one.history:
        for key in ("loss", "test_loss"):
            parts = {name: getattr(figures.outputs[name], key) for name in ENDS}
            assert getattr(figures, key) == parts["digit"] + 3 * parts["image"]
    only = trainer(digits()[0], digits()[1], graph(["digit"]), losses={}, epochs=8)
    only.fit()
    shared = [one.network.parameters[k].weight.tobytes() != only.network.parameters[k].weight.tobytes()
              for k in ("code.weight", "digit.weight")]  # fmt: skip
    assert all(shared)
    file, inputs = export_onnx(one.trained()), test.inputs(slice(None))
    net = import_model(file)
    assert net.outputs == list(ENDS)
    (got, want) = (execute.run(g, {g.inputs[0]: inputs[:, 0][:, None]}) for g in (net, one.trained()))
    assert all(np.abs(got[name] - want[name]).max() < 1e-4 * np.abs(want[name]).max() for name in ENDS)
    run = concord.compile(file, preset="ecp5-85f").run(inputs)
    assert set(run) == set(ENDS)
    accuracy = (run["digit"].reshape(len(test), -1).argmax(axis=1) == test.y["digit"]).mean()
    assert accuracy == pytest.approx(last.outputs["digit"].test_accuracy, abs=0.01)
    error = np.mean((run["image"].reshape(len(test), -1) - test.y["image"]) ** 2)
    assert error == pytest.approx(last.outputs["image"].test_loss, rel=0.1)


def test_what_is_shown_has_every_output():
    one = trainer(test=both(few(20)))
    assert one.running == ""
    one.step()
    loss, right = one._sums["digit"]
    assert one.running.startswith(f"digit: loss {loss / 32:.4f}, accuracy {100 * right / 32:.1f} %, image: loss ")
    assert not one.running.endswith("%")
    one.fit()
    text = line(one.history[-1])
    figures = one.history[-1].outputs["digit"]
    assert f", digit: loss {figures.loss:.4f}, accuracy {100 * figures.accuracy:.2f} %, test loss " in text
    assert f", image: loss {one.history[-1].outputs['image'].loss:.4f}, test loss" in text
    headers = [column.header for column in summary(one.history).columns]
    assert headers[6:10] == ["digit", "test digit", "image", "test image"]


def test_an_output_may_be_called_like_a_column():
    figures = Figures(0, 0.5, 1.25, outputs={"loss": OutputFigures(2.5), "grown": OutputFigures(3.5, 0.25)})
    table = summary([figures])
    shown = {column.header: next(iter(column.cells)) for column in table.columns}
    assert len(table.columns) == 13
    assert (shown["loss"], shown["'loss'"], shown["grown"], shown["'grown'"]) == ("1.2500", "2.5000", "0", "25.00 %")


@pytest.mark.parametrize("shards", [1, 3])
def test_a_break_changes_nothing(shards, tmp_path):
    assert_a_break_changes_nothing(lambda: trainer(test=both(few(20)), shards=shards), tmp_path / "c.npz")
    for other in ({"image": OutputLoss("mse"), "digit": OutputLoss()}, {**LOSSES, "digit": OutputLoss("mse")}):
        samples = both(few())
        if other["digit"].loss == "mse":
            samples = replace(samples, y=samples.y | {"digit": np.eye(10)[samples.y["digit"]]})
        with pytest.raises(ValueError, match="must be of this network, with these settings and data"):
            trainer(samples, test=None, losses=other, shards=shards).restore(tmp_path / "c.npz")


def test_an_output_may_be_read_by_a_layer_and_two_outputs_may_share_what_a_loss_reads():
    layers = [{"op": "dense", "outputs": 4, "name": "a"}, {"op": "relu"}, {"op": "dense", "outputs": 3, "name": "b"}]
    net = described(layers, (5,), outputs=["a", "b"])
    network, context = TrainableNetwork(net, TrainingFormats(), 2), PassContext(TrainingFormats())
    rng = np.random.default_rng(3)
    x = Tensor(rng.integers(-90, 90, (6, 1, 5)).astype(float), -6, 90)
    outputs, memories = network.forward_all(x, context)
    g = {name: y.with_mant(np.ones_like(y.mant)) for name, y in outputs.items()}
    whole = network.backward(g, memories, context)
    alone = [network.backward({name: g[name]}, memories, context)["a.weight"].values for name in ("a", "b")]
    assert all(part.any() for part in alone)
    near = np.abs(whole["a.weight"].values - sum(alone)).max()
    assert near <= 2.0**-10 * np.abs(sum(alone)).max()


def test_a_training_ends_by_the_figure_of_an_output():
    whole = trainer(test=both(few(20)), epochs=12, rate=Fraction(1, 2))
    whole.fit()
    accuracies = [figures.outputs["digit"].test_accuracy for figures in whole.history]
    stop = Convergence("test_accuracy", 1, "digit")
    ends = next(k for k in range(1, 13) if stop.converged(accuracies[:k]))
    assert ends < 12
    short = trainer(test=both(few(20)), epochs=12, rate=Fraction(1, 2), stop=stop)
    assert len(short.fit()) == ends and short.history == whole.history[:ends]
    assert f"converged in epoch {ends} of 12: digit test accuracy was best" in convergence(short)[0]


def test_changed_samples_have_the_labels_of_all_outputs():
    got = augmented(both(few(6)), Augmentation(copies=2, noise=0.1), 1, LOSSES)
    assert len(got) == 18 and {name: len(y) for name, y in got.labels.items()} == {"digit": 18, "image": 18}
    assert np.array_equal(got.y["digit"][6:12], got.y["digit"][:6])


CONFIG = """
[model]
input = [1, 8, 8]
outputs = ["digit", "image"]
layers = [
  {op = "flatten"}, {op = "dense", outputs = 16}, {op = "relu", name = "seen"}, {op = "dense", outputs = 10, name = "digit"},
  {op = "dense", outputs = 64, from = "seen", name = "image"},
]
[data]
file = "x.npz"
scale = 0.0625
y = {digit = "y_train", image = "images"}
test_x = "x_train"
test_y = {digit = "y_train", image = "images"}
[train]
epochs = 2
stop = {metric = "test_accuracy", output = "digit", patience = 2}
[train.losses]
digit = "cross_entropy"
image = {loss = "mse", weight = "1/2"}
"""  # noqa: E501


def test_the_command_trains_all_outputs(tmp_path):
    samples = both(few())
    np.savez(tmp_path / "x.npz", x_train=samples.x, y_train=samples.y["digit"], images=samples.y["image"])
    (tmp_path / "net.toml").write_text(CONFIG)
    plan = read_plan(tmp_path / "net.toml")
    assert plan.settings.losses == {"digit": OutputLoss(), "image": OutputLoss("mse", Fraction(1, 2))}
    assert plan.settings.stop == Convergence("test_accuracy", 2, "digit") and plan.outputs == ENDS
    done = CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "digit: loss" in done.output and "image: loss" in done.output
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert set(history[1]["outputs"]["digit"]) == {"loss", "accuracy", "test_loss", "test_accuracy"}
    assert import_model(tmp_path / "out" / "network.onnx").outputs == list(ENDS)
    for old, new, message in (
        ('image = {loss = "mse", weight = "1/2"}', "", r"losses must have one for each of the outputs digit, image"),
        ('weight = "1/2"', "weight = 0", "weight must be above 0, not 0.0"),
        ('loss = "mse"', 'loss = "hinge"', "loss must be one of cross_entropy, mse, not 'hinge'"),
        ('loss = "mse"', 'kind = "mse"', r"\[train.losses\] image must have loss, weight only, not kind"),
        ("epochs = 2", 'loss = "mse"', r"\[train\] must have loss, that of the only output, or losses, not both"),
        ('image = "images"}\ntest_x', 'picture = "images"}\ntest_x', "must be one of each of digit, image, not digit"),
        ('y = {digit = "y_train", image = "images"}\ntest_x', "test_x", "must be one of each of digit, image, not one"),
        ('image = "images"}\ntest_x', 'image = "none"}\ntest_x', r"must have the arrays \['none'\], and has \["),
        ('output = "digit"', 'output = "side"', r"stop.output must be one of losses, digit, image, not 'side'"),
        ('output = "digit", ', "", "must be a loss with a sum of several losses, which has no accuracy"),
        ('outputs = ["digit", "image"]', "outputs = []", r"outputs must be a list of names of layers, beside layers"),
        ('["digit", "image"]', '["digit", "y"]', "outputs must be among the layers flatten1, dense1, seen"),
        ('from = "seen"', 'from = "late"', "layer image must be from a layer in front of it, not 'late'"),
        ('scale = 0.0625', 'targets = "network"', 'targets must be "labels"'),
    ):  # fmt: skip
        assert CONFIG.count(old) >= 1
        (tmp_path / "net.toml").write_text(CONFIG.replace(old, new, 1))
        wrong = CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "other")])
        assert wrong.exit_code == 1 and "Traceback" not in wrong.output
        assert re.search(message, " ".join(wrong.output.split())), wrong.output


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trainer(losses={}), "losses must have one for each of the outputs digit, image, not none"),
        (lambda: trainer(losses={**LOSSES, "more": OutputLoss()}), "digit, image, not digit, image, more"),
        (lambda: trainer(few()), "labels of the training data must be one of each of digit, image, not one array"),
        (lambda: trainer(net=graph(["digit"]), losses={}), "must be one array, that of the only output, not digit, im"),
        (lambda: trainer(test=replace(both(few(9)), y={"digit": np.zeros(9, int)})), "test data must be one of each"),
        (lambda: trainer(replace(both(few(9)), y={"digit": np.full(9, 10), "image": np.zeros((9, 64))})),
         r"labels of the training data of digit must be in 0\.\.9, not 10\.\.10"),
        (lambda: trainer(replace(both(few(9)), y={"digit": np.zeros(9, int), "image": np.zeros((9, 63))})),
         "targets of the training data of image must have 64 elements per sample"),
        (lambda: OutputLoss("hinge"), "loss must be one of cross_entropy, mse, not 'hinge'"),
        (lambda: OutputLoss(weight=Fraction(-1)), "weight must be above 0, not -1.0"),
        (lambda: Settings(losses={"": OutputLoss()}), "losses must have the names of outputs, not an empty one"),
        (lambda: Convergence("loss", 1, 3), "stop.output must be the name of an output, not 3"),
        (lambda: Settings(losses=LOSSES, stop=Convergence("accuracy", 1, "image")), "a loss with mse, which"),
    ],
)  # fmt: skip
def test_errors_before_the_first_step(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_networks_without_an_output_and_several_outputs_on_the_npu_are_refused():
    net = graph()
    net.outputs = []
    with pytest.raises(CannotTrain, match="network must have one input and an output or more, not 1 and 0"):
        TrainableNetwork(net, TrainingFormats())
    with connect("emulator", ECP5_85F) as device:
        settings = Settings(losses=LOSSES)
        with pytest.raises(ValueError, match=r"must have one output .* not \[train.losses\] of image, digit; train"):
            NpuTrainer(device, graph(), both(few()), settings, random=True)


def test_accumulators_of_few_bits_have_all_outputs():
    one = trainer(test=both(few(20)), epochs=1, overflow=OverflowSettings(accumulator_bits=16))
    one.fit()
    figures = one.history[0]
    assert figures.overflow.sums == 96 * (24 + 10 + 64)
    assert figures.test_overflow.ended == 0 and figures.outputs["digit"].test_accuracy is not None
    evidence = one.evidence(export_onnx(one.trained()))
    assert [layer.name for layer in evidence.layers] == ["code", "digit", "image"]
