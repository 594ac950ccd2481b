"""Sentences of two made-up languages, word for word, and a network that translates them.

What a word becomes depends on itself, on the one before it, and on the first one of the sentence. Shorter sentences end
early: what is after their end has the word 0, and no label.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from concord.graph.ir import Graph, Node
from concord.train.losses import IGNORED
from concord.train.noise import permutation, raw
from concord_bench.evidence.data import Split, cut
from concord_bench.evidence.networks import recurrence

#: Words of both languages; of sentences the greatest length and the least.
WORDS, LENGTH, SHORTEST = 12, 8, 3
#: So many classes of words decide what the words after them become.
CLASSES = 2
#: Seed of the sentences, and places of their words and of the dictionary.
_SEED, _SENTENCES, _DICTIONARY = 21, (9, 2), (9, 3)


@lru_cache(maxsize=1)
def sentences() -> Split:
    """800 sentences to learn from, 200 to choose with, 400 to judge by: words, and their translations."""
    sizes = 800, 200, 400
    drawn = raw(_SEED, _SENTENCES, sum(sizes) * (LENGTH + 1)).reshape(sum(sizes), -1)
    ends = SHORTEST + (drawn[:, :1] % np.uint64(LENGTH - SHORTEST + 1)).astype(np.int64)
    words = (drawn[:, 1:] % np.uint64(WORDS)).astype(np.int64)
    first, before = words[:, :1] % CLASSES, np.concatenate([words[:, :1], words[:, :-1]], axis=1) % CLASSES
    meanings = permutation(_SEED, _DICTIONARY, WORDS)[(words + 5 * before + 11 * first) % WORDS]
    inside = np.arange(LENGTH) < ends
    return cut(np.where(inside, words + 1, 0), np.where(inside, meanings, IGNORED), 1.0, sizes)


def translator(features: int = 16, hidden: int = 32) -> Graph:
    """An embedding, an LSTM, a layer normalisation of its states, and a product at every position."""
    shapes: dict[str, tuple[int, ...]] = {
        "x": (1, LENGTH), "rows": (1, LENGTH, features), "steps": (LENGTH, 1, features),
        "states": (LENGTH, 1, 1, hidden), **dict.fromkeys(("read", "normal", "moved"), (1, LENGTH, hidden)),
        "y": (1, LENGTH, WORDS),
    }  # fmt: skip
    weight, bias = np.zeros((WORDS, hidden)), np.zeros(WORDS)
    scale = {"axes": (2,), "centred": True, "epsilon": 1e-5, "scale": np.ones(hidden)}
    nodes = [
        Node("Lookup", "words", ("x",), ("rows",), {"table": np.zeros((WORDS + 1, features)), "axis": 0}),
        Node("Transpose", "steps", ("rows",), ("steps",), {"perm": (1, 0, 2)}),
        Node("LSTM", "lstm", ("steps", "", ""), ("states", "", ""), recurrence(features, hidden)),
        Node("Reshape", "read", ("states",), ("read",), {"shape": (1, LENGTH, hidden)}),
        Node("Normalise", "norm", ("read",), ("normal",), scale),
        Node("Add", "shift", ("normal",), ("moved",), {"constant": np.zeros(hidden)}),
        Node("Dense", "dense", ("moved",), ("y",), {"weight": weight, "bias": bias}),
    ]
    return Graph("sentences", nodes, ["x"], ["y"], shapes, {"x", "y"}, element_types={"x": "int64"})
