"""The training loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.graph.ir import Graph
from concord.overflow.trained import Trained, network_digest
from concord.spec.formats import BINARY16_FRAC
from concord.train import checkpoint
from concord.train.data import Array, Samples
from concord.train.layers.base import PassContext
from concord.train.layers.bias import Bias
from concord.train.layers.conv import Conv
from concord.train.layers.dense import Dense
from concord.train.losses import ONLY, Loss, judged_count
from concord.train.network import TrainableNetwork
from concord.train.noise import NoiseStream, permutation
from concord.train.optimiser import Optimiser
from concord.train.overflow_monitor import OverflowCounts, OverflowMonitor, bias_values
from concord.train.parameters import UpdateCounts
from concord.train.settings import Settings
from concord.train.shards import Passes, Shard, computed, forward, judged, named, split, together
from concord.train.sites import monitor_of, passed_on
from concord.train.tensor import Dyadic, Tensor, saturations
from concord.utils.parallel import Engine

#: Samples that are judged at once; they share exponents, so it is part of the rules.
EVALUATION_BATCH = 256
#: Samples of training that evidence counts.
_EVIDENCE = 1024
#: Places of random numbers: weights (1) are in :mod:`concord.train.network`.
_ORDER, _NOISE = 2, 3


@dataclass
class OutputFigures:
    """Results of one of several outputs in an epoch.

    Parameters
    ----------
    loss, accuracy, test_loss, test_accuracy
        As of :class:`Figures`, without the weight of the output.
    """

    loss: float
    accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None


@dataclass
class Figures:
    """Results of an epoch.

    Parameters
    ----------
    epoch : int
        From 0.
    rate : float
        Of the epoch.
    loss, accuracy : float
        Of its samples while they were learned, per label that counts; accuracy is ``None`` without classes. Of several
        outputs the loss is the weighted sum, and there is no accuracy of all.
    test_loss, test_accuracy : float or None
        Of the test samples after it.
    counts : UpdateCounts
        Of its updates; and what has saturated in its steps and when it was judged.
    overflow, test_overflow : OverflowCounts or None
        Of its sums, and of those of the test samples, with an accumulator of few bits.
    outputs : dict of str to OutputFigures
        Of several outputs, by their names.
    """

    epoch: int
    rate: float
    loss: float = 0.0
    accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    counts: UpdateCounts = field(default_factory=UpdateCounts)
    overflow: OverflowCounts | None = None
    test_overflow: OverflowCounts | None = None
    outputs: dict[str, OutputFigures] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers, for files."""
        facts = asdict(self)
        if not self.outputs:
            del facts["outputs"]
        return facts

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Figures:
        """Figures from plain numbers, as :attr:`facts` has them."""
        overflows = {
            key: OverflowCounts(**facts[key]) for key in ("overflow", "test_overflow") if facts.get(key) is not None
        }
        outputs = {name: OutputFigures(**each) for name, each in facts.get("outputs", {}).items()}
        return cls(**{**facts, "counts": UpdateCounts(**facts["counts"]), **overflows, "outputs": outputs})


def order_of(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """The order of samples in an epoch."""
    return permutation(seed, (_ORDER, epoch), count)


def check_alone(settings: Settings, workers: bool) -> None:
    """Check that accumulators of few bits are trained in one process.

    Raises
    ------
    ValueError
        If not: ranges grow while a batch passes, and every layer reads what the whole batch has made of them.
    """
    if settings.overflow is not None and (workers or settings.shards > 1):
        raise ValueError(
            "training with [overflow] must have shards = 1, and neither --workers nor --cluster: its ranges grow with "
            "all samples of a batch together"
        )


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
    engine : Engine or None
        Who computes shards of batches, and judges; ``None``: this process. The bits are the same.

    Raises
    ------
    CannotTrain
        If a layer cannot be trained.
    ValueError
        If data or losses do not fit the network, or data are empty or not finite.
    """

    def __init__(
        self,
        graph: Graph,
        samples: Samples,
        settings: Settings | None = None,
        test: Samples | None = None,
        random: bool = False,
        engine: Engine | None = None,
    ):
        self.settings = settings or Settings()
        self.network = TrainableNetwork(graph, self.settings.formats, self.settings.seed if random else None)
        #: Losses by which the outputs are judged; that of the only one may have no name.
        self.losses = self.settings.losses_of(self.network.outputs)
        outputs = named(self.network.outputs, self.losses)
        samples.check("training", self.network.graph, outputs, self.losses)
        if test is not None:
            test.check("test", self.network.graph, outputs, self.losses)
        stop = self.settings.stop
        if stop is not None and stop.metric.startswith("test") and test is None:
            raise ValueError(
                f"stop.metric must be of the samples that are learned without test samples, not {stop.metric!r}"
            )
        self.passes = Passes(self.network, engine)
        self.samples, self.test, self.random = samples, test, random
        self.monitor: OverflowMonitor | None = None
        if self.settings.overflow is not None:
            check_alone(self.settings, engine is not None)
            network = self.network
            self.monitor = monitor_of(self.settings.overflow, self.settings.formats, network.graph, network.layers)
            rows = self._shuffled(0)[: self.settings.batch]
            self.monitor.begin(lambda: self._forward(self.samples, rows, PassContext(self.settings.formats)), len(rows))
        self.optimiser = Optimiser(Dyadic.nearest(self.settings.momentum), self.settings.decay)
        self.history: list[Figures] = []
        self.done = 0  # steps of the epoch that is under way
        self._sums = self._no_sums()
        self._counts = UpdateCounts()
        self._order: Any = None
        #: Sums of the samples that were judged last, with an accumulator of few bits.
        self.judged: OverflowCounts | None = None

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
        """True if all epochs are over, or the training has converged."""
        return self.epoch >= self.settings.epochs or self.converged

    @property
    def converged(self) -> bool:
        """True if the figure of ``settings.stop`` has not become better for as long as it says."""
        stop = self.settings.stop
        return stop is not None and stop.converged(self.followed)

    @property
    def followed(self) -> list[float]:
        """The figure of ``settings.stop`` in all epochs."""
        stop = self.settings.stop
        assert stop is not None
        return [getattr(f.outputs[stop.output] if stop.output else f, stop.metric) for f in self.history]

    @property
    def running(self) -> str:
        """Loss and accuracy of the epoch that is under way, so far; of several outputs one after the other."""
        order = self._shuffled(self.epoch) if self._order is None else self._order
        seen = self._judged_counts(self.samples, order[: self.done * self.settings.batch])
        if not any(seen.values()):
            return ""
        parts = []
        for name, (loss, right) in self._sums.items():
            if count := seen[name]:
                parts.append(f"{name}{': ' if name else ''}loss {loss / count:.4f}")
                parts += [f"accuracy {100 * right / count:.1f} %"] * (self.losses[name].loss == "cross_entropy")
        if self.monitor is not None:
            parts.append(f"overflows {self.monitor.counts.ended:,}")
        if self._counts.saturated:
            parts.append(f"saturated {self._counts.saturated:,}")
        return ", ".join(parts)

    def _forward(self, samples: Samples, rows: Any, context: PassContext) -> tuple[dict[str, Tensor], list[Any]]:
        """The forward pass of some samples."""
        context.monitor = self.monitor
        return forward(self.network, samples.part(rows), context)

    def _judged_counts(self, samples: Samples, rows: Any = slice(None)) -> dict[str, int]:
        """Divisors of the losses of some samples, by output."""
        return {name: judged_count(self.losses[name].loss, y[rows]) for name, y in samples.labels.items()}

    def _no_sums(self) -> dict[str, list[Any]]:
        """Losses and right labels of no samples, by output."""
        return {name: [0.0, 0] for name in self.losses}

    def _shuffled(self, epoch: int) -> Any:
        return order_of(self.settings.seed, epoch, len(self.samples))

    def _shards(self, rows: Any, noise: NoiseStream) -> list[Shard]:
        """Results of the shards of a batch."""
        fixed = self.settings.formats, self.losses, self.monitor, noise
        parts = map(self.samples.part, split(rows, self.settings.shards))
        return self.passes.map(computed, [(part, *fixed, k) for k, part in enumerate(parts)])

    def step(self) -> None:
        """Learn from the next batch."""
        if self.finished:
            over = f"it has converged in epoch {self.epoch}" if self.converged else f"all {self.epoch} are over"
            raise ValueError(f"training must have epochs left, and {over}")
        with saturations(self._counts):
            if self.done == self.steps:  # all steps were taken, but the end of the epoch has failed
                self._close()
            if not self.finished:
                self._step()

    def _step(self) -> None:
        if self._order is None:
            self._order = self._shuffled(self.epoch)
        size = self.settings.batch
        rows = self._order[self.done * size : (self.done + 1) * size]
        losses = self._learn(rows, self.epoch * self.steps + self.done)
        for loss in losses:
            value, right = self._sums[loss.output]
            self._sums[loss.output] = [value + loss.value, right + (loss.right or 0)]
        self.done += 1
        if self.done == self.steps:
            self._close()

    def _learn(self, rows: Any, number: int) -> list[Loss]:
        """Learn from samples, in the step with this number; the losses of their shards."""
        noise = NoiseStream(self.settings.seed, (_NOISE, number))
        if self.monitor is not None and self.monitor.counts_step(number):
            self.monitor.count_next(len(rows))
        shards = self._shards(rows, noise)
        gradients = together(shards, self.settings.formats)
        noise.calls = shards[0].calls  # one shard is a batch without shards
        rate, parameters = self.settings.rate_of(self.epoch), self.network.parameters
        for name, parameter in parameters.items():
            if name in gradients:
                self._counts.add(
                    self.optimiser.step(parameter, gradients[name], len(rows), rate, self.settings.formats, noise)
                )
        for shard in shards:
            self.network.follow(shard.seen)
        if self.monitor is not None:
            self.monitor.end_step()
        return [loss for shard in shards for loss in shard.losses]

    def _close(self) -> None:
        figures = Figures(self.epoch, float(self.settings.rate_of(self.epoch)), counts=self._counts)
        learned = self._per_label(self._sums, self.samples)
        figures.loss, figures.accuracy = self._together(learned)
        if ONLY not in self.losses:
            figures.outputs = {name: OutputFigures(*of_output) for name, of_output in learned.items()}
        if self.monitor is not None:
            figures.overflow = self.monitor.end_epoch(self.epoch + 1 == self.settings.epochs)
        if self.test is not None:
            tested = self.judge_outputs(self.test)
            figures.test_loss, figures.test_accuracy = self._together(tested)
            for name, of_output in figures.outputs.items():
                of_output.test_loss, of_output.test_accuracy = tested[name]
            figures.test_overflow = self.judged
        self.history.append(figures)
        self.done, self._sums, self._counts, self._order = 0, self._no_sums(), UpdateCounts(), None

    def _per_label(self, sums: Mapping[str, list[Any]], samples: Samples) -> dict[str, tuple[float, float | None]]:
        """Loss and accuracy of every output, per label that counts."""
        counts = self._judged_counts(samples)
        return {
            name: (loss / counts[name], right / counts[name] if self.losses[name].loss == "cross_entropy" else None)
            for name, (loss, right) in sums.items()
        }

    def _together(self, by_output: Mapping[str, tuple[float, float | None]]) -> tuple[float, float | None]:
        """Loss and accuracy of the only output, or the weighted sum of the losses of several."""
        if ONLY in by_output:
            return by_output[ONLY]
        return sum(float(self.losses[name].factor.value) * loss for name, (loss, _) in by_output.items()), None

    def judge(self, samples: Samples, bits: int | None = None) -> tuple[float, float | None]:
        """Loss and accuracy on samples, per label that counts, with the forward pass of training, 256 at a time.

        ``bits`` are those of the accumulator, if it is another one than that of training; ``judged`` has the counts. Of
        several outputs it is the weighted sum of the losses, and ``None``.
        """
        return self._together(self.judge_outputs(samples, bits))

    def judge_outputs(self, samples: Samples, bits: int | None = None) -> dict[str, tuple[float, float | None]]:
        """Loss and accuracy of every output by its name, without weights, as :meth:`judge` computes them."""
        parts = [slice(start, start + EVALUATION_BATCH) for start in range(0, len(samples), EVALUATION_BATCH)]
        fixed = self.settings.formats, self.losses, self.monitor
        with nullcontext() if self.monitor is None else self.monitor.separate_counts(bits) as self.judged:
            results = self.passes.map(judged, [(samples.part(rows), *fixed) for rows in parts])
        sums: dict[str, list[Any]] = {}
        for name in self.losses:
            of_output = [result[name] for result in results]
            sums[name] = [sum(loss for loss, _ in of_output), sum(right or 0 for _, right in of_output)]
        return self._per_label(sums, samples)

    def fit(self, after_step: Callable[[Trainer], bool] | None = None) -> list[Figures]:
        """Take all steps that are left, or until ``after_step``, which is called after each, says so with ``True``."""
        while not self.finished:
            self.step()
            if after_step is not None and after_step(self):
                break
        return self.history

    # Checkpoints --------------------------------------------------------------------------------------

    @property
    def _facts(self) -> dict[str, Any]:
        labels: Any = {name: _mark(y) for name, y in self.samples.labels.items()}
        marks = [_mark(np.asarray(self.samples.x)), labels[ONLY] if ONLY in labels else labels]
        facts = self.settings.facts | {"data": marks, "scale": self.samples.scale, "zero": self.samples.zero}
        for name in ("epochs", "stop"):  # a run may be made longer
            facts.pop(name, None)
        return facts | {"random": self.random}

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        progress = {
            "history": [figures.facts for figures in self.history],
            "done": self.done,
            "sums": self._sums[ONLY] if ONLY in self._sums else self._sums,
            "counts": asdict(self._counts),
        }
        if self.monitor is not None:
            progress["overflow"] = {"state": self.monitor.state, "counts": asdict(self.monitor.counts)}
        checkpoint.save(path, self.network, self._facts, progress)

    def restore(self, path: Path) -> None:
        """Go on where a checkpoint was written, with the same bits as without a break."""
        progress = checkpoint.restore(path, self.network, self._facts)
        self.history = [Figures.of(facts) for facts in progress["history"]]
        sums = {ONLY: progress["sums"]} if ONLY in self.losses else progress["sums"]
        self.done, self._sums, self._order = int(progress["done"]), {k: list(both) for k, both in sums.items()}, None
        self._counts = UpdateCounts(**progress["counts"])
        if self.monitor is not None:
            self.monitor.resume(progress["overflow"]["state"])
            self.monitor.counts = OverflowCounts(**progress["overflow"]["counts"])

    def evidence(self, network: bytes) -> Trained | None:
        """Evidence for the accumulator that a network was trained for; ``None`` without one of few bits.

        The first samples of training are counted, and as many of those to judge by.

        Parameters
        ----------
        network : bytes
            The file that :meth:`trained` was written to.
        """
        if self.monitor is None or self.settings.overflow is None:
            return None
        count = 0
        self.monitor.count_next(1)
        for samples in (self.samples, *([self.test] if self.test is not None else [])):
            here = min(_EVIDENCE, len(samples))
            for start in range(0, here, EVALUATION_BATCH):
                rows = slice(start, min(start + EVALUATION_BATCH, here))
                with self.monitor.separate_counts(whole=rows.stop - rows.start):
                    self._forward(samples, rows, PassContext(self.settings.formats, training=False))
            count += here
        inputs, weights = self.monitor.mantissas()
        exponents = passed_on(self.network.graph, self.monitor.exponents())
        overflow, layers = self.settings.overflow, self.monitor.layers()
        return Trained(
            network_digest(network),
            overflow.accumulator_bits,
            overflow.method,
            inputs,
            weights,
            exponents,
            count,
            layers,
        )

    def trained(self) -> Graph:
        """The network with the weights as they are now, ready to be compiled.

        With accumulators of few bits a bias is what is added to sums, so on their grid.
        """
        graph = self.network.trained()
        if self.monitor is not None:
            layers = self.network.layers
            biases = {layer.name: layer.bias for layer in layers if isinstance(layer, Conv | Dense)}
            added = {layer.name: layer for layer in layers if isinstance(layer, Bias)}
            for k, node in enumerate(graph.nodes):
                bias, layer = biases.get(node.name), added.get(node.name)
                if bias is not None:
                    graph.nodes[k] = node.with_attrs(bias=self.monitor.bias(node.name, bias.tensor))
                if layer is not None:
                    values = bias_values(layer.constant.tensor, -BINARY16_FRAC)
                    graph.nodes[k] = node.with_attrs(constant=values)
        return graph


def _mark(array: Array) -> str:
    """A hash of the numbers: of type, shape and bytes."""
    head = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()
