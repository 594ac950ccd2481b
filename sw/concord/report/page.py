"""The facts of a report as one HTML page that needs nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass

from concord.display.pages import environment
from concord.host.rates import rate_table, spoken
from concord.report.drawing import Chart, Edge, chart, edges
from concord.report.facts import Analysis
from concord.report.layer_facts import LayerFacts

#: Errors from ``10 ** -_DECADES`` to 1 fill a bar, logarithmically.
_DECADES = 4
#: Relative errors from here on stand out.
_LARGE = 0.1


@dataclass(frozen=True)
class Bar:
    """A bar of ``share`` of its column with a text; ``warn`` lets it stand out."""

    share: float
    text: str
    warn: bool = False


@dataclass(frozen=True)
class Row:
    """A layer as the page shows it."""

    index: int
    facts: LayerFacts
    error: Bar
    own_error: Bar
    use: Bar
    cycles: Bar
    chart: Chart


def render(analysis: Analysis) -> str:
    """The page."""
    template = environment("concord.report", percent=percent, number=number, shape=shape).get_template("report.html.j2")
    return template.render(
        analysis=analysis,
        figures=_figures(analysis),
        rate_rows=rate_table(analysis.rates),
        rows=[_row(analysis, index, layer) for index, layer in enumerate(analysis.layers)],
        edges=edges(analysis),
        gutter=Edge.gutter(edges(analysis)),
    )


def percent(share: float | None) -> str:
    """A share with two or three significant digits."""
    if share is None:
        return "not finite"
    value = 100 * share
    if value == 0:
        return "0 %"
    if value < 0.01:
        return "< 0.01 %"
    return f"{value:.{max(0, 2 - max(0, math.floor(math.log10(value))))}f} %"


def number(value: float | None) -> str:
    """A number with thousands separated, or four significant digits if it is not whole."""
    if value is None:
        return "not finite"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def shape(sizes: tuple[int, ...]) -> str:
    """Sizes with crosses in between."""
    return " × ".join(map(str, sizes)) or "scalar"


def _row(analysis: Analysis, index: int, layer: LayerFacts) -> Row:
    use = layer.work.utilisation(analysis.macs_per_cycle)
    most = max(one.work.cycles for one in analysis.layers)
    return Row(
        index,
        layer,
        _error_bar(layer.error.relative),
        _error_bar(layer.own_error.relative),
        Bar(0.0, "") if use is None else Bar(use, percent(use)),
        Bar(layer.work.cycles / max(most, 1), number(layer.work.cycles)),
        chart(layer.distribution),
    )


def _error_bar(relative: float | None) -> Bar:
    if relative is None:
        return Bar(1.0, "not finite", True)
    share = 1 + math.log10(relative) / _DECADES if relative > 0 else 0.0
    return Bar(min(max(share, 0.0), 1.0), percent(relative), relative >= _LARGE)


def _figures(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Value, label and explanation of the figures on top."""
    work = analysis.work
    flagged = sum(bool(layer.flagged) for layer in analysis.layers)
    figures = []
    if analysis.agreement is not None:
        note = f"decided as in float, {analysis.samples} samples"
        figures.append((percent(analysis.agreement), "agreement", note))
    figures += [
        (percent(analysis.error), "error of the result", "root mean square, relative"),
        (str(flagged), "layers with flags", "saturation, overflow, beyond tables"),
    ]
    rates = analysis.rates
    figures.append((spoken(rates.per_second), "samples/s", f"in a batch; the {rates.limit} limits"))
    figures.append((spoken(rates.single_per_second), "samples/s", "one at a time"))
    figures.append((number(rates.cycles), "cycles per run", "as the hardware counts them"))
    use = work.macs / (max(rates.cycles, 1) * analysis.macs_per_cycle)
    note = f"{number(work.macs)} MACs per run"
    figures.append((percent(use), "of the multipliers", note))
    if analysis.same_on_rtl is not None:
        agreed = "every bit and cycle of the first run" if analysis.same_on_rtl else "other cycles"
        where = f"first behind {analysis.differs_behind}" if analysis.differs_behind else agreed
        figures.append(("yes" if analysis.same_on_rtl else "NO", "RTL = emulator", where))
    return figures
