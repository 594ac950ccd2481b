"""The arithmetic of the host in PyTorch: what modules hold beside that of :mod:`concord.golden.host_math`."""

import numpy as np
import torch
from torch import Tensor

from concord.golden.host_math import EXP_COEFFICIENTS, EXP_RANGE, LN2_HIGH, LN2_LOW, LOG2_E

# --- arithmetic ---


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
