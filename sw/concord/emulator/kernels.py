"""binary16 and block floating point on float32 arrays, many lanes at a time.

Vectors are kept as float32 that hold binary16 values, as :mod:`concord.operations.float32` has them. Rounding to a
quantum is adding and subtracting 1.5 * 2**23 quanta. Whatever is not finite is left to the golden model, for the
affected lanes alone.

Arrays are ``[..., N, B]``: elements of the native vector, then lanes of the batch. Functions return a word of flags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.golden import binary16
from concord.operations import OPERATIONS, ElementwiseOperation
from concord.operations.float32 import EXPONENT, MAGNITUDE, NORMAL, SIGN, Pool, round_floats
from concord.program import Quant
from concord.spec.formats import (
    BINARY16_MAX,
    NOISE_BITS,
    BlockFormat,
    ExponentMode,
    Flag,
    Rounding,
)
from concord.spec.isa import Op
from concord.utils.arrays import Bits, Float32s, FloatArray

#: Adding it times the power of two at or below |x| leaves the 11 bits of binary16.
_TO_BINARY16_64 = 1.5 * 2.0**42
_EXPONENT_64 = 0x7FF << 52
_TO_INTEGER = 1.5 * 2.0**23


def _decoded() -> Float32s:
    """float32 values of all binary16 patterns; the bits of NaNs are kept."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    sign, magnitude = (bits & 0x8000) << 16, bits & 0x7FFF
    scaled = (magnitude << 13) + np.where(magnitude >= 0x7C00, 224 << 23, 112 << 23).astype(np.uint32)
    small = (magnitude.astype(np.float32) * np.float32(2.0**-24)).view(np.uint32)
    values = np.where(magnitude < 0x400, small, scaled).astype(np.uint32).view(np.float32)
    values.view(np.uint32)[...] |= sign
    return np.asarray(values, dtype=np.float32)


DECODED = _decoded()


def decode(bits: ArrayLike) -> Float32s:
    """binary16 patterns to float32."""
    values: Float32s = DECODED[np.asarray(bits)]
    return values


def encode(values: Float32s) -> Bits:
    """float32 that hold binary16 values to patterns; exact."""
    raw = np.ascontiguousarray(values).view(np.uint32)
    sign, magnitude = raw >> 16 & 0x8000, raw & MAGNITUDE
    normal = (magnitude >> 13) - np.where(magnitude >= EXPONENT, 224 << 10, 112 << 10).astype(np.uint32)
    with np.errstate(all="ignore"):
        small = (np.abs(values) * np.float32(2.0**24)).astype(np.uint32)
    return np.asarray(np.where(magnitude < 0x38800000, small, normal) | sign).astype(np.uint16)


# Rounding --------------------------------------------------------------------------------------


def round_doubles(x: FloatArray, out: Float32s, pool: Pool) -> None:
    """Round float64 once, nearest even, to binary16; overflow leaves more than 65504. ``x`` is destroyed."""
    unit = pool.take("sum unit", x.shape, np.float64)
    sign = pool.take("round sign", x.shape, np.int32)
    np.bitwise_and(x.view(np.int64), _EXPONENT_64, out=unit.view(np.int64))
    np.bitwise_and(_high_words(x), SIGN, out=sign)
    np.maximum(unit, NORMAL, out=unit)
    np.multiply(unit, _TO_BINARY16_64, out=unit)
    np.add(x, unit, out=x)
    np.subtract(x, unit, out=out, casting="same_kind")
    raw = out.view(np.int32)
    np.bitwise_or(raw, sign, out=raw)


def round_sums(sums: FloatArray, out: Float32s, pool: Pool) -> int:
    """Round exact sums to binary16; an exact zero gives +0. ``sums`` is destroyed."""
    np.add(sums, 0.0, out=sums)
    round_doubles(sums, out, pool)
    return _to_infinity(out)


def round_singles(sums: Float32s, pool: Pool) -> int:
    """Rounds exact sums that are float32 numbers to binary16, in place; an exact zero gives +0."""
    np.add(sums, 0.0, out=sums)
    round_floats(sums, pool)
    return _to_infinity(sums)


def _to_infinity(rounded: Float32s) -> int:
    """Make what overflowed infinite."""
    if rounded.max() <= BINARY16_MAX and rounded.min() >= -BINARY16_MAX:
        return 0
    over = np.abs(rounded) > BINARY16_MAX
    rounded[over] = np.copysign(np.float32(np.inf), rounded[over])
    return 1 << Flag.HALF_OVERFLOW


def _high_words(values: FloatArray) -> NDArray[np.int32]:
    """The halves of float64 numbers that hold the signs."""
    pairs = values.view(np.int32).reshape(*values.shape, 2)
    return pairs[..., 1 if np.little_endian else 0]


# Operations of the multifunction units -----------------------------------------------------------


def elementwise(op: Op, operands: Sequence[Float32s], out: Float32s, pool: Pool) -> int:
    """An operation of the multifunction units; ``out`` must not overlap the operands."""
    operation = OPERATIONS[op]
    operation.kernel(*operands, out, pool)
    if operation.rounds:
        regular = out.max() <= BINARY16_MAX and out.min() >= -BINARY16_MAX
    else:
        regular = not any(np.isnan(x.max()) for x in operands)
    return 0 if regular else _specials(operation, operands, out)


def _specials(operation: ElementwiseOperation, operands: Sequence[Float32s], out: Float32s) -> int:
    """Do lanes with specials again, by the definition."""
    every = [np.broadcast_to(x, out.shape) for x in operands]
    usual = np.all([np.abs(x) <= BINARY16_MAX for x in (*every, out)], axis=0)
    lanes = np.flatnonzero(~usual.all(axis=tuple(range(usual.ndim - 1))))
    patterns = [encode(x[..., lanes]) for x in every]
    bits = operation.golden(*patterns)
    out[..., lanes] = decode(bits)
    overflow = operation.rounds and bool(binary16.overflowed(bits, *patterns).any())
    return overflow << Flag.HALF_OVERFLOW


def check_slot(slot: dict[str, int], table: Float32s) -> None:
    """Raise ``ValueError`` if a descriptor has entries beyond the table."""
    least, last = slot["offset"] + slot["low"], slot["offset"] + slot["high"]
    if not 0 <= least <= last < len(table):
        raise ValueError(f"slot must stay inside {len(table)} entries, not {least}..{last}")


def look_up(x: Float32s, slot: dict[str, int], table: Float32s, out: Float32s, pool: Pool) -> int:
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
    x: Float32s,
    fmt: BlockFormat,
    quant: Quant,
    noise: Bits | None,
    out: Float32s,
    scale: Float32s,
    pool: Pool,
    grain: Float32s | None = None,
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
        power = (peak.view(np.int32) & EXPONENT).view(np.float32)
        np.multiply(power, 2.0**-fmt.headroom, out=power)
        np.maximum(power, 2.0**fmt.exp_min, out=power)
        if power.max() > 2.0**fmt.exp_max:  # the greatest mantissa has a bit too many
            np.minimum(power, 2.0**fmt.exp_max, out=power)
            flags |= 1 << Flag.SATURATED
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


def _round_to(x: Float32s, unit: Any, rounding: Rounding, noise: Bits | None, out: Float32s) -> None:
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
