"""The operations in NumPy, a part of the files of ``concord derive``.

binary16 numbers are kept in float32 arrays ``[batch, ...]``, which hold them exactly. The text below the imports is
copied into every file, so it needs NumPy only and has no annotations; a file has ``FLAGS`` as a dictionary of its own.
"""

# mypy: ignore-errors

import numpy as np

from concord.spec.formats import FLAG_BITS as FLAGS

# --- operations ---


def note(flags, name, where):
    """Raise a sticky flag in the words ``flags[batch]`` of the samples in which anything is true."""
    flags |= where.reshape(len(flags), -1).any(1) * np.uint8(FLAGS[name])


def half(x):
    """Round once to binary16, to nearest even; too large becomes an infinity."""
    return x.astype(np.float16).astype(np.float32)


def add(a, b, flags=None):
    """Sum; float32 has so many bits that rounding twice changes nothing. So have difference and product."""
    return _result(half(a + b), a, b, flags)


def sub(a, b, flags=None):
    """Difference."""
    return _result(half(a - b), a, b, flags)


def mul(a, b, flags=None):
    """Product."""
    return _result(half(a * b), a, b, flags)


def _result(y, a, b, flags):
    """An infinity from finite operands is an overflow."""
    if flags is not None:
        note(flags, "HALF_OVERFLOW", np.isinf(y) & np.isfinite(a) & np.isfinite(b))
    return y


def larger(a, b):
    """Maximum; +0 is above -0, and a NaN stays."""
    top = np.maximum(a, b)
    zeros = top == 0
    return np.where(zeros & (a == b), a + b, top) if zeros.any() else top


def smaller(a, b):
    """Minimum; -0 is below +0."""
    return -larger(-a, -b)


def relu(x):
    """Maximum with +0."""
    return np.maximum(x, 0) + np.float32(0)
