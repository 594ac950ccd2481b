"""The arithmetic of the host (:mod:`concord.hostmath`) in PyTorch: part of a derived module that has a host's part."""

import numpy as np
import torch
from torch import Tensor

from concord.hostmath import EXP_COEFFICIENTS, EXP_RANGE, LN2_HIGH, LN2_LOW, LOG2_E

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
    half = k >> 1
    powers = torch.from_numpy(np.ldexp(1.0, np.arange(-540, 515)))
    return (p * powers[half + 540]) * powers[k - half + 540]


def host_sum(x: Tensor, axis: int) -> Tensor:
    """Sums along an axis, which stays: the halves are added, then the halves of that, a last odd element as it is."""
    while (count := x.shape[axis]) > 1:
        half = count // 2
        first, second, rest = torch.split(x, [half, half, count - 2 * half], axis)
        x = torch.cat([first + second, rest], axis)
    return x


def host_softmax(x: Tensor, axis: int) -> Tensor:
    """Shares of exponential functions, of the differences from the greatest element."""
    powers = host_exp(x - torch.amax(x, axis, keepdim=True))
    return powers / host_sum(powers, axis)
