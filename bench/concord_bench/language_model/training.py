"""Training of the decoder in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from concord_bench.language_model.decoder import EPSILON, Sizes, random_weights
from concord_bench.language_model.text import encode, text

if TYPE_CHECKING:
    import torch

#: Characters of a sequence, sequences of a step, and the rate of the first step, which falls to a tenth of it.
LENGTH, SEQUENCES, RATE = 128, 24, 4e-3
#: Share of the text, at its end, that nothing is learned from.
HELD_BACK = 0.05
Tensors = dict[str, "torch.Tensor"]


def logits(weights: Tensors, sizes: Sizes, tokens: torch.Tensor) -> torch.Tensor:
    """Logits ``[sequences, length, characters]`` of the next character after every one of ``tokens``."""
    import torch
    from torch.nn.functional import pad

    length, window, each = tokens.shape[1], sizes.window, sizes.width // sizes.heads
    distance = torch.arange(length)[:, None] - torch.arange(1 - window, length)[None, :]
    inside = (distance >= 0) & (distance < window)
    near = distance.clamp(0, window - 1)

    def normalised(x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt()

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (sizes.heads, each)).transpose(1, 2)

    x = weights["embedding"][tokens]
    for layer in range(sizes.layers):
        y = normalised(x)
        query, key, value = (y @ weights[f"{layer}.{part}"] for part in ("query", "key", "value"))
        before = (0, 0, window - 1, 0)  # characters that are not there have zeros
        scores = heads(query) @ heads(pad(key, before)).transpose(2, 3) + weights[f"{layer}.bias"][:, near]
        shares = scores.masked_fill(~inside, -torch.inf).softmax(-1)
        mixed = (shares @ heads(pad(value, before))).transpose(1, 2).flatten(2)
        x = x + mixed @ weights[f"{layer}.out"]
        x = x + (normalised(x) @ weights[f"{layer}.up"]).relu() @ weights[f"{layer}.down"]
    return normalised(x) @ weights["logits"]


def train(
    sizes: Sizes, steps: int, seed: int = 0, show: Callable[[int, float], None] = lambda step, loss: None
) -> tuple[dict[str, NDArray[np.float32]], float]:
    """Weights of a decoder, and its loss on the text that was held back, in bits per character.

    Parameters
    ----------
    sizes : Sizes
        What to train.
    steps : int
        How many.
    seed : int
        Of the first weights, and of the choice of sequences.
    show : callable
        Is told the step and its loss in bits per character.
    """
    import torch
    from torch.nn.functional import cross_entropy

    tokens = torch.from_numpy(encode(text()))
    cut = int(len(tokens) * (1 - HELD_BACK))
    rng = np.random.default_rng(seed)
    weights: Tensors = {
        name: torch.from_numpy(values).requires_grad_() for name, values in random_weights(sizes, seed).items()
    }
    optimiser = torch.optim.AdamW(weights.values(), RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, RATE, steps, pct_start=0.05, div_factor=10, final_div_factor=10
    )

    def loss_of(parts: torch.Tensor) -> Any:
        computed = logits(weights, sizes, parts[:, :-1])
        return cross_entropy(computed.flatten(0, 1), parts[:, 1:].flatten()) / np.log(2)

    for step in range(steps):
        starts = rng.integers(0, cut - LENGTH - 1, SEQUENCES)
        loss = loss_of(torch.stack([tokens[start : start + LENGTH + 1] for start in starts]))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimiser.step()
        schedule.step()
        show(step, float(loss.detach()))
    with torch.no_grad():
        rest = tokens[cut:]
        count = (len(rest) - 1) // LENGTH
        held = torch.stack([rest[k * LENGTH : (k + 1) * LENGTH + 1] for k in range(count)])
        loss = float(loss_of(held))
    return {name: values.detach().numpy() for name, values in weights.items()}, loss
