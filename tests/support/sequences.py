"""Generated sentences of two made-up languages, word for word: what a word becomes depends on the one before it."""

import numpy as np

from concord.train import Samples
from concord.train.noise import raw

#: Words of each language; 0 is no word but what is behind the end of a sentence.
WORDS, LENGTH = 6, 8


def sentences(count, place=0, seed=5):
    """Words ``[count, LENGTH]``, 0 behind the end, and the translation of each, -1 there."""
    drawn = raw(seed, (8, place, 0), count * (LENGTH + 1)).reshape(count, -1)
    ends = 3 + (drawn[:, 0] % np.uint64(LENGTH - 2)).astype(np.int64)
    words = 1 + (drawn[:, 1:] % np.uint64(WORDS)).astype(np.int64)
    inside = np.arange(LENGTH) < ends[:, None]
    before = np.concatenate([np.zeros((count, 1), np.int64), words[:, :-1]], axis=1)
    return np.where(inside, words, 0), np.where(inside, (words * 2 + before) % WORDS, -1)


def pairs(count, place=0):
    """Each word and the one before, one-hot ``[count, LENGTH, 2 * (WORDS + 1)]``, with a label for each."""
    words, labels = sentences(count, place)
    hot = np.eye(WORDS + 1)[words]
    before = np.concatenate([np.zeros_like(hot[:, :1]), hot[:, :-1]], axis=1)
    return Samples(np.concatenate([hot, before], axis=2), labels)
