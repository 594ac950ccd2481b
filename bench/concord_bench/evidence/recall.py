"""Pairs of a key and a value, then a key whose value is asked for, and a network that finds it by attention."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from concord.graph.ir import Graph
from concord.train import described
from concord.train.losses import IGNORED
from concord.train.noise import raw
from concord_bench.evidence.data import Split, cut

#: Keys and values there are, and pairs of a sample, whose keys differ.
KEYS, VALUES, PAIRS = 8, 8, 6
#: Seed and place of the samples.
_SEED, _PLACE = 22, (9, 4)


@lru_cache(maxsize=1)
def pairs() -> Split:
    """2,000 samples to learn from, 300 to choose with, 1,000 to judge by: a word per pair, and one that asks."""
    sizes = 2000, 300, 1000
    drawn = raw(_SEED, _PLACE, sum(sizes) * (KEYS + PAIRS + 1)).reshape(sum(sizes), -1)
    keys = np.argsort(drawn[:, :KEYS], axis=1, kind="stable")[:, :PAIRS]
    values = (drawn[:, KEYS:-1] % np.uint64(VALUES)).astype(np.int64)
    rows, asked = np.arange(sum(sizes)), (drawn[:, -1] % np.uint64(PAIRS)).astype(np.int64)
    words = np.column_stack([keys * VALUES + values, KEYS * VALUES + keys[rows, asked]])
    labels = np.full(words.shape, IGNORED)
    labels[:, -1] = values[rows, asked]
    return cut(words, labels, 1.0, sizes)


def attention(features: int = 16, heads: int = 2) -> Graph:
    """An embedding, attention with what it has read added, a layer normalisation, and a product at every position."""
    layers: list[dict[str, Any]] = [
        {"op": "embedding", "rows": KEYS * VALUES + KEYS, "outputs": features, "name": "words"},
        {"op": "attention", "heads": heads},
        {"op": "add", "to": "words"},
        {"op": "layer_norm"},
        {"op": "dense", "outputs": VALUES},
    ]
    return described(layers, (PAIRS + 1,))
