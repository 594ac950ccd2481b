"""Training of an encoder in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from concord_bench.transformers.encoder import EPSILON, EncoderSizes, random_weights
from concord_bench.transformers.samples import Recognition, Samples

if TYPE_CHECKING:
    import torch

#: Samples of a step.
BATCH = 48
Tensors = dict[str, "torch.Tensor"]


def logits(weights: Tensors, sizes: EncoderSizes, x: torch.Tensor) -> torch.Tensor:
    """Logits ``[samples, classes]`` of samples ``[samples, tokens, inputs]``."""
    from torch.nn.functional import layer_norm, pad

    def affine(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ weights[name] + weights[f"{name}.bias"]

    def normalised(name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (sizes.width,), weights[f"{name}.scale"], weights[f"{name}.shift"], EPSILON)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (sizes.heads, sizes.width // sizes.heads)).transpose(1, 2)

    x = pad(x @ weights["embed"], (0, 0, 1, 0)) + weights["positions"]
    for layer in range(sizes.layers):
        y = normalised(f"{layer}.norm", x)
        query, key, value = (heads(affine(f"{layer}.{part}", y)) for part in ("query", "key", "value"))
        scores = query @ key.transpose(2, 3) * (sizes.width / sizes.heads) ** -0.5
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        x = x + affine(f"{layer}.out", mixed)
        up = affine(f"{layer}.up", normalised(f"{layer}.norm2", x)).relu()
        x = x + affine(f"{layer}.down", up)
    return affine("logits", normalised("last", x[:, 0]))


def train(
    recognition: Recognition,
    samples: Samples,
    seed: int = 0,
    show: Callable[[int, float], None] = lambda step, loss: None,
) -> dict[str, NDArray[np.float32]]:
    """Weights of an encoder that has learned to tell classes apart.

    Parameters
    ----------
    recognition : Recognition
        What and how.
    samples : Samples
        What it learns from.
    seed : int
        Of the first weights, and of what is shown.
    show : callable
        Is told the step and its loss.
    """
    import torch

    sizes, rng = recognition.sizes, np.random.default_rng(seed)
    weights: Tensors = {
        name: torch.from_numpy(values).requires_grad_() for name, values in random_weights(sizes, seed).items()
    }
    optimiser = torch.optim.AdamW(weights.values(), recognition.rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recognition.rate, recognition.steps, pct_start=0.1)
    for step in range(recognition.steps):
        chosen = rng.integers(0, len(samples.learned), BATCH)
        shown = samples.learned[chosen] if samples.varied is None else samples.varied(rng, chosen)
        computed = logits(weights, sizes, torch.from_numpy(shown))
        loss = -(torch.from_numpy(samples.targets(chosen, shown)) * computed.log_softmax(-1)).sum(-1).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimiser.step()
        schedule.step()
        show(step, float(loss.detach()))
    return {name: values.detach().numpy() for name, values in weights.items()}
