"""Small graph networks, and how they are trained."""

from fractions import Fraction

import numpy as np

from concord.spec.training import TrainingFormats
from concord.train import Samples, Settings, Trainer, described
from concord.train.overflow_settings import OverflowSettings
from support.expressions import network, tensor

#: Edges of six nodes.
RING = [[k, (k + 1) % 6] for k in range(6)]
LAYERS = [
    {"op": "graph_conv", "outputs": 5, "edges": RING}, {"op": "relu"}, {"op": "graph_conv", "outputs": 4},
    {"op": "relu"}, {"op": "flatten"}, {"op": "dense", "outputs": 3},
]  # fmt: skip


def data(count=48, features=3):
    """Three classes: which nodes are bright."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 4, (count, 6, features)), rng.integers(0, 3, count)
    for sample, label in zip(x, y, strict=True):
        sample[2 * label : 2 * label + 2] += 9
    return Samples(x, y, 1 / 16)


def trainer(formats=None, layers=LAYERS, engine=None, shards=1, **overflow):
    settings = Settings(epochs=2, batch=12, rate=Fraction(1, 8), formats=formats or TrainingFormats(), shards=shards,
                        overflow=OverflowSettings(**overflow) if overflow else None)  # fmt: skip
    return Trainer(described(layers, (6, 3)), data(), settings, random=True, engine=engine)


def whole(rng, *shape):
    """Whole numbers; the greatest is no power of two, which would saturate as a weight."""
    values = rng.integers(-7, 8, shape).astype(float)
    values.reshape(-1)[0] = 7
    return values


def mixed(x, weight):
    """A product with a constant on the left, which is not trained."""
    turned = x.transpose(0, 2, 1)
    product = turned.then("Dense", name="a", weight=weight, bias=np.zeros(len(weight)), fixed=True)
    return product.transpose(0, 2, 1)


def linear(rng, order, weight=None):
    """A graph convolution of 5 nodes with 3 features, without a function, and its constants."""
    a, x = whole(rng, 4, 5), tensor(1, 5, 3)
    a[1, 2] = 0
    w, b = whole(rng, 6, 3) if weight is None else weight, whole(rng, 6)
    if order == "A (X W)":
        return network(mixed(x.dense(w, name="w"), a).combined("Add", b, name="b"))
    return network(mixed(x.same("one").called("i"), a).called("p").dense(w, b, "w"))
