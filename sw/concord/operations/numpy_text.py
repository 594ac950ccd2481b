"""The operations in NumPy, a part of the files of ``concord derive``.

binary16 numbers are kept in float32 arrays ``[batch, ...]``, which hold them exactly. The text below the imports is
copied into every file, so it needs NumPy only and has no annotations.
"""

# mypy: ignore-errors

import numpy as np

# --- operations ---


def real_to_half(x):
    """Round once to binary16, to nearest even; too large becomes an infinity."""
    return x.astype(np.float16).astype(np.float32)


def half_add(a, b):
    """Sum; float32 has so many bits that rounding twice changes nothing. So have difference and product."""
    return real_to_half(a + b)


def half_sub(a, b):
    """Difference."""
    return real_to_half(a - b)


def half_mul(a, b):
    """Product."""
    return real_to_half(a * b)


def half_max(a, b):
    """Maximum; +0 is above -0, and a NaN stays."""
    top = np.maximum(a, b)
    zeros = top == 0
    return np.where(zeros & (a == b), a + b, top) if zeros.any() else top


def half_min(a, b):
    """Minimum; -0 is below +0."""
    return -half_max(-a, -b)


def half_relu(x):
    """Maximum with +0."""
    return np.maximum(x, 0) + np.float32(0)
