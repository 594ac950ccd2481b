"""Pictures of the page: accuracies of all seeds, and curves.

Needs the ``demo`` extra (matplotlib). Draws what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from concord.display.pictures import AMBER, BLUE, INK, MUTED, RED, TEAL, VIOLET, drawing, png
from concord_bench.evidence.finetune import FineTuning
from concord_bench.evidence.plan import Study
from concord_bench.evidence.scratch import Scratch
from concord_bench.evidence.store import Store
from concord_bench.evidence.tables import Row, rows

#: Colours of variants.
_COLOURS = {
    "float32": INK, "float": INK, "w8a8": INK, "lazy": TEAL, "stochastic": BLUE, "none": RED,
    "none-stochastic": AMBER, "room": VIOLET,
}  # fmt: skip
#: Files in ``docs``.
SEEDS_PICTURE, CURVES_PICTURE, TUNING_PICTURE = (f"pictures/training-{n}.png" for n in ("seeds", "curves", "tuning"))


def _colour(name: str) -> str:
    by_end = {"trained": TEAL, "start": BLUE}
    return _COLOURS.get(name, by_end.get(name.rpartition("-")[2], RED))


def _dots(axes: Any, variants: dict[str, Row]) -> None:
    """A line per variant: its seeds as dots, their mean as a bar."""
    shown = {name: row for name, row in variants.items() if row.results}
    for at, (name, row) in enumerate(shown.items()):
        values = row.accuracies
        axes.plot(values, [at] * len(values), "o", color=_colour(name), alpha=0.45, ms=6, mew=0, clip_on=False)
        axes.plot([np.mean(values)], [at], "|", color=_colour(name), ms=16, mew=2.5)
        axes.annotate(
            f"{np.mean(values):.2f}", (np.mean(values), at), (0, 10), textcoords="offset points", ha="center",
            fontsize=8.5, color=_colour(name),
        )  # fmt: skip
    axes.set_yticks(range(len(shown)), [row.title for row in shown.values()])
    axes.set_ylim(len(shown) - 0.5, -0.75)
    axes.margins(x=0.12)
    axes.grid(axis="x")
    axes.set_xlabel("test accuracy in %")


def _curves(axes: Any, variants: dict[str, Row]) -> None:
    """Mean of the validation accuracies of all seeds by epoch, and from the least to the greatest."""
    for name, row in variants.items():
        curves = [[100 * (e["test_accuracy"] or 0) for e in r.curve] for r in row.results]
        if curves and len({len(c) for c in curves}) == 1:
            values, epochs = np.array(curves), np.arange(1, len(curves[0]) + 1)
            axes.plot(epochs, values.mean(axis=0), color=_colour(name), marker="o", ms=3, label=row.title)
            axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=_colour(name), alpha=0.09, lw=0)
    axes.set_xlabel("epoch")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("validation accuracy in %")
    axes.grid(axis="y")


def pictures(studies: Sequence[Study], store: Store) -> dict[str, bytes]:
    """PNGs by the name of their file in ``docs``; those that there are results for."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    tables = {study.name: rows(study, store) for study in studies}
    there = [s for s in studies if any(row.results for row in tables[s.name].values())]
    scratch = [s for s in there if isinstance(s, Scratch)]
    tuned = [s for s in there if isinstance(s, FineTuning)]
    drawn: dict[str, bytes] = {}
    with drawing() as plt:
        groups: tuple[tuple[str, str, Sequence[Study]], ...] = (
            (SEEDS_PICTURE, "Every dot is a seed, bars are means", scratch),
            (TUNING_PICTURE, "Every dot is a fold, bars are means", tuned),
        )
        for name, title, chosen in groups:
            if chosen:
                heights = [1.0 + 0.42 * sum(bool(row.results) for row in tables[s.name].values()) for s in chosen]
                figure, places = plt.subplots(
                    len(chosen), 1, figsize=(8.6, sum(heights)), layout="constrained", squeeze=False,
                    height_ratios=heights,
                )  # fmt: skip
                for axes, study in zip(places.flat, chosen, strict=True):
                    _dots(axes, tables[study.name])
                    axes.set_title(study.title)
                figure.suptitle(title, x=0.01, ha="left", color=MUTED, fontsize=10)
                drawn[name] = png(figure)
        if several := [s for s in scratch if any(len(r.curve) > 1 for w in tables[s.name].values() for r in w.results)]:
            columns = 2 if len(several) in (2, 4) else min(3, len(several))
            lines = -(-len(several) // columns)
            figure, places = plt.subplots(
                lines, columns, figsize=(4.6 * columns, 0.9 + 3.3 * lines), squeeze=False,
                layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08),
            )  # fmt: skip
            for axes in places.flat[len(several) :]:
                axes.axis("off")
            named: dict[str, Any] = {}
            for axes, study in zip(places.flat, several, strict=False):
                _curves(axes, tables[study.name])
                axes.set_title(study.title)
                handles, labels = axes.get_legend_handles_labels()
                named |= dict(zip(labels, handles, strict=True))
            figure.legend(named.values(), named.keys(), loc="outside lower center", ncol=2 if columns == 2 else 3)
            drawn[CURVES_PICTURE] = png(figure)
    return drawn
