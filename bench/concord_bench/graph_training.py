"""A graph network trained in float32, in block floating point, and for accumulators of few bits.

Digits of 8 by 8 pixels as a graph: a node per square of 2 by 2 pixels, with these as its features, and edges between
squares that share a side.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.graph.ir import Graph
from concord.spec.config import NpuConfig
from concord.spec.training import TrainingFormats
from concord.train import Samples, Settings, Trainer, described
from concord.train.overflow_settings import OverflowSettings
from concord_bench.evidence.scratch import LAZY, ROOM
from concord_bench.overflow_training import columns_of, judged_at
from concord_bench.results import Results
from concord_bench.tasks import folder

#: Nodes along each side, and features of a node.
SIDE, FEATURES = 4, 4
EPOCHS = 10
SEEDS = (1, 2, 3, 4, 5)
#: Widths of the accumulator; with the first one nothing overflows.
WIDTHS = (32, 16, 12)
METHODS = ("evidence", "bound")
GRIDS = ("layer", "network")
GROUP = "Graph convolutions"
_NAMES = (("x_train", "y_train"), ("x", "y"))


def edges() -> list[list[int]]:
    """Squares that share a side."""
    places = [divmod(node, SIDE) for node in range(SIDE * SIDE)]
    return [[a, b] for a, b in combinations(range(len(places)), 2)
            if sum(abs(p - q) for p, q in zip(places[a], places[b], strict=True)) == 1]  # fmt: skip


def nodes_of(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Nodes ``[samples, 16, 4]`` of images ``[samples, 8, 8]``."""
    squares = images.reshape(-1, SIDE, 2, SIDE, 2).swapaxes(2, 3)
    return np.ascontiguousarray(squares.reshape(-1, SIDE * SIDE, FEATURES))


def network() -> Graph:
    """Two graph convolutions with 16 features, and a product of all nodes with all classes."""
    layers: list[dict[str, Any]] = [
        {"op": "graph_conv", "outputs": 16, "edges": edges()}, {"op": "relu"}, {"op": "graph_conv", "outputs": 16},
        {"op": "relu"}, {"op": "flatten"}, {"op": "dense", "outputs": 10},
    ]  # fmt: skip
    return described(layers, (SIDE * SIDE, FEATURES), "digits_graph")


def digits(data: Path) -> tuple[Samples, Samples]:
    """Samples to learn from, and samples to judge by."""
    with np.load(data / "data" / "digits.npz") as arrays:
        train, test = (Samples(nodes_of(arrays[x]), arrays[y].astype(np.int64), 1 / 16) for x, y in _NAMES)
    return train, test


def settings_of(
    seed: int, overflow: OverflowSettings | None = None, formats: TrainingFormats | None = None
) -> Settings:
    """Settings of a training: all are alike but the seed, the accumulators of sums and the formats."""
    schedule = ((EPOCHS // 2, Fraction(1, 2)), (3 * EPOCHS // 4, Fraction(1, 2)))
    return Settings(
        epochs=EPOCHS,
        rate=Fraction(1, 16),
        schedule=schedule,
        seed=seed,
        overflow=overflow,
        formats=formats or TrainingFormats(),
    )


def trained(
    train: Samples, seed: int, overflow: OverflowSettings | None = None, formats: TrainingFormats | None = None
) -> Trainer:
    """The network in block floating point."""
    trainer = Trainer(network(), train, settings_of(seed, overflow, formats), random=True)
    trainer.fit()
    return trainer


def measure_graph_training(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per way of training: mean accuracy on the test digits, the least, and how many sums overflow."""
    data = folder()
    if data is None:
        results.skip(GROUP, "CONCORD_DATA does not name a folder with networks")
        return
    train, test = digits(data)
    results.notes[GROUP] = (
        f"Two graph convolutions of 16 nodes and a product, on {len(train)} digits, {EPOCHS} epochs, judged on "
        f"{len(test)} others with the accumulator of the column: mean of {len(SEEDS)} seeds and the least in brackets, "
        f"and the share of sums that overflow. Terms are sums of {config.lanes} products, as on {config.name}; those "
        "of nodes of one. float32: PyTorch, from the same weights, with the same samples in each step. 8/16/32: block "
        "floating point as always, with sums that are exact; with point 13 an accumulator of a weight has room for "
        "updates of up to four steps of the weight. Plain: trained with an accumulator of 32 bits."
    )
    say("float32")
    results.row(GROUP, "float32", columns_of({0: [_in_floats(train, test, seed) for seed in SEEDS]}))
    for name, formats in {"8/16/32": LAZY.formats, "8/16/32, point 13": ROOM.formats}.items():
        say(name)
        runs = [(_share(trained(train, seed, formats=formats), test), 0.0) for seed in SEEDS]
        results.row(GROUP, name, columns_of({0: runs}))
    for grid, method in product(GRIDS, ("plain", *METHODS)):
        by_width: dict[int, list[tuple[float, float]]] = {}
        plain: list[Trainer] = []
        for width in WIDTHS if method == "plain" else WIDTHS[1:]:
            say(f"{method}, grid of the {grid}, {width} bits")
            bits = WIDTHS[0] if method == "plain" else width
            overflow = OverflowSettings(accumulator_bits=bits, method=method, grid=grid, lanes=config.lanes)
            if method != "plain" or not plain:
                plain = [trained(train, seed, overflow) for seed in SEEDS]
            by_width[width] = [judged_at(trainer, test, width) for trainer in plain]
        results.row(GROUP, f"{method}, grid of the {grid}", columns_of(by_width))


def _share(trainer: Trainer, test: Samples) -> float:
    _, accuracy = trainer.judge(test)
    assert accuracy is not None
    return accuracy


def _in_floats(train: Samples, test: Samples, seed: int) -> tuple[float, float]:
    """Accuracy in float32; needs the extra ``torch``."""
    from concord_bench.evidence.floats import FloatTrainer, initial

    trainer = FloatTrainer(initial(network(), seed), train, settings_of(seed))
    trainer.fit()
    ((_, accuracy),) = trainer.judge_outputs(test).values()
    return accuracy, 0.0
