"""The arithmetic of :mod:`concord.golden.host_math` in PyTorch: part of a derived module that has a host's part."""

import numpy as np
import torch
from torch import Tensor

from concord.golden.host_math import EXP_COEFFICIENTS, EXP_RANGE, LN2_HIGH, LN2_LOW, LOG2_E, LOG_COEFFICIENTS, ROOT_HALF

# --- arithmetic of the host ---


def host_exp(x: Tensor) -> Tensor:
    """The exponential function in float64, within one unit in the last place, by Horner's rule, scaled once."""
    x = torch.clamp(x, *EXP_RANGE)
    k = torch.round(x * LOG2_E)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = torch.full_like(r, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        p = p * r
        p = p + coefficient
    k = torch.nan_to_num(k, nan=0.0).to(torch.int64)
    lower = k >> 1
    powers = torch.from_numpy(np.ldexp(1.0, np.arange(-540, 515)))
    return (p * powers[lower + 540]) * powers[k - lower + 540]


def host_log(x: Tensor) -> Tensor:
    """The natural logarithm in float64, within one unit in the last place; minus infinity for zero and below."""
    usual = (x > 0) & (x < torch.inf)
    m, k = torch.frexp(torch.where(usual, x, 1.0))
    below = m < ROOT_HALF
    f = torch.where(below, m + m, m) - 1.0
    k = k.to(torch.float64) - below.to(torch.float64)
    s = f / (f + 2.0)
    z = s * s
    r = torch.full_like(z, LOG_COEFFICIENTS[0])
    for coefficient in LOG_COEFFICIENTS[1:]:
        r = r * z
        r = r + coefficient
    h = f * 0.5 * f
    y = k * LN2_HIGH - ((h - (s * (h + r * z) + k * LN2_LOW)) - f)
    return torch.where(usual, y, torch.where(x <= 0, -torch.inf, x))


def host_root(x: Tensor) -> Tensor:
    """The square root, rounded once as IEEE 754 has it, of normal numbers and zero; that of PyTorch is nearly so.

    The residue ``e = x - y * y`` is exact but for one rounding (Dekker's product), and tells on which side of the
    middle between y and its neighbours the root is.
    """
    y = torch.sqrt(x)
    above, below = torch.nextafter(y, torch.full_like(y, torch.inf)), torch.nextafter(y, torch.zeros_like(y))
    high = (y * 134217729.0) - ((y * 134217729.0) - y)
    low = y - high
    square = y * y
    e = (x - square) - (((high * high - square) + 2.0 * high * low) + low * low)
    nearer = torch.where(e > y * (above - y), above, torch.where(e <= -y * (y - below), below, y))
    return torch.where((y > 0) & (y < torch.inf), nearer, y)


def host_sum(x: Tensor, axis: int) -> Tensor:
    """Sums along an axis, which stays: the halves are added, then the halves of that, a last odd element as it is."""
    while (count := x.shape[axis]) > 1:
        size = count // 2
        first, second, rest = torch.split(x, [size, size, count - 2 * size], axis)
        x = torch.cat([first + second, rest], axis)
    return x


def host_softmax(x: Tensor, axis: int) -> Tensor:
    """Shares of exponential functions, of the differences from the greatest element."""
    powers = host_exp(x - torch.amax(x, axis, keepdim=True))
    return powers / host_sum(powers, axis)


def host_log_softmax(x: Tensor, axis: int) -> Tensor:
    """The logarithm of the softmax: differences from the greatest element, less that of the sum of their powers."""
    below = x - torch.amax(x, axis, keepdim=True)
    return below - host_log(host_sum(host_exp(below), axis))


def host_less(a: Tensor, b: Tensor) -> Tensor:
    """1 where the first number is less than the second one, else 0."""
    return (a < b).to(torch.float64)


def host_equal(a: Tensor, b: Tensor) -> Tensor:
    """1 where both numbers are equal, else 0."""
    return (a == b).to(torch.float64)


def host_select(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The second operand where the first one is not 0, else the third."""
    return torch.where(condition != 0, a, b)


def host_look_up(table: Tensor, indices: Tensor) -> Tensor:
    """Entries along the first axis of a table, negative indices from its end."""
    return table[indices.to(torch.int64)]


def host_along(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Elements along an axis, negative indices from its end."""
    places = indices.to(torch.int64)
    return torch.gather(x, axis, torch.where(places < 0, places + x.shape[axis], places))


def host_greatest(x: Tensor, axis: int) -> Tensor:
    """The place of the greatest element along an axis, which stays; of equal ones the first."""
    places = torch.arange(x.shape[axis], dtype=torch.float64).reshape([-1] + [1] * (x.ndim - 1 - axis))
    equal = x == torch.amax(x, axis, keepdim=True)
    return torch.amin(torch.where(equal, places, float(x.shape[axis])), axis, keepdim=True)


def host_order(x: Tensor, axis: int) -> Tensor:
    """Places of the elements along an axis in rising order, equal ones as they come."""
    return torch.sort(x, stable=True, dim=axis).indices.to(torch.float64)
