"""Block floating point: binary16 to narrow and back, in integer arithmetic.

dynamic exponent
    ``e = max(exp_min, floor(log2(max|x|)) - (m - 2))`` taken before rounding; all zero gives ``exp_min``.
    A mantissa that rounds up to ``2**(m-1)`` saturates, which is ordinary rounding and raises no flag.
static exponent
    Given by the caller; a mantissa that saturates raises ``SATURATED``.
roundings
    Of magnitudes: nearest even, nearest away, or ``q = (floor(|x| * 2**(16 - e)) + noise) >> 16``.
specials
    An infinity counts as +-65504 and a NaN as +0; both raise ``NONFINITE``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from concord.golden import binary16
from concord.golden.rounding import noise_like, round_floats, round_magnitude
from concord.spec.formats import (
    BINARY16_INF,
    BINARY16_MAX_BITS,
    NOISE_BITS,
    NOISE_SEED,
    NOISE_SHIFTS,
    BlockFormat,
    ExponentMode,
    Rounding,
)
from concord.utils.arrays import Array, Bits, Bools, FloatArray, Ints

#: binary16 significands have 11 bits and mantissas at most 15: shifts beyond these change nothing.
_LEFT_LIMIT = 24
_RIGHT_LIMIT = 40


class Quantized(NamedTuple):
    """Blocks of mantissas ``mant[..., block]`` with one exponent and one pair of flags per block."""

    mant: Ints
    exp: Ints
    nonfinite: Bools
    saturated: Bools


class Noise:
    """The noise of a converter with ``lanes`` lanes, from the start of a run.

    One register per lane as :mod:`concord.spec.formats` defines it, stepped once before each beat.
    """

    def __init__(self, lanes: int):
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        self.state = (np.arange(1, lanes + 1, dtype=np.uint64) * NOISE_SEED).astype(np.uint32)

    def take(self, count: int) -> Bits:
        """Return the noise of the next ``count`` beats, ``[count, lanes]``."""
        states = np.empty((count, len(self.state)), dtype=np.uint32)
        left, right, again = (np.uint32(shift) for shift in NOISE_SHIFTS)
        x = self.state
        for k in range(count):
            x = x ^ x << left
            x = x ^ x >> right
            x = x ^ x << again
            states[k] = x
        self.state = x
        return states.astype(np.uint16)


def noise(lanes: int, count: int) -> Bits:
    """Noise of the first ``count`` beats of a run, ``[count, lanes]``."""
    return Noise(lanes).take(count)


def floor_log2(magnitude: ArrayLike) -> Ints:
    """``floor(log2(x))`` of positive float64 numbers or integers below 2**53, exact; 0 gives -1."""
    return np.asarray(np.frexp(np.asarray(magnitude, dtype=np.float64))[1] - 1, dtype=np.int64)


def _finite(bits: Bits) -> Bits:
    """Replace infinities by +-65504 and NaNs by +0."""
    sign = bits & 0x8000
    limited = np.where((bits & 0x7FFF) == BINARY16_INF, sign | BINARY16_MAX_BITS, bits)
    return np.where(binary16.is_nan(bits), 0, limited).astype(np.uint16)


def _round(sig: Ints, right: Ints, rounding: Rounding, random: ArrayLike | None) -> Ints:
    """``sig * 2**-right`` rounded, for magnitudes ``sig`` of at most 11 bits."""
    return round_magnitude(sig, np.clip(right, -_LEFT_LIMIT, _RIGHT_LIMIT), rounding, random)


def _check_block(shape: tuple[int, ...], fmt: BlockFormat) -> None:
    if not shape or shape[-1] != fmt.block:
        raise ValueError(f"the last dimension must be the block of {fmt.block} elements, not shape {shape!r}")


def _static(exp: ArrayLike, fmt: BlockFormat, shape: tuple[int, ...]) -> Ints:
    static = np.broadcast_to(np.asarray(exp), shape).astype(np.int64)
    if static.size and not fmt.exp_min <= static.min() <= static.max() <= fmt.exp_max:
        raise ValueError(f"exp must be in {fmt.exp_min}..{fmt.exp_max}, not {exp!r}")
    return static


def quantize(
    bits: ArrayLike,
    fmt: BlockFormat,
    mode: ExponentMode = ExponentMode.DYNAMIC,
    exp: ArrayLike = 0,
    rounding: Rounding = Rounding.NEAREST_EVEN,
    noise: ArrayLike | None = None,
) -> Quantized:
    """Convert binary16 patterns ``[..., block]`` to blocks.

    Parameters
    ----------
    bits : array of uint16
        Elements; the last dimension is the block.
    fmt : BlockFormat
        Target. A dynamic exponent that would exceed ``exp_max`` is limited to it, and mantissas that saturate for that
        reason are flagged; this cannot happen with the activation format of a configuration.
    mode, exp
        Where the exponent comes from; ``exp`` is used with a static one only and may differ per block.
    rounding, noise
        ``noise`` holds 16 random bits per element and is used with stochastic rounding only.
    """
    pattern = binary16.as_bits(bits)
    _check_block(pattern.shape, fmt)
    raw = _finite(pattern).astype(np.int64)
    field = raw >> 10 & 0x1F
    sig = (raw & 0x3FF) | (field > 0).astype(np.int64) << 10
    unit = np.maximum(field, 1) - 25  # |x| = sig * 2**unit
    top = np.max(np.where(sig > 0, floor_log2(sig) + unit, fmt.exp_min), axis=-1)
    if mode == ExponentMode.STATIC:
        shared = wanted = _static(exp, fmt, top.shape)
    else:
        wanted = np.maximum(fmt.exp_min, top - fmt.headroom)
        shared = np.minimum(wanted, fmt.exp_max)
    magnitude = _round(sig, shared[..., None] - unit, rounding, noise)
    over = np.any(magnitude > fmt.q_max, axis=-1)
    magnitude = np.minimum(magnitude, fmt.q_max)
    return Quantized(
        mant=np.where(raw & 0x8000, -magnitude, magnitude),
        exp=shared,
        nonfinite=np.any(~binary16.is_finite(pattern), axis=-1),
        saturated=np.asarray(over & ((mode == ExponentMode.STATIC) | (wanted > shared))),
    )


def quantize_float(
    values: ArrayLike, fmt: BlockFormat, rounding: Rounding = Rounding.NEAREST_EVEN, noise: ArrayLike | None = None
) -> Quantized:
    """Convert float64 or float32 values ``[..., block]`` (weights) to blocks with dynamic exponents.

    Every step is exact in float64 except the rounding itself. ``ValueError`` if a value is not finite or a block would
    need an exponent above ``exp_max``.
    """
    exact = np.asarray(values, dtype=np.float64)
    _check_block(exact.shape, fmt)
    if not np.all(np.isfinite(exact)):
        raise ValueError("values must be finite, not infinite or NaN")
    peak = np.max(np.abs(exact), axis=-1)
    shared = np.where(peak > 0, np.maximum(floor_log2(peak) - fmt.headroom, fmt.exp_min), fmt.exp_min)
    if np.any(shared > fmt.exp_max):
        raise ValueError(
            f"values must be below {fmt.limit:g} in magnitude (exp_max={fmt.exp_max}), not {np.max(peak):g}"
        )
    scaled = np.ldexp(np.abs(exact), -shared[..., None])
    if rounding == Rounding.STOCHASTIC:
        fine = np.floor(np.ldexp(scaled, NOISE_BITS)).astype(np.int64)
        magnitude = fine + noise_like(noise, fine.shape) >> NOISE_BITS
    else:
        magnitude = round_floats(scaled, rounding).astype(np.int64)
    magnitude = np.minimum(magnitude, fmt.q_max)
    quiet = np.zeros(shared.shape, dtype=np.bool_)
    return Quantized(np.where(np.signbit(exact), -magnitude, magnitude), shared.astype(np.int64), quiet, quiet)


def dequantize(mant: ArrayLike, exp: ArrayLike) -> FloatArray:
    """Values of blocks ``mant[..., block]`` with exponents ``exp[...]``, exact."""
    whole: Array = np.asarray(mant).astype(np.float64)
    return np.asarray(np.ldexp(whole, np.asarray(exp)[..., None]))


def to_binary16(mant: ArrayLike, exp: ArrayLike) -> Bits:
    """Narrow to wide: binary16 patterns of blocks, exact for every code of an activation format; q = 0 gives +0."""
    return binary16.encode(dequantize(mant, exp))
