"""Functions that the host computes after the NPU beyond single operations, with the same bits everywhere.

It is made of operations that IEEE 754 defines to the last bit, in a stated order: no exponential function and no
logarithm of a library, whose last bits depend on the library and the processor, and no sum in an order of its own. So
derived software in NumPy, PyTorch and ONNX has the bits of the driver. The text behind the mark is also part of derived
NumPy files; what is above the last mark is part of modules of PyTorch, too.
"""

# mypy: ignore-errors

import math

import numpy as np

#: Coefficients of the exponential function in powers of r, from the highest one down.
EXP_COEFFICIENTS = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))
#: Coefficients of the logarithm in powers of z, from the highest one down: those of the series of artanh, doubled.
LOG_COEFFICIENTS = tuple(2.0 / n for n in range(23, 1, -2))

# --- arithmetic ---

#: 1 / ln 2, and ln 2 as a number of 33 bits and what that leaves.
LOG2_E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
#: Below the first number the exponential function is 0, above the second one it is infinite.
EXP_RANGE = -746.0, 710.0
#: Mantissas of a logarithm are between it and twice it.
ROOT_HALF = 0.7071067811865476


def host_log(x: np.ndarray) -> np.ndarray:
    """The natural logarithm in float64, within one unit in the last place; minus infinity for zero and below.

    With ``x = 2**k * (1 + f)``, 1 + f between the roots of 1/2 and 2, and ``s = f / (2 + f)``, it is
    ``k * ln 2 + f - (f * f / 2 - s * (f * f / 2 + r))``; r is the rest of the series of artanh in ``z = s * s``, by
    Horner's rule. NaN gives NaN.
    """
    usual = (x > 0) & (x < np.inf)
    m, k = np.frexp(np.where(usual, x, 1.0))
    below = m < ROOT_HALF
    f = np.where(below, m + m, m) - 1.0
    k = k - below.astype(np.float64)
    s = f / (f + 2.0)
    z = s * s
    r = np.full_like(z, LOG_COEFFICIENTS[0])
    for coefficient in LOG_COEFFICIENTS[1:]:
        r *= z
        r += coefficient
    h = f * 0.5 * f
    y = k * LN2_HIGH - ((h - (s * (h + r * z) + k * LN2_LOW)) - f)
    return np.where(usual, y, np.where(x <= 0, -np.inf, x))


def host_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """Sums along an axis, which stays: the halves are added, then the halves of that, a last odd element as it is."""
    x = np.moveaxis(x, axis, 0)
    while x.shape[0] > 1:
        size = x.shape[0] // 2
        x = np.concatenate([x[:size] + x[size : 2 * size], x[2 * size :]])
    return np.moveaxis(x, 0, axis)


def host_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Shares of exponential functions, of the differences from the greatest element."""
    powers = host_exp(x - x.max(axis=axis, keepdims=True))
    return powers / host_sum(powers, axis)


def host_log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """The logarithm of the softmax: differences from the greatest element, less that of the sum of their powers."""
    below = x - x.max(axis=axis, keepdims=True)
    return below - host_log(host_sum(host_exp(below), axis))


def host_mean(x: np.ndarray, axes: tuple) -> np.ndarray:
    """Sums along one axis after the other, which stay, divided by the number of elements."""
    count = 1
    for axis in axes:
        count *= x.shape[axis]
        x = host_sum(x, axis)
    return x / count


def host_less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 where the first number is less than the second one, else 0."""
    return (a < b).astype(np.float64)


def host_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 where both numbers are equal, else 0."""
    return (a == b).astype(np.float64)


def host_select(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The second operand where the first one is not 0, else the third."""
    return np.where(condition != 0, a, b)


# --- in this library alone ---


def host_exp(x: np.ndarray) -> np.ndarray:
    """The exponential function in float64, within one unit in the last place.

    ``2**k * p(r)`` with ``k = rint(x / ln 2)`` and ``r = x - k * ln 2``, p by Horner's rule, one operation after the
    other; scaled by ``2**k`` with one rounding. NaN gives NaN.
    """
    x = np.minimum(np.maximum(x, EXP_RANGE[0]), EXP_RANGE[1])
    k = np.rint(x * LOG2_E)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = np.full_like(r, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        p *= r
        p += coefficient
    return np.ldexp(p, np.where(np.isnan(k), 0.0, k).astype(np.int32))


def host_places(indices: np.ndarray, size: int) -> np.ndarray:
    """Whole numbers as integers; ``ValueError`` if one is neither an index of an axis nor one from its end.

    A table of one entry is read at 1 where whole numbers of 64 bits are too large for double precision.
    """
    if not ((-size <= indices) & (indices < size) & (np.rint(indices) == indices)).all():
        bad = indices[~((-size <= indices) & (indices < size) & (np.rint(indices) == indices))][0]
        large = "; or whole numbers must stay below 2^53 in magnitude, where double precision holds all of them"
        range_ = f"indices must be whole numbers from {-size} to {size - 1}, not {bad:g}"
        raise ValueError(range_ + large if size == 1 else range_)
    return indices.astype(np.int64)


def host_look_up(table: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Entries along the first axis of a table."""
    return table[host_places(indices, len(table))]


def host_along(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """Elements along an axis."""
    return np.take_along_axis(x, host_places(indices, x.shape[axis]), axis)


def host_greatest(x: np.ndarray, axis: int) -> np.ndarray:
    """The place of the greatest element along an axis, which stays; of equal ones the first."""
    return np.expand_dims(np.argmax(x, axis), axis).astype(np.float64)


def host_order(x: np.ndarray, axis: int) -> np.ndarray:
    """Places of the elements along an axis in rising order, equal ones as they come."""
    return np.argsort(x, axis, kind="stable").astype(np.float64)
