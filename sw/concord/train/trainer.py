"""The training loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from concord.graph.ir import Graph
from concord.train import checkpoint
from concord.train.data import Array, Samples
from concord.train.layers.base import Pass
from concord.train.losses import LOSSES, Loss
from concord.train.network import Network, batch
from concord.train.noise import Noise, permutation
from concord.train.optimiser import Optimiser
from concord.train.parameters import Counts
from concord.train.settings import Settings
from concord.train.tensor import Dyadic, Tensor

#: Samples that are judged at once; they share exponents, so it is part of the rules.
EVALUATION_BATCH = 256
#: Places of random numbers: weights (1) are in :mod:`concord.train.network`.
_ORDER, _NOISE = 2, 3


@dataclass
class Figures:
    """What came of an epoch.

    Parameters
    ----------
    epoch : int
        From 0.
    rate : float
        Of the epoch.
    loss, accuracy : float
        Of its samples while they were learned; accuracy is ``None`` without classes.
    test_loss, test_accuracy : float or None
        Of the test samples after it.
    counts : Counts
        Of its updates.
    """

    epoch: int
    rate: float
    loss: float = 0.0
    accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    counts: Counts = field(default_factory=Counts)


class Trainer:
    """Trains a network; the same settings, network and data give the same bits on every machine.

    Parameters
    ----------
    graph : Graph
        The network, from :func:`concord.frontend.import_model` or :func:`concord.train.describe.described`.
    samples : Samples
        To learn from.
    settings : Settings
        Of the training.
    test : Samples or None
        To judge by; never learned from.
    random : bool
        Whether weights are random at the start, or those of the graph.

    Raises
    ------
    CannotTrain
        If a layer cannot be trained.
    ValueError
        If data do not fit the network, are empty or not finite.
    """

    def __init__(
        self,
        graph: Graph,
        samples: Samples,
        settings: Settings | None = None,
        test: Samples | None = None,
        random: bool = False,
    ):
        self.settings = settings or Settings()
        self.network = Network(graph, self.settings.formats, self.settings.seed if random else None)
        samples.check("training", self.network.graph, self.network.output, self.settings.loss)
        if test is not None:
            test.check("test", self.network.graph, self.network.output, self.settings.loss)
        self.samples, self.test, self.random = samples, test, random
        self.optimiser = Optimiser(Dyadic.nearest(self.settings.momentum), self.settings.decay)
        self.history: list[Figures] = []
        self.done = 0  # steps of the epoch that is under way
        self._sums = [0.0, 0]
        self._counts = Counts()
        self._order: Any = None

    # Steps --------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or the number of epochs at the end."""
        return len(self.history)

    @property
    def steps(self) -> int:
        """Steps of an epoch; the last one may have fewer samples."""
        return -(-len(self.samples) // self.settings.batch)

    @property
    def finished(self) -> bool:
        """Whether all epochs are over."""
        return self.epoch >= self.settings.epochs

    @property
    def running(self) -> str:
        """Loss and accuracy of the epoch that is under way, so far."""
        seen = self.done * self.settings.batch
        if not seen:
            return ""
        accuracy = f", accuracy {100 * self._sums[1] / seen:.1f} %" if self.settings.loss == "cross_entropy" else ""
        return f"loss {self._sums[0] / seen:.4f}{accuracy}"

    def gradients(self, rows: Any, way: Pass) -> tuple[dict[str, Tensor], Loss]:
        """Gradients of the sum of the losses of some samples, by parameter."""
        output, memories = self.network.forward(
            batch(self.samples.inputs(rows), self.network.graph, self.settings.formats), way
        )
        loss = LOSSES[self.settings.loss](output, self.samples.y[rows], self.settings.formats)
        return self.network.backward(loss.gradient, memories, way), loss

    def step(self) -> Loss:
        """Learn from the next batch."""
        if self.finished:
            raise ValueError(f"training must have epochs left, and all {self.settings.epochs} are over")
        if self._order is None:
            self._order = permutation(self.settings.seed, (_ORDER, self.epoch), len(self.samples))
        size = self.settings.batch
        rows = self._order[self.done * size : (self.done + 1) * size]
        noise = Noise(self.settings.seed, (_NOISE, self.epoch * self.steps + self.done))
        way = Pass(self.settings.formats, noise)
        gradients, loss = self.gradients(rows, way)
        rate, parameters = self.settings.rate_of(self.epoch), self.network.parameters
        for name, parameter in parameters.items():
            if name in gradients:
                self._counts.add(
                    self.optimiser.step(parameter, gradients[name], len(rows), rate, self.settings.formats, noise)
                )
        self.network.follow(way)
        self._sums = [self._sums[0] + loss.value, self._sums[1] + (loss.right or 0)]
        self.done += 1
        if self.done == self.steps:
            self._close(loss.right is not None)
        return loss

    def _close(self, classes: bool) -> None:
        count = len(self.samples)
        figures = Figures(self.epoch, float(self.settings.rate_of(self.epoch)), self._sums[0] / count)
        figures.accuracy, figures.counts = self._sums[1] / count if classes else None, self._counts
        if self.test is not None:
            figures.test_loss, figures.test_accuracy = self.judge(self.test)
        self.history.append(figures)
        self.done, self._sums, self._counts, self._order = 0, [0.0, 0], Counts(), None

    def judge(self, samples: Samples) -> tuple[float, float | None]:
        """Loss and accuracy on samples, with the forward pass of training, 256 of them at a time."""
        loss, right, classes = 0.0, 0, True
        for start in range(0, len(samples), EVALUATION_BATCH):
            rows = slice(start, start + EVALUATION_BATCH)
            x = batch(samples.inputs(rows), self.network.graph, self.settings.formats)
            output, _ = self.network.forward(x, Pass(self.settings.formats, training=False))
            found = LOSSES[self.settings.loss](output, samples.y[rows], self.settings.formats)
            loss, right, classes = loss + found.value, right + (found.right or 0), found.right is not None
        return loss / len(samples), right / len(samples) if classes else None

    def fit(self, told: Callable[[Trainer], bool] | None = None) -> list[Figures]:
        """Take all steps that are left, or until ``told``, which is called after every one, says so with ``True``."""
        while not self.finished:
            self.step()
            if told is not None and told(self):
                break
        return self.history

    # Checkpoints --------------------------------------------------------------------------------------

    @property
    def _facts(self) -> dict[str, Any]:
        marks = [_mark(np.asarray(a)) for a in (self.samples.x, self.samples.y)]
        facts = self.settings.facts | {"data": marks, "scale": self.samples.scale, "zero": self.samples.zero}
        del facts["epochs"]  # a run may be made longer
        return facts | {"random": self.random}

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        progress = {
            "history": [asdict(figures) for figures in self.history],
            "done": self.done,
            "sums": self._sums,
            "counts": asdict(self._counts),
        }
        checkpoint.save(path, self.network, self._facts, progress)

    def restore(self, path: Path) -> None:
        """Go on where a checkpoint was written, with the same bits as without a break."""
        progress = checkpoint.restore(path, self.network, self._facts)
        self.history = [Figures(**{**f, "counts": Counts(**f["counts"])}) for f in progress["history"]]
        self.done, self._sums, self._order = int(progress["done"]), list(progress["sums"]), None
        self._counts = Counts(**progress["counts"])

    def trained(self) -> Graph:
        """The network with the weights as they are now, ready to be compiled."""
        return self.network.trained()


def _mark(array: Array) -> str:
    """A hash of the numbers: of type, shape and bytes."""
    head = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()
