"""Arithmetic of the NPU in NumPy: what the files of ``concord derive`` begin with.

binary16 numbers are kept in float32 arrays ``[batch, ...]``, which hold them exactly. The text below the imports is
copied into every file, for people to read, so it needs NumPy only and has no annotations. That of
:mod:`concord.operations.numpy_text` stands in the place of the line in the middle.
"""

# mypy: ignore-errors

import numpy as np

from concord.operations.numpy_text import half, note

# --- arithmetic ---

LARGEST = 65504.0  # the greatest binary16 number
NOISE_PARTS = 65536.0  # of a unit, in stochastic rounding


# --- operations ---


def largest(x, axis):
    """Maximum along an axis, as ``larger`` has it."""
    top = x.max(axis)
    zeros = top == 0
    if zeros.any():
        positive = ((x == 0) & ~np.signbit(x)).any(axis)
        top = np.where(zeros, np.where(positive, np.float32(0), np.float32(-0.0)), top)
    return top


def finite(x):
    """What a converter or a table reads: an infinity as the largest number, a NaN as zero."""
    return np.nan_to_num(x, nan=0.0, posinf=LARGEST, neginf=-LARGEST)


def table(x, entries, low, high, scale, unsettled=(False, False), flags=None):
    """The entry for ``rint(x * 2**scale)``, limited to ``low`` .. ``high``; the function goes on at unsettled ends."""
    if flags is not None:
        note(flags, "NONFINITE", ~np.isfinite(x))
        code = np.rint(finite(x) * np.float32(2.0**scale))
        note(flags, "TABLE_CLAMPED", ((code < low) & unsettled[0]) | ((code > high) & unsettled[1]))
    if not np.abs(x).max() <= LARGEST:
        x = finite(x)
    code = np.rint(np.clip(x * np.float32(2.0**scale), low, high)).astype(np.int32)
    return entries[code - low]


def quantise(x, sizes, bits, least, peaks=None, exponent=None, rounding="even", noise=None, flags=None):
    """Block floating point: every block along the last axis to numbers ``q * 2**e`` with ``bits`` bits of q.

    ``sizes`` are the elements of the blocks. The exponent follows from the largest element, or from the constant
    ``peaks`` of its block; it is at least ``least``. Or it is always ``exponent``.
    """
    if len(set(sizes)) == 1:
        blocks = x.reshape(*x.shape[:-1], len(sizes), sizes[0])
        some = None if noise is None else noise.reshape(*noise.shape[:-1], len(sizes), sizes[0])
        floor = None if peaks is None else np.float32(peaks)[:, None]
        return _blocks(blocks, bits, least, floor, exponent, rounding, some, flags).reshape(x.shape)
    found, start = [], 0
    for k, size in enumerate(sizes):
        part = slice(start, start + size)
        some = None if noise is None else noise[..., part]
        floor = None if peaks is None else np.float32(peaks[k])
        found.append(_blocks(x[..., part], bits, least, floor, exponent, rounding, some, flags))
        start += size
    return np.concatenate(found, axis=-1)


def _blocks(x, bits, least, floor, exponent, rounding, noise, flags):
    """One block along the last axis of every row."""
    if flags is not None:
        note(flags, "NONFINITE", ~np.isfinite(x))
    peak = np.abs(x).max(-1, keepdims=True)
    if not peak.max() <= LARGEST:
        x = finite(x)
        peak = np.abs(x).max(-1, keepdims=True)
    if exponent is not None:
        unit = np.float32(2.0**exponent)
    else:
        if floor is not None:
            peak = np.maximum(peak, floor)
        power = (peak.view(np.int32) & 0x7F800000).view(np.float32)  # the power of two at or below the peak
        unit = np.maximum(power * np.float32(2.0 ** (2 - bits)), np.float32(2.0**least))
    limit = unit * np.float32(2 ** (bits - 1) - 1)
    if exponent is not None:
        x = np.clip(x, -limit - unit, limit + unit)
    if rounding == "even":
        shift = unit * np.float32(1.5 * 2**23)  # float32 has no bits below the unit here
        y = x + shift
        y -= shift
    elif rounding == "away":
        y = np.copysign(np.floor(np.abs(x) / unit + np.float32(0.5)) * unit, x) + np.float32(0)
    else:
        fine = np.floor(np.abs(x).astype(np.float64) / unit * NOISE_PARTS) + noise
        y = (np.copysign(np.floor(fine / NOISE_PARTS) * unit, x) + 0.0).astype(np.float32)
    if flags is not None and exponent is not None:
        note(flags, "SATURATED", np.abs(y) > limit)
    return np.clip(y, -limit, limit, out=y)


def dot(x, weight, offset=None, limit=None, bits=None, register=None, flags=None):
    """Exact sums of products with a matrix, each rounded once to binary16.

    ``weight`` is ``[inputs, outputs]``, or ``[groups, inputs, outputs]`` for ``x[..., groups, inputs]``; ``offset`` is
    added. Sums are limited to ``limit``, (least, greatest). With ``bits``, (norm, offset, unit), rows whose sums
    float64 may not hold are added up in integers. With ``register``, (end, norm, starts), sums end that reach ``end``
    as they are added up, and what begins at ``starts`` is added at once.
    """
    wide = x.astype(weight.dtype, copy=False)
    y = wide @ weight if weight.ndim == 2 else (wide[..., None, :] @ weight)[..., 0, :]

    def exact(place):
        mine = weight if weight.ndim == 2 else weight[place[-1]]
        more = None if offset is None else offset if weight.ndim == 2 else offset[place[-1]]
        return _exact(x[place][:, None], mine, more)

    return _rounded(_ended(y, x, weight, x.ndim - 1, register), x, x.ndim - 1, exact, offset, limit, bits, flags)


def depthwise(x, weight, offset=None, limit=None, bits=None, register=None, flags=None):
    """The same for ``x[..., taps, channels]`` and ``weight[taps, channels]``: every channel by itself."""
    y = x[..., 0, :] * weight[0]
    for tap in range(1, len(weight)):
        y += x[..., tap, :] * weight[tap]
    y = _ended(y, x, weight, x.ndim - 2, register)
    return _rounded(y, x, x.ndim - 2, lambda place: _exact(x[place], weight, offset), offset, limit, bits, flags)


def _ended(y, x, weight, axis, register):
    """Sums ``y`` of products from ``axis`` on, infinite where the register does not hold what it adds up."""
    if register is None:
        return y
    end, norm, starts = register
    rows = np.abs(x).reshape(*x.shape[:axis], -1).max(-1) * norm >= end
    if not rows.any():
        return y
    x, weight, total = x[rows].astype(np.float64), weight.astype(np.float64), 0.0
    for first, last in zip(starts, [*starts[1:], len(weight)], strict=True):
        some = x[:, first:last]
        term = some @ weight[first:last] if some.ndim == 2 else (some * weight[first:last]).sum(1)
        after = total + term
        fits = (-end <= term) & (term < end) & (-end <= after) & (after < end)
        total = np.where(np.isinf(total), total, np.where(fits, after, np.copysign(np.inf, term)))
    y = y.astype(np.float64)
    y[rows] = total
    return y


def _rounded(y, x, axis, exact, offset, limit, bits, flags):
    """Sums as binary16; a sum of zero is +0."""
    y = y + (0.0 if offset is None else offset)
    if bits is not None:
        norm, more, unit = bits
        peak = np.abs(x.astype(np.float64)).reshape(*x.shape[:axis], -1).max(-1)
        for place in map(tuple, np.argwhere(peak * norm + more > 2.0**53 * unit)):
            y[place] = exact(place)
    if limit is not None:
        if flags is not None:  # the lower limit is a number of float64, the upper one may have more bits
            note(flags, "ACC_OVERFLOW", (y < limit[0]) | (y >= -limit[0]))
        np.clip(y, *limit, out=y)
    y = half(y)
    if flags is not None:
        note(flags, "HALF_OVERFLOW", np.isinf(y))
    return y


def _integers(x):
    """Python integers in units of 2**-60."""
    return np.vectorize(lambda v: int(v * 2.0**30 * 2.0**30), otypes=[object])(x.astype(np.float64))


def _exact(x, weight, offset):
    """Sums along the first axis; below their first 52 bits only whether there is anything is kept, for the rounding."""
    totals = (_integers(x) * _integers(weight)).sum(axis=0)
    if offset is not None:
        totals = totals + _integers(offset) * (1 << 60)
    found = np.empty(totals.shape)
    for place, total in np.ndenumerate(totals):
        size = abs(total)
        drop = max(0, size.bit_length() - 52)
        sticky = size & (1 << drop) - 1 != 0
        value = float((size >> drop << 1 | sticky) << drop) * 2.0**-121
        found[place] = -value if total < 0 else value
    return found


def windows(x, shape, kernel, stride, origin, dilation, fill=0.0):
    """Windows ``[batch, *shape, *kernel, ...]`` of a map ``[batch, height, width, ...]``, ``fill`` outside of it."""
    pads = []
    for k in range(2):
        last = origin[k] + (shape[k] - 1) * stride[k] + (kernel[k] - 1) * dilation[k]
        pads.append((max(0, -origin[k]), max(0, last + 1 - x.shape[1 + k])))
    start = [origin[k] + pads[k][0] for k in range(2)]
    if any(map(any, pads)):
        x = np.pad(x, ((0, 0), *pads, *[(0, 0)] * (x.ndim - 3)), constant_values=np.float32(fill))
    batch, down, right, *rest = x.strides
    steps = (down * stride[0], right * stride[1], down * dilation[0], right * dilation[1])
    x = x[:, start[0] :, start[1] :]
    return np.lib.stride_tricks.as_strided(
        x, (len(x), *shape, *kernel, *x.shape[3:]), (batch, *steps, *rest), writeable=False
    )


def gather(xs, index, fill=None):
    """Elements from anywhere: of the sources one after the other, constants for negative indices."""
    batch = max(len(x) for x in xs)
    flat = [np.broadcast_to(x, (batch, *x.shape[1:])).reshape(batch, -1) for x in xs]
    if fill is not None:
        flat.append(np.broadcast_to(fill[::-1], (batch, len(fill))))
    return (np.concatenate(flat, axis=1) if len(flat) > 1 else flat[0])[:, index]
