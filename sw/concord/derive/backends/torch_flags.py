"""The sticky flags of the NPU in PyTorch: what modules that have them hold beside :mod:`.numpy_flags`."""

import torch
from torch import Tensor

from concord.spec.formats import FLAG_BITS as FLAGS

# --- arithmetic ---


def note(flags: Tensor, name: str, where: Tensor) -> None:
    """Raise a flag in the words ``flags[samples]`` where anything of a sample is true in ``where[samples, ...]``."""
    flags |= where.unsqueeze(-1).flatten(1).any(1).to(torch.uint8) * FLAGS[name]


def beyond_sum(total: Tensor, rest: Tensor, limit: float) -> Tensor:
    """Sums of two numbers, as for round_sum_to_half, that an accumulator for ``-limit <= sum < limit`` cuts off."""
    below = (total < -limit) | ((total == -limit) & (rest < 0.0))
    return below | (total > limit) | ((total == limit) & (rest >= 0.0))
