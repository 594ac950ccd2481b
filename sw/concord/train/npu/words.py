"""Integers of training as words of the memories of the NPU, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.image.words import pack_words, to_bytes, to_integers, unpack_words
from concord.spec.config import NpuConfig
from concord.spec.integers import FACTOR_WORD, TENSOR_WORD
from concord.train.tensor import Dyadic, Tensor, top_of

Ints = npt.NDArray[np.int64]


def narrow_words(vectors: Ints, config: NpuConfig) -> list[int]:
    """Narrow words of vectors of mantissas ``[count, N]``."""
    return to_integers(pack_words(config.narrow_word, mant=vectors, exp=np.zeros(len(vectors), np.int64)))


def narrow_vectors(words: Sequence[int], config: NpuConfig) -> Ints:
    """Inverse of :func:`narrow_words`."""
    return unpack_words(config.narrow_word, to_bytes(words, config.narrow_word.nbytes))["mant"]


def wide_words(vectors: Ints, config: NpuConfig, bits: int) -> list[int]:
    """Wide words of vectors of integers ``[count, N]``: two for each with 32 bits, of accumulators of 16 bits one."""
    data = np.ascontiguousarray(vectors, dtype=f"<i{bits // 8}").view(np.uint8)
    return to_integers(data.reshape(-1, config.wide_word.nbytes))


def wide_vectors(words: Sequence[int], config: NpuConfig, bits: int) -> Ints:
    """Inverse of :func:`wide_words`."""
    data = np.ascontiguousarray(to_bytes(words, config.wide_word.nbytes)).reshape(-1)
    return data.view(f"<i{bits // 8}").reshape(-1, config.native).astype(np.int64)


def tensor_word(exp: int, mant: npt.NDArray[Any]) -> int:
    """The word of a tensor register."""
    return TENSOR_WORD.pack(exp=exp, top=top_of(mant))


def tensor_of(word: int, mant: Ints) -> Tensor:
    """A tensor from its integers and the word of its register."""
    fields = TENSOR_WORD.unpack(word)
    return Tensor(mant, fields["exp"], fields["top"])


def factor_word(factor: Dyadic) -> int:
    """The word of a factor register."""
    return FACTOR_WORD.pack(mant=factor.mant, exp=factor.exp)
