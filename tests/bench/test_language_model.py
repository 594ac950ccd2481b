"""The language model: its text, its step beside attention over a whole text, and what writes with it."""

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import concord
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.states import with_state_inputs, with_states
from concord_bench.language_model.__main__ import main
from concord_bench.language_model.decoder import EPSILON, Sizes, random_weights, states_of_step, step_model
from concord_bench.language_model.text import ALPHABET, decode, encode, text
from concord_bench.language_model.writing import on_derived, on_device, write
from support.frameworks import needs

SMALL = Sizes(layers=2, width=16, heads=2, window=5, hidden=24)


def weights_of(sizes, seed=1):
    rng = np.random.default_rng(seed)
    return {name: values + (rng.normal(0, 1, values.shape) if name.endswith("bias") else 0)
            for name, values in random_weights(sizes, seed).items()}  # fmt: skip


def attention_over_all(sizes, weights, tokens):
    """Logits behind each of some characters, all of them computed together."""

    def normalised(x):
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPSILON)

    x, each = weights["embedding"][tokens].astype(float), sizes.width // sizes.heads
    for layer in range(sizes.layers):
        y = normalised(x)
        query, key, value = (y @ weights[f"{layer}.{part}"] for part in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for head in range(sizes.heads):
            part = slice(head * each, (head + 1) * each)
            for k in range(len(tokens)):
                near = [k - distance for distance in range(sizes.window)]
                keys, values = (
                    np.array([side[n, part] if n >= 0 else np.zeros(each) for n in near]) for side in (key, value)
                )
                shares = np.exp(keys @ query[k, part] + weights[f"{layer}.bias"][head])
                mixed[k, part] = shares @ values / shares.sum()
        x = x + mixed @ weights[f"{layer}.out"]
        x = x + np.maximum(normalised(x) @ weights[f"{layer}.up"], 0) @ weights[f"{layer}.down"]
    return normalised(x) @ weights["logits"]


def test_the_text_is_of_the_alphabet():
    whole = text()
    assert len(whole) > 100_000 and len(ALPHABET) == len(set(ALPHABET)) == 96
    assert decode(encode(whole)) == whole
    with pytest.raises(ValueError, match="characters must be printable ASCII or ends of lines, not 'é'"):
        encode("café")


def test_steps_are_attention_over_the_last_characters():
    weights, tokens = weights_of(SMALL), encode("The window is five characters.")
    graph = with_states(import_model(step_model(SMALL, weights)), SMALL.states)
    found = execute.run(graph, with_state_inputs(graph, {"token": tokens.reshape(-1, 1)}))["logits"]
    want = attention_over_all(SMALL, weights, tokens)
    np.testing.assert_allclose(found.reshape(want.shape), want, rtol=1e-4, atol=1e-4)


@needs("torch")
def test_training_computes_the_same_network():
    import torch

    from concord_bench.language_model.training import logits, train

    weights, tokens = weights_of(SMALL), encode("A longer text than the window.")
    tensors = {name: torch.from_numpy(values.astype(np.float32)) for name, values in weights.items()}
    found = logits(tensors, SMALL, torch.from_numpy(tokens)[None])[0].numpy()
    np.testing.assert_allclose(found, attention_over_all(SMALL, weights, tokens), rtol=1e-3, atol=1e-3)
    losses = []
    train(SMALL, 6, show=lambda step, loss: losses.append(loss))
    assert losses[-1] < losses[0]


def test_draws():
    """With a low temperature it is the likeliest character; the network reads each character once."""
    read = []

    def step(token):
        read.append(token)
        return -np.abs(np.arange(96.0) - token - 1)

    written = write(step, np.array([3, 7]), 4, 0.01, 0)
    assert written.tolist() == [8, 9, 10, 11] and read == [3, 7, 8, 9, 10]
    hot = [write(step, np.array([40]), 30, 5.0, seed).tolist() for seed in (0, 0, 1)]
    assert hot[0] == hot[1] != hot[2]


@pytest.mark.slow
def test_everything_writes_the_same(tmp_path):
    model = step_model(SMALL, weights_of(SMALL))
    assert states_of_step(model) == SMALL.states
    samples = {"token": encode(text()[:20]).reshape(-1, 1)}
    network = concord.compile(model, preset="ecp5-25f", states=SMALL.states, calibrate=samples, quick=True)
    assert set(network.inputs) == {"token"} and set(network.outputs) == {"logits"}
    start = encode("def ")
    with concord.connect("emulator", network) as device:
        first = write(on_device(network, device), start, 20, 1.0, 0)
        again = write(on_device(network, device), start, 20, 1.0, 0)
    derived = write(on_derived(network, tmp_path / "derived.onnx"), start, 20, 1.0, 0)
    assert first.tolist() == again.tolist() == derived.tolist()
    assert len(set(first.tolist())) > 5


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("concord_bench.language_model.__main__.SAMPLES", 20)
    path, facts = tmp_path / "step.onnx", tmp_path / "facts.json"
    onnx.save(step_model(SMALL, weights_of(SMALL)), path)
    words = [path, "--preset", "ecp5-25f", "--on", "emulator", "--on", "derived", "--characters", "12", "--json", facts]
    done = CliRunner().invoke(main, ["write", *map(str, words)])
    assert done.exit_code == 0, done.output
    found = json.loads(facts.read_text())
    assert found["characters"] == {"emulator": 12, "derived": 12} and not any(found["different"].values())
    assert len(found["text"]) == 16 and found["text"].startswith("The ") and found["text"][:8] in done.output
    assert f"{found['cycles']:,} cycles a character" in done.output
    done = CliRunner().invoke(main, ["write", str(path), "--start", ""])
    assert done.exit_code == 1 and "start must have at least one character, not none" in done.output
