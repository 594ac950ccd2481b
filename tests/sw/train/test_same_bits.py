"""Trained bits that stay: faster ways to compute must not change them."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from concord.spec.formats import Rounding
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described, shards
from concord.train.losses import ONLY, OutputLoss
from concord.train.network import TrainableNetwork
from concord.train.noise import NoiseStream
from concord.train.shards import computed, judged

LAYERS = [
    {"op": "conv", "channels": 6, "pad": 1, "name": "first"}, {"op": "relu"}, {"op": "max_pool"},
    {"op": "depthwise", "pad": 1, "name": "a"}, {"op": "conv", "channels": 6, "groups": 2, "pad": 1},
    {"op": "add", "to": "a"}, {"op": "tanh"}, {"op": "conv", "channels": 8, "stride": 2, "pad": 1},
    {"op": "max_pool", "kernel": 3, "stride": 1, "pad": 1}, {"op": "average_pool"}, {"op": "flatten"},
    {"op": "dense", "outputs": 5},
]  # fmt: skip
NOISY = {"bits": 12, "rounding": Rounding.STOCHASTIC}
CASES = {
    "default": (TrainingFormats(), {}),
    "wide": (TrainingFormats(TrainingFormat(16), gradient=TrainingFormat(24), activation=TrainingFormat(12)), {}),
    "narrow": (
        TrainingFormats(TrainingFormat(4), gradient=TrainingFormat(6), intermediate=TrainingFormat(16)),
        {"momentum": Fraction(0), "decay": Fraction(1, 100)},
    ),
    "blocks": (TrainingFormats(TrainingFormat(6, 8), gradient=TrainingFormat(12, 16)), {}),
    "even": (TrainingFormats(activation=TrainingFormat(8, rounding=Rounding.NEAREST_EVEN)), {}),
    "noise": (
        TrainingFormats(
            gradient=TrainingFormat(**NOISY), accumulator=AccumulatorFormat(12, rounding=NOISY["rounding"])
        ),
        {},
    ),
    "growing": (TrainingFormats(), {"rate": Fraction(4)}),
}
#: Of all mantissas and exponents after 8 steps.
WANTED = {
    "default": "b03dd84bcecaf3f2",
    "wide": "70ee9c8f0754844a",
    "narrow": "e86a9ee6665e7dc3",
    "blocks": "259c2505e001b5dd",
    "even": "377a564a6112c059",
    "noise": "594480b2f1844109",
    "growing": "663a268105f8cf0b",
}


def digest(network):
    """Of weights, accumulators, momentum and exponents."""
    found = hashlib.sha256()
    for name, p in sorted(network.parameters.items()):
        exps = [*p.exp.tolist(), p.velocity_exp]
        arrays = [p.weight, p.acc] + ([] if p.velocity is None else [p.velocity])
        found.update(name.encode() + str(exps).encode())
        for array in arrays:
            found.update(np.ascontiguousarray(array, "<i4").tobytes())
    return found.hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_trained_bits_stay(case):
    rng = np.random.default_rng(7)
    samples = Samples(rng.integers(0, 256, (48, 2, 15, 15)).astype(np.uint8), rng.integers(0, 5, 48), 1 / 256)
    formats, more = CASES[case]
    trainer = Trainer(described(LAYERS, (2, 15, 15)), samples, Settings(4, 24, formats=formats, **more), random=True)
    trainer.fit()
    assert digest(trainer.network) == WANTED[case]


def test_shards_have_noise_of_their_own():
    noise, network = (
        NoiseStream(1, (3, 0)),
        TrainableNetwork(described([{"op": "dense", "outputs": 3}], (4,)), CASES["noise"][0], 5),
    )
    samples = Samples(np.full((6, 4), 3.0), np.zeros(6, np.int64))
    found = [
        computed(network, samples, CASES["noise"][0], {ONLY: OutputLoss()}, None, noise, number) for number in (0, 1, 1)
    ]
    assert [shard.calls >> 32 for shard in found] == [0, 1, 1] and noise.calls == 0


def test_a_copy_has_what_a_pass_reads():
    layers = [{"op": "dense", "outputs": 4}, {"op": "batch_norm"}, {"op": "relu"}, {"op": "dense", "outputs": 3}]
    rng = np.random.default_rng(2)
    samples = Samples(rng.normal(size=(40, 5)), rng.integers(0, 3, 40))
    trainer = Trainer(described(layers, (5,)), samples, Settings(3, 10), random=True)
    trainer.fit()
    copy, args = (
        TrainableNetwork(trainer.network.graph, TrainingFormats()),
        (samples, TrainingFormats(), {ONLY: OutputLoss()}, None),
    )
    there = shards._with(copy, shards.state(trainer.network), judged, args)
    assert there == (judged(trainer.network, *args), 0), "the result, and how many numbers were cut off"
