"""What the host computes behind the NPU beyond single operations: softmax, with the same bits everywhere.

It is made of operations that IEEE 754 defines to the last bit, in a stated order: no exponential function of a library,
whose last bit depends on the library and the processor, and no sum in an order of its own. So derived software in
NumPy, PyTorch and ONNX has the bits of the driver. The text behind the mark is also part of derived NumPy files.
"""

# mypy: ignore-errors

import math

import numpy as np

#: Coefficients of the exponential function in powers of r, from the highest one down.
EXP_COEFFICIENTS = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))

# --- arithmetic of the host ---

#: 1 / ln 2, and ln 2 as a number of 33 bits and what that leaves.
LOG2_E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
#: Below the first number the exponential function is 0, above the second one it is infinite.
EXP_RANGE = -746.0, 710.0


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


def host_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """Sums along an axis, which stays: the halves are added, then the halves of that, a last odd element as it is."""
    x = np.moveaxis(x, axis, 0)
    while len(x) > 1:
        half = len(x) // 2
        x = np.concatenate([x[:half] + x[half : 2 * half], x[2 * half :]])
    return np.moveaxis(x, 0, axis)


def host_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Shares of exponential functions, of the differences from the greatest element."""
    powers = host_exp(x - x.max(axis=axis, keepdims=True))
    return powers / host_sum(powers, axis)
