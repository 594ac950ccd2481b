"""The operations in PyTorch, a part of derived modules: float32 tensors that hold binary16 numbers.

Any NaN stands for the canonical one.
"""

import torch
from torch import Tensor

# --- operations ---


def round_single(total: Tensor) -> Tensor:
    """float32 numbers to halves, nearest even."""
    return total.to(torch.float16).to(torch.float32)


def half_add(a: Tensor, b: Tensor) -> Tensor:
    """Sum of halves. float32 has 24 bits, at least 2 * 11 + 2: rounding its result again changes nothing."""
    return round_single(a + b)


def half_sub(a: Tensor, b: Tensor) -> Tensor:
    """Difference of halves."""
    return round_single(a - b)


def half_mul(a: Tensor, b: Tensor) -> Tensor:
    """Product of halves."""
    return round_single(a * b)


def half_max(a: Tensor, b: Tensor) -> Tensor:
    """The greater one, -0 below +0; NaN if either is."""
    picked = torch.where((a > b) | torch.isnan(a), a, b)
    return torch.where(a == b, (a + b) * 0.5, picked)


def half_min(a: Tensor, b: Tensor) -> Tensor:
    """The lesser one, -0 below +0; NaN if either is."""
    picked = torch.where((a < b) | torch.isnan(a), a, b)
    return torch.where(a == b, (-a - b) * -0.5, picked)


def half_relu(x: Tensor) -> Tensor:
    """The maximum with +0."""
    return torch.where(x <= 0.0, torch.zeros((), dtype=x.dtype), x)
