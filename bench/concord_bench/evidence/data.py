"""Data sets in three parts: to learn from, to choose with, and to judge by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from concord.train import Samples
from concord.train.noise import permutation
from concord_bench.tasks import folder

#: Seed and place of the numbers that split a data set.
_SPLIT = 20, (9, 1)


class Missing(Exception):
    """Data of an experiment that are not there."""


@dataclass(frozen=True)
class Split:
    """Samples to learn from, to choose with, and to judge by."""

    train: Samples
    validation: Samples
    test: Samples

    @cached_property
    def facts(self) -> dict[str, str]:
        """Number and digest of the samples of each part."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: f"{len(part)} {_mark(part)}" for name, part in parts.items()}


def _mark(samples: Samples) -> str:
    whole = hashlib.sha256()
    for array in (samples.x, *samples.labels.values()):
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:12]


def cut(x: Any, y: Any, scale: float, sizes: tuple[int, int, int]) -> Split:
    """Three parts of a data set in an order that never changes; ``y`` may be a dict of labels by output."""
    order, parts, at, whole = permutation(*_SPLIT, len(x)), [], 0, Samples(x, y, scale)
    for size in sizes:
        parts.append(whole.part(order[at : at + size]))
        at += size
    return Split(*parts)


@lru_cache(maxsize=1)
def digits() -> Split:
    """The digits of scikit-learn: 1,000 to learn from, 200 to choose with, 597 to judge by."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return cut(x.reshape(-1, 1, 8, 8).astype(np.uint8), y.astype(np.int64), 1 / 16, (1000, 200, 597))


def arrays(name: str) -> Mapping[str, Any]:
    """A data file of ``CONCORD_DATA``."""
    where = folder()
    path = (where or Path()) / "data" / f"{name}.npz"
    if where is None or not path.is_file():
        raise Missing(f"CONCORD_DATA does not name a folder with data/{name}.npz")
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


@lru_cache(maxsize=1)
def large(name: str, train: int, validation: int) -> Split:
    """A set with a test split of its own; what is chosen with comes from the training part."""
    data = arrays(name)
    order = permutation(*_SPLIT, len(data["x_train"]))[: train + validation]
    x, y = data["x_train"], data["y_train"]
    learned, chosen = (Samples(x[rows], y[rows], 1 / 256) for rows in (order[:train], order[train:]))
    return Split(learned, chosen, Samples(data["x_test"], data["y_test"], 1 / 256))
