"""An analysis in a terminal: a table of layers, and counts against width."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from concord.display.tables import text_table
from concord.display.terminal import printable
from concord.overflow.results import Analysis, LayerOverflow
from concord.sums.histogram import STORAGE_WIDTHS

#: Characters for the power of ten of a count, from 1 up.
_LEVELS = "▁▂▃▄▅▆▇█"
#: Columns between two labels of the axis.
_TICKS = 8


def overflow_free_widths(observed: int, bound: int) -> str:
    """Widths that are free of overflow: on the samples, and for every input."""
    return f"{observed}.." if observed == bound else f"{observed}.., all {bound}.."


def layer_table(analysis: Analysis) -> Table:
    """A row per layer: how many values there are, bits observed and at most, free widths, overflows."""
    counts = ["products", "sums", "outputs", *(f"{stage}\nbits" for stage in _made(analysis))]
    free = ["free widths\nwhile adding", "free widths\nof outputs"]
    beyond = [f"beyond\n{analysis.width}/{analysis.output_width}"]
    if analysis.view == "integers":
        beyond += ["factors\nw, x", "rounds"]
    figures = [*counts, *free, *beyond]
    title = f"{analysis.name}: {analysis.storage}"
    rows = (_cells(analysis, layer) for layer in analysis.layers)
    table = text_table(title, ["layer", *figures], right=[*counts, *beyond], whole=figures, rows=rows)
    table.columns[0].min_width = 12
    return table


def _made(analysis: Analysis) -> list[str]:
    """Stages whose widths the formats make, and no storage limits."""
    return [stage.name for stage in analysis.layers[0].stages if not stage.checked] if analysis.layers else []


def _cells(analysis: Analysis, layer: LayerOverflow) -> list[str | Text]:
    count = layer.overflows(analysis.width, analysis.output_width)
    sums = sum(stage.total for stage in layer.stages if stage.name in ("lane sum", "sum"))
    cells: list[str | Text] = [
        layer.name,
        f"{layer.stage('product').total:,}",
        f"{sums:,}",
        f"{layer.stage('output').total:,}",
        *(f"{s.observed}, {s.bound}" if s.total else "-" for s in layer.stages if not s.checked),
        overflow_free_widths(layer.needed("intermediate"), layer.bound("intermediate")),
        overflow_free_widths(layer.needed("output"), layer.bound("output")),
        Text(f"{count:,}", style="bold red" if count > analysis.threshold else ""),
    ]
    if layer.scaling is not None:
        cells.append(f"{layer.scaling.weight_factor:.4g}, {layer.scaling.input_factor:.4g}")
        cells.append(f"{layer.scaling.rounds}{'' if layer.scaling.within else ' (beyond)'}")
    return cells


def width_plot(analysis: Analysis, checked: str = "intermediate") -> Text:
    """Counts against the width of a storage, a line per layer: how many values leave it, as powers of ten."""
    widest = max([*(layer.bound(checked) for layer in analysis.layers), 1])
    widths = range(1, max(min(widest + 1, STORAGE_WIDTHS[-1]), _TICKS) + 1)
    label = max((len(printable(layer.name)) for layer in analysis.layers), default=0)
    text = Text(no_wrap=True)
    text.append(f"values that leave the {checked} storage, by its width: each step is a power of ten\n")
    ticks = "".join(f"{w:<{_TICKS}}" if (w - 1) % _TICKS == 0 else "" for w in widths)
    text.append(" " * (label + 1) + ticks.rstrip() + "\n", style="dim")
    for layer in analysis.layers:
        text.append(f"{printable(layer.name):<{label}} ")
        for width in widths:
            count = layer.beyond(width, checked)
            if count:
                level = min(int(math.log10(count)), len(_LEVELS) - 1)
                text.append(_LEVELS[level], style="red" if width <= layer.needed(checked) - 8 else "yellow")
            elif width < layer.bound(checked):
                text.append("·", style="dim")
            else:
                text.append("|" if width == layer.bound(checked) else " ", style="green")
        text.append("\n")
    text.append(" " * (label + 1) + "· free on the samples   | from here on free for every input\n", style="dim")
    return text
