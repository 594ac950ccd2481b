"""Random perceptrons for tests."""

import numpy as np

from concord.network import Dense, Network


def network(*widths, activations=None, seed=0):
    """A random network; ReLU between layers unless told otherwise."""
    rng = np.random.default_rng(seed)
    kinds = activations or ["Relu"] * (len(widths) - 2) + [None]
    layers = [
        Dense(f"fc{k}", rng.normal(0, 1 / np.sqrt(a), (b, a)), rng.normal(0, 0.2, b), kind)
        for k, (a, b, kind) in enumerate(zip(widths[:-1], widths[1:], kinds, strict=True), 1)
    ]
    return Network("random", tuple(layers))
