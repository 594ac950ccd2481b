"""binary16 and block floating point on float32 arrays, many lanes at a time.

Every binary16 number is a float32 number, so vectors are kept as float32 that hold binary16 values. The float32 sum,
difference or product of two of them, rounded to binary16, is their correctly rounded result: float32 has 24 bits, at
least 2 * 11 + 2, so rounding twice changes nothing. Rounding to a quantum is adding and subtracting 1.5 * 2**23 quanta.
Whatever is not finite is left to the golden model, for the affected lanes alone.

Arrays are ``[..., N, B]``: elements of the native vector, then lanes of the batch. Functions return a word of flags.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.golden import binary16
from concord.golden.operations import BINARY
from concord.program import Quant
from concord.spec.formats import (
    BINARY16_EXP_MIN,
    BINARY16_MAX,
    BINARY16_NAN,
    NOISE_BITS,
    BlockFormat,
    ExponentMode,
    Flag,
    Rounding,
)
from concord.spec.isa import Op

F32 = NDArray[np.float32]

_SIGN = -(1 << 31)
_EXPONENT = 0x7F800000
_MAGNITUDE = 0x7FFFFFFF
_NORMAL = 2.0**BINARY16_EXP_MIN
#: Adding it times the power of two at or below |x| leaves the 11 bits of binary16.
_TO_BINARY16_32 = 1.5 * 2.0**13
_TO_BINARY16_64 = 1.5 * 2.0**42
_EXPONENT_64 = 0x7FF << 52
_TO_INTEGER = 1.5 * 2.0**23


class Pool:
    """Scratch arrays by name, kept from call to call so that memory is not mapped again and again."""

    def __init__(self) -> None:
        self._flat: dict[str, NDArray[np.uint8]] = {}
        self._views: dict[tuple[str, tuple[int, ...], Any], NDArray[Any]] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        """An uninitialised array; it is the same memory each time the name is used."""
        view = self._views.get((name, shape, dtype))
        if view is None:
            size = np.dtype(dtype).itemsize * math.prod(shape)
            if name not in self._flat or self._flat[name].size < size:
                self._flat[name] = np.empty(size, dtype=np.uint8)
                self._views = {key: old for key, old in self._views.items() if key[0] != name}
            view = self._views[name, shape, dtype] = self._flat[name][:size].view(dtype).reshape(shape)
        return view


def _decoded() -> F32:
    """float32 values of all binary16 patterns; the bits of NaNs are kept."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    sign, magnitude = (bits & 0x8000) << 16, bits & 0x7FFF
    scaled = (magnitude << 13) + np.where(magnitude >= 0x7C00, 224 << 23, 112 << 23).astype(np.uint32)
    small = (magnitude.astype(np.float32) * np.float32(2.0**-24)).view(np.uint32)
    values = np.where(magnitude < 0x400, small, scaled).astype(np.uint32).view(np.float32)
    values.view(np.uint32)[...] |= sign
    return np.asarray(values, dtype=np.float32)


DECODED = _decoded()


def decode(bits: ArrayLike) -> F32:
    """binary16 patterns to float32."""
    values: F32 = DECODED[np.asarray(bits)]
    return values


def encode(values: F32) -> NDArray[np.uint16]:
    """float32 that hold binary16 values to patterns; exact."""
    raw = np.ascontiguousarray(values).view(np.uint32)
    sign, magnitude = raw >> 16 & 0x8000, raw & _MAGNITUDE
    normal = (magnitude >> 13) - np.where(magnitude >= _EXPONENT, 224 << 10, 112 << 10).astype(np.uint32)
    with np.errstate(all="ignore"):
        small = (np.abs(values) * np.float32(2.0**24)).astype(np.uint32)
    return np.asarray(np.where(magnitude < 0x38800000, small, normal) | sign).astype(np.uint16)


# Rounding --------------------------------------------------------------------------------------


def round_to_binary16(x: F32, pool: Pool) -> None:
    """Round float32 to binary16 in place, nearest even; overflow leaves more than 65504."""
    raw = x.view(np.int32)
    unit = pool.take("round unit", x.shape)
    sign = pool.take("round sign", x.shape, np.int32)
    np.bitwise_and(raw, _EXPONENT, out=unit.view(np.int32))
    np.bitwise_and(raw, _SIGN, out=sign)
    np.maximum(unit, _NORMAL, out=unit)
    np.multiply(unit, _TO_BINARY16_32, out=unit)
    np.add(x, unit, out=x)
    np.subtract(x, unit, out=x)
    np.bitwise_or(raw, sign, out=raw)


def round_doubles(x: NDArray[np.float64], out: F32, pool: Pool) -> None:
    """Round float64 once, nearest even, to binary16; overflow leaves more than 65504. ``x`` is destroyed."""
    unit = pool.take("sum unit", x.shape, np.float64)
    sign = pool.take("round sign", x.shape, np.int32)
    np.bitwise_and(x.view(np.int64), _EXPONENT_64, out=unit.view(np.int64))
    np.bitwise_and(_high_words(x), _SIGN, out=sign)
    np.maximum(unit, _NORMAL, out=unit)
    np.multiply(unit, _TO_BINARY16_64, out=unit)
    np.add(x, unit, out=x)
    np.subtract(x, unit, out=out, casting="same_kind")
    raw = out.view(np.int32)
    np.bitwise_or(raw, sign, out=raw)


def round_sums(sums: NDArray[np.float64], out: F32, pool: Pool) -> int:
    """Round exact sums to binary16; an exact zero gives +0. ``sums`` is destroyed."""
    np.add(sums, 0.0, out=sums)
    round_doubles(sums, out, pool)
    return _to_infinity(out)


def round_singles(sums: F32, pool: Pool) -> int:
    """The same in place, for exact sums that are float32 numbers."""
    np.add(sums, 0.0, out=sums)
    round_to_binary16(sums, pool)
    return _to_infinity(sums)


def _to_infinity(rounded: F32) -> int:
    """Make what overflowed infinite."""
    if rounded.max() <= BINARY16_MAX and rounded.min() >= -BINARY16_MAX:
        return 0
    over = np.abs(rounded) > BINARY16_MAX
    rounded[over] = np.copysign(np.float32(np.inf), rounded[over])
    return 1 << Flag.HALF_OVERFLOW


def _high_words(values: NDArray[np.float64]) -> NDArray[np.int32]:
    """The halves of float64 numbers that hold the signs."""
    pairs = values.view(np.int32).reshape(*values.shape, 2)
    return pairs[..., 1 if np.little_endian else 0]


# Operations of the multifunction units -----------------------------------------------------------

_ARITHMETIC: dict[Op, Callable[[F32, F32, F32], Any]] = {
    Op.VV_MUL: lambda x, y, out: np.multiply(x, y, out=out),
    Op.VV_ADD: lambda x, y, out: np.add(x, y, out=out),
    Op.VV_SUB: lambda x, y, out: np.subtract(x, y, out=out),
    Op.VV_RSUB: lambda x, y, out: np.subtract(y, x, out=out),
}


#: On keys, which order numbers as binary16 does.
_ORDER: dict[Op, Any] = {Op.VV_MAX: np.maximum, Op.VV_MIN: np.minimum}


def binary(op: Op, x: F32, y: F32, out: F32, pool: Pool) -> int:
    """An operation with an operand; ``out`` must not overlap the others."""
    if op in _ARITHMETIC:
        _ARITHMETIC[op](x, y, out)
        round_to_binary16(out, pool)
        regular = out.max() <= BINARY16_MAX and out.min() >= -BINARY16_MAX
    else:
        regular = not (np.isnan(x.max()) or np.isnan(y.max()))
        a, b = (pool.take(name, out.shape, np.int32) for name in ("key 0", "key 1"))
        to_keys(x, a)
        to_keys(y, b)
        _ORDER[op](a, b, out=a)
        from_keys(a, out)
    return 0 if regular else _golden_binary(op, x, y, out)


def _golden_binary(op: Op, x: F32, y: F32, out: F32) -> int:
    """Do lanes with specials again, by the definition."""
    usual = (np.abs(x) <= BINARY16_MAX) & (np.abs(y) <= BINARY16_MAX) & (np.abs(out) <= BINARY16_MAX)
    lanes = np.flatnonzero(~usual.all(axis=tuple(range(usual.ndim - 1))))
    a, b = encode(x[..., lanes]), encode(np.broadcast_to(y, out.shape)[..., lanes])
    bits = BINARY[op](a, b)
    out[..., lanes] = decode(bits)
    overflow = op in _ARITHMETIC and bool(binary16.overflowed(bits, a, b).any())
    return overflow << Flag.HALF_OVERFLOW


def to_keys(x: F32, out: NDArray[np.int32]) -> None:
    """Integers in the order of the numbers, -0 below +0."""
    raw = x.view(np.int32)
    np.right_shift(raw, 31, out=out)
    np.bitwise_and(out, _MAGNITUDE, out=out)
    np.bitwise_xor(out, raw, out=out)


def from_keys(keys: NDArray[np.int32], out: F32) -> None:
    """Inverse of :func:`to_keys`."""
    to_keys(keys.view(np.float32), out.view(np.int32))


def relu(x: F32, out: F32) -> int:
    """Maximum with +0."""
    np.maximum(x, 0.0, out=out)
    np.add(out, 0.0, out=out)  # -0 becomes +0
    if np.isnan(out.max()):
        out[np.isnan(out)] = DECODED[BINARY16_NAN]
    return 0


#: Operations without an operand: values, result -> flags.
UNARY: dict[Op, Callable[[F32, F32], int]] = {Op.V_RELU: relu}


def check_slot(slot: dict[str, int], table: F32) -> None:
    """Raise ``ValueError`` if a descriptor has entries beyond the table."""
    least, last = slot["offset"] + slot["low"], slot["offset"] + slot["high"]
    if not 0 <= least <= last < len(table):
        raise ValueError(f"slot must stay inside {len(table)} entries, not {least}..{last}")


def look_up(x: F32, slot: dict[str, int], table: F32, out: F32, pool: Pool) -> int:
    """Entry of a table for every element."""
    check_slot(slot, table)
    low, high, offset = slot["low"], slot["high"], slot["offset"]
    flags = 0
    least, greatest = x.min(), x.max()
    if not (greatest <= BINARY16_MAX and least >= -BINARY16_MAX):
        x = np.nan_to_num(x, nan=0.0, posinf=BINARY16_MAX, neginf=-BINARY16_MAX)
        flags = 1 << Flag.NONFINITE
        least, greatest = x.min(), x.max()
    # Rounding is monotone: the extremes alone decide whether a code is beyond an end.
    under, over = (np.rint(math.ldexp(end, slot["scale"])) for end in (least, greatest))
    if (under < low and not slot["settled_low"]) or (over > high and not slot["settled_high"]):
        flags |= 1 << Flag.TABLE_CLAMPED
    code = pool.take("code", x.shape)
    index = pool.take("index", x.shape, np.intp)
    np.multiply(x, 2.0 ** slot["scale"], out=code)
    np.minimum(code, high, out=code)
    np.maximum(code, low, out=code)
    np.rint(code, out=code)
    np.add(code, offset, out=index, casting="unsafe")
    np.take(table, index, out=out, mode="clip")
    return flags


# Conversion to narrow ------------------------------------------------------------------------------


def quantize(
    x: F32,
    fmt: BlockFormat,
    quant: Quant,
    noise: NDArray[np.uint16] | None,
    out: F32,
    scale: F32,
    pool: Pool,
    grain: F32 | None = None,
) -> int:
    """Values of the narrow blocks, and the power of two of each (``[..., B]``).

    ``out`` may be ``x`` itself and must not overlap it otherwise. ``grain`` is filled like ``scale``, but with infinity
    where a block with a dynamic exponent is zero.
    """
    flags = 0
    static = quant.mode is ExponentMode.STATIC
    if static:
        peak: Any = max(x.max(), -x.min())
    else:
        peak = np.maximum(x.max(axis=-2), -x.min(axis=-2))
    if not np.max(peak) <= BINARY16_MAX:
        x = np.nan_to_num(x, copy=True, nan=0.0, posinf=BINARY16_MAX, neginf=-BINARY16_MAX)
        peak = np.maximum(x.max(axis=-2), -x.min(axis=-2))
        flags |= 1 << Flag.NONFINITE
    if static:
        scale[...] = 2.0**quant.exp
        if grain is not None:
            grain[...] = scale
        unit: Any = np.float32(2.0**quant.exp)
    else:
        power = (peak.view(np.int32) & _EXPONENT).view(np.float32)
        np.multiply(power, 2.0**-fmt.headroom, out=power)
        np.maximum(power, 2.0**fmt.exp_min, out=power)
        scale[...] = power
        if grain is not None:
            np.copyto(grain, power)
            np.copyto(grain, np.inf, where=peak == 0.0)
        unit = power[..., None, :]
    limit = unit * np.float32(fmt.q_max)
    if static:
        np.minimum(x, limit + unit, out=out)
        np.maximum(out, -limit - unit, out=out)
        x = out
    _round_to(x, unit, quant.rounding, noise, out)
    if static and (out.max() > limit or out.min() < -limit):
        flags |= 1 << Flag.SATURATED
    np.minimum(out, limit, out=out)
    np.maximum(out, -limit, out=out)
    return flags


def _round_to(x: F32, unit: Any, rounding: Rounding, noise: NDArray[np.uint16] | None, out: F32) -> None:
    """Multiples of ``unit``; zeros are +0."""
    if rounding is Rounding.NEAREST_EVEN:
        shift = unit * np.float32(_TO_INTEGER)
        np.add(x, shift, out=out)
        np.subtract(out, shift, out=out)
        return
    negative = np.signbit(x)
    if rounding is Rounding.NEAREST_AWAY:
        codes = np.floor(np.abs(x) / unit + np.float32(0.5))
    else:
        if noise is None:
            raise ValueError("noise must be given for stochastic rounding, not None")
        fine = np.floor(np.abs(x).astype(np.float64) / unit * 2.0**NOISE_BITS)
        codes = np.floor((fine + noise[..., None]) / 2.0**NOISE_BITS).astype(np.float32)
    np.multiply(np.where(negative, -codes, codes), unit, out=out)
    np.add(out, 0.0, out=out)
