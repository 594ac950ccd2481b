"""Arithmetic of a quantised network in NumPy: what the files of ``concord derive --exact`` begin with.

The text below the mark is copied into every file, for people to read, so it needs NumPy only and has no annotations.
Files for PyTorch hold what is above the last mark, too, in the spelling of
:mod:`concord.derive.backends.function_texts`.
"""

# mypy: ignore-errors

import numpy as np

# --- arithmetic ---


def numbers(values):
    """An array of binary32 numbers."""
    return np.asarray(values, dtype=np.float32)


def to_numbers(x):
    """The nearest binary32 numbers to integers."""
    return x.astype(np.float32)


def to_integers(x):
    """Whole numbers as integers."""
    return x.astype(np.int64)


def limited(x, low, high):
    """Integers or numbers from low to high."""
    return np.clip(x, low, high)


def to_codes(x, zero_point, low, high):
    """The nearest integers, of two the even one, plus the zero point, from low to high."""
    return np.clip(np.rint(x), low - zero_point, high - zero_point).astype(np.int64) + zero_point


def nearest_away(x):
    """The nearest integers to binary64 numbers, halves away from zero."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0)


def to_codes_by_binary64(sums, scale, zero_point, low, high):
    """Codes of integers times numbers of binary64, halves away from zero."""
    steps = nearest_away(sums.astype(np.float64) * scale)
    return np.clip(steps, low - zero_point, high - zero_point).astype(np.int64) + zero_point


def quantised(x, scale, zero_point, low, high, away):
    """Codes of an input: integers are codes already."""
    x = np.asarray(x)
    if x.dtype.kind in "iu":
        if x.size and not (low <= x.min() and x.max() <= high):
            raise ValueError(f"codes must be in {low} .. {high}, not in {x.min()} .. {x.max()}")
        return x.astype(np.int64)
    x = x.astype(np.float32)
    if np.isnan(x).any():
        raise ValueError("inputs must be numbers, not NaN")
    with np.errstate(over="ignore"):
        steps = x / numbers(scale)
    return to_codes(nearest_away(steps.astype(np.float64)) if away else steps, zero_point, low, high)


def wide(x):
    """An input that stays in binary32."""
    x = np.asarray(x)
    if x.dtype.kind == "f":
        return finite(x.astype(np.float32))
    raise TypeError(f"inputs must be floats, not of {x.dtype}")


def finite(x):
    """Numbers, if none is beyond binary32."""
    if np.isnan(x).any():
        raise ValueError("numbers must not be NaN")
    if np.isinf(x).any():
        raise OverflowError("numbers must fit binary32, and some are beyond it")
    return x


def in_bits(sums, bits):
    """Accumulators, if they fit so many bits."""
    end = 2 ** (bits - 1)
    if sums.size and not (-end <= sums.min() and sums.max() < end):
        raise OverflowError(f"accumulators must fit {bits} bits, not be in {sums.min()}..{sums.max()}")
    return sums


def matrix_product(x, weight):
    """Sums of products of integers; the type of the weight is one in which they are exact."""
    return (x.astype(weight.dtype, copy=False) @ weight).astype(np.int64)


def elements_of_windows(x, kernel, strides, dilations, pads):
    """Windows [samples, channels, *places, elements] of an image, with the elements of a window in one axis."""
    parts = windows(x, kernel, strides, dilations, pads)
    return parts.reshape(*parts.shape[: parts.ndim - len(kernel)], -1)


def convolution(x, weight, strides, dilations, pads, groups):
    """Sums of products of windows with weight[channels, inputs of a group, *kernel]."""
    kernel = weight.shape[2:]
    parts = windows(x.astype(weight.dtype), kernel, strides, dilations, pads)
    samples, channels, *places = parts.shape[: 2 + len(kernel)]
    rows = np.moveaxis(parts.reshape(samples, groups, channels // groups, *parts.shape[2:]), 2, 2 + len(places))
    rows = rows.reshape(samples, groups, int(np.prod(places)), -1)
    columns = np.swapaxes(weight.reshape(groups, len(weight) // groups, -1), 1, 2)
    return np.swapaxes(matrix_product(rows, columns), 2, 3).reshape(samples, len(weight), *places)


def window_maxima(x, kernel, strides, dilations, pads):
    """The greatest integer or number of each window."""
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(np.int64).min
    return windows(x, kernel, strides, dilations, pads, least).max(tuple(range(-len(kernel), 0)))


def total(x, axes):
    """Sums along axes, which stay."""
    return x.sum(tuple(axes), keepdims=True)


def added_up(x):
    """Sums along the last axis, number by number, each step rounded."""
    sums = x[..., :1]
    for k in range(1, x.shape[-1]):
        sums = sums + x[..., k : k + 1]
    return sums


def greatest(x):
    """The greatest integer along the last axis."""
    return x.max(-1, keepdims=True)


def look_up(table, index):
    """Entries of a table."""
    return table[index]


def reshape(x, *shape):
    """Another shape of every sample."""
    return x.reshape(len(x), *shape)


def regroup(x, *shape):
    """Another shape of the elements of all samples."""
    return x.reshape(-1, *shape)


def transpose(x, *axes):
    """Axes in another order."""
    return x.transpose(axes)


def concatenate(parts, axis):
    """Arrays side by side; constants are the same for all samples."""
    samples = max(len(part) for part in parts)
    return np.concatenate([np.broadcast_to(part, (samples, *part.shape[1:])) for part in parts], axis)


def take(x, index):
    """Elements of every sample."""
    return x[:, index]


# --- in this library alone ---


def windows(x, kernel, strides, dilations, pads, fill=0):
    """Windows [samples, channels, *places, *kernel] of an image [samples, channels, *sizes]."""
    rank = len(kernel)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)], constant_values=fill)
    extents = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    parts = np.lib.stride_tricks.sliding_window_view(x, extents, tuple(range(2, 2 + rank)))
    return parts[(slice(None), slice(None), *(slice(None, None, step) for step in (*strides, *dilations)))]
