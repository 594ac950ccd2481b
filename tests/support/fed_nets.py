"""Networks for the feeder, and batches for them."""

import numpy as np

from support.compiled_nets import gru, perceptron, residual
from support.row_tiled_nets import separable

NETWORKS = {
    "residual": residual,
    "gru": gru,
    "perceptron": lambda: perceptron(8, 8, 4),
    "row tiles": lambda: separable(24),
}


def batch_of(graph, samples, kind):
    """Inputs with at most 200 different numbers for the kind ``"codes"``, else with many."""
    rng = np.random.default_rng(3)
    shape = {name: (samples, *graph.sample_shape(name)) for name in graph.inputs}
    if kind == "codes":
        return {name: (rng.integers(0, 200, size) - 100) / 37 for name, size in shape.items()}
    return {name: rng.normal(0, 1, size) for name, size in shape.items()}
