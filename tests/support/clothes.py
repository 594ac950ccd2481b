"""Stand-ins for the network and the pictures of the example of the last layer."""

import numpy as np

import concord_bench.last_layer as example
from concord.train import described


def network(seed=1):
    """The layers of the example with random weights."""
    rng, graph = np.random.default_rng(seed), described(example.LAYERS, (1, 28, 28), "clothes")
    for index, node in enumerate(graph.nodes):
        if "weight" in node.attrs:
            shape = node.attrs["weight"].shape
            weight = rng.uniform(-1, 1, shape) * np.sqrt(6 / np.prod(shape[1:]))
            graph.nodes[index] = node.with_attrs(weight=weight.astype(np.float32).astype(float))
    return graph


def pictures(count, seed=2):
    """Bright squares in places that their classes say."""
    rng, y = np.random.default_rng(seed), np.arange(count) % example.CLASSES
    x = rng.integers(0, 40, (count, 1, 28, 28))
    for picture, label in zip(x, y, strict=True):
        size = 4 + 2 * label
        picture[0, 2 : 2 + size, 4 : 4 + size] += 120
    return x.astype(np.uint8), y
