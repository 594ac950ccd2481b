"""Exact sums of products on BLAS.

Integers up to 2**24 are exact in float32 and up to 2**53 in float64. Bounds decide which type multiplies, or that a
factor is split, so every partial sum is exact, and results depend neither on the order of summation nor on the number
of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from concord.sums.exact import DOUBLE, SINGLE, exact_type
from concord.train.tensor import Array

#: A product of two arrays that is linear in both.
Product = Callable[[Array, Array], Array]

#: Fewer rows than this are not worth a product of their own.
_LEAST_ROWS = 128
#: Magnitudes of halves of 16 bits are up to this.
_HALF = 128


def exact(product: Product, a: Array, a_peak: int, b: Array, b_peak: int, depth: int) -> tuple[Array, int]:
    """``product(a, b)``, whose elements are sums of at most ``depth`` products, and a bound of its magnitudes.

    Parameters
    ----------
    product : callable
        Such as ``numpy.matmul``; it multiplies arrays of float32 or float64.
    a, b : arrays
        Integers.
    a_peak, b_peak : int
        Bounds of their magnitudes.

    Raises
    ------
    OverflowError
        If a sum might not fit in 63 bits.
    """
    peak = max(depth, 1) * a_peak * b_peak
    if peak <= DOUBLE:
        dtype = exact_type(peak)
        return product(a.astype(dtype, copy=False), b.astype(dtype, copy=False)), peak
    if peak >> 62:
        raise OverflowError(f"sums of {depth} products of {a_peak} by {b_peak} must fit in 63 bits")
    if a_peak < b_peak:
        return exact(lambda x, y: product(y, x), b, b_peak, a, a_peak, depth)
    bits = a_peak.bit_length() // 2
    low, high = parts(a, bits)
    fine, _ = exact(product, low, 1 << bits, b, b_peak, depth)
    coarse, _ = exact(product, high, (a_peak >> bits) + 1, b, b_peak, depth)
    return (coarse.astype(np.int64) << bits) + fine.astype(np.int64), peak


def parts(mant: Array, bits: int) -> tuple[Array, Array]:
    """The low bits, from 0, and what is above them: ``mant = (high << bits) + low``."""
    whole = mant.astype(np.int64)
    high = whole >> bits
    return (whole - (high << bits)).astype(np.float64), high.astype(np.float64)


class Outer:
    """Exact sums of ``g^T x`` over rows that come a few at a time: gradients of weights.

    Gradients of 16 bits are split into halves, which float32 multiplies by 8 bits at the cost of one product in
    float64, and the other operand, by far the larger one, stays float32. What needs more bits is multiplied in
    float64. Sums over a few rows are exact in these types; those of all rows are in float64 or integers.

    Parameters
    ----------
    g : array ``[group, rows, O]``
        Integers.
    g_peak, x_peak : int
        Bounds of the magnitudes of both operands.

    Raises
    ------
    OverflowError
        If a sum might not fit in 63 bits.
    """

    def __init__(self, g: Array, g_peak: int, x_peak: int):
        self.peak = max(g.shape[1], 1) * g_peak * x_peak
        if self.peak >> 62:
            raise OverflowError(f"sums of {g.shape[1]} products of {g_peak} by {x_peak} must fit in 63 bits")
        self.g, self.g_peak, self.x_peak = g, g_peak, x_peak
        few = SINGLE // max(g_peak * x_peak, 1) < _LEAST_ROWS
        self.halves = few and g_peak < _HALF << 8 and SINGLE // max(_HALF * x_peak, 1) >= _LEAST_ROWS
        if self.halves:
            self.g_peak, few = _HALF, False
        self.dtype: type[np.generic] = np.float64 if few else np.float32
        self.rows = max((DOUBLE if few else SINGLE) // max(self.g_peak * x_peak, 1), 1)
        self.sums: Array | None = None

    def add(self, begun: int, x: Array) -> None:
        """Add rows ``x[group, rows, K]``, which belong to those of g from ``begun`` on."""
        for first in range(0, x.shape[1], self.rows):
            some = x[:, first : first + self.rows]
            left = self.g[:, begun + first : begun + first + some.shape[1]]
            left = (self._split(left) if self.halves else left[None]).swapaxes(-1, -2)
            if self.g_peak * self.x_peak <= DOUBLE:
                product = np.matmul(left.astype(self.dtype, copy=False), some.astype(self.dtype, copy=False))
            else:
                product, _ = exact(np.matmul, left, self.g_peak, some, self.x_peak, some.shape[1])
            if self.sums is None:
                self.sums = np.zeros(product.shape, np.float64 if self.peak <= DOUBLE else np.int64)
            self.sums += product.astype(self.sums.dtype, copy=False)

    @staticmethod
    def _split(g: Array) -> Array:
        """Low and high halves, ``[2, *shape]``: ``g = low + 256 * high``, both within 128."""
        halves = np.empty((2, *g.shape), np.float32)
        low, high = halves
        np.add(g, _HALF, out=high, casting="same_kind")
        high *= np.float32(2.0**-8)
        np.floor(high, out=high)
        np.multiply(high, -2 * _HALF, out=low)
        low += g
        return halves

    def total(self) -> tuple[Array, int]:
        """The sums ``[group, O, K]``, and their bound."""
        assert self.sums is not None
        if not self.halves:
            return self.sums[0], self.peak
        low, high = self.sums
        return low + 2 * _HALF * high, self.peak


def total(mant: Array, peak: int, axes: tuple[int, ...]) -> tuple[Array, int]:
    """The exact sum along axes, and its bound."""
    count = int(np.prod([mant.shape[axis] for axis in axes]))
    bound = peak * max(count, 1)
    some = SINGLE // max(peak, 1)
    if axes == (0,) and mant.ndim == 2 and mant.dtype == np.float32 and some >= _LEAST_ROWS and bound <= DOUBLE:
        ones = np.ones(min(some, count), np.float32)
        parts = (mant[first : first + some] for first in range(0, count, some))
        return np.asarray(np.sum([ones[: len(part)] @ part for part in parts], axis=0, dtype=np.float64)), bound
    if bound <= DOUBLE:
        return np.asarray(np.sum(mant, axis=axes, dtype=np.float64)), bound
    return np.asarray(np.sum(mant.astype(np.int64), axis=axes)), bound
