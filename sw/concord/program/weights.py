"""Weights of a chain, as the matrix memory holds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from concord.image import Memories
from concord.program.chains import Chain
from concord.program.matrix_copies import write_copy
from concord.spec.config import NpuConfig
from concord.utils.arrays import Float32s, FloatArray, Ids, Ints


@dataclass(frozen=True)
class Weights:
    """Weights of a chain: mantissas ``[rows, N, blocks, lanes]`` and exponents ``[rows, N, blocks]``.

    A dense product has one block per N/L-th of a tile, a depthwise product one of one element per tap.
    """

    mant: Ints
    exp: Ints

    @cached_property
    def values(self) -> FloatArray:
        """Weights as numbers ``[rows, N, K]``."""
        exact = np.ldexp(self.mant.astype(np.float64), self.exp[..., None])
        return np.ascontiguousarray(exact.reshape(*self.exp.shape[:2], -1))

    @cached_property
    def singles(self) -> Float32s:
        """Values as float32; exact, mantissas have at most 16 bits."""
        return self.values.astype(np.float32)

    @cached_property
    def norm(self) -> float:
        """Greatest sum of magnitudes of a matrix row."""
        return float(np.abs(self.values).sum(axis=-1).max())

    @cached_property
    def spread(self) -> float:
        """Greatest sum of magnitudes of a matrix row in units of its least weight block that is not zero."""
        used = self.mant.any(axis=-1)
        unit = np.ldexp(1.0, np.min(self.exp, axis=-1, initial=0, where=used))
        return float((np.abs(self.values).sum(axis=-1) / unit).max())


def product_words(chain: Chain, config: NpuConfig) -> Ids:
    """Words of a product as :meth:`Chain.matrix_words`; ``ValueError`` if they lie beyond the matrix memory."""
    words = chain.matrix_words(config)
    if words.max() >= config.matrix_depth:
        raise ValueError(f"matrix addresses must be below {config.matrix_depth}, not {words.max()}")
    return words


def fetch(chain: Chain, memories: Memories) -> Weights:
    """Read the weights of a product; ``ValueError`` if they lie beyond the matrix memory."""
    config = memories.config
    words = product_words(chain, config)
    matrix_mant, matrix_exp = _copied(chain, memories)
    mant, exp = matrix_mant[words].astype(np.int64), matrix_exp[words].astype(np.int64)
    n, lanes, rows = config.native, config.lanes, chain.rows
    if chain.depthwise:
        word, lane = chain.tap_places(config)
        return Weights(mant[:, word, :n, lane].transpose(1, 2, 0)[..., None], exp[:, word, :n].swapaxes(1, 2))
    groups = len(words)
    mant = mant.reshape(groups, -1, config.engines, n, lanes).transpose(0, 2, 3, 1, 4)
    exp = exp.reshape(groups, -1, config.engines, n).transpose(0, 2, 3, 1)
    return Weights(mant.reshape(-1, *mant.shape[2:])[:rows], exp.reshape(-1, *exp.shape[2:])[:rows])


def _copied(chain: Chain, memories: Memories) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Mantissas and exponents of the matrix memory when the chain begins."""
    if not chain.copies:
        return memories.matrix_mant, memories.matrix_exp
    here = memories.matrix_mant.copy(), memories.matrix_exp.copy()
    for copy in chain.copies:
        write_copy(copy, memories, *here)
    return here


def weights_key(chain: Chain, config: NpuConfig) -> tuple[object, ...]:
    """Key of the weights of a chain: two products of a program with the same key have the same weights.

    Of weights that one copy has brought as a whole it does not matter where in the matrix memory they are.
    """
    shape = chain.rows, chain.window.kh, chain.window.kw, chain.cols, chain.mode, chain.sliding
    if len(chain.copies) == 1:
        (copy,) = chain.copies
        whole = copy.rows // config.rows * config.steps
        if np.isin(chain.matrix_words(config), range(copy.matrix, copy.matrix + whole)).all():
            return "copied", copy.column, chain.matrix - copy.matrix, *shape
    return chain.matrix, *shape, tuple((copy.column, copy.matrix, copy.rows) for copy in chain.copies)


class ProductWeights:
    """Weights of the products of a program, each read once.

    Parameters
    ----------
    memories : Memories
        Whose matrix memory must stay as it is in the words of these products.
    """

    def __init__(self, memories: Memories):
        self._memories = memories
        self._known: dict[tuple[object, ...], Weights] = {}

    def of(self, chain: Chain) -> Weights:
        """Weights of a product; ``ValueError`` if they lie beyond the matrix memory."""
        key = weights_key(chain, self._memories.config)
        if key not in self._known:
            self._known[key] = fetch(chain, self._memories)
        return self._known[key]
