"""Networks trained from random weights in several variants."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from concord.graph.ir import Graph
from concord.spec.formats import Rounding
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer
from concord.train.losses import judged_count
from concord_bench.evidence.data import Split
from concord_bench.evidence.floats import FloatTrainer, initial
from concord_bench.evidence.store import CHOICE, Result, Run, Store, curve_of, mean_accuracy

#: Seeds whose results are compared.
SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Variant:
    """One way to train.

    Parameters
    ----------
    name, title : str
        For results and for people.
    formats : TrainingFormats or None
        ``None``: float32.
    """

    name: str
    title: str
    formats: TrainingFormats | None


_NOISY = Rounding.STOCHASTIC
_WITHOUT = AccumulatorFormat(point=0)
FLOAT = Variant("float32", "float32, PyTorch", None)
LAZY = Variant("lazy", "BFP 8/16/32, lazy update", TrainingFormats())
WITHOUT = Variant("none", "BFP without lazy update", TrainingFormats(accumulator=_WITHOUT))
STOCHASTIC = Variant(
    "stochastic",
    "BFP, lazy update, stochastic rounding",
    TrainingFormats(gradient=TrainingFormat(16, rounding=_NOISY), accumulator=AccumulatorFormat(16, rounding=_NOISY)),
)
WITHOUT_STOCHASTIC = Variant(
    "none-stochastic",
    "without lazy update, stochastic rounding",
    TrainingFormats(accumulator=replace(_WITHOUT, rounding=_NOISY)),
)
ROOM = Variant("room", "BFP, lazy update, point 13", TrainingFormats(accumulator=AccumulatorFormat(point=13)))
#: So many variants are run with all seeds before the others are.
FIRST = 3
FEW = (FLOAT, LAZY, WITHOUT, STOCHASTIC)
ALL = (*FEW, WITHOUT_STOCHASTIC)


@dataclass(frozen=True)
class Scratch:
    """A network that is trained from random weights.

    Parameters
    ----------
    name, title : str
        For results and for people.
    about : str
        The network and its data, for the page.
    graph : callable
        The network; weights are drawn with the seed.
    data : callable
        Its data, always the same; raises :class:`concord_bench.evidence.data.Missing`.
    settings : Settings
        Everything but rate, seed and formats.
    rates : tuple of Fraction
        Among which the validation part chooses: what is best for float32 is taken for all variants.
    variants : tuple of Variant
        The first one is float32.
    swept : int
        So many variants, the first ones, are trained at all rates, to be compared on the validation part.
    """

    name: str
    title: str
    about: str
    graph: Callable[[], Graph]
    data: Callable[[], Split]
    settings: Settings
    rates: tuple[Fraction, ...]
    variants: tuple[Variant, ...] = FEW
    swept: int = 1

    @property
    def runs(self) -> list[Run]:
        """All runs in their order: rates are chosen first, then come the seeds of the first variants."""
        choices = [Run(self.name, v.name, CHOICE) for v in self.variants[: self.swept]]
        parts = self.variants[:FIRST], self.variants[FIRST:]
        return choices + [Run(self.name, v.name, seed) for part in parts for seed in SEEDS for v in part]

    def facts(self, run: Run) -> dict[str, Any]:
        """Everything that decides a run beside the code and the rate that was chosen."""
        formats = self._variant(run).formats
        settings = self.settings.facts
        del settings["rate"], settings["seed"], settings["formats"]
        nodes = [(node.op, {k: getattr(v, "shape", v) for k, v in node.attrs.items()}) for node in self.graph().nodes]
        facts = {"formats": formats and asdict(formats), "network": repr(nodes), "data": self.data().facts}
        return settings | facts | ({"rates": [str(rate) for rate in self.rates]} if run.seed == CHOICE else {})

    def _variant(self, run: Run) -> Variant:
        return next(v for v in self.variants if v.name == run.variant)

    def there(self, run: Run, store: Store) -> bool:
        """True if the result of a run is there, with the rate that is chosen now."""
        return store.has(run, self.facts(run)) and (
            run.seed == CHOICE or store.results[run].rate == self._chosen(store)
        )

    def _chosen(self, store: Store) -> str:
        return store.results[Run(self.name, self.variants[0].name, CHOICE)].rate

    def do(self, run: Run, store: Store) -> Result:
        """Do a run; the rates must have been chosen.

        Returns
        -------
        Result
            Without a test accuracy if the run chooses a rate: nothing is judged by the test part then.
        """
        start, split, variant = time.process_time(), self.data(), self._variant(run)
        rates = self.rates if run.seed == CHOICE else (Fraction(self._chosen(store)),)
        trained = {rate: self._trained(variant, run.seed, rate, split) for rate in rates}
        judged = {rate: _judged(trainer, split.validation) for rate, trainer in trained.items()}
        rate = max(rates, key=lambda r: ((judged[r][1] or 0.0), -judged[r][0]))
        best = trained[rate]
        return Result(
            *run,
            facts=self.facts(run),
            rate=str(rate),
            validation=judged[rate][1],
            test=_judged(best, split.test)[1] if run.seed != CHOICE else None,
            samples=sum(judged_count(best.losses[name].loss, y) for name, y in split.test.labels.items()),
            candidates={str(r): [accuracy or 0.0, loss] for r, (loss, accuracy) in judged.items()},
            curve=curve_of(best.history),
            counts=[asdict(f.counts) for f in best.history if f.counts.elements],
            seconds=round(time.process_time() - start, 2),
        )

    def _trained(self, variant: Variant, seed: int, rate: Fraction, split: Split) -> Trainer | FloatTrainer:
        settings, graph = replace(self.settings, rate=rate, seed=seed), self.graph()
        trainer: Trainer | FloatTrainer
        if variant.formats is None:
            trainer = FloatTrainer(initial(graph, seed), split.train, settings, split.validation)
        else:
            settings = replace(settings, formats=variant.formats)
            trainer = Trainer(graph, split.train, settings, split.validation, random=True)
        trainer.fit()
        return trainer


def _judged(trainer: Trainer | FloatTrainer, samples: Samples) -> tuple[float, float | None]:
    """Loss, and the mean of the accuracies of all outputs."""
    by_output = trainer.judge_outputs(samples)
    loss = sum(float(trainer.losses[name].weight) * loss for name, (loss, _) in by_output.items())
    return loss, mean_accuracy([accuracy for _, accuracy in by_output.values()])
