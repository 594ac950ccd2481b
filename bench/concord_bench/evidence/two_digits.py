"""Two digits side by side, and a network with an output for each."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from concord.graph.ir import Graph
from concord.train import Samples, described
from concord.train.noise import raw
from concord_bench.evidence.data import Split, digits

#: Seed and place of the pairs.
_SEED, _PLACE = 23, (9, 5)


@lru_cache(maxsize=1)
def digit_pairs() -> Split:
    """Pairs of the digits of scikit-learn, drawn in each part by itself: 2,000 to learn from, 400 to choose with, 1,000
    to judge by."""
    parts, sizes = digits(), (2000, 400, 1000)
    return Split(*(
        _paired(part, size, number)
        for number, (part, size) in enumerate(zip((parts.train, parts.validation, parts.test), sizes, strict=True))
    ))  # fmt: skip


def _paired(samples: Samples, count: int, number: int) -> Samples:
    """Pairs of images, ``count`` of them, the second one on the right of the first."""
    drawn = (raw(_SEED, (*_PLACE, number), 2 * count) % np.uint64(len(samples))).astype(np.int64).reshape(2, -1)
    left, right = (samples.part(rows) for rows in drawn)
    return Samples(np.concatenate([left.x, right.x], axis=3), {"left": left.y, "right": right.y}, samples.scale)


def two_outputs() -> Graph:
    """Two convolutions that both outputs read, and a product for each."""
    layers: list[dict[str, Any]] = [
        {"op": "conv", "channels": 8, "pad": 1}, {"op": "relu"}, {"op": "max_pool"},
        {"op": "conv", "channels": 16, "pad": 1}, {"op": "relu"}, {"op": "max_pool"}, {"op": "flatten", "name": "seen"},
        {"op": "dense", "outputs": 10, "name": "left"}, {"op": "dense", "outputs": 10, "from": "seen", "name": "right"},
    ]  # fmt: skip
    return described(layers, (1, 8, 16), outputs=("left", "right"))
