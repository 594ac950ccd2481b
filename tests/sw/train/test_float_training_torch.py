"""The float32 reference: the network it computes, and that it takes the same steps."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from concord.graph import execute
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described
from concord_bench.evidence.data import cut
from concord_bench.evidence.floats import FloatTrainer, initial
from concord_bench.evidence.networks import DEPTHWISE, MLP, RESIDUAL, lstm
from concord_bench.evidence.scratch import FLOAT, LAZY, Scratch
from concord_bench.evidence.sentences import LENGTH, SHORTEST, WORDS, sentences, translator
from concord_bench.evidence.store import CHOICE, Run, Store
from support.frameworks import missing, needs

pytestmark = needs("torch")

if missing("torch"):
    pytest.skip(missing("torch"), allow_module_level=True)
NETWORKS = {
    "mlp": MLP, "residual": RESIDUAL, "depthwise": DEPTHWISE, "lstm": lambda: lstm(8),
    "mean": lambda: described(
        [{"op": "conv", "channels": 4}, {"op": "relu"}, {"op": "global_average"}, {"op": "dense", "outputs": 10}],
        (1, 8, 8),
    ),
}  # fmt: skip


def wide(activation):
    """Formats with little rounding and room for updates."""
    return TrainingFormats(
        weight=TrainingFormat(20), bias=TrainingFormat(20), activation=TrainingFormat(activation),
        gradient=TrainingFormat(24), accumulator=AccumulatorFormat(30, 10),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_network_takes_the_same_steps(name):
    graph, rng = NETWORKS[name](), np.random.default_rng(1)
    samples = Samples(rng.random((24, *graph.sample_shape("x"))), rng.integers(0, 10, 24))
    settings = Settings(epochs=3, batch=8, rate=Fraction(1, 8), seed=3, schedule=((1, Fraction(1, 2)),))
    start = initial(graph, 3)
    floats = FloatTrainer(start, samples, settings, samples)
    want = execute.run(start, {"x": samples.inputs(slice(None))})[graph.outputs[0]].reshape(24, -1)
    got = floats.forward(samples.inputs(slice(None))).detach().numpy()
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    bits = 8 if name == "lstm" else 14  # tables of functions have an entry per mantissa
    integers = Trainer(graph, samples, replace(settings, formats=wide(bits)), samples, random=True)
    losses = [[f.test_loss for f in trainer.fit()] for trainer in (floats, integers)]
    assert np.allclose(*losses, rtol=2e-2 if bits == 8 else 5e-3)
    assert abs(losses[0][-1] - losses[0][0]) > 5e-3  # and they are steps


@pytest.mark.slow
def test_sentences_take_the_same_steps():
    """Tables, layer normalisation, and labels of positions of which some do not count."""
    part, graph = sentences().train.part(slice(96)), translator(6, 8)
    settings = Settings(epochs=4, batch=8, rate=Fraction(1, 32), seed=3)
    start = initial(graph, 3)
    floats = FloatTrainer(start, part, settings, part)
    want = execute.run(start, {"x": part.inputs(slice(None))})["y"].reshape(96, -1)
    got = floats.forward(part.inputs(slice(None))).detach().numpy()
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    integers = Trainer(graph, part, replace(settings, formats=wide(8)), part, random=True)
    losses = [[f.test_loss for f in trainer.fit()] for trainer in (floats, integers)]
    assert np.allclose(*losses, rtol=1e-2) and losses[0][-1] < losses[0][0] - 0.05, losses
    (loss, right), labels = floats.judge(part), (part.y >= 0).sum()
    assert loss == floats.history[-1].test_loss and right * labels == round(right * labels)


def test_words_become_what_they_and_those_before_say():
    whole = sentences()
    for part in (whole.train, whole.validation, whole.test):
        assert part.x.shape == part.y.shape == (len(part), LENGTH)
        assert ((part.x == 0) == (part.y == -1)).all() and part.x.max() == WORDS and part.y.max() == WORDS - 1
        ends = (part.x > 0).sum(axis=1)
        assert ends.min() == SHORTEST and ends.max() == LENGTH
    seen = {}
    for words, labels in zip(whole.train.x.tolist(), whole.train.y.tolist(), strict=True):
        for before, word, label in zip(words, words[1:], labels[1:], strict=False):
            if word:
                assert seen.setdefault(((words[0] - 1) % 2, (before - 1) % 2, word), label) == label
    assert len(seen) == 4 * WORDS and len({seen[a, b, 1] for a in (0, 1) for b in (0, 1)}) == 4


def test_a_study_has_it_as_its_first_variant(tmp_path):
    data = cut(np.random.default_rng(1).random((40, 1, 8, 8)), np.arange(40) % 10, 1.0, (20, 10, 10))
    study = Scratch("s", "S", "a", MLP, lambda: data, Settings(epochs=1), (Fraction(1, 8),), (FLOAT, LAZY))
    found = study.do(Run("s", "float32", CHOICE), Store(tmp_path / "none.json"))
    assert found.rate == "1/8" and not found.counts and len(found.curve) == 1


@pytest.mark.parametrize(
    "layers, settings, message",
    [
        (
            [{"op": "flatten"}, {"op": "tanh"}, {"op": "dense", "outputs": 2}],
            Settings(),
            "operators must be among Add, Conv",
        ),
        (
            [{"op": "flatten"}, {"op": "dense", "outputs": 2}],
            Settings(loss="mse"),
            "loss must be cross_entropy, not 'mse'",
        ),
    ],
)
def test_what_it_cannot_do(layers, settings, message):
    graph = described(layers, (1, 2, 2))
    with pytest.raises(ValueError, match=message):
        FloatTrainer(graph, Samples(np.zeros((2, 4)), np.zeros(2, int)), settings)
