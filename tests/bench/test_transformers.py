"""Small transformers: the network that is trained is the one that is written, samples, and what measures them."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.spec.config_file import read_config
from concord.spec.presets import ECP5_85F_256
from concord_bench.transformers.__main__ import CONFIG, main
from concord_bench.transformers.encoder import EPSILON, EncoderSizes, encoder_model, random_weights
from concord_bench.transformers.samples import (
    RECOGNITIONS,
    SHIFTS,
    Recognition,
    Samples,
    clothes,
    keywords,
    shifted,
    stretched,
)
from support.frameworks import needs
from support.trained import DATA, needs_data

SMALL = EncoderSizes(tokens=7, inputs=5, classes=3, layers=2, width=12, heads=2, hidden=20)


def weights_of(sizes, seed=1):
    """Biases, shifts and scales that are not those of an untrained network, too."""
    rng = np.random.default_rng(seed)
    return {name: (values + rng.normal(0, 0.3, values.shape)).astype(np.float32)
            for name, values in random_weights(sizes, seed).items()}  # fmt: skip


def encoded(sizes, weights, x):
    """Logits of one sample ``[tokens, inputs]``, as the page says it."""

    def affine(name, x):
        return x @ weights[name] + weights[f"{name}.bias"]

    def normalised(name, x):
        x = x - x.mean(axis=1, keepdims=True)
        return (
            x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPSILON) * weights[f"{name}.scale"]
            + weights[f"{name}.shift"]
        )

    x = np.concatenate([np.zeros((1, sizes.width)), x @ weights["embed"]]) + weights["positions"]
    each = sizes.width // sizes.heads
    for layer in range(sizes.layers):
        y = normalised(f"{layer}.norm", x)
        query, key, value = (affine(f"{layer}.{part}", y) for part in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for head in range(sizes.heads):
            part = slice(head * each, (head + 1) * each)
            shares = np.exp(query[:, part] @ key[:, part].T / np.sqrt(each))
            mixed[:, part] = shares / shares.sum(axis=1, keepdims=True) @ value[:, part]
        x = x + affine(f"{layer}.out", mixed)
        x = x + affine(f"{layer}.down", np.maximum(affine(f"{layer}.up", normalised(f"{layer}.norm2", x)), 0))
    return affine("logits", normalised("last", x[:1]))[0]


def test_the_model_is_an_encoder():
    weights, x = weights_of(SMALL), np.random.default_rng(2).normal(0, 1, (4, 7, 5))
    found = execute.run(import_model(encoder_model(SMALL, weights)), {"x": x})["logits"]
    want = [encoded(SMALL, weights, sample) for sample in x]
    np.testing.assert_allclose(found.reshape(4, 3), want, rtol=1e-4, atol=1e-4)
    assert SMALL.weights == sum(values.size for values in weights.values())


@needs("torch")
@pytest.mark.slow
def test_training_computes_the_same_network():
    import torch

    from concord_bench.transformers.training import logits, train

    weights, x = weights_of(SMALL), np.random.default_rng(3).normal(0, 1, (4, 7, 5)).astype(np.float32)
    tensors = {name: torch.from_numpy(values) for name, values in weights.items()}
    found = logits(tensors, SMALL, torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, [encoded(SMALL, weights, sample) for sample in x], rtol=1e-3, atol=1e-3)
    y, losses = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]], []
    samples = Samples(x, lambda places, _: y[places], x, np.array([0, 1, 2, 0]))
    train(Recognition(SMALL, lambda data: samples, 20, 1e-2), samples, show=lambda step, loss: losses.append(loss))
    assert losses[-1] < losses[0]


def test_shifts():
    x = np.arange(4.0, dtype=np.float32).reshape(1, 4, 1)
    assert [shifted(x, by).ravel().tolist() for by in (-1, 0, 2)] == [[1, 2, 3, 3], [0, 1, 2, 3], [0, 0, 0, 1]]


def test_speeds():
    """A sample is its own frames further apart or closer together, never others."""
    x = np.tile(np.arange(98.0, dtype=np.float32).reshape(1, 98, 1), (50, 1, 2))
    found = stretched(np.random.default_rng(1), x)[..., 0]
    steps = np.diff(found, axis=1)
    assert found.min() >= 0 and found.max() <= 97 and steps.min() >= 0
    inner = steps[:, 45:53]
    assert inner.min() > 0.79 and inner.max() < 1.26 and np.ptp(inner, axis=1).max() < 1e-5 and np.ptp(inner) > 0.2


@needs_data
def test_keywords_are_held_back():
    """Half of all recordings, each five times; no recording is learned from and measured with."""
    samples = keywords(DATA)
    learned, held, y = samples.learned, samples.held, samples.classes
    assert learned.shape == (229 + 90, 98, 10) and held.shape == (230 * len(SHIFTS), 98, 10) and len(y) == len(held)
    middle = held[SHIFTS.index(0) * 230 :][:230]
    assert not {sample.tobytes() for sample in learned} & {sample.tobytes() for sample in middle}
    assert (y.reshape(len(SHIFTS), -1) == y[:230]).all()
    rng, places = np.random.default_rng(1), np.arange(60)
    shown = samples.varied(rng, places)
    assert shown.shape == (60, 98, 10) and not np.array_equal(shown, samples.varied(rng, places))
    targets = samples.targets(places, shown)
    np.testing.assert_allclose(targets.sum(axis=1), 1, rtol=1e-5)
    assert np.mean(samples.targets(places, middle).argmax(axis=1) == y[:230]) > 0.88
    np.testing.assert_allclose(learned[:, 1:-1:2], (learned[:, :-2:2] + learned[:, 2::2]) / 2, rtol=1e-5, atol=1e-5)


@needs_data
@pytest.mark.slow
def test_pictures_are_patches():
    samples = clothes(DATA)
    learned, held = samples.learned, samples.held
    assert learned.shape == (30000, 49, 16) and held.shape == (5000, 49, 16)
    assert sorted(set(samples.classes.tolist())) == [*range(10)]
    with np.load(DATA / "data" / "train_fashion.npz") as arrays:
        picture, label = arrays["x_train"][5, 0], arrays["y_train"][5]
    assert samples.targets(np.array([5]), learned[5:6])[0].argmax() == label
    np.testing.assert_allclose(learned[5, 8].reshape(4, 4), picture[4:8, 4:8] / 255 - 0.5, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECOGNITIONS)
def test_the_sizes_fit_the_npu(name):
    """That of ``attention.toml``, all of whose matrices of keys the program writes."""
    config = read_config(CONFIG)
    assert config.macs == ECP5_85F_256.macs and config.writable_matrix
    sizes = RECOGNITIONS[name].sizes
    compiled = compile_graph(import_model(encoder_model(sizes, weights_of(sizes))), config)
    assert sum(layer.rows is not None for layer in compiled.lowered.layers) >= 2 * sizes.layers


@needs_data
@pytest.mark.slow
def test_the_command(tmp_path):
    path, facts = tmp_path / "encoder.onnx", tmp_path / "facts.json"
    sizes = replace(RECOGNITIONS["clothes"].sizes, layers=1, width=16, heads=2, hidden=16)
    onnx.save(encoder_model(sizes, random_weights(sizes, 1)), path)
    words = ["measure", "clothes", path, "--formats", "none", "--samples", "6", "--derived-samples", "2",
             "--rtl-samples", "0", "--json", facts]  # fmt: skip
    done = CliRunner().invoke(main, list(map(str, words)), env={"CONCORD_DATA": str(DATA)})
    assert done.exit_code == 0, done.output
    found = json.loads(facts.read_text())
    assert found["samples"] == 6 and found["formats"]["none"]["different"] == {"derived": 0}
    assert f"{found['formats']['none']['cycles']:,}" in done.output and "not run" in done.output
