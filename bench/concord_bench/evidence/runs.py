"""Executes the runs whose results are missing, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from concord_bench.evidence.data import Missing
from concord_bench.evidence.plan import Study
from concord_bench.evidence.store import Result, Store

#: Formats that are run when everything else is there.
LATER = ("w6a6", "w5a5")


def work(
    studies: Sequence[Study],
    store: Store,
    minutes: float,
    say: Callable[[str], None],
    only: Collection[str] = (),
) -> dict[str, str]:
    """Do what is left.

    Parameters
    ----------
    studies : sequence of Study
        In their order, but narrower formats (:data:`LATER`) come when everything else is there.
    store : Store
        Gets every result as soon as it is there.
    minutes : float
        After them no run is begun.
    say : callable
        Told of every run.
    only : collection of str
        Names of studies; empty: all.

    Returns
    -------
    dict
        Names of studies without data, and why.
    """
    end = time.monotonic() + 60 * minutes
    missing: dict[str, str] = {}
    chosen = [s for s in studies if not only or s.name in only]
    for study, later in [(s, later) for later in (False, True) for s in chosen]:
        try:
            for run in study.runs:
                if run.variant.startswith(LATER) != later or study.there(run, store):
                    continue
                if time.monotonic() >= end:
                    return missing
                result = study.do(run, store)
                store.add(result)
                say(line(result))
        except Missing as reason:
            missing[study.name] = str(reason)
    return missing


def line(result: Result) -> str:
    """A result in a line."""
    if result.test is None:
        figures = f"rate {result.rate} chosen, validation {100 * (result.validation or 0):.2f} %"
    else:
        figures = f"test accuracy {100 * result.test:.2f} %"
    return f"{result.experiment}, {result.variant}, {result.seed}: {figures}, {result.seconds:.1f} s"
