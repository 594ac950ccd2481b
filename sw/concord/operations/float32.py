"""Operations on float32 arrays that hold binary16 numbers, which all of them are.

The float32 sum, difference or product of two binary16 numbers, rounded to binary16, is their correctly rounded result:
float32 has 24 bits, at least 2 * 11 + 2, so rounding twice changes nothing. Operations are right where all numbers are
finite; an operation that does not round is right for infinities, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.spec.formats import BINARY16_EXP_MIN
from concord.utils.arrays import Array, Bytes, Float32s

#: Bits of a float32 number.
SIGN = -(1 << 31)
EXPONENT = 0x7F800000
MAGNITUDE = 0x7FFFFFFF
#: The least normal binary16 number.
NORMAL = 2.0**BINARY16_EXP_MIN
#: Adding it times the power of two at or below |x| leaves the 11 bits of binary16.
_TO_BINARY16 = 1.5 * 2.0**13


class Pool:
    """Scratch arrays by name, kept from call to call so that memory is not mapped again and again."""

    def __init__(self) -> None:
        self._flat: dict[str, Bytes] = {}
        self._views: dict[tuple[str, tuple[int, ...], Any], Array] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """An uninitialised array; it is the same memory each time the name is used."""
        view = self._views.get((name, shape, dtype))
        if view is None:
            size = np.dtype(dtype).itemsize * math.prod(shape)
            if name not in self._flat or self._flat[name].size < size:
                self._flat[name] = np.empty(size, dtype=np.uint8)
                self._views = {key: old for key, old in self._views.items() if key[0] != name}
            view = self._views[name, shape, dtype] = self._flat[name][:size].view(dtype).reshape(shape)
        return view


def round_floats(x: Float32s, pool: Pool) -> None:
    """Round float32 to binary16 in place, nearest even; overflow leaves more than 65504."""
    raw = x.view(np.int32)
    unit = pool.take("round unit", x.shape)
    sign = pool.take("round sign", x.shape, np.int32)
    np.bitwise_and(raw, EXPONENT, out=unit.view(np.int32))
    np.bitwise_and(raw, SIGN, out=sign)
    np.maximum(unit, NORMAL, out=unit)
    np.multiply(unit, _TO_BINARY16, out=unit)
    np.add(x, unit, out=x)
    np.subtract(x, unit, out=x)
    np.bitwise_or(raw, sign, out=raw)


def to_keys(x: Float32s, out: NDArray[np.int32]) -> None:
    """Integers in the order of the numbers, -0 below +0."""
    raw = x.view(np.int32)
    np.right_shift(raw, 31, out=out)
    np.bitwise_and(out, MAGNITUDE, out=out)
    np.bitwise_xor(out, raw, out=out)


def from_keys(keys: NDArray[np.int32], out: Float32s) -> None:
    """Inverse of :func:`to_keys`."""
    to_keys(keys.view(np.float32), out.view(np.int32))


def mul(x: Float32s, y: Float32s, out: Float32s, pool: Pool) -> None:
    """``x * y``."""
    np.multiply(x, y, out=out)
    round_floats(out, pool)


def add(x: Float32s, y: Float32s, out: Float32s, pool: Pool) -> None:
    """``x + y``."""
    np.add(x, y, out=out)
    round_floats(out, pool)


def sub(x: Float32s, y: Float32s, out: Float32s, pool: Pool) -> None:
    """``x - y``."""
    np.subtract(x, y, out=out)
    round_floats(out, pool)


def rsub(x: Float32s, y: Float32s, out: Float32s, pool: Pool) -> None:
    """``y - x``."""
    sub(y, x, out, pool)


def maximum(x: Float32s, y: Float32s, out: Float32s, pool: Pool) -> None:
    """The greater number, -0 below +0."""
    _by_keys(np.maximum, x, y, out, pool)


def minimum(x: Float32s, y: Float32s, out: Float32s, pool: Pool) -> None:
    """The lesser number, -0 below +0."""
    _by_keys(np.minimum, x, y, out, pool)


def _by_keys(choose: np.ufunc, x: Float32s, y: Float32s, out: Float32s, pool: Pool) -> None:
    a, b = (pool.take(name, out.shape, np.int32) for name in ("key 0", "key 1"))
    to_keys(x, a)
    to_keys(y, b)
    choose(a, b, out=a)
    from_keys(a, out)


def relu(x: Float32s, out: Float32s, pool: Pool) -> None:
    """Maximum with +0."""
    np.maximum(x, 0.0, out=out)
    np.add(out, 0.0, out=out)  # -0 becomes +0
