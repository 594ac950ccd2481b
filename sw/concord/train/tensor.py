"""Tensors of training: integers and an exponent.

BLAS multiplies floats, so the integers travel in arrays of float32 or float64. Every element of such an array is an
integer that its type holds exactly; sums are kept below 2**24 or 2**53 by bounds, and so do not depend on their
order. Arrays keep whatever memory layout they come with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from concord.golden.integers import excess, grid_of, moved, rounded
from concord.golden.rounding import round_shift
from concord.golden.training import Block, bits_to_drop, quantize_float
from concord.spec.formats import Rounding
from concord.spec.training import BLOCK_SPREAD, TRAIN_EXP_MAX, TRAIN_EXP_MIN, TrainingFormat
from concord.sums.exact import DOUBLE, SINGLE, exact_type
from concord.train.noise import NoiseStream
from concord.utils.arrays import Ints

Array = npt.NDArray[Any]

#: Integers up to these can be rounded by ``rint``, see :func:`shift_floats`.
_RINT_SINGLE, _RINT_LIMIT = SINGLE >> 2, DOUBLE >> 2
#: Elements that are rounded at once: what the cache holds.
_CHUNK = 1 << 14


@dataclass(frozen=True, eq=False)
class Tensor:
    """Integers times a power of two.

    Parameters
    ----------
    mant : array of float32, float64 or int64
        Integers, ``[samples, *shape]``.
    exp : int
        Every element is worth ``mant * 2**exp``.
    peak : int
        No magnitude is above this. A bound; it decides how something is computed, never what comes out.
    """

    mant: Array
    exp: int
    peak: int

    @classmethod
    def of(cls, mant: Array, exp: int, peak: int | None = None) -> Tensor:
        """Tensor of integers, in the type of array that holds them; ``peak`` is the greatest magnitude if left out."""
        peak = top_of(mant) if peak is None else peak
        return cls(mant.astype(exact_type(peak), copy=False), exp, peak)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """Values of the elements, exact in float64."""
        return np.ldexp(self.mant.astype(np.float64), self.exp)

    def with_mant(self, mant: Array) -> Tensor:
        """Tensor of other elements with the exponent and bound of this one."""
        return Tensor(mant, self.exp, self.peak)

    def reshaped(self, *shape: int) -> Tensor:
        """Tensor with the elements in another shape."""
        return self.with_mant(self.mant.reshape(shape))


def top_of(mant: Array) -> int:
    """The greatest magnitude."""
    return max(int(mant.max()), -int(mant.min())) if mant.size else 0


def narrow(tensor: Tensor, fmt: TrainingFormat, noise: NoiseStream | None = None, axis: int = -1) -> Tensor:
    """A tensor in a format: :func:`concord.golden.training.quantize`, for arrays in floats.

    Parameters
    ----------
    tensor : Tensor
        Of any width.
    fmt : TrainingFormat
        Bits, rounding and block.
    noise : NoiseStream or None
        For stochastic rounding; every call takes numbers of its own.
    axis : int
        Where the neighbours are that share an exponent, if the format has blocks.

    Elements that need a greater exponent than there is are cut off, and counted by :func:`saturations`.

    Raises
    ------
    OverflowError
        If a format has blocks, and one of them needs such an exponent.
    """
    if not fmt.block and tensor.peak <= fmt.q_max and TRAIN_EXP_MIN <= tensor.exp <= TRAIN_EXP_MAX:
        return Tensor.of(tensor.mant, tensor.exp, tensor.peak)
    if fmt.block and tensor.mant.size and (narrowed := _narrow_blocks(tensor, fmt, noise, axis)) is not None:
        return narrowed
    top = top_of(tensor.mant)
    wanted = tensor.exp + excess(top, fmt.bits)
    exp = min(max(wanted, TRAIN_EXP_MIN), TRAIN_EXP_MAX)
    right = exp - tensor.exp if top else 0
    if top and wanted > exp:
        note_saturated(_beyond(tensor.mant, top, right, fmt.q_max))
    if right == 0 and top <= fmt.q_max:
        return Tensor.of(tensor.mant, exp, top)
    whole = moved(top, right) if right > -32 else 0
    peak = min(whole + (fmt.rounding == Rounding.STOCHASTIC), fmt.q_max)
    if right < 0 or top > _RINT_LIMIT or tensor.mant.dtype == np.int64 or fmt.rounding != Rounding.NEAREST_AWAY:
        exact = tensor.mant.astype(np.int64)
        bits = noise.take(exact.shape) if noise is not None and fmt.rounding == Rounding.STOCHASTIC else None
        peak = fmt.q_max if right < 0 else peak
        return Tensor.of(rounded(exact, right, fmt.bits, fmt.rounding, bits), exp, peak)
    return Tensor(shift_floats(tensor.mant, right, top, exact_type(peak), fmt.q_max), exp, peak)


class Saturations(Protocol):
    """Something that counts elements whose mantissas are cut off, as no exponent is greater."""

    saturated: int


class _Noted(threading.local):
    """Counter of a thread, if it has one."""

    into: Saturations | None = None


_NOTED = _Noted()


@contextmanager
def saturations(into: Saturations) -> Iterator[None]:
    """Count there what saturates in this thread meanwhile, and nowhere else."""
    before, _NOTED.into = _NOTED.into, into
    try:
        yield
    finally:
        _NOTED.into = before


def note_saturated(count: int) -> None:
    """Count elements, if anyone wants to know."""
    if _NOTED.into is not None:
        _NOTED.into.saturated += count


def quantised(values: Array, fmt: TrainingFormat) -> Block:
    """:func:`concord.golden.training.quantize_float` of ``[n]`` numbers; those beyond the greatest exponent count."""
    block = quantize_float(values, fmt)
    if block.exp == TRAIN_EXP_MAX and np.abs(values).max() > 2.0 ** (TRAIN_EXP_MAX + fmt.bits - 1):
        note_saturated(int(np.count_nonzero(np.abs(values) >= (fmt.q_max + 0.5) * 2.0**TRAIN_EXP_MAX)))
    return block


def _beyond(mant: Array, top: int, right: int, limit: int) -> int:
    """Number of magnitudes that, times ``2**-right``, are beyond a limit by half a step or more."""
    least = (limit >> -right) + 1 if right <= 0 else (limit + 1 << right) - (1 << right - 1)
    return int(np.count_nonzero(np.abs(mant) >= least)) if least <= top else 0


def shift_floats(mant: Array, right: int, top: int, dtype: type[np.generic], limit: int) -> Array:
    """``mant * 2**-right`` to the nearest, halves away, within a limit.

    ``rint`` rounds halves to even. A factor that is one unit in its last place greater moves every number by one or
    two units in the last place: halves away from zero, and nothing else to a half, since integers up to ``2**51``
    (``2**22`` in float32) have at least two bits after the binary point, and so are moved by less than 1.

    Parameters
    ----------
    mant : array of float32 or float64
        Integers.
    right : int
        Bits to drop, from 1 on.
    top : int
        No magnitude is above this; up to ``2**51``.
    dtype : type
        Of the result.
    limit : int
        Magnitudes beyond it become it.
    """
    kind = np.float32 if mant.dtype == np.float32 and top <= _RINT_SINGLE else np.float64
    out = np.empty_like(mant, dtype=dtype)
    if out.strides != tuple(s * out.itemsize // mant.itemsize for s in mant.strides):
        mant = mant.copy(order="K")
        out = np.empty_like(mant, dtype=dtype)
    flat, into = mant.ravel(order="K"), out.ravel(order="K")
    factor, work = kind(2.0**-right) * (1 + np.finfo(kind).eps), np.empty(min(_CHUNK, flat.size), kind)
    clipped = moved(top, right) > limit
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        x = work[: part.size]
        np.multiply(part, factor, out=x, dtype=kind)
        np.rint(x, out=x)
        if clipped:
            np.clip(x, -limit, limit, out=x)
        into[start : start + _CHUNK] = x
    if not np.shares_memory(into, out):
        raise AssertionError("a rounded tensor must be written where it is")
    return out


def _narrow_blocks(tensor: Tensor, fmt: TrainingFormat, noise: NoiseStream | None, axis: int) -> Tensor | None:
    """An exponent per block, on one grid: mantissas are multiples of 2 to the power of what their block has more.

    ``None`` for zeros, which have no blocks.
    """
    at = axis % tensor.mant.ndim
    whole, size = tensor.mant, tensor.mant.shape[at]
    if size % fmt.block:
        sides = [(0, -size % fmt.block if k == at else 0) for k in range(whole.ndim)]
        whole = np.pad(whole, sides)
    blocks = whole.reshape(*whole.shape[:at], -1, fmt.block, *whole.shape[at + 1 :])
    tops = np.maximum(blocks.max(axis=at + 1, keepdims=True), -blocks.min(axis=at + 1, keepdims=True)).astype(np.int64)
    top = int(tops.max())
    if not top:
        return None
    most = max(excess(top, fmt.bits), TRAIN_EXP_MIN - tensor.exp)
    drop = np.clip(bits_to_drop(tops, fmt.bits), max(most - BLOCK_SPREAD, TRAIN_EXP_MIN - tensor.exp, 0), most)
    if tensor.exp + most > TRAIN_EXP_MAX:
        raise OverflowError(f"exponents must be at most {TRAIN_EXP_MAX}, not {tensor.exp + most}; lower the rate")
    least = int(drop.min())
    if whole.dtype == np.int64 or top > _RINT_LIMIT or fmt.rounding != Rounding.NEAREST_AWAY:
        mant = _shift_blocks(blocks, drop, fmt, noise, at) << (drop - least)
        peak = top_of(mant)
    else:
        mant = _rint_blocks(blocks, drop, least, top, fmt.q_max)
        peak = int((np.minimum(round_shift(tops, drop), fmt.q_max) << drop - least).max())
    mant = mant.reshape(whole.shape)[(*[slice(None)] * at, slice(size))]
    return Tensor.of(mant, tensor.exp + least, peak)


def _shift_blocks(blocks: Array, drop: Ints, fmt: TrainingFormat, noise: NoiseStream | None, at: int) -> Ints:
    """Blocks along the axis after ``at``, without the bits that each drops; noise is in the order of the blocks."""
    exact, bits = blocks.astype(np.int64), None
    if noise is not None and fmt.rounding == Rounding.STOCHASTIC:
        # Blocks are the last axes then, as they are in the tensor whose blocked axis is the last one.
        moved = np.moveaxis(exact, (at, at + 1), (-2, -1))
        bits = np.moveaxis(noise.take(moved.shape), (-2, -1), (at, at + 1))
    return rounded(exact, drop, fmt.bits, fmt.rounding, bits)


def _rint_blocks(blocks: Array, drop: Ints, least: int, top: int, limit: int) -> Array:
    """Blocks without the bits that each drops, halves away from zero as in :func:`shift_floats`, in units of ``least``
    bits."""
    units = drop - least
    single = blocks.dtype == np.float32 and top <= _RINT_SINGLE and limit << int(units.max()) <= SINGLE
    kind = np.float32 if single else np.float64
    factor = np.where(drop, np.ldexp(1 + np.finfo(kind).eps, -drop), 1).astype(kind)
    out: Array = np.multiply(blocks, factor, dtype=kind)
    np.rint(out, out=out)
    np.clip(out, -limit, limit, out=out)
    out *= np.ldexp(kind(1), units)
    return out


def to_format(mant: Array, exp: int, peak: int, fmt: TrainingFormat) -> Tensor:
    """An intermediate: integers as they are if they fit the format, or else rounded."""
    if peak > fmt.q_max:
        peak = top_of(mant)
    tensor = Tensor(mant, exp, peak)
    if peak > fmt.q_max or not TRAIN_EXP_MIN <= exp <= TRAIN_EXP_MAX:
        tensor = narrow(tensor, fmt)
    return Tensor.of(tensor.mant, tensor.exp, tensor.peak)


def added(tensors: Sequence[Tensor], fmt: TrainingFormat) -> Tensor:
    """The sum of tensors of one shape, on the least of their exponents.

    Where an operand would have more than 46 bits on that grid, the grid is as much coarser; what is finer is rounded
    to the nearest, away from zero. The sum is an intermediate.
    """
    if len(tensors) == 1:
        return tensors[0]
    parts, grid, peak = _aligned(tensors, sum)
    there = [(part, tensor) for part, tensor in zip(parts, tensors, strict=True) if part is not None]
    if len(there) < 2:
        return there[0][1] if there else tensors[0]
    total = there[0][0]
    for part, _ in there[1:]:
        total = total + part
    return to_format(total, grid, peak, fmt)


def joined(tensors: Sequence[Tensor], fmt: TrainingFormat, along: int | None = None) -> Tensor:
    """Tensors side by side along an axis, or along a new one after that of the samples; grid as for a sum."""
    parts, grid, peak = _aligned(tensors, max)
    arrays = [t.mant if part is None else part for t, part in zip(tensors, parts, strict=True)]
    whole = np.stack(arrays, axis=1) if along is None else np.concatenate(arrays, axis=along)
    return to_format(whole, grid, peak, fmt)


def _aligned(tensors: Sequence[Tensor], bound: Callable[[Iterable[int]], int]) -> tuple[list[Array | None], int, int]:
    """Tensors on one grid, ``None`` in the place of zeros, which have no say in it; its exponent; and a bound.

    ``bound`` makes one of the bounds of all, and decides the type of the arrays.
    """
    tops = [top_of(t.mant) for t in tensors]
    there = [(t, top) for t, top in zip(tensors, tops, strict=True) if top]
    if not there:
        return [None] * len(tensors), tensors[0].exp, 0
    grid = grid_of([(t.exp, top) for t, top in there])
    peak = bound([moved(top, grid - t.exp) for t, top in there])
    dtype = exact_type(peak)
    return (
        [_on_grid(t, top, t.exp - grid, dtype) if top else None for t, top in zip(tensors, tops, strict=True)],
        grid,
        peak,
    )


def _on_grid(tensor: Tensor, top: int, left: int, dtype: type[np.generic]) -> Array:
    if left < 0:
        return round_shift(tensor.mant, -left).astype(dtype)
    if not left:
        return tensor.mant.astype(dtype, copy=False)
    if dtype == np.int64:
        return np.asarray(tensor.mant.astype(np.int64) << left)
    return np.multiply(tensor.mant, 2.0**left, dtype=dtype)


def multiplied(tensor: Tensor, factor: Dyadic, fmt: TrainingFormat) -> Tensor:
    """A tensor times an exact number."""
    peak = tensor.peak * abs(factor.mant)
    product = (
        tensor.mant * tensor.mant.dtype.type(factor.mant)
        if abs(factor.mant) == 1
        else (tensor.mant.astype(exact_type(peak)) * factor.mant)
    )
    return to_format(product, tensor.exp + factor.exp, peak, fmt)


@dataclass(frozen=True)
class Dyadic:
    """``mant * 2**exp``: a rate, a momentum, a reciprocal."""

    mant: int
    exp: int

    @property
    def value(self) -> Fraction:
        """Value of the number, exact."""
        return Fraction(self.mant) * Fraction(2) ** self.exp

    @classmethod
    @lru_cache(maxsize=1024)
    def nearest(cls, number: Fraction | float | int, bits: int = 16) -> Dyadic:
        """The nearest one with a mantissa of that many bits and a sign, halves away from zero."""
        exact = Fraction(number)
        if not exact:
            return cls(0, 0)
        size = abs(exact)
        exp = size.numerator.bit_length() - size.denominator.bit_length() - bits
        while size / Fraction(2) ** exp >= 1 << bits:
            exp += 1
        scaled = size / Fraction(2) ** exp
        mant = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
        while mant % 2 == 0:
            mant, exp = mant // 2, exp + 1
        return cls(mant if exact > 0 else -mant, exp)
