"""Arithmetic of the NPU in NumPy: what the files of ``concord derive`` begin with.

The functions are primitives of :mod:`concord.derive.primitives`, on arrays ``[batch, ...]``, and what these need. The
text below the mark is copied into every file, for people to read, so it needs NumPy only. That of
:mod:`concord.operations.numpy_text` stands in the place of the line in the middle. Modules of PyTorch hold what is
above the last mark, too, in the spelling of :mod:`.function_texts`.
"""

# mypy: ignore-errors

import numpy as np

from concord.operations.numpy_text import real_to_half

# --- arithmetic ---

LARGEST = 65504.0  # the greatest binary16 number
NOISE_PARTS = 65536.0  # of a unit, in stochastic rounding
EXPONENT = 0x7F800000


# --- operations ---


def on_grid(x: np.ndarray, exponent: int, low: int, high: int) -> np.ndarray:
    """The nearest numbers ``code * 2**exponent``."""
    return np.clip(np.rint(x * 2.0**-exponent), low, high) * 2.0**exponent


def half_table(x: np.ndarray, entries: np.ndarray, factor: float, low: float, high: float) -> np.ndarray:
    """The entry for ``rint(x * factor)``, limited to ``low`` .. ``high``."""
    code = np.clip(np.rint(finite(x) * factor), low, high)
    return entries[(code - low).astype(np.int64)]


def round_codes(x: np.ndarray, unit: np.ndarray | float, away: bool, noise: np.ndarray | None) -> np.ndarray:
    """Whole units, nearest even or away from zero, or with 16 bits of noise; zeros are +0."""
    if noise is not None:
        fine = np.floor(np.abs(x).astype(np.float64) / unit * NOISE_PARTS) + noise
        size = (np.floor(fine / NOISE_PARTS) * unit).astype(np.float32)
    elif away:
        size = np.floor(np.abs(x) / unit + 0.5) * unit
    else:
        shift = unit * (1.5 * 2.0**23)  # float32 has no bits below the unit here
        return x + shift - shift
    return np.copysign(size, x) + 0.0


def block_quantize(
    x: np.ndarray,
    least: np.ndarray,
    noise: np.ndarray | None = None,
    *,
    share: float,
    greatest_code: float,
    away: bool = False,
) -> np.ndarray:
    """Block floating point: every block along the last axis to numbers ``q * 2**e``.

    The exponent follows from the greatest element; ``least`` are the least powers of two of the blocks.
    """
    x = finite(x)
    peak = np.abs(x).max(-1, keepdims=True)
    power = (peak.view(np.int32) & EXPONENT).view(np.float32)  # the power of two at or below the peak
    unit = np.maximum(power * share, least)
    limit = unit * greatest_code
    codes = round_codes(x, unit, away, noise)
    return np.clip(codes, -limit, limit, out=codes)


def static_quantize(
    x: np.ndarray, noise: np.ndarray | None = None, *, unit: float, greatest_code: float, away: bool = False
) -> np.ndarray:
    """Block floating point with a constant exponent: numbers ``q * unit``, limited to ``greatest_code`` units."""
    limit = unit * greatest_code
    return round_codes(np.clip(finite(x), -limit, limit), unit, away, noise)


def ended(total: np.ndarray, x: np.ndarray, weight: np.ndarray, end: float, norm: float, starts: list) -> np.ndarray:
    """Sums of products, infinite where they reach ``end`` as they are added up: at once what begins at ``starts``."""
    channels = x.ndim > total.ndim  # every channel has weights of its own
    rows = np.abs(x).max((-2, -1) if channels else -1) * norm >= end
    if not rows.any():
        return total
    x, weight, total = x[rows].astype(np.float64), weight.astype(np.float64), total.astype(np.float64, copy=True)
    sums = np.zeros_like(total[rows])
    for first, last in zip(starts, [*starts[1:], len(weight)], strict=True):
        part = x[:, first:last]
        term = (part * weight[first:last]).sum(1) if channels else part @ weight[first:last]
        after = sums + term
        fits = (-end <= term) & (term < end) & (-end <= after) & (after < end)
        after = np.where(fits, after, np.copysign(np.full_like(term, np.inf), term))
        sums = np.where(np.isinf(sums), sums, after)
    total[rows] = sums
    return total


def grouped(x: np.ndarray, group: int) -> np.ndarray:
    """``[samples, ...]`` as ``[runs, group, ...]``, filled up with the last sample."""
    missing, shape = -x.shape[0] % group, x.shape[1:]
    whole = np.concatenate([x, np.broadcast_to(x[-1:], (missing, *shape))])
    return whole.reshape((x.shape[0] + missing) // group, group, *shape)


# --- in this library alone ---


def of_type(x: np.ndarray, kind: str) -> np.ndarray:
    """Numbers of float64 as elements of a type; of whole numbers NaN becomes 0."""
    return (x if kind.startswith("float") else np.where(np.isnan(x), 0.0, x)).astype(kind)


def finite(x: np.ndarray) -> np.ndarray:
    """Numbers as a converter or a table reads them: an infinity as the largest number, a NaN as zero."""
    if -LARGEST <= x.min() and x.max() <= LARGEST:
        return x
    return np.nan_to_num(x, nan=0.0, posinf=LARGEST, neginf=-LARGEST)


def half_to_real(x: np.ndarray) -> np.ndarray:
    """Halves as float64."""
    return x.astype(np.float64)


def half_reduce_max(x: np.ndarray, axis: int) -> np.ndarray:
    """The greatest element along an axis, as ``half_max`` has it."""
    top = x.max(axis)
    zeros = top == 0
    if zeros.any():
        positive = ((x == 0) & ~np.signbit(x)).any(axis)
        top = np.where(zeros, np.where(positive, np.float32(0), np.float32(-0.0)), top)
    return top


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sums of products with ``[inputs, outputs]``, or ``[groups, inputs, outputs]`` for ``x[..., groups, inputs]``."""
    x = x.astype(weight.dtype, copy=False)
    return x @ weight if weight.ndim == 2 else (x[..., None, :] @ weight)[..., 0, :]


def product_of(x: np.ndarray, matrix: np.ndarray, groups: int) -> np.ndarray:
    """Sums ``[batch, *g, ..., m]`` of products of ``x[batch, *g, ..., k]`` and ``matrix[batch, *g, m, k]``."""
    rows = x.reshape(*x.shape[: 1 + groups], -1, x.shape[-1])
    return (rows @ matrix.swapaxes(-1, -2)).reshape(*x.shape[:-1], matrix.shape[-2])


def depthwise(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sums of products of ``x[..., taps, channels]`` and ``weight[taps, channels]``: every channel by itself."""
    total = x[..., 0, :] * weight[0]
    for tap in range(1, len(weight)):
        total += x[..., tap, :] * weight[tap]
    return total


def exact_sums(
    total: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    offset: np.ndarray | None = None,
    *,
    norm: float,
    most: float,
    unit: float,
) -> np.ndarray:
    """Sums of products and an offset, added up in integers where float64 may not hold them.

    That is in rows whose greatest element times ``norm``, and ``most`` for the offset, is more than 53 bits of units.
    """
    channels = x.ndim > total.ndim
    peak = np.abs(x.astype(np.float64)).max((-2, -1) if channels else -1)
    for place in map(tuple, np.argwhere(peak * norm + most > 2.0**53 * unit)):
        group = place[-1] if weight.ndim == 3 else ...
        beside = None if offset is None else offset[group]
        total[place] = sums_of_integers(x[place] if channels else x[place][:, None], weight[group], beside)
    return total


def exact_sums_of(total: np.ndarray, x: np.ndarray, matrix: np.ndarray, *, groups: int, unit: float) -> np.ndarray:
    """Sums for ``product_of``, added up in integers where 52 bits of units may be too few."""
    rows = x.reshape(*x.shape[: 1 + groups], -1, x.shape[-1])
    sums = total.reshape(*rows.shape[:-1], -1)
    norm = np.abs(matrix.astype(np.float64)).sum(-1).max(-1)
    for place in map(tuple, np.argwhere(np.abs(rows).max(-1) * norm[..., None] > 2.0**52 * unit)):
        sums[place] = sums_of_integers(rows[place][:, None], matrix[place[:-1]].T, None)
    return sums.reshape(total.shape)


def integers(x: np.ndarray) -> np.ndarray:
    """Python integers in units of 2**-60."""
    return np.vectorize(lambda v: int(v * 2.0**30 * 2.0**30), otypes=[object])(x.astype(np.float64))


def sums_of_integers(x: np.ndarray, weight: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    """Sums along the first axis; below their first 52 bits only whether there is anything is kept, for the rounding."""
    totals = (integers(x) * integers(weight)).sum(axis=0)
    if offset is not None:
        totals = totals + integers(offset) * (1 << 60)
    sums = np.empty(totals.shape)
    for place, total in np.ndenumerate(totals):
        size = abs(total)
        drop = max(0, size.bit_length() - 52)
        sticky = size & (1 << drop) - 1 != 0
        value = float((size >> drop << 1 | sticky) << drop) * 2.0**-121
        sums[place] = -value if total < 0 else value
    return sums


def round_to_half(total: np.ndarray) -> np.ndarray:
    """Exact sums as halves, rounded once; a sum of zero is +0."""
    return real_to_half(total + 0.0)


def windows(
    x: np.ndarray, shape: tuple, kernel: tuple, stride: tuple, origin: tuple, dilation: tuple, fill: float = 0.0
) -> np.ndarray:
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
