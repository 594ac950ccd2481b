"""The facts of a report as one HTML page that needs nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass

from concord.display import pages
from concord.display.charts import Chart, histogram
from concord.display.pages import Bar, Figure, number, percent
from concord.display.terminal import counted
from concord.host.rates import rate_table, spoken
from concord.report.facts import Memory, NetworkFacts
from concord.report.layer_facts import LayerFacts
from concord.report.layer_graph import ROW, Edge, edges

#: Errors from ``10 ** -_DECADES`` to 1 fill a bar, logarithmically.
_DECADES = 4
#: Relative errors from here on stand out.
_LARGE = 0.1


@dataclass(frozen=True)
class ReportRow:
    """A layer as the page shows it."""

    facts: LayerFacts
    error: Bar
    own_error: Bar
    use: Bar
    cycles: Bar
    chart: Chart


def render(analysis: NetworkFacts) -> str:
    """The page."""
    drawn = edges(analysis)
    return pages.render(
        "concord.report",
        "report.html.j2",
        title=f"{analysis.name} on {analysis.npu}",
        figures=_figures(analysis),
        analysis=analysis,
        facts=analysis.codes,
        rates=[(name, *texts) for name, texts in rate_table((analysis.rates, *analysis.other_links)).items()],
        memories=[(memory, _filled(memory)) for memory in analysis.memories],
        rows=[_row(analysis, layer) for layer in analysis.layers],
        edges=drawn,
        gutter=Edge.gutter(drawn),
        row_height=ROW,
    )


def _row(analysis: NetworkFacts, layer: LayerFacts) -> ReportRow:
    use = layer.work.utilisation(analysis.macs_per_cycle)
    most = max(other.work.cycles for other in analysis.layers)
    values = layer.distribution
    return ReportRow(
        layer,
        _error_bar(layer.error.relative, "main"),
        _error_bar(layer.own_error.relative, "other"),
        Bar(()) if use is None else Bar(((use, "main"),), percent(use)),
        Bar(((layer.work.cycles / max(most, 1), "main"),), number(layer.work.cycles)),
        histogram(values.first, values.counts, values.window),
    )


def _error_bar(relative: float | None, kind: str) -> Bar:
    if relative is None:
        return Bar(((1.0, "warn"),), percent(relative))
    share = 1 + math.log10(relative) / _DECADES if relative > 0 else 0.0
    return Bar(((min(max(share, 0.0), 1.0), "warn" if relative >= _LARGE else kind),), percent(relative))


def _filled(memory: Memory) -> Bar:
    """Shares of a memory that the program with its constants takes, and that tensors take."""
    return Bar(
        (
            (memory.constants / memory.depth, "main"),
            ((memory.used - memory.constants) / memory.depth, "other"),
        )
    )


def _figures(analysis: NetworkFacts) -> list[Figure]:
    work, rates = analysis.work, analysis.rates
    flagged = sum(bool(layer.flagged) for layer in analysis.layers)
    figures = []
    if analysis.agreement is not None:
        note = f"decided as in float, {counted(analysis.samples, 'samples')}"
        figures.append(Figure(percent(analysis.agreement), "agreement", note))
    use = work.macs / (max(rates.cycles, 1) * analysis.macs_per_cycle)
    figures += [
        Figure(percent(analysis.error), "error of the result", "root mean square, relative"),
        Figure(str(flagged), "layers with flags", "saturation, overflow, beyond tables"),
        Figure(spoken(rates.per_second), "samples/s", f"in a batch; the {rates.limit} limits"),
        Figure(spoken(rates.single_per_second), "samples/s", "one at a time"),
        Figure(number(rates.cycles), "cycles per run", "as the hardware counts them"),
        Figure(percent(use), "of the multipliers", f"{number(work.macs)} MACs per run"),
    ]
    if analysis.same_on_rtl is not None:
        agreed = "every bit and cycle of the first run" if analysis.same_on_rtl else "other cycles"
        where = f"first behind {analysis.differs_behind}" if analysis.differs_behind else agreed
        figures.append(Figure("yes" if analysis.same_on_rtl else "NO", "RTL = emulator", where))
    return figures
