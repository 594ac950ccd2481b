"""Networks trained for accumulators of few bits: accuracy and overflows by width and method."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from concord.spec.config import NpuConfig
from concord.train import Samples, Settings, Trainer, described
from concord.train.overflow_settings import OverflowSettings
from concord_bench.results import Results
from concord_bench.tasks import folder

#: Widths of the accumulator; with the first one nothing overflows.
WIDTHS = (32, 16, 14, 12)
SEEDS = (1, 2, 3, 4, 5)
EPOCHS = 10
#: Arrays of the data: to learn from, and to judge by.
NAMES = (("x_train", "y_train"), ("x", "y"))
#: The network: two products, on digits of 8 by 8 pixels.
LAYERS: tuple[dict[str, Any], ...] = (
    {"op": "flatten"}, {"op": "dense", "outputs": 32}, {"op": "relu"}, {"op": "dense", "outputs": 10},
)  # fmt: skip


def measure_overflow_training(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per method and grid: mean accuracy on the test digits, and how many of their sums overflow."""
    group, data = "Training for accumulators of few bits", folder()
    if data is None:
        results.skip(group, "CONCORD_DATA does not name a folder with networks")
        return
    train, test = _digits(data)
    results.notes[group] = (
        f"64-32-10 on {len(train)} digits, {EPOCHS} epochs, judged on {len(test)} others with the accumulator of the "
        f"column: mean of {len(SEEDS)} seeds and the least in brackets, and the share of sums that overflow. Terms are "
        f"sums of {config.lanes} products, as on {config.name}. Plain: trained with 8-bit mantissas and exact sums."
    )
    for grid in ("layer", "network"):
        say(f"training, grid of the {grid}")
        trainers = [_trained(train, test, "plain", WIDTHS[0], grid, config.lanes, seed) for seed in SEEDS]
        judged = {width: [judged_at(trainer, test, width) for trainer in trainers] for width in WIDTHS}
        results.row(group, f"plain, grid of the {grid}", columns_of(judged))
        for method in ("evidence", "bound"):
            columns: dict[int, list[tuple[float, float]]] = {WIDTHS[0]: []}
            for width in WIDTHS[1:]:
                say(f"training, {method}, grid of the {grid}, {width} bits")
                trainers = [_trained(train, test, method, width, grid, config.lanes, seed) for seed in SEEDS]
                columns[width] = [judged_at(trainer, test, width) for trainer in trainers]
            results.row(group, f"{method}, grid of the {grid}", columns_of(columns))


def _digits(data: Path) -> tuple[Samples, Samples]:
    with np.load(data / "data" / "digits.npz") as arrays:
        pairs = [(arrays[x].reshape(-1, 1, 8, 8), arrays[y].astype(np.int64)) for x, y in NAMES]
    train, test = (Samples(x, y, 1 / 16) for x, y in pairs)
    return train, test


def _trained(train: Samples, test: Samples, method: str, width: int, grid: str, lanes: int, seed: int) -> Trainer:
    overflow = OverflowSettings(accumulator_bits=width, method=method, grid=grid, lanes=lanes)
    schedule = ((EPOCHS // 2, Fraction(1, 2)), (3 * EPOCHS // 4, Fraction(1, 2)))
    settings = Settings(epochs=EPOCHS, rate=Fraction(1, 16), schedule=schedule, seed=seed, overflow=overflow)
    trainer = Trainer(described(list(LAYERS), (1, 8, 8)), train, settings, random=True)
    trainer.fit()
    return trainer


def judged_at(trainer: Trainer, test: Samples, width: int) -> tuple[float, float]:
    """Accuracy, and the share of sums that overflow."""
    _, accuracy = trainer.judge(test, width)
    assert accuracy is not None and trainer.judged is not None
    return accuracy, trainer.judged.ended / trainer.judged.sums


def columns_of(runs_by_width: dict[int, list[tuple[float, float]]]) -> dict[str, str]:
    """Texts by column: accuracies and shares of sums that overflow, by width; 0: sums without a width."""
    texts = {}
    for width, runs in runs_by_width.items():
        name = f"{width} bits" if width else "exact"
        texts[name] = ""
        if runs:
            right, share = [100 * a for a, _ in runs], 100 * float(np.mean([s for _, s in runs]))
            ended = f", {share:.2f} %" if share else ""
            texts[name] = f"{np.mean(right):.1f} ({min(right):.1f}){ended}"
    return texts
