"""The file of results: JSON, written whole after every run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from concord.train import Figures
from concord.utils.files import write_text

#: The seed, or the number in the place of a fold, of runs that choose a rate.
CHOICE = 0


class Run(NamedTuple):
    """One result that is to be there.

    Parameters
    ----------
    experiment, variant : str
        Names.
    seed : int
        Of weights, order of samples and noise, or the fold.
    """

    experiment: str
    variant: str
    seed: int


@dataclass(frozen=True)
class Result:
    """Results of a run.

    Parameters
    ----------
    experiment, variant, seed
        As of :class:`Run`.
    facts : dict
        Everything that decides the run beside the code: a result with others is not used.
    rate : str
        Of the first epoch, as a fraction; empty if nothing was trained.
    validation, test : float or None
        Accuracies at the end, of several outputs their mean; ``test`` is ``None`` if the run was only there to choose a
        rate.
    samples : int
        Judged in ``test``.
    candidates : dict
        By rate, accuracy (if there are labels) and loss on the validation part, which have decided.
    curve : list of dict
        By epoch: loss and accuracy of training, and on the validation part; of several outputs the mean accuracy.
    counts : list of dict
        By epoch: updates, and those refused, vanished and grown; empty for float32.
    seconds : float
        Of processor time, one thread.
    """

    experiment: str
    variant: str
    seed: int
    facts: dict[str, Any]
    rate: str = ""
    validation: float | None = None
    test: float | None = None
    samples: int = 0
    candidates: dict[str, list[float | None]] = field(default_factory=dict)
    curve: list[dict[str, float | None]] = field(default_factory=list)
    counts: list[dict[str, int]] = field(default_factory=list)
    seconds: float = 0.0


def curve_of(history: Sequence[Figures]) -> list[dict[str, float | None]]:
    """Figures of epochs as they are kept."""
    names = ("loss", "accuracy", "test_loss", "test_accuracy")
    return [{name: None if (value := _figure(f, name)) is None else round(value, 5) for name in names} for f in history]


def _figure(figures: Figures, name: str) -> float | None:
    """A figure of an epoch; an accuracy of several outputs is their mean."""
    value: float | None = getattr(figures, name)
    if value is not None or not figures.outputs or "accuracy" not in name:
        return value
    return mean_accuracy([getattr(each, name) for each in figures.outputs.values()])


def mean_accuracy(accuracies: Sequence[float | None]) -> float | None:
    """The mean of the accuracies of all outputs; ``None`` if one has none."""
    return None if None in accuracies else sum(a or 0.0 for a in accuracies) / len(accuracies)


class Store:
    """Results of runs, in a file.

    Parameters
    ----------
    path : Path
        Of the JSON file; it need not be there yet.

    Raises
    ------
    ValueError
        If the file is no such store.
    """

    def __init__(self, path: Path):
        self.path = path
        self.results: dict[Run, Result] = {}
        if path.exists():
            try:
                results = [Result(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))["results"]]
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path} must be a file of results, and is not: {error}") from error
            self.results = {Run(r.experiment, r.variant, r.seed): r for r in results}

    def has(self, run: Run, facts: dict[str, Any]) -> bool:
        """True if a result is there that was got with these facts."""
        result = self.results.get(run)
        return result is not None and json.loads(json.dumps(facts)) == result.facts

    def add(self, result: Result) -> None:
        """Keep a result, on the disk, too."""
        kept = json.loads(json.dumps(asdict(result)))
        self.results[Run(result.experiment, result.variant, result.seed)] = Result(**kept)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, self.text)

    @property
    def text(self) -> str:
        """The file: a line per result."""
        lines = ",\n".join(json.dumps(asdict(self.results[run])) for run in sorted(self.results))
        return f'{{"results": [\n{lines}\n]}}\n'
