"""Statistics of results: means, spreads, differences between runs of the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord_bench.evidence.finetune import FineTuning, Width
from concord_bench.evidence.plan import Study
from concord_bench.evidence.scratch import Variant
from concord_bench.evidence.store import CHOICE, Result, Store


@dataclass(frozen=True)
class Row:
    """A variant of a study.

    Parameters
    ----------
    title : str
        Of the variant.
    results : list of Result
        Those that are there, by seed or fold.
    planned : int
        How many there are to be.
    differences : list of float
        Accuracy minus that of the reference with the same seed, in points, where both are there.
    """

    title: str
    results: list[Result]
    planned: int
    differences: list[float]

    @property
    def accuracies(self) -> list[float]:
        """Accuracies in percent."""
        return [100 * (r.test or 0.0) for r in self.results]

    @property
    def whole(self) -> bool:
        """True if all seeds or folds are there."""
        return len(self.results) == self.planned


def reference(study: Study) -> str:
    """The variant that others are compared with."""
    return "w8a8" if isinstance(study, FineTuning) else study.variants[0].name


def rows(study: Study, store: Store) -> dict[str, Row]:
    """Variants of a study by name; those without any result, too."""
    variants: Sequence[Variant | Width] = study.variants
    there: dict[str, dict[int, Result]] = {v.name: {} for v in variants}
    planned = dict.fromkeys(there, 0)
    for run in study.runs:
        result = store.results.get(run)
        if run.seed != CHOICE:
            planned[run.variant] += 1
            if result is not None and result.test is not None:
                there[run.variant][run.seed] = result
    base = there[reference(study)]
    return {
        v.name: Row(
            v.title,
            list(there[v.name].values()),
            planned[v.name],
            [100 * ((r.test or 0) - (base[seed].test or 0)) for seed, r in there[v.name].items() if seed in base],
        )
        for v in variants
    }
