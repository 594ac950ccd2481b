"""Arithmetic of a quantised network in PyTorch: what the files of ``concord derive --exact`` begin with.

The text below the mark is copied into every file, for people to read, so it needs PyTorch and NumPy only and has no
annotations.
"""

# mypy: ignore-errors

import numpy as np
import torch

# --- arithmetic ---


def integers(values):
    """An array of integers."""
    return torch.as_tensor(np.asarray(values, dtype=np.int64))


def numbers(values):
    """An array of binary32 numbers."""
    return torch.as_tensor(np.asarray(values, dtype=np.float32))


def to_numbers(x):
    """The nearest binary32 numbers to integers."""
    return x.to(torch.float32)


def to_integers(x):
    """Whole numbers as integers."""
    return x.to(torch.int64)


def limited(x, low, high):
    """Integers or numbers from low to high."""
    return x.clamp(low, high)


def to_codes(x, zero_point, low, high):
    """The nearest integers, of two the even one, plus the zero point, from low to high."""
    return x.round().clamp(low - zero_point, high - zero_point).to(torch.int64) + zero_point


def nearest_away(x):
    """The nearest integers to binary64 numbers, halves away from zero."""
    whole = x.trunc()
    return whole + torch.where((x - whole).abs() >= 0.5, x.sign(), 0.0)


def to_codes_by_binary64(sums, scale, zero_point, low, high):
    """Codes of integers times numbers of binary64, halves away from zero."""
    steps = nearest_away(sums.to(torch.float64) * scale)
    return steps.clamp(low - zero_point, high - zero_point).to(torch.int64) + zero_point


def quantised(x, scale, zero_point, low, high, away):
    """Codes of an input: integers are codes already."""
    x = x if torch.is_tensor(x) else torch.as_tensor(np.array(x))
    if not x.is_floating_point():
        if x.numel() and not (low <= x.min() and x.max() <= high):
            raise ValueError(f"codes must be in {low} .. {high}, not in {x.min()} .. {x.max()}")
        return x.to(torch.int64)
    x = x.to(torch.float32)
    if x.isnan().any():
        raise ValueError("inputs must be numbers, not NaN")
    steps = x / numbers(scale)
    return to_codes(nearest_away(steps.to(torch.float64)) if away else steps, zero_point, low, high)


def wide(x):
    """An input that stays in binary32."""
    x = x if torch.is_tensor(x) else torch.as_tensor(np.array(x))
    if not x.is_floating_point():
        raise TypeError(f"inputs must be floats, not of {x.dtype}")
    return finite(x.to(torch.float32))


def finite(x):
    """Numbers, if none is beyond binary32."""
    if x.isnan().any():
        raise ValueError("numbers must not be NaN")
    if x.isinf().any():
        raise OverflowError("numbers must fit binary32, and some are beyond it")
    return x


def in_bits(sums, bits):
    """Accumulators, if they fit so many bits."""
    end = 2 ** (bits - 1)
    if sums.numel() and not (-end <= sums.min() and sums.max() < end):
        raise OverflowError(f"accumulators must fit {bits} bits, not be in {sums.min()}..{sums.max()}")
    return sums


def matrix_product(x, weight):
    """Sums of products of integers; the type of the weight is one in which they are exact."""
    return (x.to(weight.dtype) @ weight).to(torch.int64)


def windows(x, kernel, strides, dilations, pads, fill=0):
    """Windows [samples, channels, *places, *kernel] of an image [samples, channels, *sizes]."""
    rank = len(kernel)
    around = [pads[k] for axis in reversed(range(rank)) for k in (axis, axis + rank)]
    x = torch.nn.functional.pad(x, around, value=fill)
    for axis, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        x = x.unfold(2 + axis, dilation * (size - 1) + 1, stride)
    return x[(..., *(slice(None, None, dilation) for dilation in dilations))]


def elements_of_windows(x, kernel, strides, dilations, pads):
    """Windows [samples, channels, *places, elements] of an image, with the elements of a window in one axis."""
    parts = windows(x, kernel, strides, dilations, pads)
    return parts.reshape(*parts.shape[: parts.ndim - len(kernel)], -1)


def convolution(x, weight, strides, dilations, pads, groups):
    """Sums of products of windows with weight[channels, inputs of a group, *kernel]."""
    kernel = weight.shape[2:]
    parts = windows(x.to(weight.dtype), kernel, strides, dilations, pads)
    samples, channels, *places = parts.shape[: 2 + len(kernel)]
    rows = parts.reshape(samples, groups, channels // groups, *parts.shape[2:]).movedim(2, 2 + len(places))
    rows = rows.reshape(samples, groups, int(np.prod(places)), -1)
    columns = weight.reshape(groups, len(weight) // groups, -1).swapaxes(1, 2)
    return matrix_product(rows, columns).swapaxes(2, 3).reshape(samples, len(weight), *places)


def window_maxima(x, kernel, strides, dilations, pads):
    """The greatest integer or number of each window."""
    least = -torch.inf if x.is_floating_point() else torch.iinfo(torch.int64).min
    return windows(x, kernel, strides, dilations, pads, least).amax(tuple(range(-len(kernel), 0)))


def total(x, axes):
    """Sums along axes, which stay."""
    return x.sum(tuple(axes), keepdim=True)


def added_up(x):
    """Sums along the last axis, number by number, each step rounded."""
    sums = x[..., :1]
    for k in range(1, x.shape[-1]):
        sums = sums + x[..., k : k + 1]
    return sums


def greatest(x):
    """The greatest integer along the last axis."""
    return x.amax(-1, keepdim=True)


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
    return x.permute(axes)


def concatenate(parts, axis):
    """Arrays side by side; constants are the same for all samples."""
    samples = max(len(part) for part in parts)
    return torch.cat([part.expand(samples, *part.shape[1:]) for part in parts], axis)


def take(x, index):
    """Elements of every sample."""
    return x[:, index]
