"""Arrays that somebody hands over, as real numbers that binary16 can hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import Array, FloatArray

#: Values from here on round to an infinity: half an ulp beyond the greatest binary16 number.
_TOO_LARGE = BINARY16_MAX + 16


def real_numbers(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as float64 of the same shape, as an array of its own.

    Raises
    ------
    TypeError, ValueError
        As :func:`check_real_numbers`.
    """
    return check_real_numbers(name, values).astype(np.float64)


def finite_numbers(name: str, values: ArrayLike, missing: bool = False) -> FloatArray:
    """Return ``values`` as float64, of any size: what the host computes with.

    Parameters
    ----------
    name : str
        What they are, for messages.
    values : array
        Of any shape.
    missing : bool
        Whether NaN may stand for values that are missing.

    Raises
    ------
    TypeError
        If they are no real numbers.
    ValueError
        If one is not finite, nor missing.
    """
    array: Array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers, not of {array.dtype}")
    bad = np.isinf(array) if missing else ~np.isfinite(array)
    if bad.any():
        raise ValueError(f"{name} must hold finite numbers, not {array[bad][0]}")
    return array.astype(np.float64)


def check_real_numbers(name: str, values: ArrayLike) -> Array:
    """Return ``values`` as an array of the type that they have.

    Raises
    ------
    TypeError
        If they are no real numbers.
    ValueError
        If one is not finite, or an infinity in binary16.
    """
    array: Array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers, not of {array.dtype}")
    if array.size and not (float(array.max()) < _TOO_LARGE and float(array.min()) > -_TOO_LARGE):  # NaN too
        numbers = array.astype(np.float64)
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(numbers) < _TOO_LARGE)
        where = tuple(int(n) for n in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} must hold finite numbers within ±{BINARY16_MAX} (binary16), not {numbers[where]} at {list(where)}"
            f" ({int(bad.sum())} such values)"
        )
    return array
