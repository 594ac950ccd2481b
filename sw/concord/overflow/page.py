"""An analysis as one HTML page that needs nothing else; its style is that of ``concord report``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from concord.display.pages import environment
from concord.overflow.results import Analysis, LayerOverflow, StageFacts
from concord.overflow.show import overflow_free_widths
from concord.report.page import number

#: Pixels of a chart.
WIDTH, HEIGHT = 460, 150
_LABELS = 8


@dataclass(frozen=True)
class Curve:
    """Count against width of a stage: path of an SVG, x of what was observed and of the bound."""

    name: str
    path: str
    observed: float
    bound: float


@dataclass(frozen=True)
class Chart:
    """Curves of a layer with their axes; ``labels`` are x and width, ``decades`` y and power of ten."""

    curves: tuple[Curve, ...]
    labels: tuple[tuple[float, int], ...]
    decades: tuple[tuple[float, int], ...]
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Strip:
    """A storage of a layer in the table: shares of the width of the column, and text."""

    observed: float
    bound: float
    chosen: float
    text: str
    warn: bool


@dataclass(frozen=True)
class Row:
    """A layer as the page shows it."""

    index: int
    facts: LayerOverflow
    strips: tuple[Strip, Strip]
    overflows: int
    chart: Chart


def render(analysis: Analysis) -> str:
    """The page."""
    most = max(analysis.bound("intermediate"), analysis.bound("output"), analysis.width, analysis.output_width, 1)
    rows = [_row(analysis, index, layer, most) for index, layer in enumerate(analysis.layers)]
    template = environment("concord.overflow", "concord.report", number=number).get_template("overflow.html.j2")
    return template.render(analysis=analysis, rows=rows, figures=_figures(analysis))


def _figures(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Value, label and explanation of the figures on top."""
    values = sum(stage.total for layer in analysis.layers for stage in layer.stages)
    found = []
    for checked, width, what in (
        ("intermediate", analysis.width, "while adding"),
        ("output", analysis.output_width, "behind the last addition"),
    ):
        observed, bound = analysis.needed(checked), analysis.bound(checked)
        found.append((str(observed), f"bits {what}", f"hold all {analysis.samples} samples"))
        found.append((str(bound), f"bits {what}", "hold every input in the range"))
        found.append((number(analysis.count(width, checked)), f"beyond {width} bits", f"{what}, on the samples"))
    found.append((f"{values:,}", "values counted", f"{len(analysis.layers)} layers, {analysis.samples} samples"))
    return found


def _row(analysis: Analysis, index: int, layer: LayerOverflow, most: int) -> Row:
    overflows = layer.overflows(analysis.width, analysis.output_width)
    strips = tuple(
        Strip(
            layer.needed(checked) / most,
            layer.bound(checked) / most,
            chosen / most,
            overflow_free_widths(layer.needed(checked), layer.bound(checked)),
            sum(s.beyond(chosen) for s in layer.stages if s.checked == checked) > analysis.threshold,
        )
        for checked, chosen in (("intermediate", analysis.width), ("output", analysis.output_width))
    )
    return Row(index, layer, (strips[0], strips[1]), overflows, chart(layer.stages, most))


def chart(stages: tuple[StageFacts, ...], most: int) -> Chart:
    """Counts against widths, logarithmically."""
    decades = max((math.ceil(math.log10(stage.total)) for stage in stages if stage.total > 1), default=1)
    step = WIDTH / (most + 1)

    def height(count: int) -> float:
        return round(HEIGHT * (1 - (math.log10(count) + 0.35) / (decades + 0.35)), 2)

    curves = []
    for stage in stages:
        if not stage.total:
            continue
        path = ""
        for width in range(stage.observed):
            x, y = round(step * width, 2), height(stage.beyond(width))
            path += f"{'L' if path else 'M'} {x} {y} H {round(step * (width + 1), 2)} "
        path += f"V {HEIGHT}"
        curves.append(Curve(stage.name, path, round(step * stage.observed, 2), round(step * stage.bound, 2)))
    labels = tuple((round(step * width, 2), width) for width in range(_LABELS, most + 1, _LABELS))
    marks = tuple((height(10**k), k) for k in range(0, decades + 1, max(1, math.ceil(decades / 5))))
    return Chart(tuple(curves), labels, marks)
