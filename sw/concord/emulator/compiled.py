"""Operations of chains around their matrix products, compiled by Numba: one pass over the values in place of many.

The results are those of :mod:`concord.emulator.kernels` as long as all values are finite. A vector with other values,
or with an operation that is not here, is left alone and its number is returned: the caller computes it with those
functions and continues after it.

Arrays of vectors are float32 ``[words * N, B]``: the elements of native vectors one after another, and lanes of the
batch. The inner loops run over lanes, so that the compiler turns them into vector instructions. The order of operations
on one value is fixed; nothing is reordered or contracted, so results do not depend on the processor.

Only :mod:`concord.emulator.fused` imports this module, and only when kernels are wanted: Numba is an optional package.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from concord.emulator.kernel_cache import kept
from concord.spec.formats import BINARY16_EXP_MIN, BINARY16_MAX, Flag
from concord.spec.isa import Op
from concord.utils.arrays import Float32s, Ints

_EXPONENT = np.int32(0x7F800000)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_SIGN = np.int32(-(1 << 31))
_NORMAL = np.float32(2.0**BINARY16_EXP_MIN)
#: Adding it times the power of two at or below |x| leaves the 11 bits of binary16.
_TO_BINARY16 = np.float32(1.5 * 2.0**13)
_TO_INTEGER = np.float32(1.5 * 2.0**23)
#: Bits of the greatest binary16 number as float32; overflowed numbers, infinities and NaNs have greater ones.
_MAX_BITS = np.int32(np.float32(BINARY16_MAX).view(np.int32))
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_INFINITY = np.float32(np.inf)

_MUL, _ADD, _SUB, _RSUB = int(Op.VV_MUL), int(Op.VV_ADD), int(Op.VV_SUB), int(Op.VV_RSUB)
_MAX, _MIN, _RELU, _TABLE = int(Op.VV_MAX), int(Op.VV_MIN), int(Op.V_RELU), int(Op.V_TBL)
#: With an operand.
_COMBINING = (_MUL, _ADD, _SUB, _RSUB, _MAX, _MIN)
_CLAMPED, _SATURATED = 1 << Flag.TABLE_CLAMPED, 1 << Flag.SATURATED

_inline = njit(inline="always")


def _compiled(function: Any) -> Any:
    return kept(njit(nogil=True, error_model="numpy")(function))


@_inline
def _bits(x: Any) -> Any:
    return np.float32(x).view(np.int32)


@_inline
def _number(bits: Any) -> Any:
    return np.int32(bits).view(np.float32)


@_inline
def _rounded(x: Any) -> Any:
    """The nearest binary16 number, of two the even one; overflow leaves more than 65504."""
    bits = _bits(x)
    unit = _number(bits & _EXPONENT)
    unit = (unit if unit > _NORMAL else _NORMAL) * _TO_BINARY16
    return _number(_bits((x + unit) - unit) | (bits & _SIGN))


@_inline
def _key(bits: Any) -> Any:
    """Bits of a number as an integer in the order of the numbers, -0 below +0; its own inverse."""
    return np.int32(bits ^ ((bits >> 31) & _MAGNITUDE))


@_compiled
def _fetch(x: Float32s, row: int, zero: float, tile: Float32s) -> Any:
    """Copy a vector to ``tile``, rounded to binary16; whether it has values that are not finite."""
    worst = np.int32(0)
    for n in range(tile.shape[0]):
        for b in range(tile.shape[1]):
            value = _rounded(x[row + n, b] + zero)
            tile[n, b] = value
            worst = max(worst, np.int32(_bits(value) & _MAGNITUDE))
    return worst > _MAX_BITS


@_compiled
def _combine(op: int, other: Float32s, row: int, tile: Float32s) -> Any:
    """An operation with a vector of ``other``; whether something is not finite."""
    worst = np.int32(0)
    # A difference is a sum with one sign changed, a minimum the maximum of the complements.
    own, its = -_ONE if op == _RSUB else _ONE, -_ONE if op == _SUB else _ONE
    flip = np.int32(-1) if op == _MIN else np.int32(0)
    for n in range(tile.shape[0]):
        if op == _MUL:
            for b in range(tile.shape[1]):
                value = _rounded(tile[n, b] * other[row + n, b])
                tile[n, b] = value
                worst = max(worst, np.int32(_bits(value) & _MAGNITUDE))
        elif op == _MAX or op == _MIN:
            for b in range(tile.shape[1]):
                bits = _bits(other[row + n, b])
                worst = max(worst, np.int32(bits & _MAGNITUDE))
                greater = max(np.int32(_key(_bits(tile[n, b])) ^ flip), np.int32(_key(bits) ^ flip))
                tile[n, b] = _number(_key(np.int32(greater ^ flip)))
        else:
            for b in range(tile.shape[1]):
                value = _rounded(own * tile[n, b] + its * other[row + n, b])
                tile[n, b] = value
                worst = max(worst, np.int32(_bits(value) & _MAGNITUDE))
    return worst > _MAX_BITS


@_compiled
def _relu(tile: Float32s) -> None:
    for n in range(tile.shape[0]):
        for b in range(tile.shape[1]):
            value = tile[n, b]
            tile[n, b] = value if value > _ZERO else _ZERO


@_compiled
def _look_up(slot: Float32s, table: Float32s, tile: Float32s) -> Any:
    """Entries of a table; whether one is not finite, and whether a number is beyond an end that is not settled."""
    factor, low, high, offset = slot[0], slot[1], slot[2], slot[3]
    under, over, worst = 0, 0, np.int32(0)
    for n in range(tile.shape[0]):
        for b in range(tile.shape[1]):
            code = np.rint(tile[n, b] * factor)
            under |= code < low
            over |= code > high
            code = code if code > low else low
            value = table[np.int64((code if code < high else high) + offset)]
            tile[n, b] = value
            worst = max(worst, np.int32(_bits(value) & _MAGNITUDE))
    clamped = (under != 0 and slot[4] == _ZERO) or (over != 0 and slot[5] == _ZERO)
    return worst > _MAX_BITS, clamped


@_compiled
def _convert(tile: Float32s, row: int, narrow: Float32s, quant: Float32s, power: Float32s, grain: Float32s) -> Any:
    """Write a vector as a block; whether something is saturated."""
    count, lanes = tile.shape
    fixed, headroom, least, most, q_max = quant[0], quant[1], quant[2], quant[3], quant[4]
    static, wanted = fixed > _ZERO, _ZERO
    if static:
        for b in range(lanes):
            power[b] = grain[b] = fixed
    else:
        for b in range(lanes):
            grain[b] = _ZERO
        for n in range(count):
            for b in range(lanes):
                size = abs(tile[n, b])
                grain[b] = size if size > grain[b] else grain[b]
        for b in range(lanes):
            unit = _number(_bits(grain[b]) & _EXPONENT) * headroom
            wanted = max(wanted, unit)
            unit = unit if unit > least else least
            power[b] = unit if unit < most else most
            grain[b] = power[b] if grain[b] > _ZERO else _INFINITY
    over = 0
    for n in range(count):
        for b in range(lanes):
            unit, value = power[b], tile[n, b]
            limit, shift = unit * q_max, unit * _TO_INTEGER
            if static:
                end = limit + unit
                value = value if value < end else end
                value = value if value > -end else -end
            value = (value + shift) - shift
            over |= abs(value) > limit
            value = value if value < limit else limit
            narrow[row + n, b] = value if value > -limit else -limit
    return (static and over != 0) or wanted > most


class ChainVectors(NamedTuple):
    """Vectors of a chain.

    Parameters
    ----------
    x, rows : arrays
        Values, and by vector the row of its first element. They are rounded to binary16.
    zero : float32
        Added to the values: 0.0 makes -0 to +0, as exact sums have it; -0.0 changes nothing.
    """

    x: Float32s
    rows: Ints
    zero: np.float32


class MfuSteps(NamedTuple):
    """Operations of a chain.

    Parameters
    ----------
    ops, operands : arrays ``[steps]`` and ``[steps, vectors]``
        Operations; rows of their operands in the wide memory.
    slots : array ``[steps, 6]``
        Of tables: scale as a power of two, low, high, offset, whether the low and the high end are settled.
    table : array
        Entries of all tables.
    """

    ops: Ints
    operands: Ints
    slots: Float32s
    table: Float32s


class VectorMemories(NamedTuple):
    """Wide memory, and values, scales and grains of the blocks that are written."""

    wide: Float32s
    narrow: Float32s
    scale: Float32s
    grain: Float32s


class VectorPlaces(NamedTuple):
    """Destinations of a chain.

    Parameters
    ----------
    wide, narrow : arrays ``[vectors]``, or empty
        Vectors of the memories to write.
    quant : array
        Static power of two or 0; power of two of the headroom, least and greatest power of two, greatest mantissa.
    """

    wide: Ints
    narrow: Ints
    quant: Float32s


@_compiled
def finish(
    first: int,
    stop: int,
    vectors: ChainVectors,
    steps: MfuSteps,
    memories: VectorMemories,
    places: VectorPlaces,
    tile: Float32s,
    flags: Ints,
) -> int:
    """Multifunction units and destinations for vectors number ``first`` to ``stop - 1``, in order.

    Parameters
    ----------
    tile : array ``[N, B]``
        For the vector in work.
    flags : array
        Raised flags are added to its only element.

    Returns
    -------
    int
        Number of the first vector that is not computed: one that is left alone, or ``stop``.
    """
    x, rows, zero = vectors
    ops, operands, slots, table = steps
    wide, narrow, scale, grain = memories
    to_wide, to_narrow, quant = places
    native = tile.shape[0]
    for vector in range(first, stop):
        bad = _fetch(x, rows[vector], zero, tile)
        raised = 0
        for k in range(len(ops)):
            if bad:
                break
            if ops[k] == _RELU:
                _relu(tile)
            elif ops[k] == _TABLE:
                bad, clamped = _look_up(slots[k], table, tile)
                if clamped:
                    raised |= _CLAMPED
            elif ops[k] in _COMBINING:
                bad = _combine(ops[k], wide, operands[k, vector], tile)
            else:
                bad = True
        if bad:
            return vector
        if len(to_wide):
            row = to_wide[vector] * native
            for n in range(native):
                for b in range(tile.shape[1]):
                    wide[row + n, b] = tile[n, b]
        if len(to_narrow):
            at = to_narrow[vector]
            if _convert(tile, at * native, narrow, quant, scale[at], grain[at]):
                raised |= _SATURATED
        flags[0] |= raised
    return stop


@_compiled
def extremes(scale: Float32s, grain: Float32s, words: Ints) -> Any:
    """Greatest scale and least grain of some words, over all lanes."""
    top, least = np.int32(0), np.int32(_EXPONENT)
    for k in range(len(words)):
        at = words[k]
        for b in range(scale.shape[1]):  # bits of positive numbers are in the order of the numbers
            top = max(top, np.int32(_bits(scale[at, b])))
            least = min(least, np.int32(_bits(grain[at, b])))
    return _number(top), _number(least)


@_compiled
def beyond(scale: Float32s, grain: Float32s, windows: Ints, ratio: float, out: Any) -> None:
    """Marks windows whose greatest scale is more than ``ratio`` times their least grain.

    Parameters
    ----------
    scale, grain : arrays
    windows : array ``[positions, words]``
    ratio : float
    out : array of bool ``[positions, B]``
    """
    lanes = scale.shape[1]
    top, least = np.empty(lanes, dtype=np.float32), np.empty(lanes, dtype=np.float32)
    for p in range(windows.shape[0]):
        for b in range(lanes):
            top[b], least[b] = _ZERO, _INFINITY
        for k in range(windows.shape[1]):
            at = windows[p, k]
            for b in range(lanes):
                top[b] = scale[at, b] if scale[at, b] > top[b] else top[b]
                least[b] = grain[at, b] if grain[at, b] < least[b] else least[b]
        for b in range(lanes):
            out[p, b] = top[b] > least[b] * ratio


@_compiled
def depthwise(x: Float32s, rows: Ints, weights: Float32s, out: Float32s) -> None:
    """Sums over taps of rows of ``x`` times weights, in the order of the taps.

    Parameters
    ----------
    x : array
    rows : array ``[positions, tile rows, taps]``
        First rows of the vectors.
    weights : array ``[tile rows, N, taps]``
    out : array ``[positions * tile rows * N, B]``
    """
    positions, count, taps = rows.shape
    native, lanes = weights.shape[1], x.shape[1]
    if lanes == 1:  # what follows each other in memory are the elements of a vector
        by_tap = weights.transpose(0, 2, 1).copy()
        total = np.empty(native, dtype=np.float32)
        for p in range(positions):
            for r in range(count):
                total[:] = _ZERO
                for t in range(taps):
                    vector = x[rows[p, r, t] : rows[p, r, t] + native, 0]
                    for n in range(native):
                        total[n] += by_tap[r, t, n] * vector[n]
                to = (p * count + r) * native
                for n in range(native):
                    out[to + n, 0] = total[n]
        return
    for p in range(positions):
        for r in range(count):
            for n in range(native):
                to = (p * count + r) * native + n
                for b in range(lanes):
                    out[to, b] = _ZERO
                for t in range(taps):
                    weight, row = weights[r, n, t], rows[p, r, t] + n
                    for b in range(lanes):
                        out[to, b] += weight * x[row, b]


@_compiled
def products(weights: Float32s, starts: Ints, elements: Ints, x: Float32s, sources: Ints, out: Any) -> None:
    """Products of vectors with matrices of every lane.

    Parameters
    ----------
    weights : array
        Elements of rows of tiles, and of other things.
    starts : array ``[tile rows, N]``
        Where the rows of the matrices are among them.
    elements : array ``[tile rows, K]``
        The elements of a row that are weights, from there; a multiple of four.
    x : array
    sources : array ``[positions, tile rows or 1, blocks]``
        First rows of the vectors.
    out : array ``[positions * tile rows * N, B]``
        Float32 or float64, as which products and sums are computed.
    """
    count, native = starts.shape
    positions, own, blocks = sources.shape
    unit = out.dtype.type(1.0)
    for p in range(positions):
        for r in range(count):
            for n in range(native):
                total = out[(p * count + r) * native + n]
                for b in range(len(total)):
                    total[b] = _ZERO
                for j in range(blocks):
                    source = sources[p, min(r, own - 1), j]
                    for k in range(0, native, 4):
                        row = starts[r, n]
                        at = elements[r, j * native + k : j * native + k + 4]
                        w0, w1, w2, w3 = (
                            weights[row + at[0]],
                            weights[row + at[1]],
                            weights[row + at[2]],
                            weights[row + at[3]],
                        )
                        v0, v1, v2, v3 = x[source + k], x[source + k + 1], x[source + k + 2], x[source + k + 3]
                        for b in range(len(total)):
                            total[b] += (
                                unit * w0[b] * v0[b]
                                + unit * w1[b] * v1[b]
                                + unit * w2[b] * v2[b]
                                + unit * w3[b] * v3[b]
                            )


@_compiled
def maximum(x: Float32s, rows: Ints, across: bool, out: Float32s) -> Any:
    """Maxima over vectors, and over all of their elements if ``across``; whether something is no number.

    Parameters
    ----------
    x : array
    rows : array ``[vectors, taps]``
        First rows of the vectors.
    across : bool
    out : array ``[vectors * N, B]``
    """
    vectors, taps = rows.shape
    native, lanes = len(out) // vectors, x.shape[1]
    worst = np.int32(0)
    for v in range(vectors):
        for n in range(native):
            to = v * native + n
            for b in range(lanes):
                out[to, b] = -_INFINITY
            for t in range(taps):
                row = rows[v, t] + n
                for b in range(lanes):
                    bits = _bits(x[row, b])
                    worst = max(worst, np.int32(bits & _MAGNITUDE))
                    out[to, b] = _number(_key(max(_key(bits), _key(_bits(out[to, b])))))
        if across:
            top = v * native
            for n in range(1, native):
                for b in range(lanes):
                    out[top, b] = _number(_key(max(_key(_bits(out[top, b])), _key(_bits(out[top + n, b])))))
            for n in range(1, native):
                for b in range(lanes):
                    out[top + n, b] = out[top, b]
    return worst > _EXPONENT
