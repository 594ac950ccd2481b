"""Trained networks in narrow formats: rounded, and trained on in the format.

There are few samples with labels, so every one is judged once: in each of several folds, another part is what is judged
by, and the network of the fold has never seen it. What is learned are the outputs that the float network has, before
the Softmax, so that samples without a label serve, too.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Graph
from concord.spec.presets import ECP5_85F
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Augmentation, Samples, Settings, Trainer, fitted
from concord.train.noise import permutation
from concord.utils.arrays import FloatArray
from concord_bench.evidence.data import Missing, Split, arrays
from concord_bench.evidence.store import CHOICE, Result, Run, Store, curve_of
from concord_bench.tasks import TASKS, Labels, folder

#: Blocks as the NPU has them.
_BLOCK = ECP5_85F.native
#: Seed and place of the numbers that make the folds.
_FOLDS = 20, (9, 2)


def widths(weight: int, activation: int) -> TrainingFormats:
    """Formats with blocks of the size of the NPU's vectors; biases have 16 bits."""
    return TrainingFormats(
        weight=TrainingFormat(weight, _BLOCK),
        bias=TrainingFormat(16),
        activation=TrainingFormat(activation, _BLOCK),
        accumulator=AccumulatorFormat(growth=False),
    )


@dataclass(frozen=True)
class Width:
    """A format, with training in it or without.

    Parameters
    ----------
    name, title : str
        For results and for people.
    formats : TrainingFormats or None
        ``None``: the float network.
    trained : bool
        Whether the network is trained in the format, after it was rounded to it.
    start : bool
        Whether weights are rounded for the inputs of samples, and not to the nearest.
    """

    name: str
    title: str
    formats: TrainingFormats | None
    trained: bool = False
    start: bool = False


def _three(weight: int, activation: int) -> tuple[Width, Width, Width]:
    name, formats = f"w{weight}a{activation}", widths(weight, activation)
    return (
        Width(name, f"{name}, rounded", formats),
        Width(f"{name}-start", f"{name}, rounded for samples", formats, start=True),
        Width(f"{name}-trained", f"{name}, then trained in it", formats, True, True),
    )


FLOAT = Width("float", "float32, as it is", None)
EIGHT = Width("w8a8", "w8a8, rounded", widths(8, 8))
WIDTHS = (FLOAT, EIGHT, *_three(5, 8), *_three(6, 6), *_three(5, 5))


@dataclass(frozen=True)
class FineTuning:
    """A trained network that is trained on in narrow formats.

    Parameters
    ----------
    model : str
        Name of its task in :data:`concord_bench.tasks.TASKS`.
    title, about : str
        For the page.
    settings : Settings
        Everything but rate, seed and formats; the loss is that of the outputs.
    rates : tuple of Fraction
        Of them the one is taken that is best for calibration samples, which have no labels and are in no fold, with the
        first format that is trained.
    variants : tuple of Width
        Formats.
    augmentation : Augmentation
        How the few samples of the choice are changed, so that there are about as many as in a fold; ``copies`` are as
        many as that takes.
    folds : int
        Parts that the samples with labels are divided into.
    """

    model: str
    title: str
    about: str
    settings: Settings
    rates: tuple[Fraction, ...]
    augmentation: Augmentation
    variants: tuple[Width, ...] = WIDTHS
    folds: int = 5

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return f"tune-{self.model}"

    @property
    def runs(self) -> list[Run]:
        """All runs in their order: a format after the other, in front of the first trained one the rate; folds count
        from 1."""
        folds = range(1, self.folds + 1)
        return [
            Run(self.name, width.name, fold)
            for width in self.variants
            for fold in (*[CHOICE] * (width.name == self.chooser), *folds)
        ]

    @property
    def chooser(self) -> str:
        """The format whose best rate is that of all."""
        return next((width.name for width in self.variants if width.trained), "")

    def split(self, fold: int) -> Split:
        """The samples of a fold, or of the choice: labels where something is judged, else outputs of the network."""
        if fold == CHOICE:
            return self._choice
        inputs, labels, targets, more, theirs = self._samples
        parts = np.array_split(permutation(*_FOLDS, len(inputs)), self.folds)
        judged = parts.pop(fold - 1)
        others = np.concatenate(parts)
        train = Samples(np.concatenate([inputs[others], more]), np.concatenate([targets[others], theirs]))
        return Split(train, Samples(more, theirs), Samples(inputs[judged], labels[judged]))

    @cached_property
    def _choice(self) -> Split:
        """Calibration samples alone: two thirds, and changed ones, to learn from; the others to choose with."""
        inputs, _, _, more, theirs = self._samples
        count = 2 * len(more) // 3
        whole = len(inputs) * (self.folds - 1) / self.folds + len(more)
        changed = replace(self.augmentation, copies=max(1, round(whole / count) - 1)).changed(more[:count], CHOICE)
        targets = np.concatenate([theirs[:count], self._outputs(changed)])
        left = Samples(more[count:], theirs[count:])
        return Split(Samples(np.concatenate([more[:count], changed]), targets), left, left)

    @cached_property
    def _samples(self) -> tuple[FloatArray, Labels, FloatArray, FloatArray, FloatArray]:
        """Inputs, labels and outputs of the float network; inputs and outputs of what has no labels."""
        task = next(task for task in TASKS if task.model == self.model)
        data = arrays(task.data)
        inputs, more = (
            np.ldexp(task.inputs(data, data[key].astype(np.float64)), -self._unit)
            for key in (task.samples, task.calibration)
        )
        labels = np.asarray(task.labels(data)).astype(np.int64)
        return inputs, labels, self._outputs(inputs), more, self._outputs(more)

    @cached_property
    def _unit(self) -> int:
        """Inputs are divided by this power of two, and the first weights multiplied by it, so that no gradient is large
        because inputs are; results are the same."""
        task = next(task for task in TASKS if task.model == self.model)
        data = arrays(task.data)
        return int(np.ceil(np.log2(np.abs(task.inputs(data, data[task.calibration].astype(np.float64))).max())))

    @cached_property
    def graph(self) -> Graph:
        """The float network for such inputs, without a Softmax at its end."""
        where = folder()
        if where is None:
            raise Missing("CONCORD_DATA does not name a folder with networks")
        graph = import_model(where / "models" / f"{self.model}.onnx")
        if graph.nodes[-1].op == "Softmax":
            graph.outputs = [graph.nodes[-1].inputs[0]]
            del graph.nodes[-1]
        for k, node in enumerate(graph.nodes):
            if graph.inputs[0] in node.inputs:
                if node.op not in ("Conv", "Dense"):
                    raise ValueError(f"{node.name} must be a Conv or a Dense to read scaled inputs, not {node.op}")
                graph.nodes[k] = node.with_attrs(weight=np.ldexp(node.attrs["weight"], self._unit))
        return graph

    def _outputs(self, x: FloatArray) -> FloatArray:
        outputs = execute.run(self.graph, {self.graph.inputs[0]: x})[self.graph.outputs[0]]
        return outputs.reshape(len(x), -1)

    def _width(self, run: Run) -> Width:
        return next(width for width in self.variants if width.name == run.variant)

    def facts(self, run: Run) -> dict[str, Any]:
        """Everything that decides a run beside the code and the rate that was chosen."""
        width = self._width(run)
        formats = width.formats and asdict(width.formats)
        facts: dict[str, Any] = {"formats": formats, "data": self.split(run.seed).facts}
        facts |= {"start": "samples"} if width.start else {}
        if not width.trained:
            return facts
        settings = self.settings.facts
        del settings["rate"], settings["seed"], settings["formats"]
        rates = {"rates": [str(rate) for rate in self.rates]} if run.seed == CHOICE else {}
        return facts | settings | rates

    def there(self, run: Run, store: Store) -> bool:
        """True if the result of a run is there, with the rate that is chosen now."""
        stored = store.has(run, self.facts(run))
        if not stored or run.seed == CHOICE or not self._width(run).trained:
            return stored
        return store.results[run].rate == self._chosen(store)

    def _chosen(self, store: Store) -> str:
        return store.results[Run(self.name, self.chooser, CHOICE)].rate

    def do(self, run: Run, store: Store) -> Result:
        """Do a run: try all rates, or judge a fold; the rates must have been chosen."""
        start, split, width = time.process_time(), self.split(run.seed), self._width(run)
        graph = fitted(self.graph, width.formats, split.train.x) if width.formats and width.start else self.graph
        result = Result(*run, facts=self.facts(run))
        if width.formats is None:
            right = self._outputs(split.test.x).argmax(axis=1) == split.test.y
            result = replace(result, test=float(right.mean()), samples=len(right))
        elif run.seed == CHOICE:
            trainers = {rate: self._trained(graph, width.formats, run.seed, rate, split) for rate in self.rates}
            losses = {rate: trainer.judge(split.validation)[0] for rate, trainer in trainers.items()}
            best = min(losses, key=lambda rate: losses[rate])
            candidates = {str(rate): [None, round(loss, 5)] for rate, loss in losses.items()}
            result = replace(result, rate=str(best), candidates=candidates)
        else:
            rate = Fraction(self._chosen(store)) if width.trained else None
            trainer = self._trained(graph, width.formats, run.seed, rate, split)
            judge = Trainer(trainer.trained(), split.test, Settings(formats=width.formats))
            result = replace(
                result, rate="" if rate is None else str(rate), test=judge.judge(split.test)[1],
                samples=len(split.test), curve=curve_of(trainer.history),
                counts=[asdict(f.counts) for f in trainer.history],
            )  # fmt: skip
        return replace(result, seconds=round(time.process_time() - start, 2))

    def _trained(
        self, graph: Graph, formats: TrainingFormats, fold: int, rate: Fraction | None, split: Split
    ) -> Trainer:
        """A network in the formats, trained in them at a rate, or only rounded."""
        settings = replace(self.settings, loss="mse", seed=fold, formats=formats, rate=rate or self.settings.rate)
        trainer = Trainer(graph, split.train, settings)
        if rate is not None:
            trainer.fit()
        return trainer
