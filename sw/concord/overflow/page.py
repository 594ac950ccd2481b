"""An analysis as one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from concord.display import pages
from concord.display.charts import Chart, Steps, steps
from concord.display.pages import Bar, Figure, number
from concord.display.terminal import counted
from concord.overflow.results import Analysis, LayerOverflow
from concord.overflow.show import overflow_free_widths

#: Stages in the order of the colours of a chart.
_STAGES = ("product", "lane sum", "term", "sum", "output")


@dataclass(frozen=True)
class OverflowRow:
    """A layer as the page shows it; ``widths`` has a bar for each storage."""

    facts: LayerOverflow
    widths: tuple[Bar, ...]
    chart: Chart


def render(analysis: Analysis) -> str:
    """The page."""
    most = max(analysis.bound("intermediate"), analysis.bound("output"), analysis.width, analysis.output_width, 1)
    return pages.render(
        "concord.overflow",
        "overflow.html.j2",
        title=f"Overflow of {analysis.name}",
        figures=_figures(analysis),
        analysis=analysis,
        rows=[_row(analysis, layer, most) for layer in analysis.layers],
        stages=_STAGES,
    )


def _figures(analysis: Analysis) -> list[Figure]:
    values = sum(stage.total for layer in analysis.layers for stage in layer.stages)
    figures = []
    for checked, width, what in (
        ("intermediate", analysis.width, "while adding"),
        ("output", analysis.output_width, "behind the last addition"),
    ):
        observed, bound = analysis.needed(checked), analysis.bound(checked)
        figures += [
            Figure(f"{observed}", f"bits {what}", f"hold {counted(analysis.samples, 'samples')}"),
            Figure(f"{bound}", f"bits {what}", "hold every input in the range"),
            Figure(number(analysis.count(width, checked)), f"beyond {width} bits", f"{what}, on the samples"),
        ]
    about = f"{counted(len(analysis.layers), 'layers')}, {counted(analysis.samples, 'samples')}"
    return [*figures, Figure(number(values), "values counted", about)]


def _row(analysis: Analysis, layer: LayerOverflow, most: int) -> OverflowRow:
    return OverflowRow(
        layer,
        (
            _widths(layer, "intermediate", analysis.width, analysis.threshold, most),
            _widths(layer, "output", analysis.output_width, analysis.threshold, most),
        ),
        steps(
            [
                Steps(tuple(map(stage.beyond, range(stage.observed))), stage.bound, _STAGES.index(stage.name))
                for stage in layer.stages
                if stage.total
            ],
            most,
        ),
    )


def _widths(layer: LayerOverflow, checked: str, storage: int, threshold: int, most: int) -> Bar:
    """Share of ``most`` bits that the samples need, and that every input can need; the mark is the storage."""
    observed, bound = layer.needed(checked), layer.bound(checked)
    beyond = layer.beyond(storage, checked)
    return Bar(
        ((observed / most, "warn" if beyond > threshold else "main"), ((bound - observed) / most, "faint")),
        overflow_free_widths(observed, bound),
        storage / most,
    )
