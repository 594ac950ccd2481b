"""Training on from few samples: changed ones, the outputs of a network as targets, and weights rounded for samples."""

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.graph import execute
from concord.spec.training import TrainingFormat, TrainingFormats
from concord.train import Augmentation, Samples, Settings, Trainer, augmented, described, export_onnx, fitted, taught
from concord.train.network import TrainableNetwork
from concord.train.settings import read_plan
from concord_bench.evidence.finetune import widths

LAYERS = [
    {"op": "conv", "channels": 6, "pad": 1}, {"op": "relu"}, {"op": "depthwise", "pad": 1}, {"op": "relu"},
    {"op": "flatten"}, {"op": "dense", "outputs": 4},
]  # fmt: skip
X = np.random.default_rng(1).random((20, 2, 5, 7))


def network(seed=3):
    """A network with random weights and biases."""
    rng = np.random.default_rng(seed)
    graph = described(LAYERS, (2, 5, 7))
    for k, node in enumerate(graph.nodes):
        if "weight" in node.attrs:
            weight, bias = node.attrs["weight"], node.attrs["bias"]
            heavy = rng.normal(size=weight.shape) * rng.choice([0.2, 1, 3], weight.shape)
            weight, bias = (a.astype(np.float32).astype(float) for a in (heavy / 4, rng.normal(size=bias.shape) / 8))
            graph.nodes[k] = node.with_attrs(weight=weight, bias=bias)
    return graph


# Changed samples -------------------------------------------------------------------------------------------


def test_samples_are_moved_and_their_edges_repeated():
    got = Augmentation(copies=40, shift=(0, 2, 0)).changed(X, 1).reshape(40, *X.shape)
    padded = np.pad(X, [(0, 0), (0, 0), (2, 2), (0, 0)], mode="edge")
    moved = {by: padded[:, :, 2 - by : 7 - by] for by in range(-2, 3)}
    found = [{by for by, want in moved.items() if np.array_equal(copy[k], want[k])} for copy in got for k in range(20)]
    assert all(len(by) == 1 for by in found) and set.union(*found) == {-2, -1, 0, 1, 2}


def test_samples_are_mirrored_mixed_and_made_noisy_within_limits():
    mirrored = Augmentation(flip=2).changed(X, 1)
    turned = [np.array_equal(m, x[..., ::-1]) for m, x in zip(mirrored, X, strict=True)]
    kept = [np.array_equal(m, x) for m, x in zip(mirrored, X, strict=True)]
    assert any(turned) and any(kept) and all(a != b for a, b in zip(turned, kept, strict=True))
    noise = Augmentation(noise=0.25).changed(X, 1) - X
    assert 0.2 < np.abs(noise).max() <= 0.25 and abs(noise.mean()) < 0.02
    mixed = Augmentation(mix=0.5).changed(X, 1)
    assert not np.array_equal(mixed, X) and np.abs(mixed - X).max() <= 0.5
    low, high = X.min(axis=0), X.max(axis=0)
    assert (mixed >= low - 1e-15).all() and (mixed <= high + 1e-15).all()


def test_the_seed_decides_and_copies_differ():
    change = Augmentation(copies=3, shift=(0, 1, 1), flip=1, noise=0.1, mix=0.2)
    one, again, other = (change.changed(X, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert len({part.tobytes() for part in np.split(one, 3)}) == 3
    few, more = (Augmentation(copies=copies, noise=0.1).changed(X, 1) for copies in (1, 2))
    assert np.array_equal(few, more[:20])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Augmentation(copies=0), "copies must be a whole number from 1 on, not 0"),
        (lambda: Augmentation(shift=(1, -1)), r"shift must have whole numbers from 0 on, not \[1, -1\]"),
        (lambda: Augmentation(flip=-1), "flip must be an axis of a sample from 0 on, not -1"),
        (lambda: Augmentation(noise=float("nan")), "noise must be finite and from 0 on, not nan"),
        (lambda: Augmentation(mix=1.5), "mix must be in 0..1, not 1.5"),
        (lambda: Augmentation(shift=(1, 1)).changed(X, 1), "shift must have a number for each of 3 axes"),
        (lambda: Augmentation(flip=3).changed(X, 1), "flip must be an axis of a sample with 3 axes, not 3"),
        (lambda: augmented(Samples(X, np.zeros(20, int)), Augmentation(mix=0.1), 1), "mix must be 0 with labels"),
        (lambda: taught(network(), Samples(X[:, :1], X)), "samples of the training data must have the shape"),
        (lambda: fitted(network(), TrainingFormats(), X[:1]), "rounded for two samples at least, not 1"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_labels_stay_with_what_they_belong_to():
    got = augmented(Samples((X * 100).astype(np.uint8), np.arange(20), 0.01), Augmentation(copies=2, noise=0.001), 1)
    assert got.y.tolist() == [*range(20)] * 3 and got.scale == 1
    want = np.tile((X * 100).astype(np.uint8) * 0.01, (3, 1, 1, 1))
    assert np.array_equal(got.x[:20], want[:20]) and np.allclose(got.x, want, atol=0.001)


def test_targets_are_what_the_network_gives():
    graph = network()
    got = taught(graph, Samples(X, np.zeros(20)), Augmentation(copies=1, mix=0.5), 1)
    want = execute.run(graph, {graph.inputs[0]: got.x})[graph.outputs[0]]
    assert len(got) == 40 and np.array_equal(got.x[:20], X) and np.array_equal(got.y, want)


# Weights for samples ---------------------------------------------------------------------------------------


def error(graph, formats):
    """Mean squared error of the outputs in a format, for samples that were not rounded with."""
    fresh = np.random.default_rng(2).random((200, 2, 5, 7))
    samples = taught(network(), Samples(fresh, fresh))
    return Trainer(graph, samples, Settings(loss="mse", formats=formats)).judge(samples)[0]


WHOLE = TrainingFormats(weight=TrainingFormat(4), activation=TrainingFormat(12))


@pytest.mark.slow
@pytest.mark.parametrize("formats", [widths(4, 12), WHOLE])
def test_results_change_less_than_with_the_nearest_weights(formats):
    samples = np.random.default_rng(5).random((100, 2, 5, 7))
    got = fitted(network(), formats, samples)
    assert error(got, formats) < 0.6 * error(network(), formats)
    before = {node.name: node.attrs["weight"] for node in network().nodes if "weight" in node.attrs}
    built = TrainableNetwork(got, formats)
    for layer in built.layers:
        if layer.parameters:
            weight = next(node for node in got.nodes if node.name == layer.name).attrs["weight"]
            assert np.array_equal(layer.weight.values, weight) and not layer.weight.acc.any()  # held as they are
            assert not np.array_equal(weight, before[layer.name])


def test_a_weight_far_above_the_others_is_cut_off():
    graph = described([{"op": "flatten"}, {"op": "dense", "outputs": 1}], (1, 4, 4))
    weight = np.full((1, 16), 0.5)
    weight[0, 3] = 8.2
    graph.nodes[1] = graph.nodes[1].with_attrs(weight=weight, bias=np.zeros(1))
    x = np.random.default_rng(1).normal(size=(400, 1, 4, 4))
    got = fitted(graph, widths(5, 8), x).nodes[1].attrs["weight"]
    assert 7.4 < got[0, 3] < 7.6 and set(np.unique(got * 2)) <= set(range(16))  # steps of 1/2; of 1 without the cut
    assert np.array_equal(fitted(graph, widths(5, 8), x).nodes[1].attrs["weight"], got)


def test_a_bias_makes_up_for_the_mean():
    graph = described([{"op": "flatten"}, {"op": "dense", "outputs": 2}], (1, 4, 4))
    rng = np.random.default_rng(4)
    graph.nodes[1] = graph.nodes[1].with_attrs(weight=rng.normal(size=(2, 16)), bias=np.ones(2))
    x = rng.random((64, 1, 4, 4)) + 3
    got = fitted(graph, widths(3, 8), x).nodes[1].attrs
    flat, old = x.reshape(64, 16), graph.nodes[1].attrs
    change = flat @ (got["weight"] - old["weight"]).T + got["bias"] - old["bias"]
    assert np.abs(change.mean(axis=0)).max() < 1e-12 and np.abs(change).max() > 0.01


# The command -----------------------------------------------------------------------------------------------

CONFIG = """
[model]
file = "net.onnx"
rounding = "samples"
[data]
file = "data.npz"
targets = "network"
[augment]
copies = 2
shift = [0, 1, 1]
flip = 2
noise = 0.01
mix = 0.3
[train]
epochs = 2
batch = 10
rate = "1/4096"
loss = "mse"
schedule = [[1, 0.5]]
[formats]
weight = {bits = 5, block = 16}
accumulator = {growth = false}
"""


def command(tmp_path, config=CONFIG, *arguments):
    (tmp_path / "net.toml").write_text(config)
    (tmp_path / "net.onnx").write_bytes(export_onnx(network()))
    np.savez(tmp_path / "data.npz", x_train=X, x=X[:5])
    return CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out"), *arguments])


@pytest.mark.slow
def test_the_command_trains_without_labels_and_goes_on(tmp_path):
    done = command(tmp_path)
    assert done.exit_code == 0, done.output
    epochs = done.output.split("Training")[0]
    assert "epoch 2: loss" in epochs and "test loss" in epochs and "accuracy" not in epochs
    plan = read_plan(tmp_path / "net.toml")
    assert plan.augmentation == Augmentation(2, (0, 1, 1), 2, 0.01, 0.3) and plan.fitted and plan.taught
    more = command(tmp_path, CONFIG.replace("epochs = 2", "epochs = 3"), "--resume")
    assert more.exit_code == 0 and "epoch 3: loss" in more.output, more.output


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('loss = "mse"', "", 'loss must be "mse" with targets = "network"'),
        ('"samples"', '"best"', 'rounding must be "nearest", or "samples"'),
        ('"network"', '"teacher"', 'targets must be "labels", or "network"'),
        ('"network"', '"labels"', 'mix must be 0 unless [data] targets = "network"'),
        ("copies = 2", "copies = 0", "copies must be a whole number from 1 on"),
        ("copies = 2", "number = 2", "[augment] must have copies, shift"),
        ('file = "net.onnx"', 'file = "net.onnx"\nstart = "random"', "beside a pretrained file"),
        ("shift = [0, 1, 1]", "shift = [1, 1]", "shift must have a number for each of 3 axes"),
    ],
)  # fmt: skip
def test_configurations_that_are_not_understood(tmp_path, old, new, message):
    done = command(tmp_path, CONFIG.replace(old, new))
    assert done.exit_code == 1 and message in " ".join(done.output.split()) and "Traceback" not in done.output
