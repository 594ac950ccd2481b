"""The sticky flags of the NPU in NumPy: part of a derived file that has them, after :mod:`.numpy_functions`.

What is above the last mark is part of modules of PyTorch, too.
"""

# mypy: ignore-errors

import numpy as np

from concord.derive.backends.numpy_functions import NOISE_PARTS, finite
from concord.spec.formats import FLAG_BITS as FLAGS

# --- arithmetic ---


def beyond(total: np.ndarray, limit: float) -> np.ndarray:
    """Sums that an accumulator for ``-limit <= sum < limit`` cuts off."""
    return (total < -limit) | (total >= limit)


def infinite(x: np.ndarray) -> np.ndarray:
    """Infinities."""
    return np.isinf(x)


def overflowed(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Infinities that come from finite operands."""
    return np.isinf(x) & np.isfinite(a) & np.isfinite(b)


def not_finite(x: np.ndarray) -> np.ndarray:
    """Infinities and NaNs, of which a converter or a table makes something else."""
    return ~np.isfinite(x)


def table_clamped(x: np.ndarray, factor: float, low: float, high: float) -> np.ndarray:
    """Numbers beyond the codes of a table; an end is infinite where the function is constant beyond it."""
    code = np.rint(finite(x) * factor)
    return (code < low) | (code > high)


def saturated(x: np.ndarray, noise: np.ndarray | None = None, *, unit: float, codes: float) -> np.ndarray:
    """Numbers that a static exponent rounds to ``codes`` units or more, which no mantissa holds."""
    size = np.abs(finite(x))
    if noise is None:
        return size >= (codes - 0.5) * unit
    return np.floor(size.astype(np.float64) / unit * NOISE_PARTS) + noise >= codes * NOISE_PARTS


# --- in this library alone ---


def note(flags: np.ndarray, name: str, where: np.ndarray) -> None:
    """Raise a sticky flag in the words ``flags[batch]`` of the samples in which anything is true."""
    flags |= where.reshape(len(flags), -1).any(1) * np.uint8(FLAGS[name])
