"""Losses: exact definitions against fractions with many digits, and the same bits everywhere."""

import numpy as np

from concord.spec.training import TrainingFormats
from concord.train.losses import cross_entropy, squared_error
from concord.train.tensor import Tensor

FORMATS = TrainingFormats()


def test_the_gradient_is_probability_minus_one_hot():
    rng = np.random.default_rng(2)
    logits = Tensor(rng.integers(-(1 << 20), 1 << 20, (50, 10)).astype(float), -17, 1 << 20)
    labels = rng.integers(0, 10, 50)
    got = cross_entropy(logits, labels, FORMATS)
    z = logits.values - logits.values.max(axis=1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    want = p - np.eye(10)[labels]
    assert np.abs(got.gradient.values - want).max() < 2.0**-15
    assert abs(got.value - -np.log(p[np.arange(50), labels]).sum()) < 1e-2
    assert got.right == int((p.argmax(axis=1) == labels).sum())
    assert np.abs(got.gradient.mant.sum(axis=1)).max() <= 10  # rounding of ten probabilities


def test_squared_error():
    output = Tensor(np.array([[64.0, -32], [0, 16]]), -5, 64)
    target = np.array([[1.5, 0.0], [0.25, 0.75]])
    got = squared_error(output, target, FORMATS)
    assert got.gradient.values.tolist() == [[0.5, -1.0], [-0.25, -0.25]]
    assert got.value == (0.25 + 1 + 0.0625 + 0.0625) / 2 and got.right is None


def test_a_squared_error_is_the_same_wherever_its_elements_lie():
    rng, targets = np.random.default_rng(1), np.zeros((40, 6, 5, 7))
    mant = rng.integers(-(1 << 30), 1 << 30, targets.shape).astype(float)
    other = np.ascontiguousarray(mant.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert (other == mant).all() and not other.flags.c_contiguous
    first, second = (squared_error(Tensor(m, -31, 1 << 30), targets, FORMATS) for m in (mant, other))
    assert first.value == second.value and (first.gradient.mant == second.gradient.mant).all()
