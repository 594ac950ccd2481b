"""Exact sums of products on BLAS.

Integers up to 2**24 are exact in float32 and up to 2**53 in float64. Bounds decide which type multiplies, or that a
factor is split, so every partial sum is exact, and results depend neither on the order of summation nor on the number
of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from concord.train.tensor import DOUBLE, Array, carrier

#: A product of two arrays that is linear in both.
Product = Callable[[Array, Array], Array]


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
        dtype = carrier(peak)
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


def total(mant: Array, peak: int, axes: tuple[int, ...]) -> tuple[Array, int]:
    """The exact sum along axes, and its bound."""
    count = int(np.prod([mant.shape[axis] for axis in axes]))
    bound = peak * max(count, 1)
    if bound <= DOUBLE:
        return np.asarray(np.sum(mant, axis=axes, dtype=np.float64)), bound
    return np.asarray(np.sum(mant.astype(np.int64), axis=axes)), bound
