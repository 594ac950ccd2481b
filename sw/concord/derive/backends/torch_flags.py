"""The sticky flags of the NPU in PyTorch: part of a derived module that has them, after :mod:`.torch_functions`."""

import torch
from torch import Tensor

from concord.derive.backends.torch_functions import NOISE_PARTS, finite
from concord.spec.formats import FLAG_BITS as FLAGS

# --- flags ---


def note(flags: Tensor, name: str, where: Tensor) -> None:
    """Raise a flag in the words ``flags[samples]`` where anything of a sample is true in ``where[samples, ...]``."""
    flags |= where.unsqueeze(-1).flatten(1).any(1).to(torch.uint8) * FLAGS[name]


def beyond(total: Tensor, limit: float) -> Tensor:
    """Sums that an accumulator for ``-limit <= sum < limit`` cuts off."""
    return (total < -limit) | (total >= limit)


def beyond_sum(total: Tensor, rest: Tensor, limit: float) -> Tensor:
    """Sums of two numbers, as for round_sum_to_half, that an accumulator for ``-limit <= sum < limit`` cuts off."""
    below = (total < -limit) | ((total == -limit) & (rest < 0.0))
    return below | (total > limit) | ((total == limit) & (rest >= 0.0))


def infinite(x: Tensor) -> Tensor:
    """Infinities."""
    return torch.isinf(x)


def overflowed(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Infinities that come from finite operands."""
    return torch.isinf(x) & torch.isfinite(a) & torch.isfinite(b)


def not_finite(x: Tensor) -> Tensor:
    """Infinities and NaNs, of which a converter or a table makes something else."""
    return ~torch.isfinite(x)


def table_clamped(x: Tensor, factor: float, low: float, high: float) -> Tensor:
    """Numbers beyond the codes of a table; an end is infinite where the function is constant beyond it."""
    code = torch.round(finite(x) * factor)
    return (code < low) | (code > high)


def saturated(x: Tensor, noise: Tensor | None = None, *, unit: float, codes: float) -> Tensor:
    """Numbers that a static exponent rounds to ``codes`` units or more, which no mantissa holds."""
    size = torch.abs(finite(x))
    if noise is None:
        return size >= (codes - 0.5) * unit
    return torch.floor(size.to(torch.float64) / unit * NOISE_PARTS) + noise >= codes * NOISE_PARTS
