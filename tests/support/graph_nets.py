"""Small graph networks, and how they are trained."""

from fractions import Fraction

import numpy as np

from concord.graph.ir import Node
from concord.spec.training import TrainingFormats
from concord.train import Samples, Settings, Trainer, described
from concord.train.overflow_settings import OverflowSettings
from support.expressions import graph_of

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


def around(node, perm=(0, 2, 1)):
    """A product with its last two axes exchanged before and behind it."""
    (x,), (y,), name = node.inputs, node.outputs, node.name
    turned = [f"{name}.{what}" for what in ("turned", "back")]
    middle = node.replace(inputs=(turned[0],), outputs=(f"{name}.product",))
    return [
        Node("Transpose", turned[0], (x,), (turned[0],), {"perm": perm}), middle,
        Node("Transpose", turned[1], middle.outputs, (y,), {"perm": perm}),
    ]  # fmt: skip


def linear(rng, order, weight=None):
    """A graph convolution of 5 nodes with 3 features, without a function, and its constants."""
    a = whole(rng, 4, 5)
    a[1, 2] = 0
    w, b = whole(rng, 6, 3) if weight is None else weight, whole(rng, 6)
    dense = {"weight": w, "bias": np.zeros(6) if order == "A (X W)" else b}
    mix = {"weight": a, "bias": np.zeros(4), "fixed": True}
    if order == "A (X W)":
        nodes = [Node("Dense", "w", ("x",), ("p",), dense), *around(Node("Dense", "a", ("p",), ("q",), mix)),
                 Node("Add", "b", ("q",), ("y",), {"constant": b})]  # fmt: skip
    else:
        one = Node("Dense", "one", ("x",), ("i",), {"weight": np.eye(3), "bias": np.zeros(3)})
        nodes = [one, *around(Node("Dense", "a", ("i",), ("p",), mix)), Node("Dense", "w", ("p",), ("y",), dense)]
    return graph_of(nodes, x=(1, 5, 3))
