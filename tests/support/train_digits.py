"""Digits to train with, formats to try, and what came of a network."""

from functools import cache

import numpy as np

from concord.host import connect
from concord.spec.formats import Rounding
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Samples
from concord.train.noise import permutation

FORMATS = {
    "default": TrainingFormats(),
    "blocks": TrainingFormats(
        weight=TrainingFormat(6, 8), activation=TrainingFormat(7, 8), gradient=TrainingFormat(12, 16)
    ),
    "stochastic": TrainingFormats(
        gradient=TrainingFormat(10, rounding=Rounding.STOCHASTIC),
        accumulator=AccumulatorFormat(12, rounding=Rounding.STOCHASTIC),
    ),
    "even": TrainingFormats(activation=TrainingFormat(8, rounding=Rounding.NEAREST_EVEN)),
}


@cache
def digits():
    """1,400 images to learn from and 397 to judge by; no test may write to them."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = permutation(1, (9, 9), len(x))
    x, y = x[order].reshape(-1, 1, 8, 8).astype(np.uint8), y[order].astype(np.int64)
    for array in (x, y):
        array.setflags(write=False)
    return Samples(x[:1400], y[:1400], 1 / 16), Samples(x[1400:], y[1400:], 1 / 16)


def few(count=96):
    train, _ = digits()
    return Samples(train.x[:count], train.y[:count], train.scale)


def bits(network):
    return {k: [p.weight.tobytes(), p.acc.tobytes(), p.exp.tobytes()] for k, p in network.parameters.items()}


def assert_a_break_changes_nothing(make, path, numbers=None):
    """A run that goes on from its checkpoint in the second epoch is the whole one; ``make`` begins a run.

    ``numbers`` of a run must be the same, besides what is said of its epochs. Returns the whole run, and the other.
    """
    whole, first, second = (make() for _ in range(3))
    whole.fit()
    first.fit(lambda t: t.epoch == 1 and t.done == 1)
    first.save(path)
    second.restore(path)
    assert (second.epoch, second.done, second.running) == (1, 1, first.running)
    second.fit()
    numbers = numbers or (lambda run: bits(run.network))
    assert numbers(second) == numbers(whole) and second.history == whole.history
    return whole, second


def on_emulator(compiled, samples):
    """Results of the NPU."""
    inputs = {compiled.graph.inputs[0]: samples.inputs(slice(None))}
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        results = device.run(compiled.package.arrangement.pack(inputs))
    (found,) = compiled.package.finish(inputs, results).values()
    return found.reshape(len(samples), -1)
